//! Builds the engine of a scenario, ready to run: nodes, simplex links, proxies, routes and the ends of flows.

use crate::addresses::Addresses;
use crate::cross_traffic_flows;
use crate::endpoint_builder::EndpointBuilder;
use crate::engine::{Engine, FlowProgress, PepNode};
use crate::event_queue::EventQueue;
use crate::flow_endpoint::FlowEndpoint;
use crate::link_counters::LinkCounters;
use crate::network::{Network, Routes, SimplexLink};
use crate::packet_codec::Codec;
use crate::packet_slab::Packets;
use crate::queueing_samples::QueueingSamples;
use crate::split_config;
use crate::zero_delay_check;
use crate::{Controls, EndId, Observer, Options, Packet, SimError};
use bentpipe_base::{Bytes, Instant};
use bentpipe_gateway_config::{self as gateway_config, LegId};
use bentpipe_link::Link;
use bentpipe_pep::AnyPep;
use bentpipe_pep::ack_filter::{self, AckFilter};
use bentpipe_pep::snoop::{self, Snoop};
use bentpipe_pep::split::Split;
use bentpipe_plan::addresses::{MOST_FLOWS, MOST_LINKS};
use bentpipe_plan::{self as plan, links};
use bentpipe_scenario::{Direction, Gateway, PepKind, QueueLimit, Scenario, SnoopPreset, Topology};
use std::collections::{BTreeMap, BTreeSet};

/// Most hosts, and most routers.
const MOST_NODES: usize = 2_048;

/// Numbers of the nodes: hosts first, each kind by name.
struct Nodes<'s>(BTreeMap<&'s str, usize>);

impl<'s> Nodes<'s> {
    fn new(scenario: &'s Scenario) -> Self {
        let Scenario {
            hosts,
            routers,
            gateways,
            ..
        } = scenario;
        let names = hosts.keys().chain(routers.keys()).chain(gateways.keys());
        Self(names.map(String::as_str).zip(0..).collect())
    }

    /// The scenario's checks leave no link to a node that is not there.
    fn of(&self, name: &str) -> usize {
        self.0[name]
    }
}

pub(crate) fn engine<O: Observer>(
    scenario: &Scenario,
    options: &Options,
    observer: O,
    controls: &Controls<'_>,
) -> Result<Engine<O>, SimError> {
    check(scenario)?;
    let seed = options.seed.unwrap_or(scenario.seed);
    let nodes = Nodes::new(scenario);
    let topology = Topology::new(scenario);
    cross_traffic_flows::check(scenario, &topology)?;
    zero_delay_check::check(scenario, &topology)?;
    let mut simplex_links = simplex_links(scenario, &nodes, seed)?;
    let peps = peps(scenario, &nodes, &mut simplex_links, seed)?;
    let routes = routes(scenario, &nodes, &topology);
    let mut builder = builder(scenario, &topology, seed, options, controls);
    let mut ends = Vec::new();
    let mut flows = Vec::new();
    let all = cross_traffic_flows::flows(scenario, seed)?;
    let traffic = cross_traffic_flows::sources(scenario, seed)?;
    for flow in &all {
        let ([mut opener, mut acceptor], established) = builder.ends(flow)?;
        let (near, far) = (&flow.opened_by, flow.acceptor());
        place(&mut opener, nodes.of(near), nodes.of(far), &routes)
            .and_then(|()| place(&mut acceptor, nodes.of(far), nodes.of(near), &routes))
            .ok_or_else(|| SimError::Path {
                from: flow.from.clone(),
                to: flow.to.clone(),
            })?;
        if flows.len() < scenario.flows.len()
            && let Some(round_trip) = topology.round_trip(&flow.from, &flow.to)
        {
            let source = if flow.opened_by == flow.from {
                &mut opener
            } else {
                &mut acceptor
            };
            source.queueing = QueueingSamples::new(source.start, round_trip);
        }
        opener.peer = EndId::acceptor(flows.len());
        acceptor.peer = EndId::opener(flows.len());
        ends.extend([opener, acceptor]);
        flows.push(FlowProgress {
            established,
            ..FlowProgress::default()
        });
    }
    if !O::PACKETS && !options.wire {
        feed(scenario, &mut simplex_links, &peps, &ends, &routes);
    }
    let first_end = simplex_links.len() + peps.len();
    let codec = if options.wire {
        Some(Codec::new(Addresses::new(scenario)?))
    } else {
        None
    };
    Ok(Engine {
        hosts: scenario.hosts.len(),
        first_end,
        open: scenario.flows.len(),
        traffic,
        network: Network {
            own: scenario.flows.len(),
            schedule: EventQueue::new(first_end, ends.len()),
            packets: Packets::new(simplex_links.len()),
            links: simplex_links,
            routes,
            observer,
            codec,
            fault: None,
        },
        ends,
        peps,
        flows,
        leaving: Vec::new(),
    })
}

fn builder<'s>(
    scenario: &'s Scenario,
    topology: &'s Topology<'s>,
    seed: u64,
    options: &Options,
    controls: &'s Controls<'s>,
) -> EndpointBuilder<'s> {
    EndpointBuilder {
        scenario,
        topology,
        seed,
        wire: options.wire,
        shares: BTreeMap::new(),
        controls,
        templates: Vec::new(),
    }
}

pub(crate) fn warnings(scenario: &Scenario) -> Result<Vec<String>, SimError> {
    let topology = Topology::new(scenario);
    let mut builder = builder(
        scenario,
        &topology,
        scenario.seed,
        &Options::default(),
        &|_| None,
    );
    let flows = scenario.flows.iter();
    let all: Result<Vec<_>, _> = flows.map(|flow| builder.short_syn(flow)).collect();
    Ok(all?.into_iter().flatten().collect())
}

fn check(scenario: &Scenario) -> Result<(), SimError> {
    let forwarding = scenario.routers.len() + scenario.gateways.len();
    let nodes = scenario.hosts.len().max(forwarding);
    let flows = cross_traffic_flows::flows(scenario, scenario.seed)?.len();
    let links = scenario.links.len();
    if nodes > MOST_NODES || links > MOST_LINKS || flows > MOST_FLOWS {
        return Err(SimError::TooLarge {
            hosts: MOST_NODES,
            links: MOST_LINKS,
            flows: MOST_FLOWS,
        });
    }
    Ok(())
}

fn simplex_links(
    scenario: &Scenario,
    nodes: &Nodes<'_>,
    seed: u64,
) -> Result<Vec<SimplexLink>, SimError> {
    let mut simplex_links = Vec::new();
    for (name, link) in &scenario.links {
        let settings = links::settings(link).map_err(|why| SimError::Link {
            link: name.clone(),
            why,
        })?;
        let [there, back] = settings.map(|settings| (settings, LinkCounters::default()));
        let mut both = Link::new(there, back, seed, name);
        both.begin(Instant::ZERO);
        let [a, b] = &link.ends;
        for (mut direction, to) in both.into_directions().into_iter().zip([b, a]) {
            // Each packet has a place to be given back.
            direction.keep_lost();
            simplex_links.push(SimplexLink {
                direction,
                to: nodes.of(to),
                refused_data: 0,
                pep_before: None,
                pep_behind: None,
                feeds: None,
                fed_by: None,
            });
        }
    }
    Ok(simplex_links)
}

/// The gateways that split, and the other proxies that are enabled: each put on both directions of its link.
fn peps(
    scenario: &Scenario,
    nodes: &Nodes<'_>,
    simplex_links: &mut [SimplexLink],
    seed: u64,
) -> Result<Vec<PepNode>, SimError> {
    let mut peps = Vec::new();
    for (name, gateway) in &scenario.gateways {
        let Some(keys) = plan::gateway::split(gateway).map(|split| split.config) else {
            continue;
        };
        let (proxy, leg) = if keys.snoops_all() {
            (snooping(&keys), keys.snoop.toward.lossy())
        } else {
            (splitting(scenario, name, gateway, &keys, seed)?, LegId::Sat)
        };
        let link = match leg {
            LegId::Lan => &gateway.lan,
            LegId::Sat => &gateway.sat,
        };
        if let Some(site) = Site::new(scenario, name, link) {
            site.put(&mut peps, (name, proxy), nodes, simplex_links)?;
        }
    }
    for (name, pep) in scenario.peps.iter().filter(|(_, pep)| pep.enabled) {
        let Some(site) = Site::new(scenario, &pep.node, &pep.link) else {
            continue;
        };
        let proxy = match &pep.kind {
            PepKind::AckFilter(filter) => {
                let default = ack_filter::Config::default();
                let config = ack_filter::Config {
                    rate: site.way.rate,
                    overhead: site.way.overhead,
                    packets: filter.packets.map_or(default.packets, |it| it as usize),
                    ..default
                };
                AnyPep::AckFilter(Box::new(AckFilter::new(config)))
            }
            PepKind::Snoop(snoop) => {
                let settings = snoop::Settings {
                    rate: site.way.rate,
                    rtt: Some(site.link.forward.delay + site.link.reverse.delay),
                    ..snoop::Settings::default()
                };
                AnyPep::Snoop(Box::new(Snoop::new(snoop_config(snoop, settings))))
            }
        };
        site.put(&mut peps, (name, proxy), nodes, simplex_links)?;
    }
    Ok(peps)
}

/// The Snoop agent of a gateway that splits none.
fn snooping(keys: &gateway_config::Config) -> AnyPep<Packet> {
    AnyPep::Snoop(Box::new(Snoop::new(snoop::Config::of_gateway(keys))))
}

/// The split of the gateway called `name`, whose own keys are `keys`.
fn splitting(
    scenario: &Scenario,
    name: &str,
    gateway: &Gateway,
    keys: &gateway_config::Config,
    seed: u64,
) -> Result<AnyPep<Packet>, SimError> {
    let config = split_config::of_gateway(scenario, name, gateway, keys, seed)?;
    let mut split = Split::new(config);
    if let Some(admission) = split_config::admission(scenario, &keys.policies)? {
        split.admit_by(admission);
    }
    for index in 0..scenario.flows.len() {
        split.watch(EndId::opener(index), EndId::acceptor(index));
    }
    Ok(AnyPep::Split(Box::new(split)))
}

/// Where a proxy stands: at a node, on a link of that.
struct Site<'s> {
    node: &'s str,
    name: &'s str,
    link: &'s bentpipe_scenario::Link,
    /// The direction that leaves the node.
    way: &'s Direction,
    /// The simplex links that leave the node and that lead to it.
    simplex_links: [usize; 2],
}

impl<'s> Site<'s> {
    /// `None` where there is no such link.
    fn new(scenario: &'s Scenario, node: &'s str, name: &'s str) -> Option<Self> {
        let number = scenario.links.keys().position(|link| link == name)?;
        let link = scenario.links.get(name)?;
        let second = usize::from(link.ends[1] == node);
        Some(Self {
            node,
            name,
            link,
            way: if second == 0 {
                &link.forward
            } else {
                &link.reverse
            },
            simplex_links: [2 * number + second, 2 * number + 1 - second],
        })
    }

    /// Puts a proxy there, behind the others of `peps`.
    fn put(
        &self,
        peps: &mut Vec<PepNode>,
        (name, proxy): (&str, AnyPep<Packet>),
        nodes: &Nodes<'_>,
        simplex_links: &mut [SimplexLink],
    ) -> Result<(), SimError> {
        let [out, back] = self.simplex_links;
        if let Some(other) = simplex_links[out].pep_before.replace(peps.len()) {
            let other: &PepNode = &peps[other];
            return Err(SimError::Proxies {
                names: [other.name.clone(), name.to_owned()],
                node: self.node.to_owned(),
                link: self.name.to_owned(),
            });
        }
        simplex_links[back].pep_behind = Some(peps.len());
        peps.push(PepNode {
            name: name.to_owned(),
            proxy,
            node: nodes.of(self.node),
            link: out,
        });
        Ok(())
    }
}

fn snoop_config(snoop: &bentpipe_scenario::Snoop, link: snoop::Settings) -> snoop::Config {
    let settings = snoop::Settings {
        preset: match snoop.preset {
            SnoopPreset::Standard => snoop::Preset::Standard,
            SnoopPreset::Ns2 => snoop::Preset::Ns2,
        },
        cache: match snoop.cache {
            Some(QueueLimit::Bytes(bytes)) => Some(bytes),
            _ => None,
        },
        cache_packets: match snoop.cache {
            Some(QueueLimit::Packets(packets)) => Some(packets as usize),
            _ => None,
        },
        ..link
    };
    let mut config = snoop::Config::of(&settings);
    if settings.cache_packets.is_some() {
        // Counted in packets, the cache has no bound in bytes.
        (config.bytes, config.total) = (Bytes(u64::MAX), Bytes(u64::MAX));
    }
    if let Some(timeout) = snoop.min_timeout {
        config.min_timeout = timeout;
    }
    if let Some(tries) = snoop.max_retransmissions {
        config.tries = u8::try_from(tries).unwrap_or(u8::MAX);
    }
    config
}

/// From every node to the hosts at which flows end.
fn routes(scenario: &Scenario, nodes: &Nodes<'_>, topology: &Topology<'_>) -> Routes {
    let mut routes = Routes::new(nodes.0.len(), scenario.hosts.len());
    let flows = scenario.flows.iter();
    let ends = flows.flat_map(|flow| [&flow.from, &flow.to]);
    let traffic = scenario.traffic.iter().flat_map(|it| &it.between);
    let ends: BTreeSet<&String> = ends.chain(traffic).collect();
    let links: BTreeMap<&str, usize> = scenario.links.keys().map(String::as_str).zip(0..).collect();
    for host in ends {
        for (node, number) in &nodes.0 {
            let Some(path) = topology.path(node, host) else {
                continue;
            };
            let hop = &path.hops[0];
            let link = links[hop.name];
            let back = usize::from(hop.link.ends[0] != hop.from);
            // At most 2 * MOST_LINKS simplex links.
            routes.set(*number, nodes.of(host), (2 * link + back) as u16);
        }
    }
    routes
}

/// Finds the simplex links that feed another: both carry the same packets, and no proxy, which has timers of its own,
/// is between them. A feeder has a delay above zero, so that no packet that is sent at the very end of the run goes on.
/// Feeding is not transitive: in a chain of three links only the first two are a pair.
fn feed(
    scenario: &Scenario,
    simplex_links: &mut [SimplexLink],
    peps: &[PepNode],
    ends: &[FlowEndpoint],
    routes: &Routes,
) {
    let ways = { scenario.links.values() }.flat_map(|link| [&link.forward, &link.reverse]);
    let takes_time: Vec<bool> = ways
        .map(|way| {
            let changes = way.changes.iter().filter_map(|change| change.delay);
            changes.chain([way.delay]).all(|delay| !delay.is_zero())
        })
        .collect();
    let hosts: BTreeSet<u16> = ends.iter().map(|end| end.peer_host).collect();
    let sent = ends.iter().map(|end| (end.link, end.peer_host));
    let forged = peps.iter().flat_map(|pep| {
        let first = |host: &u16| Some((routes.link(pep.node, *host)?, *host));
        hosts.iter().filter_map(first)
    });
    // Each simplex link with the next one; `None` before the first and behind the last.
    let mut steps = BTreeSet::new();
    for (first, host) in sent.chain(forged).collect::<BTreeSet<_>>() {
        let (mut last, mut next) = (None, Some(first));
        while let Some(simplex) = next {
            steps.insert((last, next));
            let to = simplex_links[simplex].to;
            (last, next) = (
                next,
                routes.link(to, host).filter(|_| to != usize::from(host)),
            );
        }
        steps.insert((last, None));
    }
    for &(from, to) in &steps {
        let alone = |&&(a, b): &&(Option<usize>, Option<usize>)| a == from || b == to;
        if let (Some(feeder), Some(fed), 1) = (from, to, steps.iter().filter(alone).count())
            && takes_time[feeder]
            && simplex_links[feeder]
                .pep_behind
                .or(simplex_links[feeder].fed_by)
                .is_none()
            && simplex_links[fed]
                .pep_before
                .or(simplex_links[fed].feeds)
                .is_none()
        {
            simplex_links[feeder].feeds = to;
            simplex_links[fed].fed_by = from;
        }
    }
}

/// Puts an end at host `at`, its peer at host `peer`; `None` when no route leads there.
fn place(end: &mut FlowEndpoint, at: usize, peer: usize, routes: &Routes) -> Option<()> {
    // At most MOST_NODES hosts.
    end.peer_host = peer as u16;
    end.link = routes.link(at, end.peer_host)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a – r – s – b, with c at s too, the feeder of each simplex link that has one.
    fn feeders(flows: &str) -> Vec<(usize, usize)> {
        let link =
            |name, a, b| format!("[links.{name}]\nends = [\"{a}\", \"{b}\"]\ndelay = \"1ms\"\n");
        let links = [
            link("one", "a", "r"),
            link("two", "r", "s"),
            link("x", "s", "b"),
            link("y", "s", "c"),
        ];
        let text = format!(
            "name = \"feeders\"\ntime_limit = \"1s\"\n[hosts.a]\n[hosts.b]\n[hosts.c]\n[routers.r]\n[routers.s]\n{}{flows}",
            links.concat()
        );
        let scenario = Scenario::parse("test.toml", &text).unwrap_or_else(|all| panic!("{all}"));
        let engine = engine(&scenario, &Options::default(), (), &|_| None).expect("it can run");
        let links = engine.network.links.iter().enumerate();
        links
            .filter_map(|(link, it)| Some((link, it.fed_by?)))
            .collect()
    }

    /// Simplex links: one 0 and back 1, two 2 and 3, x 4 and 5, y 6 and 7.
    #[test]
    fn a_link_feeds_another_that_carries_the_same() {
        let flow = |from, to| {
            format!(
                "[[flows]]\nname = \"{from}{to}\"\nfrom = \"{from}\"\nto = \"{to}\"\nbytes = \"1kB\"\n"
            )
        };
        let (long, short) = (flow("a", "b"), flow("b", "c"));
        assert_eq!(feeders(&long), [(1, 3), (2, 0)], "two of three each way");
        assert_eq!(feeders(&short), [(4, 7), (6, 5)]);
        assert_eq!(
            feeders(&(long + &short)),
            [(1, 3), (2, 0)],
            "s has two ways"
        );
    }
}
