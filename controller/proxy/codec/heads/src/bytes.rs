//! Which bytes may stand where, as one table; and how to cut and compare them.

/// RFC 9110 §5.6.2: names, methods, codings.
pub(crate) const TOKEN: u8 = 1;
/// RFC 9110 §5.5 with obs-text: a field's value, a reason phrase.
pub(crate) const VALUE: u8 = 2;
/// A request target: every visible ASCII byte but `#`.
pub(crate) const TARGET: u8 = 4;
/// A host name, without what brackets an IPv6 address.
pub(crate) const HOST: u8 = 8;
/// A request id that is worth keeping.
pub(crate) const ID: u8 = 16;
pub(crate) const DIGIT: u8 = 32;

static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        let mut class = 0;
        if byte.is_ascii_alphanumeric() {
            class |= TOKEN | HOST | ID;
        }
        if byte.is_ascii_digit() {
            class |= DIGIT;
        }
        if matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        ) {
            class |= TOKEN;
        }
        if matches!(byte, b'-' | b'.' | b'_' | b'~') {
            class |= HOST;
        }
        if matches!(byte, b'.' | b'_' | b':' | b'+' | b'/' | b'=' | b'-') {
            class |= ID;
        }
        if byte == b'\t' || byte == b' ' || byte.is_ascii_graphic() || byte >= 0x80 {
            class |= VALUE;
        }
        if byte.is_ascii_graphic() && byte != b'#' {
            class |= TARGET;
        }
        table[at] = class;
        at += 1;
    }
    table
}

#[inline(always)]
pub(crate) fn is(byte: u8, class: u8) -> bool {
    CLASS[byte as usize] & class != 0
}

pub(crate) fn all(bytes: &[u8], class: u8) -> bool {
    bytes.iter().all(|&byte| is(byte, class))
}

/// Length of the run of `class` at the start of `bytes`.
#[inline(always)]
pub(crate) fn run(bytes: &[u8], class: u8) -> usize {
    bytes.iter().position(|&byte| !is(byte, class)).unwrap_or(bytes.len())
}

/// As `run` of VALUE, sixteen bytes at a time, which the compiler compares at once: values are most of a head.
#[inline(always)]
pub(crate) fn run_of_value(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(piece) = bytes[at..].first_chunk::<16>() {
        // Tabs are rare, and looked at one by one below.
        if piece.iter().fold(false, |odd, &byte| odd | (byte < b' ') | (byte == 0x7f)) {
            break;
        }
        at += piece.len();
    }
    at + run(&bytes[at..], VALUE)
}

pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && all(bytes, TOKEN)
}

/// Without blanks and tabs at the ends, which is all that HTTP lets us drop of a value.
pub(crate) fn trimmed(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Elements of a comma-separated list, trimmed; empty ones too.
pub(crate) fn elements(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trimmed)
}

/// A non-negative decimal number below 2^63, of digits only.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut total: u64 = 0;
    for &byte in digits {
        if !is(byte, DIGIT) {
            return None;
        }
        total = total.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    (total < 1 << 63).then_some(total)
}

pub(crate) fn push_number(out: &mut Vec<u8>, mut number: u64, radix: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(number % radix) as usize];
        number /= radix;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A range of a head's bytes; heads are far below 4 GiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Span { start: start as u32, end: end as u32 }
    }

    #[inline(always)]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..self.end as usize]
    }
}

impl Span {
    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }
}
