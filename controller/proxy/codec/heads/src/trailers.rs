//! Trailer parts (RFC 9112 §7.1.2): read like fields of a head, and mostly not passed on.

use crate::fields::{push_line, Fault, FieldScanner};
use crate::names::{dashed, is_forbidden_trailer, kind, Kind};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(crate) struct Trailers {
    held: Vec<u8>,
    scanner: Option<FieldScanner>,
    ended: bool,
}

impl Trailers {
    pub(crate) fn new() -> Self {
        Trailers { held: Vec::new(), scanner: None, ended: false }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Reads on, up to and with the empty line; returns how much of `data` was taken. Up to `room` bytes are held.
    pub(crate) fn feed(&mut self, data: &[u8], room: usize, fields: usize) -> Result<usize, Refusal> {
        let before = self.held.len();
        self.held.extend_from_slice(&data[..data.len().min(room.saturating_sub(before))]);
        let scanner = self.scanner.get_or_insert_with(|| FieldScanner::new(0));
        let end = scanner.advance(&self.held, fields).map_err(|fault| match fault {
            Fault::Malformed(reason) => Refusal::bad(reason),
            Fault::TooMany => Refusal::bad("too many trailers"),
        })?;
        match end {
            Some(end) => {
                self.held.truncate(end);
                self.ended = true;
                self.check()?;
                Ok(end - before)
            }
            None if before + data.len() > room => Err(Refusal::bad("trailers too big")),
            None => Ok(data.len()),
        }
    }

    fn fields(&self) -> impl Iterator<Item = &crate::fields::Field> {
        self.scanner.iter().flat_map(|scanner| &scanner.fields)
    }

    /// Framing in a trailer part is an attack on whoever merges it into the head.
    fn check(&self) -> Result<(), Refusal> {
        for field in self.fields() {
            if matches!(kind(&dashed(field.name.of(&self.held))), Kind::ContentLength | Kind::TransferEncoding) {
                return Err(Refusal::bad("framing in trailers"));
            }
        }
        Ok(())
    }

    /// Writes those that may pass, without the empty line.
    pub(crate) fn push(&self, out: &mut Vec<u8>) {
        for field in self.fields() {
            let name = field.name.of(&self.held);
            if !is_forbidden_trailer(&dashed(name)) {
                push_line(out, name, field.value.of(&self.held));
            }
        }
    }
}
