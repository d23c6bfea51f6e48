//! The network of a run: a namespace for each node, joined by links, with addresses, routes and settings. Dropping it
//! undoes everything.

use crate::LabError;
use crate::plan::{NodePlan, Plan};
use crate::settings;
use bentpipe_os::netlink::{Netlink, NetlinkError, Prefix, Veth, VethEnd};
use bentpipe_os::netns::{Netns, NetnsError};
use bentpipe_scenario::{Ip, Link, Scenario};
use std::collections::BTreeMap;

/// Namespaces and the plain wires between them; fields are dropped in this order.
pub(crate) struct Stage {
    wires: Vec<Veth>,
    nodes: BTreeMap<String, Netns>,
}

impl Stage {
    /// Makes the nodes and their plain wires; emulated links come in by `emulate`.
    pub(crate) fn build(scenario: &Scenario, plan: &Plan) -> Result<Self, LabError> {
        let mut stage = Self {
            wires: Vec::new(),
            nodes: BTreeMap::new(),
        };
        for (name, node) in &plan.nodes {
            let label = format!("{}_{name}", scenario.name);
            let netns = Netns::create(&label).map_err(|source| LabError::Namespace {
                node: name.clone(),
                source,
            })?;
            settings::set(&netns, node, scenario.ip).map_err(|source| LabError::Setting {
                node: name.clone(),
                source,
            })?;
            stage.nodes.insert(name.clone(), netns);
        }
        Ok(stage)
    }

    /// The namespace of `node`, which the plan has.
    pub(crate) fn node(&self, node: &str) -> &Netns {
        &self.nodes[node]
    }

    /// Ends what programs have left behind: the sessions of an sshd go on without it.
    pub(crate) fn end_programs(&self, scenario: &Scenario) {
        let files = scenario.flows.iter().filter(|flow| flow.app.is_some());
        for node in files.flat_map(|flow| [&flow.from, &flow.to]) {
            self.node(node).end_processes();
        }
    }

    /// Makes link `name` as a veth pair, without an emulator.
    pub(crate) fn lay(&mut self, name: &str, link: &Link, ip: Ip) -> Result<(), LabError> {
        let [near, far] = [0, 1].map(|end| VethEnd {
            netns: self.node(&link.ends[end]),
            name,
        });
        let wire = wire([near, far], link, ip).map_err(|source| LabError::Wire {
            link: name.to_owned(),
            source,
        })?;
        self.wires.push(wire);
        Ok(())
    }

    /// Gives the ends of link `name`, which are there and up, their addresses.
    pub(crate) fn address(
        &self,
        name: &str,
        link: &Link,
        addresses: &[Prefix; 2],
    ) -> Result<(), LabError> {
        for (node, address) in link.ends.iter().zip(addresses) {
            self.configure(node, |netlink| netlink.add_address(name, *address))?;
        }
        Ok(())
    }

    /// Sets the routes of all nodes, whose links have their addresses.
    pub(crate) fn route(&self, plans: &BTreeMap<String, NodePlan>) -> Result<(), LabError> {
        for (node, plan) in plans {
            self.configure(node, |netlink| {
                plan.routes
                    .iter()
                    .try_for_each(|route| netlink.add_route(route))
            })?;
        }
        Ok(())
    }

    fn configure(
        &self,
        node: &str,
        act: impl FnOnce(&Netlink) -> Result<(), NetlinkError>,
    ) -> Result<(), LabError> {
        let netlink = self
            .node(node)
            .netlink()
            .map_err(|source| LabError::Namespace {
                node: node.to_owned(),
                source,
            })?;
        act(netlink).map_err(|source| LabError::Route {
            node: node.to_owned(),
            source,
        })
    }

    /// The settings in force, by node.
    pub(crate) fn settings(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>, LabError> {
        let nodes = self.nodes.iter();
        nodes
            .map(|(name, netns)| {
                let read = settings::read_back(netns).map_err(|source| LabError::Setting {
                    node: name.clone(),
                    source,
                })?;
                Ok((name.clone(), read))
            })
            .collect()
    }
}

fn wire(ends: [VethEnd<'_>; 2], link: &Link, ip: Ip) -> Result<Veth, NetnsError> {
    let [near, far] = ends;
    let veth = Veth::create(near, far)?;
    veth.set_mtu(link.mtu)?;
    // IPv6 finds its neighbours by link-local addresses; under IPv4 they would only bring traffic of
    // the kernel's own.
    if ip == Ip::V4 {
        for end in ends {
            end.netns.netlink()?.disable_link_local(end.name)?;
        }
    }
    veth.set_up()?;
    Ok(veth)
}
