//! What must fit together in a scenario: every name leads somewhere, every flow has a path, and
//! ends before the run does.

use super::Places;
use crate::model::{Amount, Flow, Scenario};
use crate::read::{Document, Place, Wrong};
use crate::topology::Topology;
use std::collections::BTreeSet;

/// The congestion controls that can be told a rate.
const KNOWS_RATES: [&str; 2] = ["bentpipe_hybla", "bentpipe_rate"];

pub(super) fn whole(document: &Document<'_>, scenario: &Scenario, places: &Places) {
    let check = Check {
        document,
        scenario,
        places,
        nodes: places.nodes.keys().map(String::as_str).collect(),
    };
    // A flow has no path where a link leads to nowhere: one problem, not two.
    if check.links() & check.gateways() {
        check.flows();
    }
}

struct Check<'a, 't> {
    document: &'a Document<'t>,
    scenario: &'a Scenario,
    places: &'a Places,
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
            let links = &self.scenario.links;
            let own: Vec<&str> = links
                .iter()
                .filter(|(_, link)| link.direction_from(name).is_some())
                .map(|(link, _)| link.as_str())
                .collect();
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
            self.rate_is_heard(flow, places);
            self.ends_in_time(flow, places);
        }
    }

    fn rate_is_heard(&self, flow: &Flow, places: &super::flows::Places) {
        let control = self.scenario.sender_control(flow).unwrap_or_default();
        if flow.path_rate.is_some() && !KNOWS_RATES.contains(&control) {
            let what = format!("`{control}` does not ask for the rate of its path");
            let wrong = Wrong::new(
                what,
                "`path_rate` only beside `bentpipe_hybla` or `bentpipe_rate`",
            );
            self.problem(&places.path_rate, wrong);
        }
    }

    fn ends_in_time(&self, flow: &Flow, places: &super::flows::Places) {
        let limit = self.scenario.time_limit;
        let lasts = match flow.amount {
            Amount::Duration(duration) => duration,
            Amount::Bytes(_) => core::time::Duration::ZERO,
        };
        let end = flow.start.saturating_add(lasts);
        if end > limit || flow.start >= limit {
            let what = format!("flow `{}` lasts until {end:?}", flow.name);
            let expected = format!("an end within the `time_limit` of {limit:?}");
            self.problem(&places.end, Wrong::new(what, expected));
        }
    }
}
