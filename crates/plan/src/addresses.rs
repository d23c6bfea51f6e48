//! The addresses and ports of a scenario's nodes and flows.
//!
//! Link number i (by name) is the network `10.(i / 256).(i % 256).0/24` or `fd00:0:0:i::/64`, its first
//! end host 1 there, its second host 2. Flow number i is accepted on port 10,000 + i, below the ports that
//! Linux gives to who connects, and in the simulator opened from port 30,000 + i. Cross traffic is accepted behind the
//! scenario's flows, all of one direction on one port: its transfers are connections that come and go.

use bentpipe_scenario::{Hop, Ip, Path, Scenario};
use bentpipe_traffic::Direction;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

/// Flow number i is accepted on this port plus i.
const ACCEPTED_ON: u16 = 10_000;
/// Flow number i is opened from this port plus i, where that is not left to the kernel.
pub const OPENED_FROM: u16 = 30_000;
/// So many flows, cross traffic included, are told apart by their ports.
pub const MOST_FLOWS: usize = (OPENED_FROM - ACCEPTED_ON) as usize - 2;
/// So many links have networks of their own.
pub const MOST_LINKS: usize = 4_096;

/// The port on which flow number `index` of a scenario is accepted, which has at most [`MOST_FLOWS`].
pub const fn accepted_port(index: usize) -> u16 {
    ACCEPTED_ON + index as u16
}

/// The port on which all cross traffic of `scenario` in `direction` is accepted.
pub const fn traffic_port(scenario: &Scenario, direction: Direction) -> u16 {
    let behind = match direction {
        Direction::Forward => 0,
        Direction::Reverse => 1,
    };
    accepted_port(scenario.flows.len() + behind)
}

/// The addresses of the links' ends.
#[derive(Clone, Debug)]
pub struct Addresses<'s>(BTreeMap<&'s str, [IpAddr; 2]>);

impl<'s> Addresses<'s> {
    /// The addresses of `scenario`, which has at most [`MOST_LINKS`] links: with more, some would be the same.
    pub fn new(scenario: &'s Scenario) -> Self {
        let links = scenario.links.keys().enumerate();
        let ends = |number| [1, 2].map(|host| address(scenario.ip, number as u16, host));
        Self(
            links
                .map(|(number, name)| (name.as_str(), ends(number)))
                .collect(),
        )
    }

    /// The addresses of the two ends of `link`, which the scenario has.
    pub fn of(&self, link: &str) -> [IpAddr; 2] {
        self.0[link]
    }

    /// Where `hop` begins.
    pub fn near(&self, hop: &Hop<'_>) -> IpAddr {
        self.of(hop.name)[usize::from(hop.link.ends[0] != hop.from)]
    }

    /// Where `hop` ends.
    pub fn far(&self, hop: &Hop<'_>) -> IpAddr {
        self.of(hop.name)[usize::from(hop.link.ends[0] == hop.from)]
    }

    /// The two ends of a connection that is opened along `dialled`: who opens it takes the address of the
    /// link by which it leaves, and asks for the one where it arrives.
    pub fn ends(&self, dialled: &Path<'_>) -> [IpAddr; 2] {
        let hops = &dialled.hops;
        [self.near(&hops[0]), self.far(&hops[hops.len() - 1])]
    }
}

/// How many bits of an address are its network's.
pub const fn prefix_length(ip: Ip) -> u8 {
    match ip {
        Ip::V4 => 24,
        Ip::V6 => 64,
    }
}

fn address(ip: Ip, link: u16, host: u8) -> IpAddr {
    match ip {
        Ip::V4 => {
            let [high, low] = link.to_be_bytes();
            Ipv4Addr::new(10, high, low, host).into()
        }
        Ip::V6 => Ipv6Addr::new(0xfd00, 0, 0, link, 0, 0, 0, host.into()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_scenario::Topology;

    /// a and b are joined by r1 and by r2, and each sends by the link that comes first by name.
    fn square(ip: u8) -> Scenario {
        let link = |name, a, b| format!("[links.{name}]\nends = [\"{a}\", \"{b}\"]\n");
        let links = [
            link("one", "a", "r1"),
            link("three", "b", "r2"),
            link("two", "a", "r2"),
            link("zwo", "r1", "b"),
        ];
        let text = format!(
            "name = \"square\"\nip = {ip}\n[hosts.a]\n[hosts.b]\n[routers.r1]\n[routers.r2]\n{}\
             [[flows]]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1kB\"\n",
            links.concat()
        );
        Scenario::parse("square.toml", &text).unwrap_or_else(|all| panic!("{all}"))
    }

    #[test]
    fn a_connection_has_the_addresses_of_the_links_that_its_opener_uses() {
        for (ip, expected) in [
            (4, ["10.0.0.1", "10.0.3.2"]),
            (6, ["fd00::1", "fd00:0:0:3::2"]),
        ] {
            let scenario = square(ip);
            let topology = Topology::new(&scenario);
            let (there, back) = (topology.path("a", "b"), topology.path("b", "a"));
            let (there, back) = (there.unwrap(), back.unwrap());
            assert_eq!([there.hops[1].name, back.hops[0].name], ["zwo", "three"]);
            let ends = Addresses::new(&scenario).ends(&there);
            assert_eq!(ends.map(|address| address.to_string()), expected);
        }
    }
}
