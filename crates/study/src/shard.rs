//! Parts of a study that machines run apart: job arrays, each job a shard.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Shard number K of N of a study's points, written `K/N`. Points are dealt out in the order in which a run visits them, so
/// that all shards take similar times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    number: u64,
    of: u64,
}

/// A text is no shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a shard is `K/N`, its number from 1 to N and how many there are, such as `3/16`")]
pub struct ParseShardError;

impl Shard {
    /// All points.
    pub(crate) const WHOLE: Self = Self { number: 1, of: 1 };

    /// Its number, from 1 on.
    pub const fn number(self) -> u64 {
        self.number
    }

    /// How many shards there are.
    pub const fn of(self) -> u64 {
        self.of
    }

    /// The name of its folder: `3-of-16`.
    pub fn folder(self) -> String {
        format!("{}-of-{}", self.number, self.of)
    }

    /// How many of `points` are its own.
    pub const fn len(self, points: u64) -> u64 {
        points / self.of + (points % self.of >= self.number) as u64
    }

    /// The place of its point number `own`, from 0 on, in the order in which a run of all points visits them.
    pub(crate) const fn place(self, own: u64) -> u64 {
        own * self.of + self.number - 1
    }

    /// Of `of` shards the one whose point is at `place` of that order.
    pub(crate) const fn holding(place: u64, of: u64) -> Self {
        Self {
            number: place % of + 1,
            of,
        }
    }
}

impl FromStr for Shard {
    type Err = ParseShardError;

    fn from_str(text: &str) -> Result<Self, ParseShardError> {
        let (number, of) = text.split_once('/').ok_or(ParseShardError)?;
        let number: u64 = number.parse().map_err(|_| ParseShardError)?;
        let of: u64 = of.parse().map_err(|_| ParseShardError)?;
        // A place in the order of points is a number of 64 bits: `own * of`, of at most as many points.
        let right = (1..=of).contains(&number) && of <= u64::from(u32::MAX);
        right.then_some(Self { number, of }).ok_or(ParseShardError)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every place of the order belongs to one shard, and each shard has as many as it says.
        #[test]
        fn shards_share_out_all_points(points in 0u64..500, of in 1u64..40) {
            let mut seen = vec![0; points as usize];
            for number in 1..=of {
                let shard = Shard { number, of };
                for own in 0..shard.len(points) {
                    let place = shard.place(own);
                    prop_assert_eq!(Shard::holding(place, of), shard);
                    seen[place as usize] += 1;
                }
                prop_assert!(shard.place(shard.len(points)) >= points);
            }
            prop_assert!(seen.iter().all(|times| *times == 1));
        }
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        assert_eq!("3/16".parse(), Ok(Shard { number: 3, of: 16 }));
        for text in [
            "",
            "3",
            "0/16",
            "17/16",
            "3/0",
            "-1/2",
            "3/16/2",
            "3 of 16",
            "1/4294967296",
        ] {
            assert_eq!(text.parse::<Shard>(), Err(ParseShardError), "{text}");
        }
    }
}
