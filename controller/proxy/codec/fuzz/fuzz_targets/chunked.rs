//! Any bytes as a chunked body: one verdict however they are cut, and what goes out carries the same payload.
#![no_main]

use heads::{Body, Limits, Refusal, RequestReader};
use libfuzzer_sys::fuzz_target;

/// What went out, and how many bytes of payload.
fn carry<'a>(pieces: impl Iterator<Item = &'a [u8]>, head_bytes: usize) -> Result<(Vec<u8>, usize, bool), Refusal> {
    let limits = Limits { head_bytes, fields: 8, informational: 4 };
    let raw = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (head, _) = RequestReader::new(limits).feed(raw).expect("sound").expect("complete");
    let mut body = Body::of_request(&head, limits);
    let (mut out, mut payload) = (Vec::new(), 0);
    for piece in pieces {
        let fed = body.feed(piece)?;
        out.extend(fed.out.map_or(piece[..fed.taken].to_vec(), |out| out.to_vec(piece)));
        payload += fed.payload;
    }
    Ok((out, payload, body.has_ended()))
}

fuzz_target!(|data: &[u8]| {
    let whole = carry([data].into_iter(), 1024);
    let bytewise = carry(data.chunks(1), 1024);
    assert_eq!(whole.as_ref().err(), bytewise.as_ref().err());
    let (Ok(whole), Ok(bytewise)) = (whole, bytewise) else { return };
    assert_eq!((whole.1, whole.2), (bytewise.1, bytewise.2));

    // `X:y` leaves as `X: y`: what we write may be longer than what we would read.
    let again = carry([&whole.0[..]].into_iter(), 4096).expect("sound");
    assert_eq!(whole, again);
});
