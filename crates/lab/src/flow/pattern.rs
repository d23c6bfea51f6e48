//! What bulk flows carry: bytes that follow from their position in the stream, so that a byte lost,
//! doubled, swapped or changed on the way is noticed.

use bentpipe_base::Stream;

/// After this many bytes the pattern repeats. A prime: no power of two, segment or buffer is a
/// multiple of it, so blocks that change places do not match.
const PERIOD: usize = 65_521;
/// The longest piece handed out.
const LONGEST: usize = 256 * 1024;

/// The bytes of every bulk flow.
pub(crate) struct Pattern {
    /// The period, then its beginning again: pieces need not be cut at the seam.
    bytes: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new() -> Self {
        let mut chance = Stream::new(0, "lab.flow.pattern");
        let period: Vec<u8> = (0..PERIOD).map(|_| chance.bits() as u8).collect();
        let bytes = period.iter().copied().cycle().take(PERIOD + LONGEST);
        Self {
            bytes: bytes.collect(),
        }
    }

    /// The bytes from `position` on, at most `most` and at most 256 KiB of them.
    pub(crate) fn piece(&self, position: u64, most: u64) -> &[u8] {
        let start = (position % PERIOD as u64) as usize;
        let length = most.min(LONGEST as u64) as usize;
        &self.bytes[start..start + length]
    }

    /// Whether `received` is what stands at `position`.
    pub(crate) fn matches(&self, position: u64, received: &[u8]) -> bool {
        let mut at = position;
        received.chunks(LONGEST).all(|chunk| {
            let right = chunk == self.piece(at, chunk.len() as u64);
            at += chunk.len() as u64;
            right
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_cut_make_one_stream() {
        let pattern = Pattern::new();
        let whole: Vec<u8> = (0..4)
            .flat_map(|i| pattern.piece(i * 100_000, 100_000).to_vec())
            .collect();
        assert!(pattern.matches(0, &whole));
        assert_eq!(pattern.piece(0, u64::MAX).len(), LONGEST);
        for cut in [1, 1447, 65_520, 65_521, 399_999] {
            assert!(pattern.matches(cut as u64, &whole[cut..]), "cut at {cut}");
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let pattern = Pattern::new();
        let whole = pattern.piece(0, 200_000).to_vec();
        let mut changed = whole.clone();
        changed[123_456] ^= 1;
        assert!(!pattern.matches(0, &changed));
        let lost = [&whole[..1448], &whole[2896..]].concat();
        assert!(!pattern.matches(0, &lost), "a segment lost");
        let doubled = [&whole[..1448], &whole[..]].concat();
        assert!(!pattern.matches(0, &doubled), "a segment doubled");
        let swapped = [&whole[65_536..131_072], &whole[..65_536]].concat();
        assert!(
            !pattern.matches(0, &swapped),
            "two blocks of 64 KiB swapped"
        );
    }
}
