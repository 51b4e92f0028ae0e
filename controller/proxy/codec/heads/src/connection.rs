//! `Connection` and what it governs (RFC 9110 §7.6.1): persistence, the fields it names, upgrades.

use crate::bytes::elements;
use crate::fields::{listed, Field};
use crate::names::{is_protected, Kind};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub close: bool,
    pub keep_alive: bool,
    pub upgrade: bool,
}

impl Options {
    /// Reads all `Connection` lines as one list, and marks the fields that it names as dropped.
    pub(crate) fn read(fields: &mut [Field], bytes: &[u8]) -> Options {
        let mut options = Options::default();
        let mut named: Vec<&[u8]> = Vec::new();
        for field in fields.iter().filter(|field| field.kind == Kind::Connection) {
            for token in elements(field.value.of(bytes)) {
                if token.eq_ignore_ascii_case(b"close") {
                    options.close = true;
                } else if token.eq_ignore_ascii_case(b"keep-alive") {
                    options.keep_alive = true;
                } else if token.eq_ignore_ascii_case(b"upgrade") {
                    options.upgrade = true;
                } else if !token.is_empty() {
                    named.push(token);
                }
            }
        }
        if !named.is_empty() {
            drop_named(fields, bytes, named);
        }
        options
    }

    pub(crate) fn persists(self, version: u8) -> bool {
        !self.close && (version == 11 || self.keep_alive)
    }
}

fn drop_named(fields: &mut [Field], bytes: &[u8], named: Vec<&[u8]>) {
    // Sorted, since a 64 KiB list of names times 256 fields would be milliseconds of one client's making.
    let mut names: Vec<Vec<u8>> = named.into_iter().map(<[u8]>::to_ascii_lowercase).collect();
    names.sort_unstable();
    for field in fields {
        // These are written anew from what was read of them, whatever `Connection` says.
        if matches!(field.kind, Kind::TransferEncoding | Kind::Connection | Kind::Te | Kind::Upgrade | Kind::KeepAlive)
        {
            continue;
        }
        let name = field.name.of(bytes);
        if names.binary_search(&name.to_ascii_lowercase()).is_ok() && !is_protected(name) {
            field.kind = Kind::Dropped;
        }
    }
}

/// Tokens of `Upgrade` that go upstream. `h2c` and `TLS/*` end at a proxy, which speaks neither.
pub(crate) fn upgrade_tokens(fields: &[Field], bytes: &[u8]) -> Option<Vec<u8>> {
    let wanted: Vec<&[u8]> = listed(fields, bytes, Kind::Upgrade)
        .filter(|token| !token.eq_ignore_ascii_case(b"h2c"))
        .filter(|token| !token.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"tls/")))
        .collect();
    (!wanted.is_empty()).then(|| wanted.join(&b", "[..]))
}
