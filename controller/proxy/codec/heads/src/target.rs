//! Request targets (RFC 9112 §3.2): which form, and what goes upstream of it. Bytes are never decoded or normalised.

use crate::bytes::Span;
use crate::host;
use crate::refusal::Refusal;

const BAD: Refusal = Refusal::bad("target");

/// The target in origin-form (or `*`), and the authority that an absolute one named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// `/` before a bare query, the whole of an empty path, else nothing.
    prefix: &'static [u8],
    rest: Span,
    pub authority: Option<Span>,
}

impl Target {
    pub(crate) fn read(head: &[u8], span: Span, method: &[u8]) -> Result<Target, Refusal> {
        match span.of(head) {
            [b'/', ..] => Ok(Target { prefix: b"", rest: span, authority: None }),
            b"*" if method == b"OPTIONS" => Ok(Target { prefix: b"", rest: span, authority: None }),
            target => Target::absolute(head, span, target, method),
        }
    }

    fn absolute(head: &[u8], span: Span, target: &[u8], method: &[u8]) -> Result<Target, Refusal> {
        let scheme = scheme_length(target).ok_or(BAD)?;
        let start = span.start as usize + scheme;
        let after = &target[scheme..];
        let end = after.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(after.len());
        let authority = Span::new(start, start + end);
        // Userinfo is refused with the rest: `@` stands in no host.
        if !host::is_valid(authority.of(head)) {
            return Err(BAD);
        }
        let prefix: &'static [u8] = match after.get(end) {
            Some(b'/') => b"",
            None if method == b"OPTIONS" => b"*",
            _ => b"/",
        };
        Ok(Target { prefix, rest: Span { start: authority.end, end: span.end }, authority: Some(authority) })
    }

    pub(crate) fn push(&self, head: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.prefix);
        out.extend_from_slice(self.rest.of(head));
    }

    /// What follows `?`, if there is one.
    pub(crate) fn query<'a>(&self, head: &'a [u8]) -> Option<&'a [u8]> {
        let rest = self.rest.of(head);
        rest.iter().position(|&byte| byte == b'?').map(|at| &rest[at + 1..])
    }

    pub(crate) fn path(&self, head: &[u8]) -> Vec<u8> {
        let rest = self.rest.of(head);
        let end = rest.iter().position(|&byte| byte == b'?').unwrap_or(rest.len());
        [self.prefix, &rest[..end]].concat()
    }
}

fn scheme_length(target: &[u8]) -> Option<usize> {
    [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
        .map(<[u8]>::len)
}
