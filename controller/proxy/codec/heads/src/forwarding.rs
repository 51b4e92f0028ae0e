//! Who the client is, and whose word is believed for it (RFC 7239, and the `X-Forwarded-*` of common use).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::bytes::trimmed;

/// How requests of one port are rewritten; made once per port and snapshot.
#[derive(Debug)]
pub struct Forwarding {
    /// The pseudonym of our hop line.
    pub hop: Vec<u8>,
    /// Decimal digits, for `X-Forwarded-Port`.
    pub(crate) port: Vec<u8>,
    trusted: Vec<Network>,
    /// In a sidecar the client is the pod itself, and it calls from loopback.
    pod: Option<IpAddr>,
}

/// A CIDR, address or pseudonym that can't be used.
#[derive(Debug, PartialEq, Eq)]
pub struct InvalidNetwork(pub String);

impl fmt::Display for InvalidNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is no address, network or host name", self.0)
    }
}

#[derive(Debug)]
struct Network {
    base: u128,
    mask: u128,
}

/// What one request's peer is to us.
pub(crate) struct Peer<'a> {
    /// As it is written: the address in its canonical form, or what we were told if it is no address.
    pub written: std::borrow::Cow<'a, str>,
    pub trusted: bool,
}

impl Forwarding {
    pub fn new(hop: &str, port: u16, trusted: &[String], pod: Option<&str>) -> Result<Self, InvalidNetwork> {
        if hop.is_empty() || !hop.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',') {
            return Err(InvalidNetwork(hop.to_owned()));
        }
        let pod = pod.map(|text| address(text).ok_or_else(|| InvalidNetwork(text.to_owned()))).transpose()?;
        let trusted = trusted.iter().map(|text| network(text)).collect::<Result<_, _>>()?;
        Ok(Forwarding { hop: hop.into(), port: port.to_string().into_bytes(), trusted, pod })
    }

    fn trusts(&self, address: IpAddr) -> bool {
        let bits = bits(address);
        self.trusted.iter().any(|network| bits & network.mask == network.base)
    }

    pub(crate) fn peer<'a>(&self, peer: &'a str) -> Peer<'a> {
        match (address(peer), self.pod) {
            (Some(address), Some(pod)) if address.is_loopback() => {
                Peer { written: pod.to_string().into(), trusted: true }
            }
            (Some(address), _) => Peer { written: canonical(address, peer), trusted: self.trusts(address) },
            (None, _) => Peer { written: peer.into(), trusted: false },
        }
    }

    /// The rightmost hop that isn't trusted. The walk ends at what is no address, with the last good one.
    pub(crate) fn client<'a>(&self, peer: &str, lines: impl DoubleEndedIterator<Item = &'a [u8]>) -> String {
        if let Some(pod) = self.pod {
            return pod.to_string();
        }
        let Some(mut client) = address(peer) else { return peer.to_owned() };
        for element in lines.rev().flat_map(|line| line.rsplit(|&byte| byte == b',')) {
            if !self.trusts(client) {
                break;
            }
            match std::str::from_utf8(trimmed(element)).ok().and_then(address) {
                Some(next) => client = next,
                None => break,
            }
        }
        client.to_string()
    }
}

/// `::ffff:a.b.c.d` is IPv4 before any comparison or output.
fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn canonical(address: IpAddr, text: &str) -> std::borrow::Cow<'_, str> {
    match address {
        // An IPv4 address has one spelling only.
        IpAddr::V4(_) if !text.contains(':') => text.into(),
        _ => address.to_string().into(),
    }
}

/// IPv4 in its mapped place, so that one comparison serves both families.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => four.to_ipv6_mapped().to_bits(),
        IpAddr::V6(six) => six.to_bits(),
    }
}

fn network(text: &str) -> Result<Network, InvalidNetwork> {
    let invalid = || InvalidNetwork(text.to_owned());
    let (base, length) = match text.split_once('/') {
        Some((base, length)) => (base, Some(length.parse::<u32>().map_err(|_| invalid())?)),
        None => (text, None),
    };
    // The length counts in the family as it is written: `::ffff:10.0.0.0/104` is 10.0.0.0/8.
    let (bits, offset) = if let Ok(four) = base.parse::<Ipv4Addr>() {
        (bits(four.into()), 96)
    } else {
        (base.parse::<Ipv6Addr>().map_err(|_| invalid())?.to_bits(), 0)
    };
    let length = offset + length.unwrap_or(128 - offset).min(129);
    if length > 128 {
        return Err(invalid());
    }
    let mask = if length == 0 { 0 } else { u128::MAX << (128 - length) };
    Ok(Network { base: bits & mask, mask })
}
