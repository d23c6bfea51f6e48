//! The paths that follow from the links: shortest by the number of links, ties broken by the name
//! of the link. Only routers and gateways carry what is not their own.

use crate::model::{Direction, Link, Scenario};
use bentpipe_base::{Bytes, Rate};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// The links of a scenario as a graph.
pub struct Topology<'s> {
    scenario: &'s Scenario,
    /// The links that leave each node, by name of the link.
    leaving: BTreeMap<&'s str, Vec<Hop<'s>>>,
}

/// One link of a path, in the direction of travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop<'s> {
    /// The link's name.
    pub name: &'s str,
    /// The link.
    pub link: &'s Link,
    /// The direction of travel.
    pub direction: &'s Direction,
    /// The node it leaves.
    pub from: &'s str,
    /// The node it reaches.
    pub to: &'s str,
}

/// A way from one node to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Path<'s> {
    /// Its links in the order of travel; never empty.
    pub hops: Vec<Hop<'s>>,
}

impl<'s> Topology<'s> {
    /// The graph of `scenario`. Links to unknown nodes lead nowhere.
    pub fn new(scenario: &'s Scenario) -> Self {
        let mut leaving: BTreeMap<&str, Vec<Hop<'_>>> = BTreeMap::new();
        for (name, link) in &scenario.links {
            let [a, b] = &link.ends;
            for (from, to, direction) in [(a, b, &link.forward), (b, a, &link.reverse)] {
                leaving.entry(from).or_default().push(Hop {
                    name,
                    link,
                    direction,
                    from,
                    to,
                });
            }
        }
        Self { scenario, leaving }
    }

    /// The links that leave `node`, by name of the link.
    pub fn leaving(&self, node: &str) -> &[Hop<'s>] {
        self.leaving.get(node).map_or(&[], Vec::as_slice)
    }

    /// The shortest path between two nodes; `None` if there is none or they are one. The rest of a
    /// path is the path of each node on it, so that nodes may route hop by hop.
    pub fn path(&self, from: &str, to: &str) -> Option<Path<'s>> {
        let distance = self.distances(to);
        let mut hops = Vec::new();
        let mut node = from;
        while node != to {
            let rest = distance.get(node)?.checked_sub(1)?;
            let nearer = |hop: &&Hop<'_>| {
                distance.get(hop.to) == Some(&rest) && (hop.to == to || self.forwards(hop.to))
            };
            let hop = *self.leaving(node).iter().find(nearer)?;
            hops.push(hop);
            node = hop.to;
        }
        (!hops.is_empty()).then_some(Path { hops })
    }

    /// Propagation from `a` to `b` and back, which may go other ways.
    pub fn round_trip(&self, a: &str, b: &str) -> Option<Duration> {
        Some(self.path(a, b)?.delay() + self.path(b, a)?.delay())
    }

    /// How many links lie between each node and `to`; nodes that cannot reach it are missing.
    fn distances(&self, to: &str) -> BTreeMap<&'s str, usize> {
        let mut distance = BTreeMap::new();
        let mut next = VecDeque::new();
        if let Some((to, _)) = self.leaving.get_key_value(to) {
            distance.insert(*to, 0);
            next.push_back((*to, 0));
        }
        while let Some((node, links)) = next.pop_front() {
            if node != to && !self.forwards(node) {
                continue;
            }
            // Every link runs both ways: what leaves here also arrives here.
            for hop in self.leaving(node) {
                if !distance.contains_key(hop.to) {
                    distance.insert(hop.to, links + 1);
                    next.push_back((hop.to, links + 1));
                }
            }
        }
        distance
    }

    fn forwards(&self, node: &str) -> bool {
        let Scenario {
            routers, gateways, ..
        } = self.scenario;
        routers.contains_key(node) || gateways.contains_key(node)
    }
}

impl Path<'_> {
    /// The lowest rate on the way; `None` if no link has one.
    pub fn rate(&self) -> Option<Rate> {
        self.hops.iter().filter_map(|hop| hop.direction.rate).min()
    }

    /// The sum of the one-way delays.
    pub fn delay(&self) -> Duration {
        self.hops.iter().map(|hop| hop.direction.delay).sum()
    }

    /// The largest packet that passes whole.
    pub fn mtu(&self) -> Bytes {
        let mtus = self.hops.iter().map(|hop| hop.link.mtu);
        mtus.min().expect("a path has a link at least")
    }

    /// The share of full packets that arrive, queue losses aside.
    pub fn delivery_ratio(&self) -> f64 {
        let ratios = self.hops.iter();
        ratios
            .map(|hop| hop.direction.delivery_ratio(self.mtu()))
            .product()
    }

    /// The goodput that no transfer in packets of `packet` bytes, of which `headers` are no payload, can exceed on this
    /// path. It is the least over all links of the greatest rate that the link ever has, times the payload's share of a
    /// packet, times the share of packets that arrive. `None` if no link has a rate.
    ///
    /// For one link: rate × (packet - headers) / (packet + overhead) × (1 - loss).
    pub fn goodput_limit(&self, packet: Bytes, headers: Bytes) -> Option<Rate> {
        let payload = (packet - headers).0 as f64;
        let limits = self.hops.iter().filter_map(|hop| {
            let wire = (packet + hop.direction.overhead).0 as f64;
            let ratio = hop.direction.delivery_ratio(packet);
            Some(
                hop.direction
                    .greatest_rate()?
                    .scaled(payload / wire * ratio),
            )
        });
        limits.min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Channel, Channels, Host, Router};
    use bentpipe_link::keys::Value;

    /// As `key = "rate"` of a link.
    fn errors(key: &'static str, rate: &str) -> Channel {
        let rate = rate.parse().expect("it is a probability");
        Channel::new(key, &[(key, Value::Chance(rate))]).expect("there is such a channel")
    }

    /// a - r1 - r2 - b, a shorter way a - h - b through a host, and c on its own.
    fn web() -> Scenario {
        let mut web = Scenario::default();
        for host in ["a", "b", "c", "h"] {
            web.hosts.insert(host.into(), Host::default());
        }
        for router in ["r1", "r2"] {
            web.routers.insert(router.into(), Router {});
        }
        let links = [
            ("1", "a", "r1"),
            ("2", "r2", "r1"),
            ("3", "r2", "b"),
            ("4", "a", "h"),
            ("5", "h", "b"),
        ];
        for (name, a, b) in links {
            web.links.insert(name.into(), Link::wire(a, b));
        }
        web
    }

    #[test]
    fn paths_pass_routers_and_no_hosts() {
        let web = web();
        let topology = Topology::new(&web);
        let names = |from, to| {
            let path = topology.path(from, to)?;
            Some(path.hops.iter().map(|hop| hop.name).collect::<Vec<_>>())
        };
        assert_eq!(names("a", "b"), Some(vec!["1", "2", "3"]));
        assert_eq!(names("b", "a"), Some(vec!["3", "2", "1"]));
        assert_eq!(names("a", "h"), Some(vec!["4"]));
        assert_eq!(names("r1", "h"), None);
        assert_eq!(names("a", "c"), None);
        assert_eq!(names("a", "a"), None);
    }

    #[test]
    fn a_path_sums_its_links_in_the_direction_of_travel() {
        let mut web = web();
        let slow = web.links.get_mut("2").unwrap();
        slow.forward.rate = "10Mbit/s".parse().ok();
        slow.forward.delay = Duration::from_millis(300);
        slow.forward.channels.add(errors("packet_error_rate", "5%"));
        slow.reverse.rate = "1Mbit/s".parse().ok();
        let topology = Topology::new(&web);
        // Link 2 runs from r2 to r1: b's packets travel forward, a's in reverse.
        let down = topology.path("b", "a").unwrap();
        let up = topology.path("a", "b").unwrap();
        assert_eq!(down.rate().unwrap().mbps(), 10.0);
        assert_eq!(up.rate().unwrap().mbps(), 1.0);
        assert_eq!(
            (down.delay(), up.delay()),
            (Duration::from_millis(300), Duration::ZERO)
        );
        // DESIGN: the limits at 10 Mbit/s are 9.65 at no loss and 9.17 at 5%.
        let limit = down.goodput_limit(down.mtu(), web.ip.tcp_header()).unwrap();
        assert!(
            (limit.mbps() - 10.0 * 1448.0 / 1500.0 * 0.95).abs() < 1e-6,
            "{limit}"
        );
    }

    #[test]
    fn bit_errors_take_packets_by_their_length() {
        let direction = Direction {
            channels: Channels::from_iter([errors("bit_error_rate", "1e-5")]),
            ..Direction::default()
        };
        let ratio = direction.delivery_ratio(Bytes(1500));
        assert!(
            (ratio - (1.0 - 1e-5f64).powi(12_000)).abs() < 1e-12,
            "{ratio}"
        );
    }
}
