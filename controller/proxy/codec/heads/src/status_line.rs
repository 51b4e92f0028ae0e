//! The status line (RFC 9112 §4), read as it comes.

use crate::bytes::{run, Span, VALUE};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(crate) struct StatusLine {
    pos: usize,
    reason_start: Option<usize>,
    at_lf: bool,
    pub status: u16,
    /// 10 or 11.
    pub version: u8,
    pub reason: Span,
}

impl StatusLine {
    pub(crate) fn new() -> Self {
        StatusLine { pos: 0, reason_start: None, at_lf: false, status: 0, version: 0, reason: Span::default() }
    }

    pub(crate) fn advance(&mut self, head: &[u8]) -> Result<Option<usize>, Refusal> {
        while let Some(&byte) = head.get(self.pos) {
            if self.at_lf {
                if byte != b'\n' {
                    return Err(Refusal::new(502, "line end"));
                }
                return Ok(Some(self.pos + 1));
            }
            if let Some(start) = self.reason_start {
                self.pos += run(&head[self.pos..], VALUE);
                match head.get(self.pos) {
                    None => return Ok(None),
                    Some(b'\r') => self.reason = Span::new(start, self.pos),
                    Some(_) => return Err(Refusal::new(502, "reason")),
                }
                self.at_lf = true;
            } else {
                self.read_fixed(byte)?;
            }
            self.pos += 1;
        }
        Ok(None)
    }

    /// `HTTP/1.x NNN`, and what may follow it: a blank and a reason, or nothing.
    fn read_fixed(&mut self, byte: u8) -> Result<(), Refusal> {
        const START: &[u8; 7] = b"HTTP/1.";
        match self.pos {
            at @ 0..=6 if byte == START[at] => {}
            7 if byte == b'0' => self.version = 10,
            7 if byte == b'1' => self.version = 11,
            0..=7 => return Err(Refusal::new(502, "version")),
            8 if byte == b' ' => {}
            9 if matches!(byte, b'1'..=b'9') => self.status = u16::from(byte - b'0'),
            10 | 11 if byte.is_ascii_digit() => self.status = self.status * 10 + u16::from(byte - b'0'),
            12 if byte == b' ' => self.reason_start = Some(13),
            12 if byte == b'\r' => self.at_lf = true,
            _ => return Err(Refusal::new(502, "status")),
        }
        Ok(())
    }
}
