//! Fields out of a datagram, in order; no index is ever out of bounds.

use super::{FrameError, Width};

pub(super) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(super) fn take(&mut self, need: usize) -> Result<&'a [u8], FrameError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(need)
            .ok_or(FrameError::Truncated {
                what: self.what,
                need,
                have: self.rest.len(),
            })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("N octets were taken"))
    }

    pub(super) fn word(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// A descriptor of `width`.
    pub(super) fn value(&mut self, width: Width) -> Result<u128, FrameError> {
        let octets = self.take(width.octets())?;
        Ok(octets
            .iter()
            .fold(0, |value, &octet| value << 8 | u128::from(octet)))
    }

    /// UTF-8 up to a NUL, which is skipped.
    pub(super) fn text(&mut self) -> Result<&'a str, FrameError> {
        let end = self.rest.iter().position(|&octet| octet == 0);
        let end = end.ok_or(FrameError::Malformed {
            what: self.what,
            why: "its path has no end",
        })?;
        let text = self.take(end)?;
        self.take(1)?;
        utf8(text, self.what)
    }

    /// All that is left.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

pub(super) fn utf8<'a>(octets: &'a [u8], what: &'static str) -> Result<&'a str, FrameError> {
    core::str::from_utf8(octets).map_err(|_| FrameError::Malformed {
        what,
        why: "its text is not UTF-8",
    })
}
