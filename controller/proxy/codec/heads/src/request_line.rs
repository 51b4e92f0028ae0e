//! The request line (RFC 9112 §3), read as it comes.

use crate::bytes::{is, run, Span, TARGET, TOKEN};
use crate::refusal::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Leading,
    LeadingLf,
    Method,
    BeforeTarget,
    Target,
    BeforeVersion,
    Version,
    LineEnd,
    LineLf,
}

#[derive(Debug)]
pub(crate) struct RequestLine {
    at: At,
    pos: usize,
    /// Where the head starts behind empty lines.
    pub start: usize,
    target_start: usize,
    version_start: usize,
    major: u8,
    preface: bool,
    pub method: Span,
    pub target: Span,
    /// 10 or 11.
    pub version: u8,
}

/// Methods of the IANA registry and of common use, as most parsers know them. `CONNECT` isn't one: we are no tunnel.
fn is_known(method: &[u8]) -> bool {
    const METHODS: [&[u8]; 33] = [
        b"GET",
        b"HEAD",
        b"POST",
        b"PUT",
        b"DELETE",
        b"OPTIONS",
        b"PATCH",
        b"TRACE",
        b"QUERY",
        b"PROPFIND",
        b"PROPPATCH",
        b"MKCOL",
        b"COPY",
        b"MOVE",
        b"LOCK",
        b"UNLOCK",
        b"SEARCH",
        b"REPORT",
        b"MKACTIVITY",
        b"CHECKOUT",
        b"MERGE",
        b"BIND",
        b"REBIND",
        b"UNBIND",
        b"ACL",
        b"LINK",
        b"UNLINK",
        b"PURGE",
        b"MKCALENDAR",
        b"M-SEARCH",
        b"NOTIFY",
        b"SUBSCRIBE",
        b"UNSUBSCRIBE",
    ];
    METHODS.contains(&method)
}

impl RequestLine {
    pub(crate) fn new() -> Self {
        RequestLine {
            at: At::Leading,
            pos: 0,
            start: 0,
            target_start: 0,
            version_start: 0,
            major: 0,
            preface: false,
            method: Span::default(),
            target: Span::default(),
            version: 0,
        }
    }

    /// Whether a byte of the line itself has come, not only empty lines before it.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.at, At::Leading | At::LeadingLf)
    }

    pub(crate) fn target_is_open(&self) -> bool {
        matches!(self.at, At::Method | At::BeforeTarget | At::Target)
    }

    pub(crate) fn advance(&mut self, head: &[u8]) -> Result<Option<usize>, Refusal> {
        while let Some(&byte) = head.get(self.pos) {
            match self.at {
                // RFC 9112 §2.2: empty lines before a request are skipped. They count against the head's limit.
                At::Leading => match byte {
                    b'\r' => {
                        self.pos += 1;
                        self.at = At::LeadingLf;
                    }
                    _ if is(byte, TOKEN) => {
                        self.start = self.pos;
                        self.at = At::Method;
                    }
                    _ => return Err(Refusal::bad("method")),
                },
                At::LeadingLf => {
                    expect(byte, b'\n')?;
                    self.pos += 1;
                    self.at = At::Leading;
                }
                At::Method => {
                    self.pos += run(&head[self.pos..], TOKEN);
                    match head.get(self.pos) {
                        None => return Ok(None),
                        Some(b' ') => self.end_method(head)?,
                        Some(_) => return Err(Refusal::bad("method")),
                    }
                }
                At::BeforeTarget => match byte {
                    b' ' => self.pos += 1,
                    _ if is(byte, TARGET) => {
                        self.target_start = self.pos;
                        self.at = At::Target;
                    }
                    _ => return Err(Refusal::bad("target")),
                },
                At::Target => {
                    self.pos += run(&head[self.pos..], TARGET);
                    match head.get(self.pos) {
                        None => return Ok(None),
                        Some(b' ') => {
                            self.target = Span::new(self.target_start, self.pos);
                            self.pos += 1;
                            self.at = At::BeforeVersion;
                        }
                        Some(b'\r') => return Err(Refusal::bad("no version")),
                        Some(_) => return Err(Refusal::bad("target")),
                    }
                }
                At::BeforeVersion => match byte {
                    b' ' => self.pos += 1,
                    _ => {
                        self.version_start = self.pos;
                        self.at = At::Version;
                    }
                },
                At::Version => {
                    self.read_version(byte)?;
                    self.pos += 1;
                }
                At::LineEnd => {
                    expect(byte, b'\r')?;
                    self.pos += 1;
                    self.at = At::LineLf;
                }
                At::LineLf => {
                    expect(byte, b'\n')?;
                    self.pos += 1;
                    return Ok(Some(self.pos));
                }
            }
        }
        Ok(None)
    }

    fn end_method(&mut self, head: &[u8]) -> Result<(), Refusal> {
        self.method = Span::new(self.start, self.pos);
        match self.method.of(head) {
            // HTTP/2's preface; the version tells.
            b"PRI" => self.preface = true,
            b"CONNECT" => return Err(Refusal::new(501, "connect")),
            method if is_known(method) => {}
            _ => return Err(Refusal::new(501, "unknown method")),
        }
        self.pos += 1;
        self.at = At::BeforeTarget;
        Ok(())
    }

    fn read_version(&mut self, byte: u8) -> Result<(), Refusal> {
        const BAD: Refusal = Refusal::bad("version");
        let index = self.pos - self.version_start;
        match index {
            0..=4 if byte == b"HTTP/"[index] => Ok(()),
            5 if byte.is_ascii_digit() => {
                self.major = byte;
                Ok(())
            }
            6 if byte == b'.' => Ok(()),
            7 if byte.is_ascii_digit() => {
                self.version = match (self.major, byte) {
                    (b'1', _) if self.preface => return Err(Refusal::new(501, "unknown method")),
                    (b'1', b'0') => 10,
                    (b'1', b'1') => 11,
                    (b'1', _) => return Err(BAD),
                    _ => return Err(Refusal::new(505, "version")),
                };
                self.at = At::LineEnd;
                Ok(())
            }
            _ => Err(BAD),
        }
    }
}

fn expect(byte: u8, wanted: u8) -> Result<(), Refusal> {
    if byte == wanted {
        Ok(())
    } else {
        Err(Refusal::bad("line end"))
    }
}
