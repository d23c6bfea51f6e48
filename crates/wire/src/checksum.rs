//! The Internet checksum (RFC 1071): the ones' complement of the ones' complement sum of 16-bit
//! words, an odd last byte padded with zero.

/// A running sum; add parts of even length in any order, an odd one last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Nothing added yet.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds `bytes`.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        // The sum of words in the machine's own order is that of the network's with its bytes exchanged (RFC 1071, section
        // 2 B), so that no word has to be turned round. 2^32 words of 32 bits fit before 64 bits overflow, far more than any
        // packet holds; a check of each addition would keep the compiler from doing several at once.
        let (words, rest) = bytes.as_chunks::<4>();
        let sum = words.iter().fold(0u64, |sum, word| {
            sum.wrapping_add(u64::from(u32::from_ne_bytes(*word)))
        });
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let sum = fold(sum.wrapping_add(u64::from(u32::from_ne_bytes(last))));
        Self(self.0 + u64::from(u16::from_be(sum)))
    }

    /// Adds one 16-bit word.
    #[must_use]
    pub fn with_word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word))
    }

    /// The checksum of all that was added. Over bytes that include a right checksum it is zero.
    pub const fn finish(self) -> u16 {
        !fold(self.0)
    }
}

/// The ones' complement sum of the 16-bit words of `sum`.
const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u16 {
    Sum::new().with(bytes).finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
        assert_eq!(checksum(&[]), 0xffff);
        assert_eq!(checksum(&[0xab]), !0xab00);
    }

    proptest! {
        #[test]
        fn it_is_the_sum_of_words_with_end_around_carry(bytes: Vec<u8>) {
            let mut sum = 0u32;
            for word in bytes.chunks(2) {
                sum += u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low));
                sum = (sum & 0xffff) + (sum >> 16);
            }
            prop_assert_eq!(checksum(&bytes), !(sum as u16));
        }

        #[test]
        fn parts_add_up(bytes: Vec<u8>, at: prop::sample::Index) {
            let even = at.index(bytes.len() + 1) & !1;
            let sum = Sum::new().with(&bytes[even..]);
            let both = Sum::new().with(&bytes[..even]).with(&bytes[even..]);
            prop_assert_eq!(both.finish(), checksum(&bytes));
            prop_assert_eq!(sum.finish(), checksum(&bytes[even..]));
        }
    }
}
