//! What a client wants to be connected to.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// The longest name (RFC 1035, section 2.3.4).
const NAME_MAX: usize = 253;
/// The longest part of one.
const LABEL_MAX: usize = 63;

/// A host: its address, or a name to be resolved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(String),
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, not 0.
    pub port: u16,
}

/// A text is no host, or no port.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoTarget {
    /// It is neither an address nor a name.
    #[error("`{0}` is neither an address nor the name of a host")]
    Host(String),
    /// It is not a number from 1 to 65535.
    #[error("`{0}` is not a port: expected 1 to 65535")]
    Port(String),
}

impl FromStr for Host {
    type Err = NoTarget;

    /// IPv6 without brackets.
    fn from_str(text: &str) -> Result<Self, NoTarget> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Address(address));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let label = |label: &str| {
            (1..=LABEL_MAX).contains(&label.len()) && { label.bytes() }
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        // A last part of digits is an address that is not one (WHATWG URL, section 3.5).
        let last = name.rsplit('.').next().unwrap_or_default();
        let numeric = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
        if name.len() <= NAME_MAX && name.split('.').all(label) && !numeric {
            return Ok(Self::Name(name.to_ascii_lowercase()));
        }
        Err(NoTarget::Host(text.to_owned()))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl Target {
    /// From the two texts that a template has.
    ///
    /// # Errors
    /// [`NoTarget`].
    pub fn of(host: &str, port: &str) -> Result<Self, NoTarget> {
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let number = { port.parse::<u16>().ok() }.filter(|&number| digits && number != 0);
        Ok(Self {
            host: host.parse()?,
            port: number.ok_or_else(|| NoTarget::Port(port.to_owned()))?,
        })
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: Host::Address(address.ip()),
            port: address.port(),
        }
    }
}

impl FromStr for Target {
    type Err = NoTarget;

    /// As classic CONNECT has it: `host:port`, IPv6 in brackets.
    fn from_str(text: &str) -> Result<Self, NoTarget> {
        let (host, port) =
            { text.rsplit_once(':') }.ok_or_else(|| NoTarget::Port(text.to_owned()))?;
        let bare = { host.strip_prefix('[') }.and_then(|host| host.strip_suffix(']'));
        match bare {
            Some(bare) if bare.parse::<Ipv6Addr>().is_ok() => Self::of(bare, port),
            None if host.parse::<Ipv4Addr>().is_ok() || !host.contains(':') => Self::of(host, port),
            _ => Err(NoTarget::Host(host.to_owned())),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_as_written() {
        for text in [
            "192.0.2.1:80",
            "[2001:db8::1]:443",
            "example.com:22",
            "a_b-c.d1:1",
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
        }
        assert_eq!(
            "EXAMPLE.com.:1".parse::<Target>().unwrap().to_string(),
            "example.com:1"
        );
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for text in [
            "",
            ":",
            "host",
            "host:",
            "host:0",
            "host:65536",
            "host:+1",
            "host: 1",
            ":80",
            "2001:db8::1:80",
            "[192.0.2.1]:80",
            "[::1]",
            "a b:1",
            "a..b:1",
            "-:x",
            "1.2.3:80",
            "1.2.3.4.5:80",
            "0x7f.1:80",
            "127.1:1",
            "host/../:1",
            "[fe80::1%eth0]:1",
            "ü.de:1",
        ] {
            assert!(
                text.parse::<Target>().is_err(),
                "{text:?} was taken for a target"
            );
        }
        let long = format!("{}:1", "a".repeat(64));
        assert!(long.parse::<Target>().is_err());
        let long = format!("{}a:1", "a.".repeat(127));
        assert!(long.parse::<Target>().is_err());
    }
}
