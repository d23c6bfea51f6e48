//! Arithmetic in GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1, the field of RFC 8681, on octets and on vectors of them.
//!
//! Vectors are multiplied without tables: [`add_scaled`] by shifts and additions that a compiler makes SIMD instructions
//! of, and [`combine`], where many vectors are added, by exclusive-ors alone.

/// The primitive polynomial without its highest term.
const POLYNOMIAL: u8 = 0x1d;

/// Powers of the generator 2, twice over, so that the sum of two logarithms is an index.
const EXP: [u8; 510] = exponents();
/// Logarithms; that of 0 does not exist, and nothing reads it.
const LOG: [u8; 256] = logarithms();

const fn exponents() -> [u8; 510] {
    let mut table = [0; 510];
    let mut power = 1;
    let mut i = 0;
    while i < table.len() {
        table[i] = power;
        power = double(power);
        i += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
}

/// `value` times 2.
#[inline(always)]
const fn double(value: u8) -> u8 {
    (value << 1) ^ (POLYNOMIAL & (value >> 7).wrapping_neg())
}

/// `a` times `b`.
pub(crate) const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// What `value`, which is not 0, is to be multiplied by to give 1.
pub(crate) const fn inverse(value: u8) -> u8 {
    EXP[255 - LOG[value as usize] as usize]
}

/// Adds `source` to `target`, as far as both reach.
#[inline]
fn add(target: &mut [u8], source: &[u8]) {
    for (to, from) in target.iter_mut().zip(source) {
        *to ^= from;
    }
}

/// Adds `source` times `factor` to `target`, as far as both reach.
pub(crate) fn add_scaled(target: &mut [u8], source: &[u8], factor: u8) {
    if factor == 0 {
        return;
    }
    // One mask for each bit of the factor: every octet takes the same steps, so that many are done at once.
    let masks: [u8; 8] = core::array::from_fn(|bit| ((factor >> bit) & 1).wrapping_neg());
    for (to, from) in target.iter_mut().zip(source) {
        let mut product = from & masks[7];
        for mask in masks[..7].iter().rev() {
            product = double(product) ^ (from & mask);
        }
        *to ^= product;
    }
}

/// Multiplies `target` by `factor`.
pub(crate) fn scale(target: &mut [u8], factor: u8) {
    for value in target {
        *value = mul(*value, factor);
    }
}

/// Octets that [`combine`] works on at a time: its 32 buckets of them stay in the nearest cache.
const STRIP: usize = 512;
/// Fewer terms than this are cheaper one by one.
const MANY: usize = 24;

/// Adds to `target` all `terms`, each times its factor. None is longer than `target`.
///
/// Each term goes, as it is, into two of 32 buckets, one for each half of its factor; multiplied are only the sums. A term
/// so takes two exclusive-ors an octet, however it is multiplied.
pub(crate) fn combine(target: &mut [u8], terms: &[(u8, &[u8])]) {
    if terms.len() < MANY {
        for (factor, source) in terms {
            add_scaled(target, source, *factor);
        }
        return;
    }
    for (index, strip) in target.chunks_mut(STRIP).enumerate() {
        let mut low = [[0; STRIP]; 16];
        let mut high = [[0; STRIP]; 16];
        for (factor, source) in terms {
            let Some(rest) = source.get(index * STRIP..) else {
                continue;
            };
            let part = &rest[..rest.len().min(STRIP)];
            add(&mut low[usize::from(factor & 15)], part);
            add(&mut high[usize::from(factor >> 4)], part);
        }
        collect(strip, &low, &high);
    }
}

/// Adds to `strip` what lies in each bucket, times the factor of the bucket: Horner's rule over the bits of the factors.
fn collect(strip: &mut [u8], low: &[[u8; STRIP]; 16], high: &[[u8; STRIP]; 16]) {
    let mut sum = [0; STRIP];
    let sum = &mut sum[..strip.len()];
    for (buckets, bit) in [high, low]
        .into_iter()
        .flat_map(|half| (0..4).rev().map(move |bit| (half, bit)))
    {
        sum.iter_mut().for_each(|value| *value = double(*value));
        for (_, bucket) in (0..).zip(buckets).filter(|(i, _)| (i >> bit) & 1 == 1) {
            add(sum, bucket);
        }
    }
    add(strip, sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: polynomials are multiplied, and the product is divided by the primitive one.
    fn by_long_hand(a: u8, b: u8) -> u8 {
        let product = (0..8).fold(0u32, |sum, bit| {
            sum ^ ((u32::from(a) << bit) * u32::from((b >> bit) & 1))
        });
        let reduced = (8..16).rev().fold(product, |rest, bit| {
            rest ^ ((0x11d << (bit - 8)) * ((rest >> bit) & 1))
        });
        reduced as u8
    }

    #[test]
    fn octets_are_multiplied_as_polynomials() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), by_long_hand(a, b), "{a} * {b}");
            }
            if a != 0 {
                assert_eq!(mul(a, inverse(a)), 1, "1 / {a}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_terms_are_combined_as_octet_by_octet(
            terms in proptest::collection::vec(
                (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..1300)),
                0..60,
            ),
        ) {
            let longest = terms.iter().map(|(_, source)| source.len()).max().unwrap_or(0);
            let mut expected = vec![7; longest];
            for (factor, source) in &terms {
                for (to, from) in expected.iter_mut().zip(source) {
                    *to ^= mul(*factor, *from);
                }
            }
            let mut found = vec![7; longest];
            let terms: Vec<(u8, &[u8])> = terms.iter().map(|(c, source)| (*c, &source[..])).collect();
            combine(&mut found, &terms);
            prop_assert_eq!(&found, &expected);
            scale(&mut found, 3);
            scale(&mut found, inverse(3));
            prop_assert_eq!(found, expected);
        }
    }
}
