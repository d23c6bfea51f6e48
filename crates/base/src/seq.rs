use core::cmp::Ordering;
use core::ops::{Add, Sub};

/// A TCP sequence number: 32 bits, compared modulo 2^32 (RFC 9293, section 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Signed distance from `other` to `self`, in bytes; exact within ±2^31.
    pub const fn offset_from(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

impl Add<u32> for Seq {
    type Output = Self;
    fn add(self, rhs: u32) -> Self {
        Self(self.0.wrapping_add(rhs))
    }
}

impl Sub<u32> for Seq {
    type Output = Self;
    fn sub(self, rhs: u32) -> Self {
        Self(self.0.wrapping_sub(rhs))
    }
}

impl PartialOrd for Seq {
    /// `None` when the two lie exactly 2^31 apart: neither is before the other.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.offset_from(*other) {
            i32::MIN => None,
            offset => Some(offset.cmp(&0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let before = Seq(u32::MAX - 1);
        assert!(before < before + 10);
        assert_eq!((before + 10).offset_from(before), 10);
        assert_eq!(Seq(0).partial_cmp(&Seq(1 << 31)), None);
    }
}
