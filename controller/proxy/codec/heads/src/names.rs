//! The field names that mean something to a proxy.

/// What a field is to us. `Other` passes untouched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Other,
    /// Goes to nobody: hop-by-hop, named by `Connection`, meant for us alone, or a name that a CGI-style backend would
    /// take for ours.
    Dropped,
    Host,
    ContentLength,
    TransferEncoding,
    Connection,
    KeepAlive,
    Te,
    Trailer,
    Upgrade,
    Expect,
    MaxForwards,
    Date,
    RetryAfter,
    RequestId,
    Hop,
    Forwarded,
    ForwardedFor,
    ForwardedProto,
    ForwardedHost,
    ForwardedPort,
}

#[inline]
pub(crate) fn kind(name: &[u8]) -> Kind {
    let candidates: &[(&[u8], Kind)] = match name.len() {
        2 => &[(b"te", Kind::Te)],
        4 => &[(b"host", Kind::Host), (b"date", Kind::Date)],
        6 => &[(b"expect", Kind::Expect)],
        7 => &[(b"upgrade", Kind::Upgrade), (b"trailer", Kind::Trailer)],
        9 => &[(b"forwarded", Kind::Forwarded)],
        10 => &[(b"connection", Kind::Connection), (b"keep-alive", Kind::KeepAlive)],
        11 => &[(b"retry-after", Kind::RetryAfter)],
        12 => &[(b"x-request-id", Kind::RequestId), (b"max-forwards", Kind::MaxForwards)],
        13 => &[(b"steelyard-hop", Kind::Hop)],
        14 => &[(b"content-length", Kind::ContentLength)],
        15 => &[(b"x-forwarded-for", Kind::ForwardedFor)],
        16 => &[
            (b"x-forwarded-host", Kind::ForwardedHost),
            (b"x-forwarded-port", Kind::ForwardedPort),
            (b"proxy-connection", Kind::Dropped),
        ],
        17 => &[
            (b"x-forwarded-proto", Kind::ForwardedProto),
            (b"transfer-encoding", Kind::TransferEncoding),
            // It carries a key, which is the proxy's and no backend's.
            (b"x-steelyard-debug", Kind::Dropped),
        ],
        18 => &[(b"proxy-authenticate", Kind::Dropped)],
        19 => &[(b"proxy-authorization", Kind::Dropped)],
        _ => &[],
    };
    for (known, kind) in candidates {
        // The first letter tells most of them apart.
        if name[0] | 0x20 == known[0] && name.eq_ignore_ascii_case(known) {
            return *kind;
        }
    }
    Kind::Other
}

/// `name` with `_` read as `-`, as CGI-style backends do.
pub(crate) fn dashed(name: &[u8]) -> Vec<u8> {
    name.iter().map(|&byte| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect()
}

/// Names that `Connection` can't remove: we, or the backend, rely on them.
pub(crate) fn is_protected(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 11] = [
        b"host",
        b"content-length",
        b"content-type",
        b"authorization",
        b"cookie",
        b"set-cookie",
        b"forwarded",
        b"via",
        b"steelyard-hop",
        b"x-request-id",
        b"traceparent",
    ];
    starts_with(name, b"x-forwarded-") || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Names that never pass as trailers (RFC 9110 §6.5.1): framing, routing, authentication, cookies, content, control.
/// `lower` is in lower case, with `_` read as `-`.
pub(crate) fn is_forbidden_trailer(lower: &[u8]) -> bool {
    const NAMES: [&[u8]; 23] = [
        b"host",
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-authentication-info",
        b"te",
        b"trailer",
        b"upgrade",
        b"expect",
        b"max-forwards",
        b"authorization",
        b"authentication-info",
        b"www-authenticate",
        b"cookie",
        b"set-cookie",
        b"forwarded",
        b"via",
        b"steelyard-hop",
        b"x-request-id",
        b"x-real-ip",
        b"x-steelyard-debug",
    ];
    lower.starts_with(b"x-forwarded-") || lower.starts_with(b"content-") || NAMES.contains(&lower)
}

fn starts_with(name: &[u8], prefix: &[u8]) -> bool {
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// What a request's name with `_` is to us: a framing name is refused, a forwarding or identity name dropped.
pub(crate) enum Underscored {
    Framing,
    Ours,
    Plain,
}

pub(crate) fn underscored(name: &[u8]) -> Underscored {
    let name = dashed(name);
    match kind(&name) {
        Kind::ContentLength | Kind::TransferEncoding => Underscored::Framing,
        Kind::Other if name.starts_with(b"x-forwarded-") || name == b"x-real-ip" => Underscored::Ours,
        Kind::Other => Underscored::Plain,
        _ => Underscored::Ours,
    }
}
