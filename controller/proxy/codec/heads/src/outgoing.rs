//! What goes out for one piece of input: framing of ours around ranges of the input, copied once.

use std::ops::Range;

use crate::bytes::push_number;

/// Framing, ranges of the input, framing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    prefix: Vec<u8>,
    pieces: Vec<Range<usize>>,
    suffix: Vec<u8>,
}

impl Outgoing {
    /// The pieces as they are, with no framing.
    pub(crate) fn plain(pieces: Vec<Range<usize>>) -> Self {
        Outgoing { pieces, ..Outgoing::default() }
    }

    /// The pieces as one chunk; nothing if they are empty, since an empty chunk would be the last one.
    pub(crate) fn chunk(pieces: Vec<Range<usize>>) -> Self {
        let mut outgoing = Outgoing::plain(pieces);
        let length = outgoing.payload();
        if length > 0 {
            push_number(&mut outgoing.prefix, length as u64, 16);
            outgoing.prefix.extend_from_slice(b"\r\n");
            outgoing.suffix.extend_from_slice(b"\r\n");
        }
        outgoing
    }

    /// What follows the pieces; may be added to.
    pub(crate) fn suffix(&mut self) -> &mut Vec<u8> {
        &mut self.suffix
    }

    pub(crate) fn payload(&self) -> usize {
        self.pieces.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether this is `data` itself, byte for byte. No copy is made to find out.
    pub(crate) fn is(&self, data: &[u8]) -> bool {
        let in_place = match &self.pieces[..] {
            [] => true,
            [piece] => piece.start == self.prefix.len(),
            _ => false,
        };
        in_place && self.len() == data.len() && data.starts_with(&self.prefix) && data.ends_with(&self.suffix)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.prefix.len() + self.payload() + self.suffix.len()
    }

    /// Writes it into `out`, which has room for exactly `len` bytes. `data` is the input it was made of.
    pub fn write(&self, data: &[u8], out: &mut [u8]) {
        let pieces = self.pieces.iter().map(|piece| &data[piece.clone()]);
        let mut left = out;
        for part in [&self.prefix[..]].into_iter().chain(pieces).chain([&self.suffix[..]]) {
            let (here, rest) = left.split_at_mut(part.len());
            here.copy_from_slice(part);
            left = rest;
        }
    }

    pub fn to_vec(&self, data: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.len()];
        self.write(data, &mut out);
        out
    }
}
