//! Checksums over whole files.

use bentpipe_wire::saratoga::Checksum;
use md5::Md5;
use sha1::{Digest, Sha1};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::str::FromStr;

/// How the content of a file is summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Not at all: what UDP's checksum misses goes unnoticed.
    None,
    /// CRC-32c: fast; misses one damaged file in four billion.
    Crc32c,
    /// MD5.
    Md5,
    /// SHA-1, the strongest that the draft has.
    #[default]
    Sha1,
}

impl Algorithm {
    /// All, by name.
    pub const ALL: [(&'static str, Self); 4] = [
        ("none", Self::None),
        ("crc32c", Self::Crc32c),
        ("md5", Self::Md5),
        ("sha1", Self::Sha1),
    ];

    /// What `checksum` was made with; `None` when it is not known here.
    pub(crate) const fn of(checksum: &Checksum) -> Option<Self> {
        match checksum {
            Checksum::None => Some(Self::None),
            Checksum::Crc32c(_) => Some(Self::Crc32c),
            Checksum::Md5(_) => Some(Self::Md5),
            Checksum::Sha1(_) => Some(Self::Sha1),
            Checksum::Other { .. } => None,
        }
    }

    /// Sums up the first `len` octets of `file`.
    ///
    /// # Errors
    /// What reading gives; a file that is shorter is one.
    pub fn sum(self, file: &File, len: u64) -> io::Result<Checksum> {
        Ok(match self {
            Self::None => Checksum::None,
            Self::Crc32c => {
                let mut sum = 0;
                each_block(file, len, |block| sum = crc32c::crc32c_append(sum, block))?;
                Checksum::Crc32c(sum)
            }
            Self::Md5 => Checksum::Md5(digest::<Md5>(file, len)?.finalize().into()),
            Self::Sha1 => Checksum::Sha1(digest::<Sha1>(file, len)?.finalize().into()),
        })
    }

    /// Sums up `octets`.
    pub(crate) fn sum_octets(self, octets: &[u8]) -> Checksum {
        match self {
            Self::None => Checksum::None,
            Self::Crc32c => Checksum::Crc32c(crc32c::crc32c(octets)),
            Self::Md5 => Checksum::Md5(Md5::digest(octets).into()),
            Self::Sha1 => Checksum::Sha1(Sha1::digest(octets).into()),
        }
    }
}

impl FromStr for Algorithm {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, algorithm)| *algorithm)
            .ok_or_else(|| format!("`{text}` is no checksum: expected none, crc32c, md5 or sha1"))
    }
}

fn digest<D: Digest>(file: &File, len: u64) -> io::Result<D> {
    let mut digest = D::new();
    each_block(file, len, |block| digest.update(block))?;
    Ok(digest)
}

fn each_block(file: &File, len: u64, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut block = vec![0; 256 << 10];
    let mut at = 0;
    while at < len {
        let want = (len - at).min(block.len() as u64) as usize;
        file.read_exact_at(&mut block[..want], at)?;
        take(&block[..want]);
        at += want as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn sums_have_their_published_values() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(b"123456789").expect("it can be written");
        let sum = |algorithm: Algorithm| algorithm.sum(&file, 9).expect("it can be read");
        // RFC 3720, appendix B.4 (the check value of CRC-32c); RFC 1321; FIPS 180.
        assert_eq!(sum(Algorithm::Crc32c), Checksum::Crc32c(0xe306_9283));
        let hex = |octets: &[u8]| {
            octets
                .iter()
                .map(|octet| format!("{octet:02x}"))
                .collect::<String>()
        };
        let Checksum::Md5(md5) = sum(Algorithm::Md5) else {
            panic!("not MD5")
        };
        assert_eq!(hex(&md5), "25f9e794323b453885f5181f1b624d0b");
        let Checksum::Sha1(sha1) = sum(Algorithm::Sha1) else {
            panic!("not SHA-1")
        };
        assert_eq!(hex(&sha1), "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
        assert!(Algorithm::Crc32c.sum(&file, 10).is_err());
    }
}
