//! Who may be reached by way of a far end.

use bentpipe_base::Prefix;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

/// One rule: the first that fits decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Addresses.
    pub prefix: Prefix,
    /// And ports.
    pub ports: RangeInclusive<u16>,
    /// Whether they may be reached.
    pub allow: bool,
}

/// Who may be reached: what a rule says; without one the public internet, and never the far end itself or networks that are not
/// routed there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The operator's rules.
    pub rules: Vec<Rule>,
    /// The far end's own addresses at its start, which no rule but one for them alone opens.
    pub own: Vec<IpAddr>,
}

/// Networks that the public internet does not route (RFC 6890 and its registries), as a resolver for others may name them.
const NOT_PUBLIC: &[(&str, u8)] = &[
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 3),
    ("::", 8),
    ("64:ff9b:1::", 48),
    ("100::", 64),
    ("2001:db8::", 32),
    ("fc00::", 7),
    ("fe80::", 9),
    ("ff00::", 8),
];

/// The IPv4 address that an IPv6 one stands for: mapped, or by a translator's well-known prefix (RFC 6052), or 6to4.
fn embedded(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let octets = v6.octets();
    let at = |from: usize| {
        IpAddr::from([
            octets[from],
            octets[from + 1],
            octets[from + 2],
            octets[from + 3],
        ])
    };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return v4.into();
    }
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => at(12),
        [0x2002, ..] => at(2),
        _ => address,
    }
}

fn is_public(address: IpAddr) -> bool {
    let host = Prefix::host(address);
    !NOT_PUBLIC.iter().any(|&(network, bits)| {
        let prefix = network
            .parse()
            .ok()
            .and_then(|network| Prefix::new(network, bits));
        prefix.is_some_and(|prefix| prefix.holds(&host))
    })
}

impl Policy {
    /// Whether `target` may be reached; `is_own` tells of an address whether it is the far end's own at present.
    pub fn allows(&self, target: SocketAddr, is_own: impl Fn(IpAddr) -> bool) -> bool {
        let address = embedded(target.ip());
        let (host, as_written) = (Prefix::host(address), Prefix::host(target.ip()));
        let own = self.own.iter().any(|&own| embedded(own) == address)
            || is_own(address)
            || (as_written != host && is_own(target.ip()));
        let is_open = !own && is_public(address);
        let fits = |rule: &&Rule| {
            // A rule for the addresses of a translator closes what they stand for, and opens nothing of that which is not open.
            let prefix = &rule.prefix;
            let names = prefix.holds(&as_written) && (is_open || !rule.allow);
            (prefix.holds(&host) || names) && rule.ports.contains(&target.port())
        };
        let rule = self.rules.iter().find(fits);
        match rule {
            // A rule for a whole network does not open the far end's own services.
            Some(rule) if own => rule.allow && rule.prefix == host,
            Some(rule) => rule.allow,
            None => is_open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(prefix: &str, ports: RangeInclusive<u16>, allow: bool) -> Rule {
        let prefix = prefix.parse().unwrap();
        Rule {
            prefix,
            ports,
            allow,
        }
    }

    #[test]
    fn the_internet_is_open_and_what_is_not_public_is_closed() {
        let policy = Policy {
            own: vec!["198.41.0.4".parse().unwrap(), "2a00::1".parse().unwrap()],
            ..Policy::default()
        };
        for open in [
            "1.1.1.1:443",
            "8.8.8.8:22",
            "172.32.0.1:80",
            "[2606:4700::1]:443",
            "[64:ff9b::1.1.1.1]:1",
        ] {
            assert!(policy.allows(open.parse().unwrap(), |_| false), "{open}");
        }
        for closed in [
            "127.0.0.1:80",
            "10.1.2.3:80",
            "172.31.255.255:80",
            "192.168.0.1:80",
            "169.254.169.254:80",
            "0.0.0.0:80",
            "224.0.0.1:80",
            "255.255.255.255:80",
            "100.64.0.1:80",
            "198.41.0.4:22",
            "[::1]:80",
            "[::]:80",
            "[fe80::1]:80",
            "[fd00::1]:80",
            "[ff02::1]:80",
            "[::ffff:10.0.0.1]:80",
            "[::ffff:198.41.0.4]:80",
            "[64:ff9b::127.0.0.1]:80",
            "[2002:7f00:1::]:80",
            "[2a00::1]:443",
            "[::10.0.0.1]:80",
            "[2001:db8::1]:80",
        ] {
            assert!(
                !policy.allows(closed.parse().unwrap(), |_| false),
                "{closed}"
            );
        }
    }

    #[test]
    fn a_rule_for_addresses_that_stand_for_others_closes_them_and_opens_nothing_private() {
        let policy = Policy {
            rules: vec![
                rule("2002:808:808::/48", 80..=80, true),
                rule("2002::/16", 1..=65_535, false),
                rule("64:ff9b::/96", 443..=443, false),
                rule("64:ff9b::/96", 1..=65_535, true),
                rule("1.1.1.0/24", 1..=65_535, false),
            ],
            own: vec!["198.41.0.4".parse().unwrap()],
        };
        for (target, allowed) in [
            ("[2002:808:808::1]:80", true),
            ("[2002:808:808::1]:81", false),
            ("[2002:101:101::1]:80", false),
            ("[64:ff9b::8.8.8.8]:443", false),
            ("[64:ff9b::8.8.8.8]:80", true),
            ("[64:ff9b::10.0.0.1]:80", false),
            ("[64:ff9b::198.41.0.4]:80", false),
            ("8.8.8.8:443", true),
        ] {
            let target = target.parse().unwrap();
            assert_eq!(policy.allows(target, |_| false), allowed, "{target}");
        }
        // One that the host has been given as it is written.
        let given: IpAddr = "2002:909:909::1".parse().unwrap();
        let target = "[2002:909:909::1]:80".parse().unwrap();
        assert!(!Policy::default().allows(target, |address| address == given));
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_none_for_a_network_opens_the_far_end_itself() {
        let policy = Policy {
            rules: vec![
                rule("10.0.0.7/32", 22..=22, true),
                rule("10.0.0.0/8", 25..=25, false),
                rule("10.0.0.0/8", 1..=65_535, true),
                rule("8.8.8.8/32", 1..=65_535, false),
            ],
            own: vec!["10.0.0.7".parse().unwrap(), "10.0.0.8".parse().unwrap()],
        };
        for (target, allowed) in [
            ("10.0.0.7:22", true),
            ("10.0.0.7:80", false),
            ("10.0.0.8:22", false),
            ("10.9.9.9:80", true),
            ("10.9.9.9:25", false),
            ("8.8.8.8:53", false),
            ("8.8.4.4:53", true),
            ("127.0.0.1:80", false),
        ] {
            assert_eq!(
                policy.allows(target.parse().unwrap(), |_| false),
                allowed,
                "{target}"
            );
        }
    }
}
