//! The factors of the packets in a repair, which both ends draw from its key.

use crate::tinymt::TinyMt32;

/// The factors of `count` source packets in the repair of `key`: `generate_coding_coefficients` of RFC 8681, section 3.6,
/// for GF(2^8) and the density threshold 15, with which none of them is 0.
pub(crate) fn coefficients(key: u16, count: usize) -> impl Iterator<Item = u8> {
    let mut generator = TinyMt32::new(key.into());
    let drawn = core::iter::repeat_with(move || generator.octet());
    drawn.filter(|octet| *octet != 0).take(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn are_the_octets_of_the_standard_without_zeros() {
        let first: Vec<u8> = coefficients(1, 6).collect();
        assert_eq!(first, [37, 225, 177, 176, 21, 246]);
        assert!((0..500).all(|key| coefficients(key, 200).all(|one| one != 0)));
        assert_eq!(coefficients(9, 77).count(), 77);
    }
}
