//! Variable-length integers of QUIC (RFC 9000, section 16).

/// The greatest that can be written.
pub(crate) const MAX: u64 = (1 << 62) - 1;

/// Appends `value`, of which the two highest bits must be clear.
pub(crate) fn put(value: u64, out: &mut Vec<u8>) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 1 << 14).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 1 << 31).to_be_bytes()),
        _ => out.extend_from_slice(&(value.min(MAX) | 3 << 62).to_be_bytes()),
    }
}

/// Gathers one integer, whose bytes may come one by one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gather {
    value: u64,
    /// Bytes seen.
    seen: u8,
    /// Bytes in all, once the first was seen.
    length: u8,
}

impl Gather {
    /// The next byte; the integer, with its last.
    pub(crate) fn byte(&mut self, byte: u8) -> Option<u64> {
        if self.seen == 0 {
            self.length = 1 << (byte >> 6);
            self.value = u64::from(byte & 0x3f);
        } else {
            self.value = self.value << 8 | u64::from(byte);
        }
        self.seen += 1;
        if self.seen < self.length {
            return None;
        }
        let whole = self.value;
        *self = Self::default();
        Some(whole)
    }

    /// Whether it holds a part of an integer.
    pub(crate) const fn is_partial(&self) -> bool {
        self.seen > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 9000, appendix A.1.
    #[test]
    fn the_examples_of_the_rfc() {
        for (bytes, value) in [
            (
                &[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..],
                151_288_809_941_952_652,
            ),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0x7b, 0xbd], 15_293),
            (&[0x25], 37),
        ] {
            let mut out = Vec::new();
            put(value, &mut out);
            assert_eq!(out, bytes);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in 0..=MAX, shift in 0_u32..62) {
            let value = value >> shift;
            let mut out = Vec::new();
            put(value, &mut out);
            let mut gather = Gather::default();
            let (last, rest) = out.split_last().unwrap();
            for &byte in rest {
                prop_assert_eq!(gather.byte(byte), None);
                prop_assert!(gather.is_partial());
            }
            prop_assert_eq!(gather.byte(*last), Some(value));
            prop_assert!(!gather.is_partial());
        }
    }
}
