//! Networks by their prefixes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use thiserror::Error;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];
}

/// An address and the number of its leading bits that name the network: `10.1.0.2/24`.
///
/// As an interface's address it keeps its host bits; as a route's destination they are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

/// A text that is no prefix.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not an address with a prefix length: expected for example 10.1.0.2/24 or fd00:1::2/64"
)]
pub struct ParsePrefixError(String);

impl Prefix {
    /// `0.0.0.0/0`: everywhere in IPv4.
    pub const ALL_V4: Self = Self {
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        bits: 0,
    };
    /// `::/0`: everywhere in IPv6.
    pub const ALL_V6: Self = Self {
        address: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        bits: 0,
    };

    /// `None` when there are more `bits` than the address has.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        (bits <= width(address)).then_some(Self { address, bits })
    }

    /// Just this address: `/32` or `/128`.
    pub fn host(address: IpAddr) -> Self {
        Self {
            address,
            bits: width(address),
        }
    }

    /// Everywhere in `family`.
    pub const fn all(family: Family) -> Self {
        match family {
            Family::V4 => Self::ALL_V4,
            Family::V6 => Self::ALL_V6,
        }
    }

    /// The address with its host bits.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// The number of network bits.
    pub const fn bits(&self) -> u8 {
        self.bits
    }

    /// Whether all of `other` is in this one.
    pub fn holds(&self, other: &Self) -> bool {
        let bits = |prefix: &Self| match prefix.address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        let differ = bits(self) ^ bits(other);
        self.family() == other.family()
            && self.bits <= other.bits
            && differ.leading_zeros() >= u32::from(self.bits)
    }

    /// The address family.
    pub const fn family(&self) -> Family {
        match self.address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// The first address behind that of the network.
    pub fn first_host(&self) -> IpAddr {
        match self.network() {
            IpAddr::V4(network) => Ipv4Addr::from_bits(network.to_bits().wrapping_add(1)).into(),
            IpAddr::V6(network) => Ipv6Addr::from_bits(network.to_bits().wrapping_add(1)).into(),
        }
    }

    /// The address with its host bits zero.
    pub fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(a) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(a.to_bits() & mask))
            }
            IpAddr::V6(a) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.bits))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(a.to_bits() & mask))
            }
        }
    }
}

const fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    /// Reads `10.1.0.2/24`; an address alone stands for itself.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParsePrefixError(text.to_owned());
        let Some((address, bits)) = text.split_once('/') else {
            return text.parse().map(Self::host).map_err(|_| error());
        };
        let address = address.parse().map_err(|_| error())?;
        let bits = bits.parse().map_err(|_| error())?;
        Self::new(address, bits).ok_or_else(error)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_read_or_are_refused() {
        let prefix: Prefix = "10.1.2.3/20".parse().unwrap();
        assert_eq!(prefix.network().to_string(), "10.1.0.0");
        assert_eq!(prefix.address().to_string(), "10.1.2.3");
        assert_eq!(prefix.first_host().to_string(), "10.1.0.1");
        assert_eq!("::1".parse::<Prefix>().unwrap().to_string(), "::1/128");
        assert_eq!(
            "fd00:1::2/64"
                .parse::<Prefix>()
                .unwrap()
                .network()
                .to_string(),
            "fd00:1::"
        );
        for text in [
            "10.0.0.1/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.1/",
            "/8",
            "",
            "10.0.0.1/-1",
            "10.0.0.1/24/1",
        ] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_prefix_holds_what_begins_like_it(address: u32, other: u32, bits in 0u8..=32) {
            let outer = Prefix::new(IpAddr::V4(address.into()), bits).unwrap();
            let inner = Prefix::host(IpAddr::V4(other.into()));
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            prop_assert_eq!(outer.holds(&inner), address & mask == other & mask);
            prop_assert!(!Prefix::ALL_V6.holds(&inner));
        }

        #[test]
        fn a_prefix_reads_back_and_its_network_is_inside(bytes: [u8; 16], v6: bool, bits in 0u8..=128) {
            let address = if v6 { IpAddr::from(bytes) } else { IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]) };
            match Prefix::new(address, bits) {
                Some(prefix) => {
                    prop_assert_eq!(prefix.to_string().parse(), Ok(prefix));
                    let network = Prefix::new(prefix.network(), bits).unwrap();
                    prop_assert_eq!(network.network(), network.address());
                    if bits == width(address) { prop_assert_eq!(network.address(), address); }
                    if bits == 0 { prop_assert!(network.address().is_unspecified()); }
                }
                None => prop_assert!(!v6 && bits > 32),
            }
        }
    }
}
