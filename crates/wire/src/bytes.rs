//! Big-endian fields out of byte slices; no index is ever out of bounds.

use crate::Error;

/// The first `need` bytes and the rest, or an error that names `what` was to be read.
pub(crate) fn split<'a>(
    bytes: &'a [u8],
    need: usize,
    what: &'static str,
) -> Result<(&'a [u8], &'a [u8]), Error> {
    bytes.split_at_checked(need).ok_or(Error::Truncated {
        what,
        need,
        have: bytes.len(),
    })
}

/// The first N bytes as an array, and the rest.
pub(crate) fn array<'a, const N: usize>(
    bytes: &'a [u8],
    what: &'static str,
) -> Result<(&'a [u8; N], &'a [u8]), Error> {
    bytes.split_first_chunk().ok_or(Error::Truncated {
        what,
        need: N,
        have: bytes.len(),
    })
}

pub(crate) const fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
