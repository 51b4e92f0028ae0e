//! Request heads: one reading or one refusal, in one piece and byte by byte.

use heads::{Forwarding, Framing, Limits, Refusal, RequestHead, RequestReader, Sending};

fn read(pieces: &[&[u8]]) -> Result<Option<RequestHead>, Refusal> {
    let mut reader = RequestReader::new(Limits::default());
    for piece in pieces {
        if let Some((head, _)) = reader.feed(piece)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// The status that refuses `raw`, 0 if it is served, 1 if it is incomplete; the same however it is cut.
fn verdict(raw: &[u8]) -> u16 {
    let status = |answer: Result<Option<RequestHead>, Refusal>| match answer {
        Ok(Some(_)) => 0,
        Ok(None) => 1,
        Err(refusal) => refusal.status,
    };
    let whole = status(read(&[raw]));
    for at in 1..raw.len() {
        assert_eq!(whole, status(read(&[&raw[..at], &raw[at..]])), "cut at {at}: {}", raw.escape_ascii());
    }
    assert_eq!(whole, status(read(&raw.chunks(1).collect::<Vec<_>>())), "bytewise: {}", raw.escape_ascii());
    whole
}

fn with(line: &str) -> Vec<u8> {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n").into_bytes()
}

fn head(raw: &[u8]) -> RequestHead {
    read(&[raw]).expect("served").expect("complete")
}

fn forwarded(raw: &[u8]) -> String {
    let forwarding = Forwarding::new("us", 80, &[], None).expect("valid");
    let sending = Sending { forwarding: &forwarding, peer: "192.0.2.1", request_id: b"id", authority: b"10.0.0.1:80" };
    head(raw).forward(&sending).escape_ascii().to_string()
}

#[test]
fn framing_in_doubt_is_refused() {
    for (line, status) in [
        ("Content-Length: 3\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 3", 400),
        ("Content-Length: 3\r\nContent-Length: 3", 400),
        ("Content-Length: 3, 3", 400),
        ("Content-Length: +3", 400),
        ("Content-Length: -1", 400),
        ("Content-Length: 0x3", 400),
        ("Content-Length:", 400),
        ("Content-Length: 18446744073709551616", 400),
        ("Content-Length: 9223372036854775808", 400),
        ("Content-Length: 9223372036854775807", 0),
        ("Content-Length: 3 ", 0),
        ("Content_Length: 3", 400),
        ("Transfer_Encoding: chunked", 400),
        ("Transfer-Encoding: xchunked", 400),
        ("Transfer-Encoding: identity", 400),
        ("Transfer-Encoding: gzip", 400),
        ("Transfer-Encoding: chunked;q=1", 400),
        ("Transfer-Encoding: \"chunked\"", 400),
        ("Transfer-Encoding: \x0bchunked", 400),
        ("Transfer-Encoding: chunked,", 400),
        ("Transfer-Encoding: chunked, chunked", 400),
        ("Transfer-Encoding:", 400),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked", 501),
        ("Transfer-Encoding: Chunked", 0),
        ("Transfer-Encoding: chunked ", 0),
    ] {
        assert_eq!(status, verdict(&with(line)), "{line}");
    }
    assert_eq!(400, verdict(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"));
}

#[test]
fn malformed_lines_are_refused() {
    for line in
        ["X: a\r\n b", "X: a\nY: b", "X: a\rY", "X: a\0", "X: a\x7f", "X : a", " X: a", ": a", "X", "X\u{e4}: a"]
    {
        assert_eq!(400, verdict(&with(line)), "{line:?}");
    }
}

#[test]
fn start_lines_are_read_strictly() {
    for (start, status) in [
        ("GET /", 400),
        ("GET / HTTP/0.9", 505),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/1.2", 400),
        ("GET / HTTP/1.10", 400),
        ("GET / http/1.1", 400),
        ("PRI * HTTP/2.0", 505),
        ("get / HTTP/1.1", 501),
        ("BREW / HTTP/1.1", 501),
        ("SOURCE / ICE/1.0", 501),
        ("DESCRIBE / RTSP/1.0", 501),
        ("CONNECT a:1 HTTP/1.1", 501),
        ("\x16\x03\x01", 400),
        ("GET  /  HTTP/1.1", 0),
        ("\r\n\r\nGET / HTTP/1.1", 0),
        ("GET /# HTTP/1.1", 400),
        ("GET /\u{e4} HTTP/1.1", 400),
        ("GET * HTTP/1.1", 400),
        ("OPTIONS * HTTP/1.1", 0),
        ("GET http://u@b/ HTTP/1.1", 400),
        ("GET http://b HTTP/1.1", 0),
    ] {
        assert_eq!(status, verdict(format!("{start}\r\nHost: a\r\n\r\n").as_bytes()), "{start:?}");
    }
}

#[test]
fn hosts_are_read_strictly() {
    for (host, status) in [
        ("Host: a.b-c_d~9:80\r\n", 0),
        ("Host: [2001:db8::1]:65535\r\n", 0),
        ("", 400),
        ("Host:\r\n", 400),
        ("Host: a\r\nHost: a\r\n", 400),
        ("Host: a b\r\n", 400),
        ("Host: a:65536\r\n", 400),
        ("Host: u@a\r\n", 400),
        ("Host: [::1\r\n", 400),
        ("Host: [x]\r\n", 400),
    ] {
        assert_eq!(status, verdict(format!("GET / HTTP/1.1\r\n{host}\r\n").as_bytes()), "{host:?}");
    }
}

#[test]
fn an_unfinished_head_is_neither_served_nor_refused() {
    let raw = with("Content-Length: 3");
    for at in 0..raw.len() {
        assert!(matches!(read(&[&raw[..at]]), Ok(None)), "{at}");
    }
}

#[test]
fn a_head_is_written_anew() {
    let raw = b"GET http://b/x?y HTTP/1.1\r\nhOST: a\r\nConnection: te, X-A\r\nTE: trailers\r\nX-A: 1\r\nX-B:2\r\n\r\n";

    assert_eq!(
        "GET /x?y HTTP/1.1\\r\\nhOST: b\\r\\nX-B: 2\\r\\nConnection: TE\\r\\nTE: trailers\\r\\n\
         X-Forwarded-For: 192.0.2.1\\r\\nX-Forwarded-Proto: http\\r\\nX-Forwarded-Host: b\\r\\nX-Forwarded-Port: 80\\r\\n\
         X-Request-Id: id\\r\\nSteelyard-Hop: us\\r\\n\\r\\n",
        forwarded(raw)
    );
}

#[test]
fn what_is_written_is_read_back_alike() {
    for line in ["X: y", "Content-Length: 5", "Transfer-Encoding: Chunked", "Content-Length: 0", "X_Y: \u{e4}"] {
        let once = head(&with(line));
        let again = head(&forwarded_bytes(&with(line)));
        assert_eq!((once.framing, once.target(), once.keep_alive), (again.framing, again.target(), again.keep_alive));
    }
}

fn forwarded_bytes(raw: &[u8]) -> Vec<u8> {
    let forwarding = Forwarding::new("us", 80, &[], None).expect("valid");
    head(raw).forward(&Sending { forwarding: &forwarding, peer: "::1", request_id: b"id", authority: b"b" })
}

#[test]
fn a_body_of_no_bytes_is_no_body() {
    assert_eq!(Framing::None, head(&with("Content-Length: 0")).framing);
    assert_eq!(Framing::Length(7), head(&with("Content-Length: 007")).framing);
}
