//! Response heads: what passes and what is the backend's fault.

use heads::{Answering, Framing, Limits, Refusal, RequestHead, RequestReader, ResponseHead, ResponseReader};

fn asked(raw: &[u8]) -> RequestHead {
    RequestReader::new(Limits::default()).feed(raw).expect("served").expect("complete").0
}

fn get() -> RequestHead {
    asked(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
}

fn read(pieces: &[&[u8]], request: &RequestHead) -> Result<Option<ResponseHead>, Refusal> {
    let mut reader = ResponseReader::new(Limits::default());
    for piece in pieces {
        if let Some((head, _)) = reader.feed(piece, request)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fn passes(raw: &str, request: &RequestHead) -> bool {
    let raw = raw.as_bytes();
    let whole = read(&[raw], request).is_ok();
    for at in 1..raw.len() {
        assert_eq!(whole, read(&[&raw[..at], &raw[at..]], request).is_ok(), "cut at {at}: {}", raw.escape_ascii());
    }
    whole
}

#[test]
fn framing_in_doubt_is_the_backend_s_fault() {
    for lines in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "X: a\r\n b\r\n",
        "X: a\n",
        "X: \0\r\n",
    ] {
        assert!(!passes(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n"), &get()), "{lines:?}");
    }
    assert!(!passes("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &get()));
}

#[test]
fn status_lines_are_read_strictly() {
    for (line, expected) in [
        ("HTTP/1.1 200 OK", true),
        ("HTTP/1.0 600", true),
        ("HTTP/1.1 999 ", true),
        ("HTTP/1.1 099 x", false),
        ("HTTP/1.2 200 OK", false),
        ("HTTP/2.0 200 OK", false),
        ("HTTP/1.1 20 OK", false),
        ("HTTP/1.1 101 Switching", false),
    ] {
        assert_eq!(expected, passes(&format!("{line}\r\n\r\n"), &get()), "{line:?}");
    }
}

#[test]
fn an_upgrade_needs_to_be_asked_for_and_to_have_its_fields() {
    let request = asked(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    let full = "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";

    assert!(passes(full, &request));
    assert!(!passes(full, &get()));
    assert!(!passes("HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\n", &request));
    assert!(!passes("HTTP/1.1 101 S\r\nConnection: upgrade\r\n\r\n", &request));
}

#[test]
fn bodies_end_where_the_method_and_status_say() {
    let head = asked(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    for (raw, request, framing) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", &head, Framing::None),
        ("HTTP/1.1 304 x\r\nContent-Length: 3\r\n\r\n", &get(), Framing::None),
        ("HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n", &get(), Framing::None),
        ("HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n", &get(), Framing::Chunked),
        ("HTTP/1.1 200 x\r\nContent-Length: 3\r\n\r\n", &get(), Framing::Length(3)),
        ("HTTP/1.1 200 x\r\n\r\n", &get(), Framing::UntilClose),
    ] {
        assert_eq!(framing, read(&[raw.as_bytes()], request).expect("passes").expect("complete").framing, "{raw:?}");
    }
}

#[test]
fn a_head_is_written_anew() {
    let raw =
        b"HTTP/1.0 200 Fine\r\nConnection: X-A\r\nX-A: 1\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nX-Request-Id: x\r\n\r\n";
    let head = read(&[raw], &get()).expect("passes").expect("complete");

    let out = head.forward(&Answering { close: true, request_id: b"id", date: b"now", extra: b"X: y\r\n" });

    assert_eq!(
        "HTTP/1.1 200 Fine\\r\\nSet-Cookie: a\\r\\nSet-Cookie: b\\r\\nTransfer-Encoding: chunked\\r\\nConnection: close\\r\\n\
         Date: now\\r\\nX-Request-Id: id\\r\\nX: y\\r\\n\\r\\n",
        out.escape_ascii().to_string()
    );
}
