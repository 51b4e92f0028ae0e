//! Request heads: read as they come, then checked as a whole.

use crate::bytes::{all, elements, number, Span, ID};
use crate::connection::{upgrade_tokens, Options};
use crate::fields::{listed, lookup, Fault, Field, FieldScanner};
use crate::forwarding::Forwarding;
use crate::framing::{declared, Framing};
use crate::host;
use crate::names::{underscored, Kind, Underscored};
use crate::refusal::Refusal;
use crate::request_line::RequestLine;
use crate::target::Target;
use crate::Limits;

/// Reads the request heads of one client connection. After a refusal it refuses for ever.
#[derive(Debug)]
pub struct RequestReader {
    limits: Limits,
    held: Vec<u8>,
    line: RequestLine,
    fields: Option<FieldScanner>,
    refused: Option<Refusal>,
}

/// A request head that passed all checks, with its own copy of the bytes.
#[derive(Debug)]
pub struct RequestHead {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fields: Vec<Field>,
    method: Span,
    pub(crate) target: Target,
    host: Option<Span>,
    pub version: u8,
    pub framing: Framing,
    pub keep_alive: bool,
    /// Tokens that go upstream; `None` if there are none or the wish is ignored.
    pub upgrade: Option<Vec<u8>>,
    /// The client waits for a `100` before it sends the body.
    pub expect: bool,
    pub te_trailers: bool,
    /// Of OPTIONS and TRACE only.
    pub max_forwards: Option<u64>,
    request_id: Option<Span>,
}

impl RequestReader {
    pub fn new(limits: Limits) -> Self {
        RequestReader { limits, held: Vec::new(), line: RequestLine::new(), fields: None, refused: None }
    }

    /// A byte of the next head has come. Empty lines before it don't count: some clients end a body with one.
    pub fn started(&self) -> bool {
        self.line.has_begun()
    }

    /// A head and how much of `data` it took; `None` while it is incomplete.
    pub fn feed(&mut self, data: &[u8]) -> Result<Option<(RequestHead, usize)>, Refusal> {
        if let Some(refusal) = self.refused {
            return Err(refusal);
        }
        let answer = self.read(data);
        if let Err(refusal) = answer {
            self.refused = Some(refusal);
            self.held = Vec::new();
        }
        answer
    }

    fn read(&mut self, data: &[u8]) -> Result<Option<(RequestHead, usize)>, Refusal> {
        let before = self.held.len();
        // One byte over the limit is enough to know that it is passed.
        let room = (self.limits.head_bytes + 1).saturating_sub(before).min(data.len());
        if before == 0 {
            let Some(end) = self.scan(data)? else {
                self.held.extend_from_slice(&data[..room]);
                return Ok(None);
            };
            return self.finish(data[..end].to_vec()).map(|head| Some((head, end)));
        }
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(&data[..room]);
        let Some(end) = self.scan(&held)? else {
            self.held = held;
            return Ok(None);
        };
        held.truncate(end);
        self.finish(held).map(|head| Some((head, end - before)))
    }

    fn scan(&mut self, head: &[u8]) -> Result<Option<usize>, Refusal> {
        let within = &head[..head.len().min(self.limits.head_bytes)];
        if self.fields.is_none() {
            self.fields = self.line.advance(within)?.map(FieldScanner::new);
        }
        let end = match &mut self.fields {
            Some(fields) => fields.advance(within, self.limits.fields).map_err(|fault| match fault {
                Fault::Malformed(reason) => Refusal::bad(reason),
                Fault::TooMany => Refusal::new(431, "too many fields"),
            })?,
            None => None,
        };
        if end.is_none() && head.len() > self.limits.head_bytes {
            return Err(if self.line.target_is_open() {
                Refusal::new(414, "target too long")
            } else {
                Refusal::new(431, "head too big")
            });
        }
        Ok(end)
    }

    fn finish(&mut self, bytes: Vec<u8>) -> Result<RequestHead, Refusal> {
        let line = std::mem::replace(&mut self.line, RequestLine::new());
        let fields = self.fields.take().map(|scanner| scanner.fields).unwrap_or_default();
        RequestHead::check(bytes, line, fields)
    }
}

impl RequestHead {
    fn check(bytes: Vec<u8>, line: RequestLine, mut fields: Vec<Field>) -> Result<Self, Refusal> {
        let version = line.version;
        let method = line.method.of(&bytes);
        let target = Target::read(&bytes, line.target, method)?;
        mark_underscored(&mut fields, &bytes)?;
        let host = target.authority.or(host_field(&fields, &bytes, version)?);
        let declared = declared(&fields, &bytes, version)?;
        let framing = match (declared.chunked, declared.length) {
            (true, _) => Framing::Chunked,
            (false, None | Some(0)) => Framing::None,
            (false, Some(length)) => Framing::Length(length),
        };
        let has_body = framing != Framing::None;
        if has_body && method == b"TRACE" {
            return Err(Refusal::bad("trace with a body"));
        }
        let expect = expectation(&mut fields, &bytes, version)? && has_body;
        let options = Options::read(&mut fields, &bytes);
        let wants_upgrade = version == 11 && options.upgrade && !has_body;
        let upgrade = if wants_upgrade { upgrade_tokens(&fields, &bytes) } else { None };
        let te_trailers =
            version == 11 && listed(&fields, &bytes, Kind::Te).any(|coding| coding.eq_ignore_ascii_case(b"trailers"));
        let max_forwards = if matches!(method, b"OPTIONS" | b"TRACE") {
            fields.iter().find(|field| field.kind == Kind::MaxForwards).and_then(|field| number(field.value.of(&bytes)))
        } else {
            None
        };
        let request_id = request_id(&fields, &bytes);
        Ok(RequestHead {
            method: line.method,
            target,
            host,
            version,
            framing,
            keep_alive: options.persists(version),
            upgrade,
            expect,
            te_trailers,
            max_forwards,
            request_id,
            bytes,
            fields,
        })
    }

    pub fn method(&self) -> &[u8] {
        self.method.of(&self.bytes)
    }

    /// In origin-form, or `*`: as it goes upstream.
    pub fn target(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes.len());
        self.target.push(&self.bytes, &mut out);
        out
    }

    /// The authority of an absolute target, else `Host`.
    pub fn host(&self) -> Option<&[u8]> {
        self.host.map(|span| span.of(&self.bytes))
    }

    /// Bytes that it keeps.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// An `X-Request-Id` worth keeping: the only one, of 1 to 128 harmless characters.
    pub fn request_id(&self) -> Option<&[u8]> {
        self.request_id.map(|span| span.of(&self.bytes))
    }

    /// RFC 9110 §9.2.2.
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method(), b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" | b"PUT" | b"DELETE")
    }

    /// No body, no mark of a proxy of ours, no Max-Forwards: nothing to be decided before it goes on.
    pub fn is_plain(&self) -> bool {
        self.framing == Framing::None
            && self.max_forwards.is_none()
            && self.fields.iter().all(|field| field.kind != Kind::Hop)
    }

    pub fn is_head(&self) -> bool {
        self.method() == b"HEAD"
    }

    /// Hop lines that are already there, and those of them that name `pseudonym`.
    pub fn hops(&self, pseudonym: Option<&[u8]>) -> usize {
        listed(&self.fields, &self.bytes, Kind::Hop).filter(|hop| pseudonym.is_none_or(|name| name == *hop)).count()
    }

    /// Value of the first field with this name, as it came.
    pub fn field(&self, name: &[u8]) -> Option<&[u8]> {
        lookup(&self.fields, &self.bytes, name)
    }

    /// Value of the first cookie with this name (RFC 6265 §5.4), as it came.
    pub fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        let lines = self.fields.iter().filter(|field| field.name.of(&self.bytes).eq_ignore_ascii_case(b"cookie"));
        lines
            .flat_map(|field| field.value.of(&self.bytes).split(|&byte| byte == b';'))
            .find_map(|pair| crate::bytes::trimmed(pair).strip_prefix(name)?.strip_prefix(b"="))
    }

    /// Value of the first query parameter with this name; raw bytes, undecoded.
    pub fn query(&self, name: &[u8]) -> Option<&[u8]> {
        let pairs = self.target.query(&self.bytes)?.split(|&byte| byte == b'&');
        pairs.filter_map(|pair| pair.strip_prefix(name)).find_map(|rest| match rest {
            [] => Some(rest),
            [b'=', value @ ..] => Some(value),
            _ => None,
        })
    }

    /// Raw bytes of the target before `?`.
    pub fn path(&self) -> Vec<u8> {
        self.target.path(&self.bytes)
    }

    /// The client's address: the rightmost hop that isn't trusted.
    pub fn client(&self, forwarding: &Forwarding, peer: &str) -> String {
        let lines = self.fields.iter().filter(|field| field.kind == Kind::ForwardedFor);
        forwarding.client(peer, lines.map(|field| field.value.of(&self.bytes)))
    }

    /// Whether the client spoke https to a proxy that we trust.
    pub fn is_https(&self, forwarding: &Forwarding, peer: &str) -> bool {
        let said = listed(&self.fields, &self.bytes, Kind::ForwardedProto).next();
        forwarding.peer(peer).trusted && said.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))
    }
}

fn mark_underscored(fields: &mut [Field], bytes: &[u8]) -> Result<(), Refusal> {
    for field in fields.iter_mut().filter(|field| field.kind == Kind::Other) {
        let name = field.name.of(bytes);
        if name.contains(&b'_') {
            match underscored(name) {
                Underscored::Framing => return Err(Refusal::bad("underscored framing name")),
                Underscored::Ours => field.kind = Kind::Dropped,
                Underscored::Plain => {}
            }
        }
    }
    Ok(())
}

/// RFC 9112 §3.2: exactly one valid `Host` in 1.1, at most one in 1.0; also beside an absolute target.
fn host_field(fields: &[Field], bytes: &[u8], version: u8) -> Result<Option<Span>, Refusal> {
    let mut hosts = fields.iter().filter(|field| field.kind == Kind::Host);
    match (hosts.next(), hosts.next()) {
        (None, _) if version == 10 => Ok(None),
        (None, _) => Err(Refusal::bad("no host")),
        (Some(_), Some(_)) => Err(Refusal::bad("two hosts")),
        (Some(field), None) if host::is_valid(field.value.of(bytes)) => Ok(Some(field.value)),
        _ => Err(Refusal::bad("host")),
    }
}

/// RFC 9110 §10.1.1: from a 1.0 client it means nothing and goes; any expectation but one is unknown.
fn expectation(fields: &mut [Field], bytes: &[u8], version: u8) -> Result<bool, Refusal> {
    let mut expects = false;
    for field in fields.iter_mut().filter(|field| field.kind == Kind::Expect) {
        if version == 10 {
            field.kind = Kind::Dropped;
        } else if elements(field.value.of(bytes)).all(|wish| wish.eq_ignore_ascii_case(b"100-continue")) {
            expects = true;
        } else {
            return Err(Refusal::new(417, "expectation"));
        }
    }
    Ok(expects)
}

fn request_id(fields: &[Field], bytes: &[u8]) -> Option<Span> {
    let mut ids = fields.iter().filter(|field| field.kind == Kind::RequestId);
    let (first, None) = (ids.next()?, ids.next()) else { return None };
    let value = first.value.of(bytes);
    ((1..=128).contains(&value.len()) && all(value, ID)).then_some(first.value)
}
