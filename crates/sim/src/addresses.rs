//! The addresses and ports that packets would have, as the lab gives them out: link number i (by
//! name) is the network `10.(i / 256).(i % 256).0/24` or `fd00:0:0:i::/64`, its first end host 1
//! there, its second host 2. Flow number i is accepted on port 10,000 + i and opened from port
//! 30,000 + i.

use crate::{EndId, traffic};
use bentpipe_scenario::{Ip, Path, Scenario, Topology};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ACCEPTED_ON: u16 = 10_000;
const OPENED_FROM: u16 = 30_000;
pub(crate) const MOST_FLOWS: usize = (OPENED_FROM - ACCEPTED_ON) as usize;
pub(crate) const MOST_LINKS: usize = 4_096;

/// By [`EndId`].
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Vec<SocketAddr>);

impl Addresses {
    /// Those of every flow's two ends: each where its first link begins. At most [`MOST_FLOWS`]
    /// flows and [`MOST_LINKS`] links, and every flow with a path; others get no address that
    /// anyone asks for.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let topology = Topology::new(scenario);
        // Where flows go does not depend on the seed.
        let flows = traffic::flows(scenario, scenario.seed);
        let address = |from: &str, to: &str, port| {
            let path = topology.path(from, to);
            let ip = path.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |path| {
                leaving(scenario, &path)
            });
            SocketAddr::new(ip, port)
        };
        let ends = flows.iter().zip(0u16..).flat_map(|(flow, index)| {
            let acceptor = flow.acceptor();
            let opener = &flow.opened_by;
            [
                address(opener, acceptor, OPENED_FROM.wrapping_add(index)),
                address(acceptor, opener, ACCEPTED_ON.wrapping_add(index)),
            ]
        });
        Self(ends.collect())
    }

    /// That of `end`.
    pub(crate) fn of(&self, end: EndId) -> SocketAddr {
        self.0[end.index()]
    }

    /// The end with address `to` whose peer has `from`.
    pub(crate) fn find(&self, from: SocketAddr, to: SocketAddr) -> Option<EndId> {
        let accepted = to.port() < OPENED_FROM;
        let first = if accepted { ACCEPTED_ON } else { OPENED_FROM };
        let flow = usize::from(to.port().checked_sub(first)?);
        let end = if accepted {
            EndId::acceptor(flow)
        } else {
            EndId::opener(flow)
        };
        let known = self.0.get(end.index()) == Some(&to) && self.of(end.peer()) == from;
        known.then_some(end)
    }
}

/// The address at the near end of a path.
fn leaving(scenario: &Scenario, path: &Path<'_>) -> IpAddr {
    let hop = &path.hops[0];
    let number = scenario.links.keys().position(|name| name == hop.name);
    // Counted among at most MOST_LINKS.
    let number = number.unwrap_or_default() as u16;
    let host = if hop.link.ends[0] == hop.from { 1 } else { 2 };
    match scenario.ip {
        Ip::V4 => {
            let [high, low] = number.to_be_bytes();
            Ipv4Addr::new(10, high, low, host).into()
        }
        Ip::V6 => Ipv6Addr::new(0xfd00, 0, 0, number, 0, 0, 0, host.into()).into(),
    }
}
