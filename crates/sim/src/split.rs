//! From a split of a scenario to the machine.

use crate::SimError;
use crate::endpoints;
use bentpipe_base::Bytes;
use bentpipe_gateway_config::Leg;
use bentpipe_pep::split::{Config, Setup, tcp_config};
use bentpipe_scenario::{Preset, Scenario, Split, SplitLeg, SplitSetup};
use bentpipe_tcp as tcp;
use bentpipe_wire::Tcp;
use std::sync::Arc;

/// The configuration of the split called `name`.
pub(crate) fn config(
    scenario: &Scenario,
    name: &str,
    split: &Split,
    seed: u64,
) -> Result<Config, SimError> {
    let base = endpoint(scenario, name, split)?;
    let policy = |side: &str, settings: &SplitLeg| {
        let endpoint = tcp_config(&leg(settings, &base), base.clone());
        endpoint.map_err(|why| SimError::Leg {
            pep: name.to_owned(),
            side: side.to_owned(),
            why,
        })
    };
    let (ground, space) = (
        policy("ground", &split.ground)?,
        policy("space", &split.space)?,
    );
    let stock = Config::new(ground, space);
    Ok(Config {
        setup: match split.setup {
            SplitSetup::EndToEnd => Setup::EndToEnd,
            SplitSetup::Early => Setup::Early,
        },
        buffer: split.buffer,
        standing: (!split.endpoint.handshakes()).then(|| Arc::new(base)),
        flows: split.flows.map_or(stock.flows, |flows| flows as usize),
        idle: split.idle.unwrap_or(stock.idle),
        seed,
        ..stock
    })
}

/// What both legs start from.
fn endpoint(scenario: &Scenario, name: &str, split: &Split) -> Result<tcp::Config, SimError> {
    let endpoint = &split.endpoint;
    let mut config = endpoints::preset(endpoint, scenario.ip);
    if let Some(recovery) = &endpoint.recovery {
        config.recovery = endpoints::recovery(recovery, &format!("peps.{name}"))?;
    }
    if let tcp::ns2::WireSize::Fixed { data, bare } = config.ns2.wire_size {
        let told = |bytes: Option<Bytes>, or| bytes.map_or(or, |bytes| bytes.0 as u32);
        config.ns2.wire_size = tcp::ns2::WireSize::Fixed {
            data: told(endpoint.data_header, data),
            bare: told(endpoint.ack_header, bare),
        };
    }
    // With a handshake it is the smaller of the two ends' that counts.
    let mtu = scenario.links.values().map(|link| link.mtu).min();
    let fits = mtu.unwrap_or(Bytes(1500)) - scenario.ip.header() - Bytes(Tcp::BARE as u64);
    let mss = match (endpoint.mss, endpoint.preset) {
        (Some(mss), _) => mss,
        (None, Preset::Ns2) => Bytes(u64::from(config.mss)),
        (None, Preset::Rfc) => fits,
    };
    config.mss = u16::try_from(mss.0).unwrap_or(u16::MAX).max(1);
    Ok(config)
}

/// The policy of a leg, its buffers those of `base` where nothing else is said.
fn leg(settings: &SplitLeg, base: &tcp::Config) -> Leg {
    let mut leg = Leg::terrestrial();
    leg.congestion = settings.congestion_control.clone();
    leg.variant = settings.variant.clone();
    leg.initial_window = settings.initial_window;
    leg.link.rate = settings.rate;
    leg.link.pace = settings.pacing.unwrap_or(leg.link.pace);
    // Half of it counts as payload.
    leg.receive_buffer = settings.receive_window.unwrap_or(base.receive_buffer) * 2;
    leg
}
