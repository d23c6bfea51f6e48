//! The addresses and ports that packets would have, by the end of a flow that they reach.

use crate::{EndId, SimError, cross_traffic_flows};
use bentpipe_plan::addresses::{self, OPENED_FROM, accepted_port, traffic_port};
use bentpipe_scenario::{Flow, Scenario, Topology};
use bentpipe_traffic::Direction;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// By [`EndId`].
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Vec<SocketAddr>);

impl Addresses {
    /// The addresses of every flow's two ends. At most [`addresses::MOST_FLOWS`] flows and [`addresses::MOST_LINKS`]
    /// links, and every flow with a path; others get no address that anyone asks for.
    ///
    /// # Errors
    /// The profile of the cross traffic was not read.
    pub(crate) fn new(scenario: &Scenario) -> Result<Self, SimError> {
        let topology = Topology::new(scenario);
        let links = addresses::Addresses::new(scenario);
        let ends = |flow: &Flow| {
            let dialled = topology.path(&flow.opened_by, flow.acceptor());
            dialled.map_or([IpAddr::V4(Ipv4Addr::UNSPECIFIED); 2], |path| {
                links.ends(&path)
            })
        };
        // Where flows go does not depend on the seed.
        let flows = cross_traffic_flows::flows(scenario, scenario.seed)?;
        let all = flows.iter().zip(0u16..).flat_map(|(flow, index)| {
            let [opener, acceptor] = ends(flow);
            let [there, back] = [Direction::Forward, Direction::Reverse];
            let accepted = match &scenario.traffic {
                Some(traffic) if usize::from(index) >= scenario.flows.len() => {
                    let forward = flow.from == traffic.between[0];
                    traffic_port(scenario, if forward { there } else { back })
                }
                _ => accepted_port(index.into()),
            };
            [
                SocketAddr::new(opener, OPENED_FROM.wrapping_add(index)),
                SocketAddr::new(acceptor, accepted),
            ]
        });
        Ok(Self(all.collect()))
    }

    /// The address of `end`.
    pub(crate) fn of(&self, end: EndId) -> SocketAddr {
        self.0[end.index()]
    }

    /// The end with address `to` whose peer has `from`. Each flow's opener has a port of its own.
    pub(crate) fn find(&self, from: SocketAddr, to: SocketAddr) -> Option<EndId> {
        let opened_by = |it: SocketAddr| Some(usize::from(it.port().checked_sub(OPENED_FROM)?));
        let accepted = opened_by(from).map(EndId::acceptor);
        let opened = opened_by(to).map(EndId::opener);
        let known =
            |end: &EndId| self.0.get(end.index()) == Some(&to) && self.of(end.peer()) == from;
        [accepted, opened].into_iter().flatten().find(known)
    }
}
