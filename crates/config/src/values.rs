//! The types that a TOML value can be read as: quantities with units, numbers, texts.

use crate::{Value, Wrong, nearest};
use bentpipe_base::{Bytes, ParseUnitError, Probability, Rate, parse_duration};
use core::time::Duration;
use toml::de::DeValue;

/// Reads a quantity written as a text. Where only the unit is wrong, the nearest unit is suggested.
fn quantity<T>(
    value: &DeValue<'_>,
    source: &str,
    units: &[&str],
    parse: impl Fn(&str) -> Result<T, ParseUnitError>,
) -> Result<T, Wrong> {
    let text = match value {
        DeValue::String(text) => text,
        _ => source,
    };
    let error = match (parse(text), value) {
        (Ok(quantity), DeValue::String(_)) => return Ok(quantity),
        // 10MB without quotes is not TOML; a bare 10 has no unit. Never right, whatever it reads as.
        (Ok(_), _) => {
            let what = format!("`{}` is not in quotes", brief(text));
            return Err(Wrong::new(what, format!("`\"{}\"`", brief(text))));
        }
        (Err(error), _) => error,
    };
    let what = format!("`{}` is not {}", brief(&error.text), error.what);
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let (number, unit) = (digits.trim(), text[digits.len()..].trim());
    let suggestion = nearest(unit, units.iter().copied())
        .map(|unit| format!("{number}{unit}"))
        .filter(|guess| parse(guess).is_ok());
    Err(Wrong {
        suggestion,
        ..Wrong::new(what, error.expected)
    })
}

/// `text` on one line of at most 40 characters.
pub fn brief(text: &str) -> String {
    let mut line: String = text.chars().take(40).map(printable).collect();
    if text.chars().nth(40).is_some() {
        line.push('…');
    }
    line
}

fn printable(c: char) -> char {
    if c.is_control() { ' ' } else { c }
}

impl Value for Rate {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
        quantity(value, source, &units, str::parse)
    }
}

impl Value for Bytes {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let units = ["B", "kB", "MB", "GB", "KiB", "MiB", "GiB"];
        quantity(value, source, &units, str::parse)
    }
}

impl Value for Duration {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let units = ["ns", "us", "ms", "s", "min", "h"];
        quantity(value, source, &units, parse_duration)
    }
}

impl Value for Probability {
    /// A text such as `"1%"` or `"1e-6"`, or a bare number such as `0.01`.
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        if let DeValue::Integer(_) | DeValue::Float(_) = value
            && let Ok(probability) = source.parse()
        {
            return Ok(probability);
        }
        quantity(value, source, &["%"], str::parse)
    }
}

impl Value for String {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        match value {
            DeValue::String(text) => Ok(text.to_string()),
            _ => {
                let what = format!("`{}` is not a text", brief(source));
                Err(Wrong::new(what, "a text in quotes"))
            }
        }
    }
}

impl Value for bool {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        match value {
            DeValue::Boolean(value) => Ok(*value),
            _ => {
                let what = format!("`{}` is neither true nor false", brief(source));
                Err(Wrong::new(what, "`true` or `false`, without quotes"))
            }
        }
    }
}

impl Value for i64 {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let wrong = || {
            let what = format!("`{}` is not an integer", brief(source));
            Wrong::new(what, "a whole number of at most 64 bits, without quotes")
        };
        match value {
            DeValue::Integer(number) => {
                Self::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong())
            }
            _ => Err(wrong()),
        }
    }
}

impl Value for u64 {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        i64::read(value, source)
            .ok()
            .and_then(|number| Self::try_from(number).ok())
            .ok_or_else(|| {
                let what = format!("`{}` is not a natural number", brief(source));
                Wrong::new(
                    what,
                    "a whole number from 0 to 9223372036854775807, without quotes",
                )
            })
    }
}

impl Value for f64 {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| {
            let what = format!("`{}` is not a float", brief(source));
            Wrong::new(what, "a number such as 0.5, without quotes")
        })
    }
}

/// A finite number, with or without a decimal point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number(pub f64);

impl Value for Number {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            DeValue::Integer(_) => i64::read(value, source).ok().map(|number| number as f64),
            _ => None,
        };
        number
            .filter(|number: &f64| number.is_finite())
            .map(Self)
            .ok_or_else(|| {
                let what = format!("`{}` is not a number", brief(source));
                Wrong::new(what, "a number such as 2 or 0.5, without quotes")
            })
    }
}
