//! `Host` and the authority of an absolute target (RFC 9110 §7.2, RFC 3986 §3.2.2), as strictly as proxies must be.

use std::net::Ipv6Addr;

use crate::bytes::{all, number, HOST};

/// A name or IPv4 address of letters, digits and `-._~`, or a bracketed IPv6 address; then perhaps a port.
pub(crate) fn is_valid(authority: &[u8]) -> bool {
    let port = match authority {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|&byte| byte == b']') else { return false };
            let literal = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
            if literal.is_none() {
                return false;
            }
            &rest[end + 1..]
        }
        _ => {
            let end = authority.iter().position(|&byte| byte == b':').unwrap_or(authority.len());
            if end == 0 || !all(&authority[..end], HOST) {
                return false;
            }
            &authority[end..]
        }
    };
    match port {
        [] => true,
        [b':', digits @ ..] => digits.len() <= 5 && number(digits).is_some_and(|port| port <= 65_535),
        _ => false,
    }
}
