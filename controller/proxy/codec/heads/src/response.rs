//! Response heads: read as they come from one upstream connection, then checked against the request they answer.

use crate::bytes::{number, Span};
use crate::connection::Options;
use crate::fields::{listed, lookup, Fault, Field, FieldScanner};
use crate::framing::{declared, Framing};
use crate::names::Kind;
use crate::refusal::Refusal;
use crate::request::RequestHead;
use crate::status_line::StatusLine;
use crate::Limits;

/// Reads the response heads of one upstream connection, interim ones too. After a refusal it refuses for ever.
#[derive(Debug)]
pub struct ResponseReader {
    limits: Limits,
    held: Vec<u8>,
    line: StatusLine,
    fields: Option<FieldScanner>,
    interim: usize,
    refused: Option<Refusal>,
}

/// A response head that passed all checks, with its own copy of the bytes.
#[derive(Debug)]
pub struct ResponseHead {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fields: Vec<Field>,
    pub(crate) reason: Span,
    pub status: u16,
    pub version: u8,
    /// How the body comes in.
    pub framing: Framing,
    /// What `Content-Length` said, also where there is no body: HEAD, 304.
    pub(crate) declared_length: Option<u64>,
    pub keep_alive: bool,
    /// A 101 that answers our Upgrade.
    pub upgrade: bool,
    /// The client's side of it.
    pub(crate) client: Client,
}

/// What the request's client can read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub version: u8,
    pub keep_alive: bool,
}

impl ResponseReader {
    pub fn new(limits: Limits) -> Self {
        ResponseReader { limits, held: Vec::new(), line: StatusLine::new(), fields: None, interim: 0, refused: None }
    }

    /// A byte of the next head has come.
    pub fn started(&self) -> bool {
        !self.held.is_empty()
    }

    /// A head and how much of `data` it took; `None` while it is incomplete.
    pub fn feed(&mut self, data: &[u8], request: &RequestHead) -> Result<Option<(ResponseHead, usize)>, Refusal> {
        if let Some(refusal) = self.refused {
            return Err(refusal);
        }
        let answer = self.read(data, request).map_err(Refusal::of_response);
        if let Err(refusal) = answer {
            self.refused = Some(refusal);
        }
        answer
    }

    fn read(&mut self, data: &[u8], request: &RequestHead) -> Result<Option<(ResponseHead, usize)>, Refusal> {
        let before = self.held.len();
        let room = (self.limits.head_bytes + 1).saturating_sub(before).min(data.len());
        let mut held = std::mem::take(&mut self.held);
        let (bytes, end) = if before == 0 {
            let Some(end) = self.scan(data)? else {
                self.held.extend_from_slice(&data[..room]);
                return Ok(None);
            };
            (data[..end].to_vec(), end)
        } else {
            held.extend_from_slice(&data[..room]);
            let Some(end) = self.scan(&held)? else {
                self.held = held;
                return Ok(None);
            };
            held.truncate(end);
            (held, end - before)
        };
        let line = std::mem::replace(&mut self.line, StatusLine::new());
        let fields = self.fields.take().map(|scanner| scanner.fields).unwrap_or_default();
        let head = ResponseHead::check(bytes, line, fields, request)?;
        if !head.is_interim() {
            self.interim = 0;
        } else if self.interim >= self.limits.informational {
            return Err(Refusal::new(502, "too many interim responses"));
        } else {
            self.interim += 1;
        }
        Ok(Some((head, end)))
    }

    fn scan(&mut self, head: &[u8]) -> Result<Option<usize>, Refusal> {
        let within = &head[..head.len().min(self.limits.head_bytes)];
        if self.fields.is_none() {
            self.fields = self.line.advance(within)?.map(FieldScanner::new);
        }
        let end = match &mut self.fields {
            Some(fields) => fields.advance(within, self.limits.fields).map_err(|fault| match fault {
                Fault::Malformed(reason) => Refusal::new(502, reason),
                Fault::TooMany => Refusal::new(502, "too many fields"),
            })?,
            None => None,
        };
        if end.is_none() && head.len() > self.limits.head_bytes {
            return Err(Refusal::new(502, "head too big"));
        }
        Ok(end)
    }
}

impl ResponseHead {
    fn check(bytes: Vec<u8>, line: StatusLine, mut fields: Vec<Field>, request: &RequestHead) -> Result<Self, Refusal> {
        let (status, version) = (line.status, line.version);
        let declared = declared(&fields, &bytes, version)?;
        let options = Options::read(&mut fields, &bytes);
        let upgrade = status == 101;
        if upgrade {
            let has_fields = options.upgrade && listed(&fields, &bytes, Kind::Upgrade).next().is_some();
            if request.upgrade.is_none() || !has_fields || version == 10 {
                return Err(Refusal::new(502, "unasked upgrade"));
            }
        }
        // RFC 9112 §6.3: these end at the head, whatever it says of a body.
        let framing = if request.is_head() || status < 200 || matches!(status, 204 | 304) {
            Framing::None
        } else {
            match (declared.chunked, declared.length) {
                (true, _) => Framing::Chunked,
                (false, Some(0)) => Framing::None,
                (false, Some(length)) => Framing::Length(length),
                (false, None) => Framing::UntilClose,
            }
        };
        Ok(ResponseHead {
            reason: line.reason,
            status,
            version,
            framing,
            declared_length: declared.length.filter(|_| status >= 200 && status != 204),
            keep_alive: options.persists(version) && framing != Framing::UntilClose && !upgrade,
            upgrade,
            client: Client { version: request.version, keep_alive: request.keep_alive },
            bytes,
            fields,
        })
    }

    /// 1xx, but for the 101 that ends HTTP on the connection.
    pub fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }

    /// A final answer that tells nothing of the endpoint's health or habits, whose body is all of the `behind` bytes
    /// behind the head, and that lets both connections stay.
    pub fn is_plain(&self, behind: usize) -> bool {
        let length = match self.framing {
            Framing::None => Some(0),
            Framing::Length(length) => usize::try_from(length).ok(),
            Framing::Chunked | Framing::UntilClose => None,
        };
        matches!(self.status, 200..=428 | 430..=499)
            && length == Some(behind)
            && self.keep_alive
            && self.keeps_client()
            && self.fields.iter().all(|field| field.kind != Kind::KeepAlive)
    }

    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        lookup(&self.fields, &self.bytes, name)
    }

    /// Seconds of `Keep-Alive: timeout=N`.
    pub fn keep_alive_timeout(&self) -> Option<u64> {
        listed(&self.fields, &self.bytes, Kind::KeepAlive).find_map(|parameter| {
            let name = parameter.get(..8)?;
            name.eq_ignore_ascii_case(b"timeout=").then(|| number(&parameter[8..])).flatten()
        })
    }

    /// Seconds of `Retry-After`, if it isn't a date.
    pub fn retry_after(&self) -> Option<u64> {
        number(lookup(&self.fields, &self.bytes, b"retry-after")?)
    }

    /// How the body goes out: as it came, but for what the client's version can't read.
    pub(crate) fn framing_out(&self) -> Framing {
        match (self.framing, self.client.version) {
            (Framing::Chunked, 10) => Framing::UntilClose,
            (Framing::UntilClose, 11) => Framing::Chunked,
            (framing, _) => framing,
        }
    }

    /// The client learns the end of this response only by the close: its connection can't be kept.
    pub fn ends_by_close(&self) -> bool {
        !self.is_interim()
            && !self.upgrade
            && (self.framing_out() == Framing::UntilClose
                || self.client.version == 10 && self.declared_length.is_none())
    }

    /// Whether the client's connection stays open after this response, as far as HTTP is concerned.
    pub fn keeps_client(&self) -> bool {
        self.client.keep_alive && !self.ends_by_close()
    }
}
