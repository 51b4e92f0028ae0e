//! Field lines (RFC 9112 §5), read as they come: heads of requests and responses, and trailer parts.

use crate::bytes::{is, run, run_of_value, Span, TOKEN};
use crate::names::{kind, Kind};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub name: Span,
    pub value: Span,
    pub kind: Kind,
}

impl Field {
    /// Whether the line is `Name: value` and CRLF already, up to where the next one starts.
    #[inline(always)]
    pub(crate) fn is_plain(&self, bytes: &[u8]) -> bool {
        let (colon, start) = (self.name.end as usize, self.value.start as usize);
        start == colon + 2 && bytes[colon + 1] == b' ' && bytes.get(self.value.end as usize) == Some(&b'\r')
    }
}

/// Why a field line was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Malformed(&'static str),
    TooMany,
}

#[derive(Clone, Copy, Debug)]
enum At {
    LineStart,
    Name,
    ValueStart,
    Value,
    ValueLf,
    EndLf,
}

/// Reads field lines up to and with the empty one. Offsets are into the whole head, so that it may arrive in pieces.
#[derive(Debug)]
pub(crate) struct FieldScanner {
    at: At,
    pos: usize,
    name_start: usize,
    name_end: usize,
    value_start: usize,
    pub fields: Vec<Field>,
}

impl FieldScanner {
    pub(crate) fn new(pos: usize) -> Self {
        FieldScanner {
            at: At::LineStart,
            pos,
            name_start: pos,
            name_end: pos,
            value_start: pos,
            fields: Vec::with_capacity(16),
        }
    }

    /// Reads on in `head`, which holds what earlier calls saw and perhaps more. `Some(end)`: the empty line ended there.
    pub(crate) fn advance(&mut self, head: &[u8], limit: usize) -> Result<Option<usize>, Fault> {
        let mut pos = self.pos;
        let mut at = self.at;
        let ended = loop {
            let Some(&byte) = head.get(pos) else { break None };
            match at {
                At::LineStart if self.fields.len() < limit && self.whole_line(head, &mut pos) => {}
                At::LineStart => match byte {
                    b'\r' => {
                        pos += 1;
                        at = At::EndLf;
                    }
                    _ if is(byte, TOKEN) => {
                        if self.fields.len() >= limit {
                            return Err(Fault::TooMany);
                        }
                        self.name_start = pos;
                        pos += 1;
                        at = At::Name;
                    }
                    b' ' | b'\t' => return Err(Fault::Malformed("folded line")),
                    _ => return Err(Fault::Malformed("field name")),
                },
                At::Name => {
                    pos += run(&head[pos..], TOKEN);
                    match head.get(pos) {
                        None => break None,
                        Some(b':') => {
                            self.name_end = pos;
                            pos += 1;
                            at = At::ValueStart;
                        }
                        Some(_) => return Err(Fault::Malformed("field name")),
                    }
                }
                At::ValueStart => match byte {
                    b' ' | b'\t' => pos += 1,
                    _ => {
                        self.value_start = pos;
                        at = At::Value;
                    }
                },
                At::Value => {
                    pos += run_of_value(&head[pos..]);
                    match head.get(pos) {
                        None => break None,
                        Some(b'\r') => {
                            self.end_value(head, pos);
                            pos += 1;
                            at = At::ValueLf;
                        }
                        Some(_) => return Err(Fault::Malformed("field value")),
                    }
                }
                At::ValueLf => match byte {
                    b'\n' => {
                        pos += 1;
                        at = At::LineStart;
                    }
                    _ => return Err(Fault::Malformed("line end")),
                },
                At::EndLf => match byte {
                    b'\n' => {
                        pos += 1;
                        break Some(pos);
                    }
                    _ => return Err(Fault::Malformed("line end")),
                },
            }
        };
        self.pos = pos;
        self.at = at;
        Ok(ended)
    }

    /// Reads a line that is here as a whole and as nearly all are, `Name: value` and CRLF; leaves all others alone.
    #[inline(always)]
    fn whole_line(&mut self, head: &[u8], pos: &mut usize) -> bool {
        let start = *pos;
        let colon = start + run(&head[start..], TOKEN);
        let Some([b':', b' ', first, ..]) = head.get(colon..) else { return false };
        if colon == start || matches!(first, b' ' | b'\t') {
            return false;
        }
        let end = colon + 2 + run_of_value(&head[colon + 2..]);
        let Some([b'\r', b'\n', ..]) = head.get(end..) else { return false };
        (self.name_start, self.name_end, self.value_start) = (start, colon, colon + 2);
        self.end_value(head, end);
        *pos = end + 2;
        true
    }

    fn end_value(&mut self, head: &[u8], mut end: usize) {
        while end > self.value_start && matches!(head[end - 1], b' ' | b'\t') {
            end -= 1;
        }
        let name = Span::new(self.name_start, self.name_end);
        self.fields.push(Field { name, value: Span::new(self.value_start, end), kind: kind(name.of(head)) });
    }
}

/// Value of the first field with this name.
pub(crate) fn lookup<'a>(fields: &[Field], bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    fields.iter().find(|field| field.name.of(bytes).eq_ignore_ascii_case(name)).map(|field| field.value.of(bytes))
}

/// Elements of all lines of one kind, in order, empty ones left out.
pub(crate) fn listed<'a>(fields: &'a [Field], bytes: &'a [u8], kind: Kind) -> impl Iterator<Item = &'a [u8]> {
    fields
        .iter()
        .filter(move |field| field.kind == kind)
        .flat_map(|field| crate::bytes::elements(field.value.of(bytes)))
        .filter(|element| !element.is_empty())
}

/// Writes `name: value` and CRLF.
pub(crate) fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
