//! HTTP/1.1 heads and bodies for a proxy: read, checked and rewritten, by the letter of RFC 9110 and RFC 9112.
//!
//! Belongs here: every rule that is decided by the bytes of a message. Does not belong here: I/O, time, Python.
//! There is one strict scanner and no switch that loosens it; each input either becomes a head that has passed all
//! checks, or a [`Refusal`]. Nothing panics, whatever the input.
#![forbid(unsafe_code)]

mod body;
mod bytes;
mod chunks;
mod connection;
mod fields;
mod forwarding;
mod framing;
mod host;
mod names;
mod outgoing;
mod refusal;
mod request;
mod request_line;
mod request_out;
mod response;
mod response_out;
mod status_line;
mod target;
mod trailers;

pub use body::{Body, Ending, Fed};
pub use forwarding::{Forwarding, InvalidNetwork};
pub use framing::Framing;
pub use outgoing::Outgoing;
pub use refusal::Refusal;
pub use request::{RequestHead, RequestReader};
pub use request_out::Sending;
pub use response::{ResponseHead, ResponseReader};
pub use response_out::Answering;

/// What one message may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a head from its first byte to the end of its blank line; also of what lies between body bytes.
    pub head_bytes: usize,
    /// Fields of a head or of a trailer part.
    pub fields: usize,
    /// Interim (1xx) responses to one request.
    pub informational: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { head_bytes: 65_536, fields: 256, informational: 32 }
    }
}
