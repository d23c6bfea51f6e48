//! TinyMT32 (RFC 8682), from which RFC 8681 draws coefficients: what one end draws, the other draws again.

/// The parameter set of RFC 8682, section 2.1.
const MAT1: u32 = 0x8f70_11ee;
const MAT2: u32 = 0xfc78_ff1f;
const TMAT: u32 = 0x3793_fdff;
/// Steps of initialisation that mix the seed in.
const MIN_LOOP: u32 = 8;
/// Steps that are thrown away.
const PRE_LOOP: u32 = 8;

/// The generator.
pub(crate) struct TinyMt32 {
    status: [u32; 4],
}

impl TinyMt32 {
    /// The generator that begins from `seed`.
    pub(crate) fn new(seed: u32) -> Self {
        let mut status = [seed, MAT1, MAT2, TMAT];
        for i in 1..MIN_LOOP {
            let before = status[(i as usize - 1) & 3];
            let mixed = (before ^ (before >> 30)).wrapping_mul(1_812_433_253);
            status[i as usize & 3] ^= i.wrapping_add(mixed);
        }
        let mut generator = Self { status };
        for _ in 0..PRE_LOOP {
            generator.step();
        }
        generator
    }

    fn step(&mut self) {
        let [s0, s1, s2, s3] = self.status;
        let mut x = (s0 & 0x7fff_ffff) ^ s1 ^ s2;
        x ^= x << 1;
        let y = s3 ^ (s3 >> 1) ^ x;
        let odd = (y & 1).wrapping_neg();
        self.status = [s1, s2 ^ (odd & MAT1), x ^ (y << 10) ^ (odd & MAT2), y];
    }

    /// The next 32 bits.
    pub(crate) fn bits(&mut self) -> u32 {
        self.step();
        let sum = self.status[0].wrapping_add(self.status[2] >> 8);
        let odd = (sum & 1).wrapping_neg();
        self.status[3] ^ sum ^ (odd & TMAT)
    }

    /// `rand256` of RFC 8681: the next number below 256.
    pub(crate) fn octet(&mut self) -> u8 {
        (self.bits() & 0xff) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8682, figure 2: the first 50 outputs with seed 1.
    const PUBLISHED: [u32; 50] = [
        2545341989, 981918433, 3715302833, 2387538352, 3591001365, 3820442102, 2114400566,
        2196103051, 2783359912, 764534509, 643179475, 1822416315, 881558334, 4207026366,
        3690273640, 3240535687, 2921447122, 3984931427, 4092394160, 44209675, 2188315343,
        2908663843, 1834519336, 3774670961, 3019990707, 4065554902, 1239765502, 4035716197,
        3412127188, 552822483, 161364450, 353727785, 140085994, 149132008, 2547770827, 4064042525,
        4078297538, 2057335507, 622384752, 2041665899, 2193913817, 1080849512, 33160901, 662956935,
        642999063, 3384709977, 1723175122, 3866752252, 521822317, 2292524454,
    ];

    /// RFC 8681, figure 9: the first 50 of `rand256` with seed 1.
    const PUBLISHED_OCTETS: [u8; 50] = [
        37, 225, 177, 176, 21, 246, 54, 139, 168, 237, 211, 187, 62, 190, 104, 135, 210, 99, 176,
        11, 207, 35, 40, 113, 179, 214, 254, 101, 212, 211, 226, 41, 234, 232, 203, 29, 194, 211,
        112, 107, 217, 104, 197, 135, 23, 89, 210, 252, 109, 166,
    ];

    #[test]
    fn draws_what_the_standards_print() {
        let mut generator = TinyMt32::new(1);
        let drawn: Vec<u32> = (0..50).map(|_| generator.bits()).collect();
        assert_eq!(drawn, PUBLISHED);
        let mut generator = TinyMt32::new(1);
        let octets: Vec<u8> = (0..50).map(|_| generator.octet()).collect();
        assert_eq!(octets, PUBLISHED_OCTETS);
    }
}
