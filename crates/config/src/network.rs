//! Values that programs of the network have in their settings: networks, ports, addresses, rates of links, and bounds.

use crate::{Value, Wrong};
use bentpipe_base::{Bytes, Prefix, Rate};
use core::ops::RangeInclusive;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use toml::de::DeValue;

/// One value, or an array of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Many<T>(pub Vec<T>);

impl<T: Value> Value for Many<T> {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let DeValue::Array(items) = value else {
            return Ok(Self(vec![T::read(value, source)?]));
        };
        if items.is_empty() {
            return Err(Wrong::new(
                "an empty array",
                "at least one value, or no key",
            ));
        }
        let read = items.iter().map(|item| T::read(item.get_ref(), source));
        read.collect::<Result<_, _>>().map(Self)
    }
}

/// A network, or one address.
#[derive(Clone, Debug, PartialEq)]
pub struct Net(pub Prefix);

impl Value for Net {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        let prefix: Prefix = text.parse().map_err(|_| {
            Wrong::new(
                format!("`{}` is no network", text.escape_default()),
                "an address or a prefix, such as \"10.1.0.0/16\" or \"fd00:1::/32\"",
            )
        })?;
        let IpAddr::V6(address) = prefix.address() else {
            return Ok(Self(prefix));
        };
        match address.to_ipv4_mapped() {
            None => Ok(Self(prefix)),
            // No packet has such an address.
            Some(v4) => {
                let bits = prefix.bits();
                let meant = Prefix::new(v4.into(), bits.checked_sub(96).unwrap_or(bits))
                    .unwrap_or(Prefix::host(v4.into()));
                Err(Wrong::new(
                    format!("`{text}` is IPv4 written as IPv6, and matches nothing"),
                    format!("the IPv4 prefix, such as \"{meant}\""),
                ))
            }
        }
    }
}

/// A port, or a range of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Ports(pub RangeInclusive<u16>);

impl Value for Ports {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let Ok(text) = String::read(value, source) else {
            let Whole::<1, 65_535>(port) = Whole::read(value, source)?;
            return Ok(Self(port as u16..=port as u16));
        };
        let range = text
            .split_once('-')
            .and_then(|(first, last)| Some(first.trim().parse().ok()?..=last.trim().parse().ok()?));
        match range {
            Some(range) if *range.start() > 0 && !range.is_empty() => Ok(Self(range)),
            _ => Err(Wrong::new(
                format!("`{}` is no range of ports", text.escape_default()),
                "a port such as 443, or a range such as \"8000-8099\"",
            )),
        }
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Whole<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Value for Whole<MIN, MAX> {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let range = format!("a whole number from {MIN} to {MAX}, without quotes");
        match u64::read(value, source) {
            Ok(number) if (MIN..=MAX).contains(&number) => Ok(Self(number)),
            Ok(number) => Err(Wrong::new(format!("`{number}` is out of range"), range)),
            Err(wrong) => Err(Wrong::new(wrong.what, range)),
        }
    }
}

/// An address and a port, or `"off"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics(pub Option<SocketAddr>);

impl Value for Metrics {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        let wrong = |_| {
            Wrong::new(
                format!("`{}` is no address with a port", text.escape_default()),
                "an address and a port such as \"127.0.0.1:9463\", or \"off\"",
            )
        };
        match text.as_str() {
            "off" => Ok(Self(None)),
            text => Ok(Self(Some(text.parse().map_err(wrong)?))),
        }
    }
}

/// A path from the root, or `"off"`.
#[derive(Clone, Debug, PartialEq)]
pub struct AbsolutePath(pub Option<PathBuf>);

impl Value for AbsolutePath {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match text.as_str() {
            "off" => Ok(Self(None)),
            path if path.starts_with('/') && !path.contains('\0') => {
                Ok(Self(Some(PathBuf::from(path))))
            }
            other => Err(Wrong::new(
                format!("`{}` is no path from the root", other.escape_default()),
                "a path such as \"/run/bentpipe/gateway.sock\", or \"off\"",
            )),
        }
    }
}

/// How long a flow may be idle.
#[derive(Clone, Debug, PartialEq)]
pub struct Idle(pub Option<Duration>);

impl Value for Idle {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 1s to 30 days, such as \"3600s\", or \"off\"";
        if String::read(value, source).is_ok_and(|text| text == "off") {
            return Ok(Self(None));
        }
        match time(value, source, 1..=2_592_000, expected) {
            Ok(time) => Ok(Self(Some(time))),
            Err(wrong) => Err(wrong),
        }
    }
}

/// What all buffers hold together.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffered(pub Bytes);

impl Value for Buffered {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        sized(
            value,
            source,
            1 << 20,
            1 << 40,
            "from 1MiB to 1TiB, such as \"2GiB\"",
        )
        .map(Self)
    }
}

/// The rate of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkRate(pub Rate);

impl Value for LinkRate {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let rate = Rate::read(value, source)?;
        let range = Rate::from_bits_per_sec(8_000)..=Rate::from_bits_per_sec(100_000_000_000);
        if !range.contains(&rate) {
            let what = format!("`{rate}` is out of range");
            return Err(Wrong::new(what, "a rate from 8kbit/s to 100Gbit/s"));
        }
        Ok(Self(rate))
    }
}

/// A time of so many seconds.
///
/// # Errors
/// What is wrong with the value.
pub fn time(
    value: &DeValue<'_>,
    source: &str,
    seconds: std::ops::RangeInclusive<u64>,
    expected: &str,
) -> Result<Duration, Wrong> {
    match Duration::read(value, source) {
        Ok(time) if seconds.contains(&time.as_secs()) => Ok(time),
        Ok(time) => Err(Wrong::new(format!("{time:?} is out of range"), expected)),
        Err(wrong) => Err(Wrong::new(wrong.what, expected)),
    }
}

/// An amount of data from `least` to `most` bytes, which `range` says in words.
///
/// # Errors
/// What is wrong with the value.
pub fn sized(
    value: &DeValue<'_>,
    source: &str,
    least: u64,
    most: u64,
    range: &str,
) -> Result<Bytes, Wrong> {
    let size = Bytes::read(value, source)?;
    if !(least..=most).contains(&size.0) {
        let what = format!("`{size}` is out of range");
        return Err(Wrong::new(what, format!("an amount of data {range}")));
    }
    Ok(size)
}

/// One of `all` by its name, as a kind of `what`.
///
/// # Errors
/// What is wrong with the value.
pub fn word<T: Copy>(
    value: &DeValue<'_>,
    source: &str,
    what: &str,
    all: &[(&str, T)],
) -> Result<T, Wrong> {
    let text = String::read(value, source)?;
    let found = all.iter().find(|(name, _)| *name == text);
    found.map(|(_, it)| *it).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let what = format!("`{}` is no {what}", text.escape_default());
        Wrong::name(what, &text, &names)
    })
}
