//! Gathers neighbouring octets, so that one system call writes or reads them all.

/// Octets that are gathered at most; for a write, up to the next multiple of it: whole pages, however
/// large, need not be cleared first.
pub(crate) const MOST: usize = 256 << 10;

/// A stretch of a file.
#[derive(Debug, Default)]
pub struct Gather {
    pub(crate) from: u64,
    pub(crate) octets: Vec<u8>,
}

impl Gather {
    /// Adds of `octets` from `offset` on what follows what is there and is not too much: how many.
    pub(crate) fn push(&mut self, offset: u64, octets: &[u8]) -> usize {
        if self.octets.is_empty() {
            self.from = offset;
        } else if offset != self.end() {
            return 0;
        }
        let room = MOST - (self.from % MOST as u64) as usize - self.octets.len();
        let taken = octets.len().min(room);
        self.octets.extend_from_slice(&octets[..taken]);
        taken
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
        assert_eq!((gather.push(7, b"abc"), gather.push(10, b"de")), (3, 2));
        assert_eq!((gather.push(13, b"x"), gather.push(7, b"abc")), (0, 0));
        assert_eq!((gather.from, gather.end()), (7, 12));
        assert_eq!(gather.get(8, 3), Some(&b"bcd"[..]));
        assert_eq!((gather.get(6, 2), gather.get(11, 2)), (None, None));
        assert_eq!(gather.push(12, &vec![0; MOST]), MOST - 12);
        assert_eq!(gather.push(MOST as u64, b"x"), 0);
        gather.octets.clear();
        assert_eq!(gather.push(MOST as u64, &vec![0; MOST + 1]), MOST);
    }
}
