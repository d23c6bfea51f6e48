//! The types that all other crates of bentpipe share: time, units, sequence numbers, seeded random streams, and the one
//! contract of all protocol machines ([`Machine`]).
//!
//! Nothing here uses an operating system: time is an argument, and random numbers come from a seed.
//!
//! Begin with [`Machine`], then [`Instant`] and [`Rate`].
#![forbid(unsafe_code)]

mod append;
mod machine;
mod observe;
mod prefix;
mod random;
mod ranges;
mod seq;
mod time;
mod timer_wheel;
mod units;
mod whole;

pub use append::append;
pub use machine::{Machine, Output};
pub use observe::{DropCause, Fact, Observer, Silent};
pub use prefix::{Family, ParsePrefixError, Prefix};
pub use random::Stream;
pub use ranges::Ranges;
pub use seq::Seq;
pub use time::Instant;
pub use timer_wheel::TimerWheel;
pub use units::{Bytes, ParseUnitError, Probability, Rate, parse_duration};
pub use whole::{MOST_WHOLE, read_text, read_whole};
