//! How long a body is (RFC 9112 §6). In doubt the message is refused: two readings of one message are an attack.

use crate::bytes::{elements, is_token, number};
use crate::fields::Field;
use crate::names::Kind;
use crate::refusal::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// What the framing fields say, both kinds of message alike.
pub(crate) struct Declared {
    pub length: Option<u64>,
    pub chunked: bool,
}

pub(crate) fn declared(fields: &[Field], bytes: &[u8], version: u8) -> Result<Declared, Refusal> {
    let mut length = None;
    let mut lines = 0usize;
    for field in fields {
        match field.kind {
            Kind::ContentLength if length.is_some() => return Err(Refusal::bad("content-length twice")),
            Kind::ContentLength => {
                length = Some(number(field.value.of(bytes)).ok_or(Refusal::bad("content-length"))?);
            }
            Kind::TransferEncoding => lines += 1,
            _ => {}
        }
    }
    if lines == 0 {
        return Ok(Declared { length, chunked: false });
    }
    if length.is_some() {
        return Err(Refusal::bad("content-length and transfer-encoding"));
    }
    if version == 10 {
        return Err(Refusal::bad("transfer-encoding in 1.0"));
    }
    check_codings(fields, bytes)?;
    Ok(Declared { length, chunked: true })
}

/// `chunked` alone passes; a well-formed list that ends in it is a coding that we don't have; all else is malformed.
fn check_codings(fields: &[Field], bytes: &[u8]) -> Result<(), Refusal> {
    const BAD: Refusal = Refusal::bad("transfer-encoding");
    let mut others = false;
    let mut last_is_chunked = false;
    let codings = fields.iter().filter(|field| field.kind == Kind::TransferEncoding);
    for coding in codings.flat_map(|field| elements(field.value.of(bytes))) {
        if !is_token(coding) || last_is_chunked {
            return Err(BAD);
        }
        last_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
        others |= !last_is_chunked;
    }
    match (last_is_chunked, others) {
        (true, false) => Ok(()),
        (true, true) => Err(Refusal::new(501, "transfer-coding")),
        (false, _) => Err(BAD),
    }
}
