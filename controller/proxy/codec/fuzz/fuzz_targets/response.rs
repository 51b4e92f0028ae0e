//! Any bytes from a backend: one verdict however they are cut, and what the client gets reads back.
#![no_main]

use heads::{Answering, Limits, Refusal, RequestHead, RequestReader, ResponseHead, ResponseReader};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { head_bytes: 4096, fields: 32, informational: 4 };

fn read<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    limits: Limits,
    request: &RequestHead,
) -> Result<Option<ResponseHead>, Refusal> {
    let mut reader = ResponseReader::new(limits);
    for piece in pieces {
        if let Some((head, _)) = reader.feed(piece, request)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fuzz_target!(|data: &[u8]| {
    let asked = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";
    let (request, _) = RequestReader::new(LIMITS).feed(asked).expect("sound").expect("complete");
    let whole = read([data].into_iter(), LIMITS, &request);
    let bytewise = read(data.chunks(1), LIMITS, &request);
    assert_eq!(whole.as_ref().err(), bytewise.as_ref().err());
    let (Ok(Some(head)), Ok(Some(again))) = (whole, bytewise) else { return };

    let answering = Answering { close: false, request_id: b"id", date: b"now", extra: b"X: y\r\n" };
    let out = head.forward(&answering);
    assert_eq!(out, again.forward(&answering));
    let back = read([&out[..]].into_iter(), Limits::default(), &request).expect("sound").expect("complete");
    assert_eq!(head.status, back.status);
});
