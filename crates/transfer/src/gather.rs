//! Neighbouring octets, gathered for one write or one read.

/// Octets that are gathered at most.
pub(crate) const MOST: usize = 256 << 10;

/// A stretch of a file.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    pub(crate) from: u64,
    pub(crate) octets: Vec<u8>,
}

impl Gather {
    /// Adds `octets` from `offset` on; `false` when they do not follow what is there, or are too many.
    pub(crate) fn push(&mut self, offset: u64, octets: &[u8]) -> bool {
        if self.octets.is_empty() {
            self.from = offset;
        } else if offset != self.end() || self.octets.len() + octets.len() > MOST {
            return false;
        }
        self.octets.extend_from_slice(octets);
        true
    }

    /// The `len` octets from `offset` on, if all are there.
    pub(crate) fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset.checked_sub(self.from)?).ok()?;
        self.octets.get(at..at.checked_add(len)?)
    }

    /// The offset behind the last octet.
    pub(crate) const fn end(&self) -> u64 {
        self.from + self.octets.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_neighbours_are_gathered() {
        let mut gather = Gather::default();
        assert!(gather.push(7, b"abc") && gather.push(10, b"de"));
        assert!(!gather.push(13, b"x") && !gather.push(7, b"abc"));
        assert_eq!((gather.from, gather.end()), (7, 12));
        assert_eq!(gather.get(8, 3), Some(&b"bcd"[..]));
        assert_eq!((gather.get(6, 2), gather.get(11, 2)), (None, None));
        assert!(!gather.push(12, &vec![0; MOST]));
        gather.octets.clear();
        assert!(gather.push(1, &vec![0; MOST]));
    }
}
