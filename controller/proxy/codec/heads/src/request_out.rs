//! A request head as it goes upstream. Framing and hop-by-hop fields are written anew, never copied.

use crate::bytes::push_number;
use crate::fields::{push_line, Field};
use crate::forwarding::{Forwarding, Peer};
use crate::framing::Framing;
use crate::names::Kind;
use crate::request::RequestHead;

/// What a request takes along besides what its client sent.
pub struct Sending<'a> {
    pub forwarding: &'a Forwarding,
    /// Address of the client connection's other end.
    pub peer: &'a str,
    pub request_id: &'a [u8],
    /// The endpoint's `address:port`, for a 1.0 request without `Host`.
    pub authority: &'a [u8],
}

/// Which of the lines that we answer for have been written on the way through the fields.
#[derive(Default)]
struct Written {
    host: bool,
    request_id: bool,
    proto: bool,
    forwarded_host: bool,
    port: bool,
}

impl RequestHead {
    pub fn forward(&self, sending: &Sending<'_>) -> Vec<u8> {
        let bytes = &self.bytes[..];
        let peer = sending.forwarding.peer(sending.peer);
        let mut out = Vec::with_capacity(bytes.len() + 384);
        out.extend_from_slice(self.method());
        out.push(b' ');
        self.target.push(bytes, &mut out);
        out.extend_from_slice(b" HTTP/1.1\r\n");

        let mut written = Written::default();
        // Neighbours that pass as they came are copied in one piece.
        let mut run = 0..0;
        let last_forwarded = self.fields.iter().rposition(|field| field.kind == Kind::Forwarded);
        for (index, field) in self.fields.iter().enumerate() {
            if self.passes_untouched(field, &mut written) {
                let (start, end) = (field.name.start as usize, field.value.end as usize + 2);
                if run.end != start {
                    out.extend_from_slice(&bytes[run]);
                    run = start..end;
                } else {
                    run.end = end;
                }
                continue;
            }
            out.extend_from_slice(&bytes[std::mem::take(&mut run)]);
            self.push_field(&mut out, field, sending, &peer, &mut written, last_forwarded == Some(index));
        }
        out.extend_from_slice(&bytes[run]);
        self.push_ours(&mut out, sending, &peer, &written);
        out.extend_from_slice(b"\r\n");
        out
    }

    #[inline(always)]
    fn passes_untouched(&self, field: &Field, written: &mut Written) -> bool {
        let passes = match field.kind {
            Kind::Other | Kind::Hop | Kind::Date | Kind::RetryAfter | Kind::Expect => true,
            Kind::Host => {
                written.host = self.target.authority.is_none();
                written.host
            }
            _ => false,
        };
        passes && field.is_plain(&self.bytes)
    }

    fn push_field(
        &self,
        out: &mut Vec<u8>,
        field: &Field,
        sending: &Sending<'_>,
        peer: &Peer<'_>,
        written: &mut Written,
        last_forwarded: bool,
    ) {
        let name = field.name.of(&self.bytes);
        let value = field.value.of(&self.bytes);
        match field.kind {
            Kind::Other | Kind::Hop | Kind::Date | Kind::RetryAfter | Kind::Expect => push_line(out, name, value),
            Kind::Host => {
                written.host = true;
                push_line(out, name, self.host().unwrap_or(value));
            }
            Kind::ContentLength => {
                let length = if let Framing::Length(length) = self.framing { length } else { 0 };
                push_numbered(out, name, length);
            }
            Kind::TransferEncoding => push_line(out, name, b"chunked"),
            Kind::Trailer if self.framing == Framing::Chunked => push_line(out, name, value),
            // RFC 9110 §7.6.2. It isn't 0: such a request goes no further.
            Kind::MaxForwards => match self.max_forwards {
                Some(left) => push_numbered(out, name, left.saturating_sub(1)),
                None => push_line(out, name, value),
            },
            Kind::RequestId if !written.request_id && value == sending.request_id => {
                written.request_id = true;
                push_line(out, name, value);
            }
            Kind::Forwarded if peer.trusted && last_forwarded => push_element(out, name, value, &peer.written),
            Kind::Forwarded if peer.trusted => push_line(out, name, value),
            Kind::ForwardedProto if peer.trusted => {
                written.proto = true;
                push_line(out, name, value);
            }
            Kind::ForwardedHost if peer.trusted => {
                written.forwarded_host = true;
                push_line(out, name, value);
            }
            Kind::ForwardedPort if peer.trusted => {
                written.port = true;
                push_line(out, name, value);
            }
            _ => {}
        }
    }

    fn push_ours(&self, out: &mut Vec<u8>, sending: &Sending<'_>, peer: &Peer<'_>, written: &Written) {
        if !written.host {
            push_line(out, b"Host", self.host().unwrap_or(sending.authority));
        }
        match (self.te_trailers, &self.upgrade) {
            (true, None) => out.extend_from_slice(b"Connection: TE\r\nTE: trailers\r\n"),
            (false, Some(tokens)) => {
                out.extend_from_slice(b"Connection: Upgrade\r\n");
                push_line(out, b"Upgrade", tokens);
            }
            (true, Some(tokens)) => {
                out.extend_from_slice(b"Connection: TE, Upgrade\r\nTE: trailers\r\n");
                push_line(out, b"Upgrade", tokens);
            }
            (false, None) => {}
        }
        out.extend_from_slice(b"X-Forwarded-For: ");
        if peer.trusted {
            for field in self.fields.iter().filter(|field| field.kind == Kind::ForwardedFor && !field.value.is_empty())
            {
                out.extend_from_slice(field.value.of(&self.bytes));
                out.extend_from_slice(b", ");
            }
        }
        out.extend_from_slice(peer.written.as_bytes());
        out.extend_from_slice(b"\r\n");
        if !written.proto {
            out.extend_from_slice(b"X-Forwarded-Proto: http\r\n");
        }
        if let (false, Some(host)) = (written.forwarded_host, self.host()) {
            push_line(out, b"X-Forwarded-Host", host);
        }
        if !written.port {
            push_line(out, b"X-Forwarded-Port", &sending.forwarding.port);
        }
        if !written.request_id {
            push_line(out, b"X-Request-Id", sending.request_id);
        }
        push_line(out, b"Steelyard-Hop", &sending.forwarding.hop);
    }
}

fn push_numbered(out: &mut Vec<u8>, name: &[u8], number: u64) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    push_number(out, number, 10);
    out.extend_from_slice(b"\r\n");
}

/// RFC 7239 §6: an IPv6 address is bracketed, and quoted for its brackets.
fn push_element(out: &mut Vec<u8>, name: &[u8], value: &[u8], peer: &str) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    if !value.is_empty() {
        out.extend_from_slice(b", ");
    }
    if peer.contains(':') {
        out.extend_from_slice(b"for=\"[");
        out.extend_from_slice(peer.as_bytes());
        out.extend_from_slice(b"]\"\r\n");
    } else {
        out.extend_from_slice(b"for=");
        out.extend_from_slice(peer.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}
