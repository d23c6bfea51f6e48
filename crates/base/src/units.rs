use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Mul, Sub};
use core::str::FromStr;
use core::time::Duration;
use thiserror::Error;

/// An amount of data in bytes. `kB`, `MB`, `GB` are powers of 1000; `KiB`, `MiB`, `GiB` of 1024.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// A data rate in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A probability, in [0, 1].
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` is not {what}: expected {expected}")]
pub struct ParseUnitError {
    /// What was written.
    pub text: String,
    /// What was wanted, with its article: "a rate".
    pub what: &'static str,
    /// Examples of what is right.
    pub expected: &'static str,
}

impl Bytes {
    /// The number of bits.
    pub const fn bits(self) -> u64 {
        self.0.saturating_mul(8)
    }
}

impl Rate {
    /// A rate of `bits` per second.
    pub const fn from_bits_per_sec(bits: u64) -> Self {
        Self(bits)
    }

    /// Bits per second.
    pub const fn bits_per_sec(self) -> u64 {
        self.0
    }

    /// Bytes per second, rounded down.
    pub const fn bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// Megabits (10^6) per second.
    pub fn mbps(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time that `size` takes on the wire at this rate, rounded up to a nanosecond.
    /// A rate of zero never ends: `Duration::MAX`.
    pub fn serialisation(self, size: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        // For all that links carry 64 bits will do, which a processor divides much faster.
        let nanos = size.0.checked_mul(8 * 1_000_000_000).map_or_else(
            || {
                let nanos = (u128::from(size.0) * 8 * 1_000_000_000).div_ceil(u128::from(self.0));
                u64::try_from(nanos).unwrap_or(u64::MAX)
            },
            |wanted| wanted.div_ceil(self.0),
        );
        Duration::from_nanos(nanos)
    }

    /// The bytes that `time` carries at this rate: with a round-trip time, the bandwidth-delay
    /// product. Rounded down.
    pub fn over(self, time: Duration) -> Bytes {
        let bytes = u128::from(self.0) * time.as_nanos() / 8_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// This rate times `factor`, which must not be negative.
    pub fn scaled(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }
}

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);

    /// `value` as a probability; `None` outside [0, 1].
    pub fn new(value: f64) -> Option<Self> {
        (0.0..=1.0).contains(&value).then_some(Self(value))
    }

    /// The number in [0, 1].
    pub const fn value(self) -> f64 {
        self.0
    }
}

/// Splits "10.5 Mbit/s" into its number and its unit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    // An exponent belongs to the number: "1e6bit/s", but not the unit of "1exabyte".
    let end = text
        .char_indices()
        .find(|&(i, c)| {
            let follows_number = text[i + c.len_utf8()..]
                .starts_with(|next: char| next.is_ascii_digit() || next == '-' || next == '+');
            !(c.is_ascii_digit()
                || c == '.'
                || (c == 'e' && i > 0 && follows_number)
                || ((c == '-' || c == '+') && text[..i].ends_with('e')))
        })
        .map_or(text.len(), |(i, _)| i);
    let number: f64 = text[..end].parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number, text[end..].trim()))
}

fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, unit) = number_and_unit(text)?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let value = (number * scale).round();
    (value < u64::MAX as f64).then_some(value)
}

impl FromStr for Bytes {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNITS: &[(&str, f64)] = &[
            ("B", 1.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("KiB", 1024.0),
            ("MiB", 1_048_576.0),
            ("GiB", 1_073_741_824.0),
        ];
        scaled(text, UNITS).map(|value| Self(value as u64)).ok_or_else(|| ParseUnitError {
            text: text.to_owned(),
            what: "an amount of data",
            expected: "a number with B, kB, MB, GB (powers of 1000), KiB, MiB or GiB (of 1024), such as \"100kB\"",
        })
    }
}

impl FromStr for Rate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNITS: &[(&str, f64)] = &[
            ("bit/s", 1.0),
            ("kbit/s", 1e3),
            ("Mbit/s", 1e6),
            ("Gbit/s", 1e9),
        ];
        scaled(text, UNITS)
            .filter(|value| *value >= 1.0)
            .map(|value| Self(value as u64))
            .ok_or_else(|| ParseUnitError {
                text: text.to_owned(),
                what: "a rate",
                expected: "a positive number with bit/s, kbit/s, Mbit/s or Gbit/s, such as \"10Mbit/s\"",
            })
    }
}

/// Reads a duration such as `"300ms"`.
pub fn parse_duration(text: &str) -> Result<Duration, ParseUnitError> {
    const UNITS: &[(&str, f64)] = &[
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 60e9),
        ("h", 3600e9),
    ];
    scaled(text, UNITS)
        .map(|nanos| Duration::from_nanos(nanos as u64))
        .ok_or_else(|| ParseUnitError {
            text: text.to_owned(),
            what: "a duration",
            expected: "a number with ns, us, ms, s, min or h, such as \"300ms\"",
        })
}

impl FromStr for Probability {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        number_and_unit(text)
            .and_then(|(number, unit)| match unit {
                "" => Self::new(number),
                "%" => Self::new(number / 100.0),
                _ => None,
            })
            .ok_or_else(|| ParseUnitError {
                text: text.to_owned(),
                what: "a probability",
                expected: "a number from 0 to 1 such as \"1e-6\", or a percentage such as \"5%\"",
            })
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(
            f,
            self.0,
            &[(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")],
            "B",
        )
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000, "Gbit/s"),
            (1_000_000, "Mbit/s"),
            (1_000, "kbit/s"),
        ];
        decimal(f, self.0, &units, "bit/s")
    }
}

/// Writes `value` in the largest unit that leaves a whole number, so that what is printed reads back
/// as the same value.
fn decimal(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(u64, &str)],
    one: &str,
) -> fmt::Result {
    match units
        .iter()
        .find(|(scale, _)| value >= *scale && value.is_multiple_of(*scale))
    {
        Some((scale, unit)) => write!(f, "{}{unit}", value / scale),
        None => write!(f, "{value}{one}"),
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, rhs: Self) {
        *self = *self + rhs;
    }
}

impl Sub for Bytes {
    type Output = Self;
    /// Saturates at zero.
    fn sub(self, rhs: Self) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Mul<u64> for Bytes {
    type Output = Self;
    fn mul(self, rhs: u64) -> Self {
        Self(self.0.saturating_mul(rhs))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self(0), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_read_as_written() {
        assert_eq!("100kB".parse(), Ok(Bytes(100_000)));
        assert_eq!("64 KiB".parse(), Ok(Bytes(65_536)));
        assert_eq!("10Mbit/s".parse(), Ok(Rate::from_bits_per_sec(10_000_000)));
        assert_eq!(
            "1.544Mbit/s".parse(),
            Ok(Rate::from_bits_per_sec(1_544_000))
        );
        assert_eq!("1e6bit/s".parse(), Ok(Rate::from_bits_per_sec(1_000_000)));
        assert_eq!(parse_duration("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(
            "1e-6".parse::<Probability>().map(Probability::value),
            Ok(1e-6)
        );
        assert_eq!(
            "5%".parse::<Probability>().map(Probability::value),
            Ok(0.05)
        );
    }

    #[test]
    fn nonsense_is_refused_with_what_was_expected() {
        for text in [
            "10",
            "10MB/s",
            "-1Mbit/s",
            "",
            "Mbit/s",
            "0Mbit/s",
            "1e400bit/s",
            "NaNbit/s",
        ] {
            assert!(
                text.parse::<Rate>().is_err(),
                "{text:?} was taken for a rate"
            );
        }
        for text in ["1.5", "-0.1", "101%", "x"] {
            assert!(
                text.parse::<Probability>().is_err(),
                "{text:?} was taken for a probability"
            );
        }
        for text in ["300", "5 m", "-1ms", "1e30h"] {
            assert!(
                parse_duration(text).is_err(),
                "{text:?} was taken for a duration"
            );
        }
        let error = "fast".parse::<Rate>().unwrap_err().to_string();
        assert!(
            error.contains("`fast`") && error.contains("10Mbit/s"),
            "{error}"
        );
    }

    #[test]
    fn serialisation_is_exact_to_the_nanosecond() {
        let ten = Rate::from_bits_per_sec(10_000_000);
        assert_eq!(ten.serialisation(Bytes(1500)), Duration::from_micros(1200));
        let third = Rate::from_bits_per_sec(3);
        assert_eq!(
            third.serialisation(Bytes(1)),
            Duration::from_nanos(2_666_666_667)
        );
        assert_eq!(ten.over(Duration::from_millis(600)), Bytes(750_000));
        // Beyond 64 bits, and on both sides of them.
        let whole = u64::MAX / 8_000_000_000;
        for size in [whole, whole + 1, u64::MAX] {
            let nanos = u128::from(size)
                .saturating_mul(8_000_000_000)
                .div_ceil(10_000_000);
            let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
            assert_eq!(ten.serialisation(Bytes(size)), Duration::from_nanos(nanos));
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(value in 1u64..1 << 49) {
            let rate = Rate::from_bits_per_sec(value);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            let bytes = Bytes(value);
            prop_assert_eq!(bytes.to_string().parse(), Ok(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = text.parse::<Rate>();
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Probability>();
            let _ = parse_duration(&text);
        }
    }
}
