//! What must be made, from the scenario alone: addresses, routes, ports. Nothing here touches the
//! system.
//!
//! A link's interfaces bear its name on both ends. Every node has a route to every address it can reach, along [`Topology::path`]; between the hosts of
//! a program's flow the route names the congestion control, which programs do not choose themselves.

use crate::LabError;
use bentpipe_base::{Bytes, Rate};
use bentpipe_bpf::{kernel_name, twin};
use bentpipe_os::netlink::{Prefix, Route};
use bentpipe_plan::addresses::{
    Addresses, MOST_FLOWS, MOST_LINKS, accepted_port, prefix_length, traffic_port,
};
use bentpipe_plan::limits::FullPacket;
use bentpipe_plan::rates::{self, Bottleneck};
use bentpipe_scenario::{Flow, Path, Scenario, TcpSettings, Topology, Traffic};
use bentpipe_traffic::Direction;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(crate) struct Plan {
    /// By name.
    pub(crate) nodes: BTreeMap<String, NodePlan>,
    /// The address of each link's ends, by name of the link.
    pub(crate) addresses: BTreeMap<String, [Prefix; 2]>,
    /// In the order of the scenario.
    pub(crate) flows: Vec<FlowPlan>,
    /// The flows that stand for the cross traffic, forward and reverse, if there is any.
    pub(crate) traffic: Option<[(Flow, FlowPlan); 2]>,
}

pub(crate) struct NodePlan {
    /// Whether the node forwards packets of others.
    pub(crate) forwards: bool,
    pub(crate) tcp: TcpSettings,
    pub(crate) routes: Vec<Route>,
}

#[derive(Clone, Debug)]
pub(crate) struct FlowPlan {
    /// Where the opener connects to.
    pub(crate) to: SocketAddr,
    /// The goodput that no TCP can exceed from sender to receiver.
    pub(crate) limit: Option<Rate>,
    /// What its sender's congestion control is told, if it asks.
    pub(crate) bottleneck: Option<Bottleneck>,
    /// Propagation there and back.
    pub(crate) round_trip: Duration,
    /// What Saratoga is told.
    pub(crate) rate: Option<Rate>,
    /// The largest packet on that way.
    pub(crate) mtu: Bytes,
}

impl Plan {
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, LabError> {
        if scenario.links.len() > MOST_LINKS || scenario.flows.len() > MOST_FLOWS {
            return Err(LabError::TooLarge {
                links: MOST_LINKS,
                flows: MOST_FLOWS,
            });
        }
        let planner = Planner {
            scenario,
            topology: Topology::new(scenario),
            addresses: Addresses::new(scenario),
        };
        let flows = scenario
            .flows
            .iter()
            .enumerate()
            .map(|(index, flow)| planner.flow(flow, accepted_port(index)))
            .collect::<Result<_, _>>()?;
        let traffic = scenario
            .traffic
            .as_ref()
            .map(|traffic| planner.traffic(traffic));
        Ok(Self {
            nodes: planner.nodes(),
            flows,
            traffic: traffic.transpose()?,
            addresses: planner.prefixes(),
        })
    }

    /// What every flow of `scenario`, and each direction of its traffic, needs.
    pub(crate) fn all<'a>(
        &'a self,
        scenario: &'a Scenario,
    ) -> impl Iterator<Item = (&'a Flow, &'a FlowPlan)> {
        let flows = scenario.flows.iter().zip(&self.flows);
        let traffic = self.traffic.iter().flatten();
        flows.chain(traffic.map(|(flow, plan)| (flow, plan)))
    }
}

impl Plan {
    /// All addresses of `node`.
    pub(crate) fn addresses_of(&self, scenario: &Scenario, node: &str) -> Vec<IpAddr> {
        let links = scenario.links.iter();
        let ends = links.flat_map(|(name, link)| link.ends.iter().zip(self.addresses[name]));
        let own = ends.filter(|(end, _)| *end == node);
        own.map(|(_, address)| address.address()).collect()
    }
}

struct Planner<'a> {
    scenario: &'a Scenario,
    topology: Topology<'a>,
    addresses: Addresses<'a>,
}

impl Planner<'_> {
    fn prefixes(&self) -> BTreeMap<String, [Prefix; 2]> {
        let bits = prefix_length(self.scenario.ip);
        let prefix = |address| Prefix::new(address, bits).expect("24 <= 32 and 64 <= 128");
        let links = self.scenario.links.keys();
        links
            .map(|name| (name.clone(), self.addresses.of(name).map(prefix)))
            .collect()
    }

    fn nodes(&self) -> BTreeMap<String, NodePlan> {
        let Scenario {
            hosts,
            routers,
            gateways,
            ..
        } = self.scenario;
        let hosts = hosts
            .iter()
            .map(|(name, host)| (name, false, host.tcp.clone()));
        let routers = routers
            .keys()
            .map(|name| (name, true, TcpSettings::default()));
        let gateways = gateways
            .iter()
            .map(|(name, gateway)| (name, true, gateway.tcp.clone()));
        let nodes = hosts.chain(routers).chain(gateways);
        nodes
            .map(|(name, forwards, tcp)| {
                let routes = self.routes(name);
                let plan = NodePlan {
                    forwards,
                    tcp,
                    routes,
                };
                (name.clone(), plan)
            })
            .collect()
    }

    /// The congestion control of programs at `node` towards `end`, where any move a file between them.
    fn control(&self, node: &str, end: &str) -> Option<&str> {
        let moves = |flow: &&Flow| flow.app.is_some() && !flow.is_saratoga();
        let between = |flow: &&Flow| {
            let ends = [flow.from.as_str(), &flow.to];
            ends.contains(&node) && ends.contains(&end) && node != end
        };
        let mut flows = self.scenario.flows.iter();
        flows.find(|flow| moves(flow) && between(flow))?;
        let host = self.scenario.hosts.get(node)?;
        Some(&host.tcp.congestion_control)
    }

    /// A route that names a control overrules what a socket asks for.
    fn has_one_control(&self, flow: &Flow) -> Result<(), LabError> {
        let own = self.scenario.sender_control(flow);
        match (own, self.control(&flow.from, &flow.to)) {
            (Some(own), Some(control)) if own != control => Err(LabError::TwoControls {
                flow: flow.name.clone(),
                host: flow.from.clone(),
                control: control.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// From `node` to every address that is neither its own nor on a link of its own; to one on a link of
    /// its own where a program moves a file over it.
    fn routes(&self, node: &str) -> Vec<Route> {
        let mut routes = Vec::new();
        for (name, link) in &self.scenario.links {
            let on_link = link.ends.iter().any(|end| end == node);
            for (end, address) in link.ends.iter().zip(self.addresses.of(name)) {
                let to = Prefix::host(address);
                let control = self.control(node, end);
                let route = match self.topology.path(node, end) {
                    Some(path) if !on_link => Route::via(to, self.addresses.far(&path.hops[0])),
                    Some(_) if control.is_some() => Route::device(to, name),
                    _ => continue,
                };
                routes.push(match control {
                    Some(control) => route.with_control(kernel_name(control)),
                    None => route,
                });
            }
        }
        routes
    }

    fn traffic(&self, traffic: &Traffic) -> Result<[(Flow, FlowPlan); 2], LabError> {
        let lane = |direction| {
            let flow = traffic.flow("traffic", direction);
            let plan = self.flow(&flow, traffic_port(self.scenario, direction))?;
            Ok::<_, LabError>((flow, plan))
        };
        Ok([lane(Direction::Forward)?, lane(Direction::Reverse)?])
    }

    /// What the sender of `flow` is told, if its control is one of ours.
    fn bottleneck(&self, flow: &Flow, there: &Path<'_>) -> Option<Bottleneck> {
        let control = self.scenario.sender_control(flow)?;
        rates::bottleneck(flow, twin(control)?.rate, there)
    }

    fn flow(&self, flow: &Flow, port: u16) -> Result<FlowPlan, LabError> {
        self.has_one_control(flow)?;
        let topology = &self.topology;
        let dialled = topology.path(&flow.opened_by, flow.acceptor());
        let ways = dialled.zip(topology.path(&flow.from, &flow.to));
        let no_path = || LabError::NoPath(flow.name.clone());
        let (dialled, there) = ways.ok_or_else(no_path)?;
        let round_trip = topology
            .round_trip(&flow.from, &flow.to)
            .ok_or_else(no_path)?;
        let [_, asked] = self.addresses.ends(&dialled);
        Ok(FlowPlan {
            to: SocketAddr::new(asked, port),
            limit: FullPacket::new(self.scenario, flow, &there).goodput_limit(&there),
            bottleneck: self.bottleneck(flow, &there),
            round_trip,
            rate: rates::of_file(flow, &there),
            mtu: there.mtu(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, text: &str) -> Plan {
        Plan::new(&Scenario::parse(name, text).unwrap()).unwrap()
    }

    #[test]
    fn a_chain_gets_networks_routes_and_ports() {
        let plan = plan("geo.toml", include_str!("../../../scenarios/geo.toml"));
        // By name: ground is link 0, space link 1.
        assert_eq!(plan.addresses["ground"][0].to_string(), "10.0.0.1/24");
        assert_eq!(plan.addresses["space"][1].to_string(), "10.0.1.2/24");
        let flow = &plan.flows[0];
        // The terminal connects: to the server, on the ground link.
        assert_eq!(flow.to.to_string(), "10.0.0.1:10000");
        assert_eq!(flow.round_trip, Duration::from_millis(600));
        assert_eq!(flow.bottleneck, None, "cubic asks for no rate");
        assert!((flow.limit.unwrap().mbps() - 9.5568).abs() < 1e-4);
        let routes = |node: &str| -> Vec<String> {
            plan.nodes[node]
                .routes
                .iter()
                .map(Route::to_string)
                .collect()
        };
        assert!(routes("hub").is_empty(), "{:?}", routes("hub"));
        assert_eq!(routes("terminal").len(), 2);
        assert!(
            routes("terminal")[0].contains("10.0.0.1"),
            "{:?}",
            routes("terminal")
        );
        assert!(
            routes("terminal")[0].contains("via 10.0.1.1"),
            "{:?}",
            routes("terminal")
        );
        assert!(
            routes("server")[0].contains("via 10.0.0.2"),
            "{:?}",
            routes("server")
        );
        assert!(plan.nodes["hub"].forwards && !plan.nodes["server"].forwards);
    }

    #[test]
    fn senders_that_ask_are_told_the_rate_of_the_slowest_link_or_what_the_scenario_says() {
        let text = include_str!("../../../scenarios/geo.toml");
        let bottleneck = |control: &str| {
            let name = "\"cubic\"";
            assert_eq!(text.matches(name).count(), 1);
            let plan = plan("geo.toml", &text.replace(name, control));
            plan.flows[0].bottleneck.clone()
        };
        let slowest = bottleneck("\"bentpipe_rate\"").unwrap();
        assert_eq!(
            (slowest.link.as_str(), slowest.from.as_str()),
            ("space", "hub")
        );
        assert_eq!(slowest.rate.mbps(), 10.0);
        assert_eq!(bottleneck("\"bentpipe_hybla\""), None);
        let said = bottleneck("\"bentpipe_hybla\"\npath_rate = \"8Mbit/s\"").unwrap();
        assert_eq!(said.rate.mbps(), 8.0);
    }

    #[test]
    fn cross_traffic_is_accepted_behind_the_flows_by_direction() {
        let traffic = "\n[traffic]\nflows = 9\nbetween = [\"server\", \"terminal\"]\n";
        let text = include_str!("../../../scenarios/geo.toml").to_owned() + traffic;
        let plan = plan("geo.toml", &text);
        let to = plan.traffic.unwrap().map(|(_, lane)| lane.to.to_string());
        assert_eq!(to, ["10.0.1.2:10001", "10.0.0.1:10002"]);
    }

    #[test]
    fn ipv6_and_two_routers() {
        let text = include_str!("../../../scenarios/asymmetric6.toml");
        let plan = plan("asymmetric6.toml", text);
        assert_eq!(plan.addresses["space"][0].to_string(), "fd00:0:0:2::1/64");
        assert_eq!(plan.flows[1].to.to_string(), "[fd00::1]:10001");
        assert_eq!(plan.flows[0].round_trip, Duration::from_millis(580));
        assert_eq!(plan.nodes["terminal"].routes.len(), 4);
        assert_eq!(plan.nodes["far"].routes.len(), 2);
    }
}
