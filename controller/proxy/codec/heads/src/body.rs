//! Bodies carried over: from the framing they come in to the framing that the outgoing head announced.

use crate::chunks::Chunks;
use crate::framing::Framing;
use crate::outgoing::Outgoing;
use crate::refusal::Refusal;
use crate::request::RequestHead;
use crate::response::ResponseHead;
use crate::Limits;

/// One body on its way. Ending and abandoning differ: only a complete body ever gets its last chunk.
#[derive(Debug)]
pub struct Body {
    source: Source,
    /// Written in chunks; else as it is.
    chunked_out: bool,
    trailers_out: bool,
    of_response: bool,
    refused: Option<Refusal>,
}

#[derive(Debug)]
enum Source {
    /// This many bytes are left; 0 = ended.
    Length(u64),
    Chunked(Box<Chunks>),
    UntilClose,
}

/// What became of one piece of input.
#[derive(Debug, PartialEq, Eq)]
pub struct Fed {
    /// `None`: the first `taken` bytes of the input go out as they are.
    pub out: Option<Outgoing>,
    pub taken: usize,
    /// Bytes of the body itself, without framing.
    pub payload: usize,
    pub ended: bool,
}

/// What the end of the incoming connection means.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    /// The body is whole; this goes out yet.
    Complete(&'static [u8]),
    Truncated,
}

impl Body {
    /// A request's body: out as it came.
    pub fn of_request(head: &RequestHead, limits: Limits) -> Self {
        let chunked = head.framing == Framing::Chunked;
        Body {
            source: Source::new(head.framing, limits),
            chunked_out: chunked,
            trailers_out: chunked,
            of_response: false,
            refused: None,
        }
    }

    /// A response's body. Trailers pass if the client said that it reads them, or the response announced them.
    pub fn of_response(head: &ResponseHead, request: Option<&RequestHead>, limits: Limits) -> Self {
        let chunked_out = head.framing_out() == Framing::Chunked;
        let welcome = request.is_some_and(|request| request.te_trailers) || head.field(b"trailer").is_some();
        Body {
            source: Source::new(head.framing, limits),
            chunked_out,
            trailers_out: chunked_out && welcome,
            of_response: true,
            refused: None,
        }
    }

    pub fn has_ended(&self) -> bool {
        match &self.source {
            Source::Length(left) => *left == 0,
            Source::Chunked(chunks) => chunks.has_ended(),
            Source::UntilClose => false,
        }
    }

    pub fn feed(&mut self, data: &[u8]) -> Result<Fed, Refusal> {
        if let Some(refusal) = self.refused {
            return Err(refusal);
        }
        match &mut self.source {
            Source::Length(left) => {
                let taken = usize::try_from(*left).map_or(data.len(), |left| left.min(data.len()));
                *left -= taken as u64;
                Ok(Fed { out: None, taken, payload: taken, ended: *left == 0 })
            }
            Source::UntilClose if !self.chunked_out || data.is_empty() => {
                Ok(Fed { out: None, taken: data.len(), payload: data.len(), ended: false })
            }
            Source::UntilClose => {
                let out = Outgoing::chunk(std::iter::once(0..data.len()).collect());
                Ok(Fed { out: Some(out), taken: data.len(), payload: data.len(), ended: false })
            }
            Source::Chunked(_) => self.feed_chunks(data).map_err(|refusal| {
                let refusal = if self.of_response { refusal.of_response() } else { refusal };
                self.refused = Some(refusal);
                refusal
            }),
        }
    }

    fn feed_chunks(&mut self, data: &[u8]) -> Result<Fed, Refusal> {
        let Source::Chunked(chunks) = &mut self.source else { unreachable!("only called for chunks") };
        let was_ended = chunks.has_ended();
        let mut pieces = Vec::with_capacity(4);
        let taken = chunks.feed(data, &mut pieces)?;
        let ended = chunks.has_ended();
        // One chunk per read: chunks of a byte each must not cost the next one a read each.
        let mut out = if self.chunked_out { Outgoing::chunk(pieces) } else { Outgoing::plain(pieces) };
        if self.chunked_out && ended && !was_ended {
            let last = out.suffix();
            last.extend_from_slice(b"0\r\n");
            if self.trailers_out {
                chunks.trailers.push(last);
            }
            last.extend_from_slice(b"\r\n");
        }
        let payload = out.payload();
        let out = if out.is(&data[..taken]) { None } else { Some(out) };
        Ok(Fed { out, taken, payload, ended })
    }

    /// The incoming connection ended: `clean` by FIN, else by a reset or a fault.
    pub fn eof(&self, clean: bool) -> Ending {
        match &self.source {
            _ if self.refused.is_some() => Ending::Truncated,
            _ if self.has_ended() => Ending::Complete(b""),
            Source::UntilClose if clean && self.chunked_out => Ending::Complete(b"0\r\n\r\n"),
            Source::UntilClose if clean => Ending::Complete(b""),
            _ => Ending::Truncated,
        }
    }
}

impl Source {
    fn new(framing: Framing, limits: Limits) -> Self {
        match framing {
            Framing::None => Source::Length(0),
            Framing::Length(length) => Source::Length(length),
            Framing::Chunked => Source::Chunked(Box::new(Chunks::new(limits))),
            Framing::UntilClose => Source::UntilClose,
        }
    }
}
