//! A response head as it goes to the client.

use crate::bytes::push_number;
use crate::fields::push_line;
use crate::framing::Framing;
use crate::names::Kind;
use crate::response::ResponseHead;

/// What a response takes along besides what its backend sent.
pub struct Answering<'a> {
    /// The client's connection will be closed, for reasons of our own.
    pub close: bool,
    pub request_id: &'a [u8],
    /// An IMF-fixdate, written if the backend sent none.
    pub date: &'a [u8],
    /// Complete lines, each with its CRLF.
    pub extra: &'a [u8],
}

impl ResponseHead {
    /// Interim responses pass without what we add to final ones.
    pub fn forward(&self, answering: &Answering<'_>) -> Vec<u8> {
        let bytes = &self.bytes[..];
        let mut out = Vec::with_capacity(bytes.len() + answering.extra.len() + answering.request_id.len() + 160);
        out.extend_from_slice(b"HTTP/1.1 ");
        push_number(&mut out, u64::from(self.status), 10);
        out.push(b' ');
        out.extend_from_slice(self.reason.of(bytes));
        out.extend_from_slice(b"\r\n");

        let framing = self.framing_out();
        let mut has_date = false;
        let mut has_framing = false;
        let mut run = 0..0;
        for field in &self.fields {
            let (start, end) = (field.name.start as usize, field.value.end as usize + 2);
            has_date |= field.kind == Kind::Date;
            match field.kind {
                Kind::Dropped | Kind::Connection | Kind::KeepAlive | Kind::Te | Kind::Upgrade | Kind::RequestId => {
                    continue
                }
                Kind::Trailer if framing != Framing::Chunked || self.framing != Framing::Chunked => continue,
                Kind::ContentLength | Kind::TransferEncoding => {
                    out.extend_from_slice(&bytes[std::mem::take(&mut run)]);
                    has_framing |= self.push_framing(&mut out, field.kind, field.name.of(bytes), framing);
                    continue;
                }
                _ => {}
            }
            if !field.is_plain(bytes) {
                out.extend_from_slice(&bytes[std::mem::take(&mut run)]);
                push_line(&mut out, field.name.of(bytes), field.value.of(bytes));
            } else if run.end == start {
                run.end = end;
            } else {
                out.extend_from_slice(&bytes[run]);
                run = start..end;
            }
        }
        out.extend_from_slice(&bytes[run]);

        if self.is_interim() {
            out.extend_from_slice(b"\r\n");
            return out;
        }
        if framing == Framing::Chunked && !has_framing {
            out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        self.push_connection(&mut out, answering.close);
        if !has_date {
            push_line(&mut out, b"Date", answering.date);
        }
        push_line(&mut out, b"X-Request-Id", answering.request_id);
        out.extend_from_slice(answering.extra);
        out.extend_from_slice(b"\r\n");
        out
    }

    /// Writes the line anew from what was understood of it, or not at all.
    fn push_framing(&self, out: &mut Vec<u8>, kind: Kind, name: &[u8], framing: Framing) -> bool {
        match (kind, self.declared_length) {
            (Kind::ContentLength, Some(length)) => {
                out.extend_from_slice(name);
                out.extend_from_slice(b": ");
                push_number(out, length, 10);
                out.extend_from_slice(b"\r\n");
                true
            }
            (Kind::TransferEncoding, _) if framing == Framing::Chunked => {
                push_line(out, name, b"chunked");
                true
            }
            _ => false,
        }
    }

    fn push_connection(&self, out: &mut Vec<u8>, close: bool) {
        if self.upgrade {
            out.extend_from_slice(b"Connection: Upgrade\r\n");
            for field in self.fields.iter().filter(|field| field.kind == Kind::Upgrade) {
                push_line(out, field.name.of(&self.bytes), field.value.of(&self.bytes));
            }
        } else if close || !self.keeps_client() {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if self.client.version == 10 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
    }
}
