//! Any bytes: one verdict however they are cut, and what goes upstream reads back as the same request.
#![no_main]

use heads::{Forwarding, Limits, Refusal, RequestHead, RequestReader, Sending};
use libfuzzer_sys::fuzz_target;

fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<Option<RequestHead>, Refusal> {
    let mut reader = RequestReader::new(Limits { head_bytes: 4096, fields: 32, informational: 4 });
    for piece in pieces {
        if let Some((head, _)) = reader.feed(piece)? {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

fn forward(head: &RequestHead, forwarding: &Forwarding) -> Vec<u8> {
    head.forward(&Sending { forwarding, peer: "10.0.0.1", request_id: b"id", authority: b"b:80" })
}

fuzz_target!(|data: &[u8]| {
    let whole = read([data].into_iter());
    let bytewise = read(data.chunks(1));
    assert_eq!(whole.as_ref().err(), bytewise.as_ref().err());
    let (Ok(Some(head)), Ok(Some(again))) = (whole, bytewise) else { return };

    let forwarding = Forwarding::new("us", 80, &["10.0.0.0/8".to_owned()], None).expect("valid");
    let out = forward(&head, &forwarding);
    assert_eq!(out, forward(&again, &forwarding));
    let mut reader = RequestReader::new(Limits { head_bytes: 65_536, ..Limits::default() });
    let (back, end) = reader.feed(&out).expect("sound").expect("complete");
    assert_eq!(
        (end, back.method(), back.target(), back.framing),
        (out.len(), head.method(), head.target(), head.framing)
    );
});
