//! Checksums over whole files.

use crate::task::{Cancel, FairSemaphore};
use bentpipe_wire::saratoga::Checksum;
use crc_fast::{CrcAlgorithm, Digest};
use md5::Md5;
use sha1::{Digest as _, Sha1};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::str::FromStr;

/// How the content of a file is summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Not at all: what UDP's checksum misses goes unnoticed.
    None,
    /// CRC-32c: fast; misses one damaged file in four billion.
    #[default]
    Crc32c,
    /// MD5.
    Md5,
    /// SHA-1, the strongest that the draft has.
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
    pub fn of(checksum: &Checksum) -> Option<Self> {
        match checksum {
            Checksum::None => Some(Self::None),
            Checksum::Crc32c(_) => Some(Self::Crc32c),
            Checksum::Md5(_) => Some(Self::Md5),
            Checksum::Sha1(_) => Some(Self::Sha1),
            Checksum::Later(_) => {
                let like = |(_, algorithm): &&(&str, Self)| algorithm.later() == *checksum;
                Self::ALL.iter().find(like).map(|(_, algorithm)| *algorithm)
            }
            Checksum::Other { .. } => None,
        }
    }

    /// Sums up the first `len` octets of `file`.
    ///
    /// # Errors
    /// What reading gives; a file that is shorter is one.
    pub fn sum(self, file: &File, len: u64) -> io::Result<Checksum> {
        Ok(Sum::new(self).rest(file, len)?.finish())
    }

    /// What METADATA has before the sum is known.
    pub fn later(self) -> Checksum {
        Sum::new(self).finish().later()
    }

    /// Sums up `octets`.
    pub fn sum_octets(self, octets: &[u8]) -> Checksum {
        let mut sum = Sum::new(self);
        sum.update(octets);
        sum.finish()
    }
}

/// A sum under way, over the beginning of a content.
#[derive(Clone, Debug)]
pub struct Sum {
    state: State,
    upto: u64,
}

#[derive(Clone, Debug)]
enum State {
    None,
    Crc32c(Box<Digest>),
    Md5(Md5),
    Sha1(Sha1),
}

impl Sum {
    /// Over nothing yet.
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match algorithm {
            Algorithm::None => State::None,
            Algorithm::Crc32c => State::Crc32c(Box::new(Digest::new(CrcAlgorithm::Crc32Iscsi))),
            Algorithm::Md5 => State::Md5(Md5::new()),
            Algorithm::Sha1 => State::Sha1(Sha1::new()),
        };
        Self { state, upto: 0 }
    }

    /// `octets` are written at `offset`: goes on with `sum` where they come in order. Where they are
    /// over what was summed up, it may be something else now, and the sum is given up.
    pub(crate) fn follow(sum: &mut Option<Self>, offset: u64, octets: &[u8]) {
        match sum {
            Some(known) if offset == known.upto => known.update(octets),
            Some(known) if offset < known.upto => *sum = None,
            _ => {}
        }
    }

    /// Octets summed up.
    pub(crate) const fn upto(&self) -> u64 {
        self.upto
    }

    /// The next octets.
    pub(crate) fn update(&mut self, octets: &[u8]) {
        match &mut self.state {
            State::None => {}
            State::Crc32c(digest) => digest.update(octets),
            State::Md5(digest) => digest.update(octets),
            State::Sha1(digest) => digest.update(octets),
        }
        self.upto += octets.len() as u64;
    }

    /// Goes on with `file`, up to octet `len`.
    pub(crate) fn rest(self, file: &File, len: u64) -> io::Result<Self> {
        self.rest_until(file, len, || Ok(false))
    }

    /// As `rest`, for the peer at `whom`, in `turns` with others and as long as it is wanted.
    ///
    /// # Errors
    /// What reading gives, or that it is not wanted any more.
    pub fn rest_in_turns(
        self,
        (turns, whom): (&FairSemaphore, SocketAddr),
        cancel: &Cancel,
        file: &File,
        len: u64,
    ) -> io::Result<Self> {
        let mut turn = turns.take_in_background(whom, cancel)?;
        self.rest_until(file, len, || turn.pass_on(cancel).map(|()| false))
    }

    /// As `rest`, until `stops` says so between two blocks.
    pub(crate) fn rest_until(
        mut self,
        file: &File,
        len: u64,
        mut stops: impl FnMut() -> io::Result<bool>,
    ) -> io::Result<Self> {
        if matches!(self.state, State::None) {
            return Ok(self);
        }
        let mut block = vec![0; 256 << 10];
        while self.upto < len && !stops()? {
            let want = (len - self.upto).min(block.len() as u64) as usize;
            file.read_exact_at(&mut block[..want], self.upto)?;
            self.update(&block[..want]);
        }
        Ok(self)
    }

    /// The checksum over all that was summed up.
    pub fn finish(self) -> Checksum {
        match self.state {
            State::None => Checksum::None,
            State::Crc32c(digest) => Checksum::Crc32c(digest.finalize() as u32),
            State::Md5(digest) => Checksum::Md5(digest.finalize().into()),
            State::Sha1(digest) => Checksum::Sha1(digest.finalize().into()),
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

    #[test]
    fn a_sum_follows_what_comes_in_order_and_trusts_nothing_written_twice() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(b"123456789").expect("it can be written");
        for (_, algorithm) in Algorithm::ALL {
            let whole = algorithm.sum_octets(b"123456789");
            let mut sum = Some(Sum::new(algorithm));
            Sum::follow(&mut sum, 0, b"123");
            Sum::follow(&mut sum, 7, b"89");
            Sum::follow(&mut sum, 3, b"456");
            let begun = sum.clone().expect("all of it was new");
            assert_eq!(begun.upto, 6);
            let rest = begun.rest(&file, 9).expect("it can be read");
            assert_eq!(rest.finish(), whole);
            Sum::follow(&mut sum, 5, b"x");
            assert!(sum.is_none());
        }
    }
}
