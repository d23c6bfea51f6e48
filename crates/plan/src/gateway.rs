//! How a gateway of a scenario splits, with what it leaves to the TCP of its node filled in; and which flows pass it.

use bentpipe_gateway_config::Config;
use bentpipe_scenario::{Gateway, Scenario, Topology};

/// A split, twice: as the keys that configure a real gateway, and as what they say.
#[derive(Clone, Debug)]
pub struct Split {
    /// The keys.
    pub keys: toml::Table,
    /// What they say.
    pub config: Config,
}

/// The split of `gateway`, if it splits.
///
/// A leg that names no congestion control has that of `[gateways.NAME]`, and it is written into the keys too: the default of
/// a node in the lab cannot stand in for it, for the kernel lets namespaces have few controls as their default.
pub fn split(gateway: &Gateway) -> Option<Split> {
    let split = gateway.splits()?;
    let (mut keys, mut config) = (split.written().clone(), split.config().clone());
    let control = &gateway.tcp.congestion_control;
    for (name, leg) in [("lan", &mut config.lan), ("sat", &mut config.sat)] {
        if leg.congestion.is_some() || leg.variant.is_some() {
            continue;
        }
        leg.congestion = Some(control.clone());
        let own = keys
            .entry(name)
            .or_insert_with(|| toml::Table::new().into());
        if let Some(own) = own.as_table_mut() {
            own.insert("congestion_control".into(), control.clone().into());
        }
    }
    // Variants of a leg have its control where they name none of their own, in the keys by themselves.
    for profile in &mut config.profiles {
        if profile.leg.variant.is_none() {
            let congestion = &mut profile.leg.congestion;
            congestion.get_or_insert_with(|| control.clone());
        }
    }
    Some(Split { keys, config })
}

/// The gateways that split which each of the first `flows` flows passes, in the order of its way: the flow's index, the
/// gateway's name. A policy of the gateway may let the flow pass unsplit all the same.
pub fn legs(scenario: &Scenario, flows: usize) -> Vec<(usize, &str)> {
    let topology = Topology::new(scenario);
    let splits = |name: &str| {
        let gateway = scenario.gateways.get(name);
        gateway.is_some_and(|gateway| gateway.splits().is_some())
    };
    let mut legs = Vec::new();
    for (index, flow) in scenario.flows.iter().take(flows).enumerate() {
        let path = topology.path(&flow.from, &flow.to);
        let nodes = path.into_iter().flat_map(|path| path.hops);
        let nodes = nodes.map(|hop| hop.to).filter(|name| splits(name));
        legs.extend(nodes.map(|name| (index, name)));
    }
    legs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(split: &str) -> Split {
        super::split(&scenario(split).gateways["hub"]).expect("it splits")
    }

    fn scenario(split: &str) -> Scenario {
        let text = format!(
            "name = \"split\"\n[hosts.a]\n[hosts.b]\n[gateways.hub]\nlan = \"ground\"\nsat = \"space\"\n\
             congestion_control = \"bbr\"\n{split}\n\
             [links.ground]\nends = [\"a\", \"hub\"]\n[links.space]\nends = [\"hub\", \"b\"]\n\
             [[flows]]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1kB\"\n"
        );
        Scenario::parse("split.toml", &text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_flow_has_a_leg_at_each_gateway_that_splits_on_its_way() {
        let all = |split: &str, flows| {
            legs(&scenario(split), flows)
                .into_iter()
                .map(|(flow, name)| (flow, name.to_owned()))
                .collect::<Vec<_>>()
        };
        assert_eq!(all("[gateways.hub.split]", 9), [(0, "hub".to_owned())]);
        assert_eq!(all("[gateways.hub.split]", 0), []);
        assert_eq!(all("enabled = false\n[gateways.hub.split]", 9), []);
        assert_eq!(all("", 9), []);
    }

    #[test]
    fn a_leg_without_a_control_has_the_gateways_in_both_forms() {
        let split = read(
            "[gateways.hub.split.leg.bulk]\nlike = \"lan\"\n[gateways.hub.split.leg.own]\nlike = \"lan\"\ncongestion_control = \"reno\"",
        );
        assert_eq!(
            split.keys["lan"]["congestion_control"].as_str(),
            Some("bbr")
        );
        assert!(
            split.keys.get("sat").is_none(),
            "the satellite leg has one: {}",
            split.keys
        );
        let control = |leg: &bentpipe_gateway_config::Leg| leg.congestion.clone();
        assert_eq!(control(&split.config.lan).as_deref(), Some("bbr"));
        assert_eq!(control(&split.config.sat).as_deref(), Some("bentpipe_rate"));
        let profiles: Vec<_> = split
            .config
            .profiles
            .iter()
            .map(|it| control(&it.leg))
            .collect();
        assert_eq!(profiles, [Some("bbr".to_owned()), Some("reno".to_owned())]);
        // Which a real gateway reads off the keys in the same way.
        let again = Config::parse("hub.toml", &split.keys.to_string()).expect("it is right");
        assert_eq!(control(&again.lan).as_deref(), Some("bbr"));
        assert_eq!(control(&again.profiles[0].leg).as_deref(), Some("bbr"));
    }

    #[test]
    fn a_leg_keeps_what_it_names() {
        let named = read("[gateways.hub.split.lan]\ncongestion_control = \"reno\"");
        assert_eq!(
            named.keys["lan"]["congestion_control"].as_str(),
            Some("reno")
        );
        assert_eq!(named.config.lan.congestion.as_deref(), Some("reno"));
        let simulated = read("[gateways.hub.split.lan]\nvariant = \"sack\"");
        assert!(simulated.keys["lan"].get("congestion_control").is_none());
        assert_eq!(simulated.config.lan.congestion, None);
    }
}
