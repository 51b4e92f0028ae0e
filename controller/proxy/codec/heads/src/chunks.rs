//! Chunked bodies coming in (RFC 9112 §7.1): sizes, extensions, data; the trailer part is `trailers`' work.

use std::ops::Range;

use crate::bytes::{is, run, TOKEN, VALUE};
use crate::refusal::Refusal;
use crate::trailers::Trailers;
use crate::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Before the first digit of a size.
    Size,
    /// Behind at least one digit.
    MoreSize,
    ExtensionName,
    MoreExtensionName,
    ExtensionValue,
    MoreExtensionValue,
    Quoted,
    QuotedPair,
    AfterQuoted,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
    Ended,
}

#[derive(Debug)]
pub(crate) struct Chunks {
    at: At,
    /// Of the size being read; then what is left of the chunk's data. Never used to allocate.
    left: u64,
    /// Bytes since the last one of data.
    overhead: usize,
    limits: Limits,
    pub trailers: Trailers,
}

impl Chunks {
    pub(crate) fn new(limits: Limits) -> Self {
        Chunks { at: At::Size, left: 0, overhead: 0, limits, trailers: Trailers::new() }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.at == At::Ended
    }

    /// Reads on; `pieces` gets the ranges of `data` that are payload. Returns how much of `data` was taken.
    pub(crate) fn feed(&mut self, data: &[u8], pieces: &mut Vec<Range<usize>>) -> Result<usize, Refusal> {
        let mut pos = 0;
        while pos < data.len() && self.at != At::Ended {
            if self.at == At::Data {
                let room = data.len() - pos;
                let taken = usize::try_from(self.left).map_or(room, |left| left.min(room));
                pieces.push(pos..pos + taken);
                pos += taken;
                self.left -= taken as u64;
                self.overhead = 0;
                if self.left == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            if self.at == At::Trailers {
                let taken = self.trailers.feed(
                    &data[pos..],
                    self.limits.head_bytes.saturating_sub(self.overhead),
                    self.limits.fields,
                )?;
                pos += taken;
                if self.trailers.has_ended() {
                    self.at = At::Ended;
                }
                continue;
            }
            let taken = self.step(&data[pos..])?;
            pos += taken;
            self.overhead += taken;
            if self.overhead > self.limits.head_bytes {
                return Err(Refusal::bad("chunk overhead"));
            }
        }
        Ok(pos)
    }

    /// One byte of a chunk line, or a run of an extension; `rest` isn't empty.
    fn step(&mut self, rest: &[u8]) -> Result<usize, Refusal> {
        const BAD: Refusal = Refusal::bad("chunk");
        let byte = rest[0];
        let (at, taken) = match self.at {
            At::Size | At::MoreSize => match (byte, self.at) {
                (b'\r', At::MoreSize) => (At::SizeLf, 1),
                (b';', At::MoreSize) => (At::ExtensionName, 1),
                _ => {
                    let digit = (byte as char).to_digit(16).ok_or(BAD)?;
                    self.left = self.left.checked_mul(16).ok_or(BAD)? | u64::from(digit);
                    (At::MoreSize, 1)
                }
            },
            At::ExtensionName if is(byte, TOKEN) => (At::MoreExtensionName, 1),
            At::MoreExtensionName if is(byte, TOKEN) => (At::MoreExtensionName, run(rest, TOKEN)),
            At::MoreExtensionName if byte == b'=' => (At::ExtensionValue, 1),
            At::ExtensionValue if byte == b'"' => (At::Quoted, 1),
            At::ExtensionValue if is(byte, TOKEN) => (At::MoreExtensionValue, 1),
            At::MoreExtensionValue if is(byte, TOKEN) => (At::MoreExtensionValue, run(rest, TOKEN)),
            At::MoreExtensionName | At::MoreExtensionValue | At::AfterQuoted => match byte {
                b';' => (At::ExtensionName, 1),
                b'\r' => (At::SizeLf, 1),
                _ => return Err(BAD),
            },
            At::Quoted => match byte {
                b'"' => (At::AfterQuoted, 1),
                b'\\' => (At::QuotedPair, 1),
                _ if is(byte, VALUE) => (At::Quoted, 1),
                _ => return Err(BAD),
            },
            At::QuotedPair if is(byte, VALUE) => (At::Quoted, 1),
            At::SizeLf if byte == b'\n' => (if self.left == 0 { At::Trailers } else { At::Data }, 1),
            At::DataCr if byte == b'\r' => (At::DataLf, 1),
            At::DataLf if byte == b'\n' => (At::Size, 1),
            _ => return Err(BAD),
        };
        self.at = at;
        Ok(taken)
    }
}
