//! Makes the configuration of a simulated split ([`bentpipe_pep::split`]) from a scenario's gateway.

use crate::addresses::Addresses;
use crate::endpoint_builder;
use crate::{EndId, SimError};
use bentpipe_base::Bytes;
use bentpipe_gateway_config::{self as gateway_config, Action, LegId, Policy};
use bentpipe_pep::Side;
use bentpipe_pep::split::{Admission, Config, Decision};
use bentpipe_scenario::{Endpoint, Gateway, Preset, Scenario};
use bentpipe_tcp::{self as tcp, EcnMode};
use bentpipe_wire::Tcp;
use std::sync::Arc;

/// The configuration of the split of the gateway called `name`, whose own keys say `split`.
pub(crate) fn of_gateway(
    scenario: &Scenario,
    name: &str,
    gateway: &Gateway,
    split: &gateway_config::Config,
    seed: u64,
) -> Result<Config, SimError> {
    refuse(name, split)?;
    let mut base = endpoint(scenario, name, &gateway.endpoint)?;
    // As the gateway's kernel by default.
    base.ecn = EcnMode::Accept;
    let mut config = Config::of_gateway(split, &base).map_err(|(leg, why)| SimError::Leg {
        gateway: name.to_owned(),
        leg,
        why,
    })?;
    if let Some(window) = gateway.endpoint.receive_window {
        let profiles = config.profiles.iter_mut().flatten();
        let plain = [&mut config.ground, &mut config.space];
        for leg in plain.into_iter().chain(profiles) {
            Arc::make_mut(leg).receive_buffer = window;
        }
    }
    config.without_handshake = (!gateway.endpoint.handshakes()).then(|| Arc::new(base));
    config.seed = seed;
    Ok(config)
}

/// Refuses the keys that a simulated gateway cannot follow, and without which its outcome would differ from the real one's.
fn refuse(name: &str, split: &gateway_config::Config) -> Result<(), SimError> {
    let of_interface = |it: &Policy| !it.interfaces.is_empty() || !it.vlans.is_empty();
    let snooped = |it: &Policy| it.action == Action::Snoop;
    let key = match split {
        gateway_config::Config { sat, .. } if sat.quic_end.is_some() => "sat.carrier = \"quic\"",
        gateway_config::Config { policies, .. } if policies.iter().any(of_interface) => {
            "policy.interface` or `policy.vlan"
        }
        gateway_config::Config { policies, .. } if policies.iter().any(snooped) => {
            "policy.action = \"snoop\"` in a policy that is not the first, or not for all connections; `policy.action"
        }
        _ => return Ok(()),
    };
    Err(SimError::Gateway {
        gateway: name.to_owned(),
        key,
    })
}

/// What becomes of a flow by `policies`, of which the first that matches decides: by the addresses and ports that both engines give
/// it, and the side from which its opener sends. As the lab's, its packets have code point 0. `None` without policies.
///
/// # Errors
/// The profile of the cross traffic was not read.
pub(crate) fn admission(
    scenario: &Scenario,
    policies: &[Policy],
) -> Result<Option<Admission<EndId>>, SimError> {
    if policies.is_empty() {
        return Ok(None);
    }
    let addresses = Addresses::new(scenario)?;
    let policies = policies.to_vec();
    Ok(Some(Box::new(move |source: EndId, destination, from| {
        let (client, server, side) = if source.opens() {
            (source, destination, from)
        } else {
            (destination, source, from.opposite())
        };
        let (client, server) = (addresses.of(client), addresses.of(server));
        let takes = |policy: &&Policy| policy.takes(client.ip(), server, 0, leg(side));
        let first = policies.iter().find(takes);
        Decision {
            action: first.map_or(Action::Split, |policy| policy.action),
            profile: first.and_then(|policy| policy.profile),
        }
    })))
}

const fn leg(side: Side) -> LegId {
    match side {
        Side::Ground => LegId::Lan,
        Side::Space => LegId::Sat,
    }
}

/// The configuration of TCP that both legs begin with, before the policy of each.
fn endpoint(scenario: &Scenario, name: &str, endpoint: &Endpoint) -> Result<tcp::Config, SimError> {
    let mut config = endpoint_builder::preset(endpoint, scenario.ip);
    if let Some(recovery) = &endpoint.recovery {
        config.recovery = endpoint_builder::recovery(recovery, &format!("gateways.{name}"))?;
    }
    if let tcp::ns2::WireSize::Fixed { data, bare } = config.ns2.wire_size {
        let or_preset = |bytes: Option<Bytes>, or| bytes.map_or(or, |bytes| bytes.0 as u32);
        config.ns2.wire_size = tcp::ns2::WireSize::Fixed {
            data: or_preset(endpoint.data_header, data),
            bare: or_preset(endpoint.ack_header, bare),
        };
    }
    // With a handshake the smaller of the two ends' maximum segment sizes counts.
    let mtus = scenario.links.values().map(|link| link.mtu);
    let mtu = mtus.min().expect("a gateway is between two links");
    let fits = mtu - scenario.ip.header() - Bytes(Tcp::BARE as u64);
    let mss = match (endpoint.mss, endpoint.preset) {
        (Some(mss), _) => mss,
        (None, Preset::Ns2) => Bytes(u64::from(config.mss)),
        (None, Preset::Rfc | Preset::Scps) => fits,
    };
    config.mss = u16::try_from(mss.0).unwrap_or(u16::MAX).max(1);
    Ok(config)
}
