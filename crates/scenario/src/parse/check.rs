//! Checks a scenario as a whole: every name refers to something, every flow has a path, and every flow ends before the
//! run does.

use super::{Known, Places};
use crate::model::{Amount, Flow, FlowKind, Scenario};
use crate::topology::Topology;
use bentpipe_cc::{RateUse, twin};
use bentpipe_config::{Document, Place, Wrong};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn whole(
    document: &Document<'_>,
    scenario: &Scenario,
    places: &Places,
    known: Known<'_>,
) {
    let check = Check {
        document,
        scenario,
        places,
        known,
        nodes: places.nodes.keys().map(String::as_str).collect(),
    };
    // A flow has no path where a link leads to nowhere: one problem, not two.
    if check.links() & check.gateways() & check.peps() & check.far_ends() {
        check.controls();
        check.flows();
        check.traffic();
    }
}

struct Check<'a, 't> {
    document: &'a Document<'t>,
    scenario: &'a Scenario,
    places: &'a Places,
    known: Known<'a>,
    nodes: Vec<&'a str>,
}

impl Check<'_, '_> {
    fn problem(&self, place: &Place, wrong: Wrong) -> bool {
        self.document.problem(place.clone(), wrong);
        false
    }

    /// Every link joins two different nodes.
    fn links(&self) -> bool {
        let mut right = true;
        for (name, link) in &self.scenario.links {
            let places = &self.places.ends[name];
            for (end, place) in link.ends.iter().zip(places) {
                if !self.nodes.contains(&end.as_str()) {
                    let what = format!("link `{name}` leads to `{end}`, which is no node");
                    right = self.problem(place, Wrong::name(what, end, &self.nodes));
                }
            }
            if link.ends[0] == link.ends[1] {
                let what = format!("both ends of link `{name}` are `{}`", link.ends[0]);
                right = self.problem(&places[0], Wrong::new(what, "two different nodes"));
            }
        }
        right
    }

    /// Both legs of every gateway are links of its own, and different ones.
    fn gateways(&self) -> bool {
        let mut right = true;
        for (name, gateway) in &self.scenario.gateways {
            let own = self.links_of(name);
            let places = &self.places.legs[name];
            for (leg, place) in [&gateway.sat, &gateway.lan].into_iter().zip(places) {
                if !own.contains(&leg.as_str()) {
                    let what = format!("`{leg}` is no link of gateway `{name}`");
                    right = self.problem(place, Wrong::name(what, leg, &own));
                }
            }
            if gateway.sat == gateway.lan {
                let what = format!("both legs of gateway `{name}` are `{}`", gateway.sat);
                right = self.problem(&places[1], Wrong::new(what, "two different links"));
            }
        }
        right
    }

    /// The gateways with a leg over QUIC have far ends, which are such gateways too and can be reached.
    fn far_ends(&self) -> bool {
        let end = |name: &str| {
            let split = self.scenario.gateways.get(name)?.splits()?;
            split.config().sat.quic_end.as_ref()
        };
        let mut right = true;
        for name in self.scenario.gateways.keys() {
            let Some(far) = end(name).and_then(|near| near.proxy.as_ref()) else {
                continue;
            };
            let place = &self.places.nodes[name];
            if end(far).is_none_or(|far| far.proxy.is_some()) {
                let what = format!("`proxy = \"{far}\"` of gateway `{name}`");
                let expected = format!(
                    "an enabled `[gateways.{far}]` with `carrier = \"quic\"` and no `proxy` in its [split.sat]"
                );
                right = self.problem(place, Wrong::new(what, expected));
            } else if Topology::new(self.scenario).path(name, far).is_none() {
                let what = format!("no way from gateway `{name}` to its far end `{far}`");
                let expected = "links, and routers or gateways between them";
                right = self.problem(place, Wrong::new(what, expected));
            }
        }
        right
    }

    /// Every proxy sits at a node that forwards, beside a link of it.
    fn peps(&self) -> bool {
        let Scenario {
            routers, gateways, ..
        } = self.scenario;
        let forwarding: Vec<&str> = routers
            .keys()
            .chain(gateways.keys())
            .map(String::as_str)
            .collect();
        let mut right = true;
        let mut sites: BTreeMap<[&str; 2], &str> = { gateways.iter() }
            .filter(|(_, gateway)| gateway.splits().is_some())
            .map(|(name, gateway)| ([name.as_str(), &gateway.sat], name.as_str()))
            .collect();
        for (name, pep) in &self.scenario.peps {
            let [node, link] = &self.places.peps[name];
            let site = [pep.node.as_str(), pep.link.as_str()];
            if pep.enabled
                && let Some(other) = sites.insert(site, name)
            {
                let what = format!(
                    "`{other}` and PEP `{name}` both at `{}` on link `{}`",
                    site[0], site[1]
                );
                let expected =
                    "one that is enabled for each node and link; `enabled = false` for the others";
                right = self.problem(node, Wrong::new(what, expected));
            }
            if !forwarding.contains(&pep.node.as_str()) {
                let what = format!("`{}` is no router or gateway", pep.node);
                right = self.problem(node, Wrong::name(what, &pep.node, &forwarding));
                continue;
            }
            let own = self.links_of(&pep.node);
            if !own.contains(&pep.link.as_str()) {
                let what = format!("`{}` is no link of `{}`", pep.link, pep.node);
                right = self.problem(link, Wrong::name(what, &pep.link, &own));
            }
        }
        right
    }

    /// The names of the links that end at `node`.
    fn links_of(&self, node: &str) -> Vec<&str> {
        let links = self.scenario.links.iter();
        let own = links.filter(|(_, link)| link.direction_from(node).is_some());
        own.map(|(name, _)| name.as_str()).collect()
    }

    /// Every congestion control and variant is one of those there are, where that is known.
    fn controls(&self) {
        for (name, host) in &self.scenario.hosts {
            let place = &self.places.controls[name];
            let control = &host.tcp.congestion_control;
            self.is_known("congestion control", control, self.known.controls, place);
        }
        for (flow, places) in self.scenario.flows.iter().zip(&self.places.flows) {
            let known = if flow.is_saratoga() {
                &Flow::SARATOGA_CONTROLS
            } else {
                self.known.controls
            };
            if let Some(control) = &flow.congestion_control {
                let place = &places.congestion_control;
                self.is_known("congestion control", control, known, place);
            }
            if let Some(variant) = &flow.variant {
                self.is_known(
                    "variant of TCP",
                    variant,
                    self.known.variants,
                    &places.variant,
                );
            }
        }
    }

    fn is_known(&self, what: &str, name: &str, known: &[&str], place: &Place) {
        if !known.is_empty() && !known.contains(&name) {
            let what = format!("unknown {what} `{name}`");
            self.problem(place, Wrong::name(what, name, known));
        }
    }

    fn flows(&self) {
        let topology = Topology::new(self.scenario);
        let hosts: Vec<&str> = self.scenario.hosts.keys().map(String::as_str).collect();
        let mut names = BTreeSet::new();
        for (flow, places) in self.scenario.flows.iter().zip(&self.places.flows) {
            let name = &flow.name;
            if !names.insert(name) {
                let what = format!("a second flow named `{name}`");
                self.problem(&places.name, Wrong::new(what, "names that differ"));
            }
            let mut known = true;
            for (end, place) in [(&flow.from, &places.from), (&flow.to, &places.to)] {
                if !hosts.contains(&end.as_str()) {
                    let what = format!("`{end}` is no host");
                    known = self.problem(place, Wrong::name(what, end, &hosts));
                }
            }
            if known && flow.from == flow.to {
                let what = format!("flow `{name}` goes from `{}` to itself", flow.from);
                self.problem(&places.to, Wrong::new(what, "two different hosts"));
            } else if known && topology.path(&flow.from, &flow.to).is_none() {
                let what = format!("no links lead from `{}` to `{}`", flow.from, flow.to);
                let expected = "hosts joined by links, with routers or gateways between them";
                self.problem(&places.to, Wrong::new(what, expected));
            }
            if known && ![&flow.from, &flow.to].contains(&&flow.opened_by) {
                let what = format!("`{}` is no end of flow `{name}`", flow.opened_by);
                let ends = [flow.from.as_str(), &flow.to];
                let wrong = Wrong::name(what, &flow.opened_by, &ends);
                self.problem(&places.opened_by, wrong);
            }
            self.is_a_file(flow, places);
            self.rate_is_heard(flow, places);
            self.ends_in_time(flow, places);
        }
    }

    /// The traffic goes between two hosts that links join.
    fn traffic(&self) {
        let (Some(traffic), Some([between, variant])) =
            (&self.scenario.traffic, &self.places.traffic)
        else {
            return;
        };
        let hosts: Vec<&str> = self.scenario.hosts.keys().map(String::as_str).collect();
        let [a, b] = &traffic.between;
        if let Some(end) = [a, b]
            .into_iter()
            .find(|end| !hosts.contains(&end.as_str()))
        {
            let what = format!("traffic to `{end}`, which is no host");
            self.problem(between, Wrong::name(what, end, &hosts));
        } else if Topology::new(self.scenario).path(a, b).is_none() {
            let what = format!("no links lead from `{a}` to `{b}`");
            self.problem(between, Wrong::new(what, "two hosts joined by links"));
        }
        if let Some(name) = &traffic.variant {
            self.is_known("variant of TCP", name, self.known.variants, variant);
        }
    }

    /// What a program moves is a file: so many bytes, and nothing that only a TCP of ours could do.
    fn is_a_file(&self, flow: &Flow, places: &super::flows::Places) {
        let Some(app) = &flow.app else {
            return;
        };
        self.is_known("program", app, self.known.apps, &places.app);
        let is_file = flow.kind == FlowKind::Bulk && matches!(flow.amount, Amount::Bytes(_));
        if !is_file || flow.variant.is_some() {
            let what = format!("`{app}` moves files");
            let expected = "a `kind` of \"bulk\", an amount in `bytes`, and no `variant`";
            self.problem(&places.app, Wrong::new(what, expected));
        }
        if flow.congestion_control.is_some() && !flow.is_saratoga() {
            let what = format!("`{app}` takes the congestion control of its host");
            let expected = "it in `[hosts.NAME.tcp]` rather than here";
            self.problem(&places.congestion_control, Wrong::new(what, expected));
        }
    }

    fn rate_is_heard(&self, flow: &Flow, places: &super::flows::Places) {
        let Some(control) = self.scenario.sender_control(flow) else {
            // Saratoga has a rate of its own, and of an unknown host it is said elsewhere that it is unknown.
            return;
        };
        let hears = twin(control).is_some_and(|control| control.rate != RateUse::Ignores);
        if flow.path_rate.is_some() && !hears {
            let what = format!("`{control}` does not ask for the rate of its path");
            let wrong = Wrong::new(
                what,
                "`path_rate` only beside Saratoga, `bentpipe_hybla` or `bentpipe_rate`",
            );
            self.problem(&places.path_rate, wrong);
        }
    }

    fn ends_in_time(&self, flow: &Flow, places: &super::flows::Places) {
        let limit = self.scenario.time_limit;
        let lasts = match flow.amount {
            Amount::Duration(duration) => duration,
            Amount::Bytes(_) | Amount::Segments(_) => core::time::Duration::ZERO,
        };
        let end = flow.start.saturating_add(lasts);
        if end > limit || flow.start >= limit {
            let what = format!("flow `{}` lasts until {end:?}", flow.name);
            let expected = format!("an end within the `time_limit` of {limit:?}");
            self.problem(&places.end, Wrong::new(what, expected));
        }
    }
}
