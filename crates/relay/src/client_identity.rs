//! Who counts as one client where clients share something, and who as one customer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A client: an address, or where IPv6 gives each host a network of its own, that network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        })
    }
}

/// The prefix that one customer commonly has: /24 of IPv4, /56 of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Prefix(IpAddr);

impl Prefix {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 72 << 72).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_client() {
        let of = |text: &str| Client::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn a_customer_has_several_clients() {
        let of = |text: &str| Prefix::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:ff::1"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:101::1"));
        assert_eq!(of("192.0.2.1"), of("192.0.2.255"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
    }
}
