//! Chunked bodies: sizes, extensions, trailers, in one piece and byte by byte.

use heads::{Body, Ending, Limits, Refusal, RequestReader};

fn body() -> Body {
    let raw = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (head, _) = RequestReader::new(Limits::default()).feed(raw).expect("served").expect("complete");
    Body::of_request(&head, Limits::default())
}

/// All that went out, and whether the body ended.
fn carry<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<(Vec<u8>, bool), Refusal> {
    let mut body = body();
    let mut out = Vec::new();
    for piece in pieces {
        let fed = body.feed(piece)?;
        out.extend(fed.out.map_or(piece[..fed.taken].to_vec(), |out| out.to_vec(piece)));
    }
    Ok((out, body.has_ended()))
}

fn whole(raw: &str) -> Result<(Vec<u8>, bool), Refusal> {
    let bytewise = carry(raw.as_bytes().chunks(1));
    let whole = carry([raw.as_bytes()].into_iter());
    assert_eq!(whole.is_ok(), bytewise.is_ok(), "{raw:?}");
    assert_eq!(whole.as_ref().is_ok_and(|seen| seen.1), bytewise.is_ok_and(|seen| seen.1), "{raw:?}");
    whole
}

#[test]
fn chunks_of_one_read_leave_as_one() {
    for (raw, out) in [
        ("0\r\n\r\n", "0\r\n\r\n"),
        ("3\r\nabc\r\n2;x=\"\\\"\"\r\nde\r\n000\r\n\r\n", "5\r\nabcde\r\n0\r\n\r\n"),
        ("0003\r\nabc\r\n0\r\nX: y\r\nHost: b\r\n\r\n", "3\r\nabc\r\n0\r\nX: y\r\n\r\n"),
    ] {
        assert_eq!(Ok((out.into(), true)), whole(raw), "{raw:?}");
    }
}

#[test]
fn malformed_chunks_are_refused() {
    for raw in [
        "3\nabc",
        "0x3\r\n",
        "+3\r\n",
        "3 \r\n",
        " 3\r\n",
        "3;\r\n",
        "10000000000000000\r\n",
        "3\r\nabcd",
        "3\r\nabc\n",
        "\r\n",
        "g",
        "3;a=\"\n",
        "0\r\nContent-Length: 1\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nX: a\r\n b\r\n\r\n",
        "0\r\n\n",
    ] {
        assert!(whole(raw).is_err(), "{raw:?}");
    }
}

#[test]
fn a_short_body_is_truncated() {
    for raw in ["", "3", "3\r\n", "3\r\nabc", "3\r\nabc\r\n", "3\r\nabc\r\n0\r\n", "0\r\nX: y\r\n"] {
        let mut body = body();
        body.feed(raw.as_bytes()).expect("sound so far");
        assert_eq!((Ending::Truncated, Ending::Truncated), (body.eof(true), body.eof(false)), "{raw:?}");
    }
}

#[test]
fn what_lies_between_body_bytes_is_limited() {
    let room = Limits::default().head_bytes;
    assert!(whole(&format!("1;{}\r\na", "x".repeat(room - 4))).is_ok());
    assert!(whole(&format!("1;{}\r\na", "x".repeat(room - 3))).is_err());
    assert!(whole(&format!("0\r\nX: {}\r\n\r\n", "x".repeat(room - 10))).is_ok());
    assert!(whole(&format!("0\r\nX: {}\r\n\r\n", "x".repeat(room - 9))).is_err());
}
