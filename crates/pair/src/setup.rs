//! What is read of a scenario, and what is refused.

use crate::PairError;
use bentpipe_base::Bytes;
use bentpipe_gateway_config::Handshake;
use bentpipe_plan::addresses::Addresses;
use bentpipe_plan::quic::{self as ends, Pair};
use bentpipe_quic::{Config, Identity, PublicKey};
use bentpipe_scenario::{Amount, Flow, FlowKind, Gateway, Hop, Ip, Scenario, Topology};
use bentpipe_sim::Options;
use bentpipe_tunnel_sockets::Link;
use core::net::{IpAddr, SocketAddr};

/// The UDP port of a near end, whose kernel would choose one.
const NEAR_PORT: u16 = 40_000;

/// A pair, ready to be made.
pub(crate) struct Setup<'s> {
    pub(crate) scenario: &'s Scenario,
    pub(crate) seed: u64,
    pub(crate) pair: Pair<'s>,
    /// The link between the two ends, from the near one on.
    pub(crate) hop: Hop<'s>,
    /// Where the near end and the far one are.
    pub(crate) addresses: [SocketAddr; 2],
    /// Headers of IP and UDP.
    pub(crate) headers: Bytes,
    /// Of the near end and the far one.
    pub(crate) configs: [Config; 2],
    /// The near end answers before its far end has dialled.
    pub(crate) early: bool,
    /// It refuses what finds no tunnel.
    pub(crate) refuses: bool,
}

fn unknown<T>(what: impl Into<String>) -> Result<T, PairError> {
    Err(PairError::Unknown(what.into()))
}

impl<'s> Setup<'s> {
    /// `None` where no gateway has a leg over QUIC.
    pub(crate) fn new(
        scenario: &'s Scenario,
        options: &Options,
    ) -> Result<Option<Self>, PairError> {
        let pairs = ends::pairs(scenario);
        let split = |gateway: &&Gateway| gateway.splits().is_some();
        let pair = match pairs.as_slice() {
            [] => return Ok(None),
            [pair] if scenario.gateways.values().filter(split).count() == 2 => *pair,
            _ => return unknown("more gateways than a pair"),
        };
        let topology = Topology::new(scenario);
        let path = topology.path(pair.near, pair.far);
        let [hop] = path.map(|path| path.hops).unwrap_or_default()[..] else {
            return unknown("a way of more than one link between the two ends");
        };
        for (name, link) in &scenario.links {
            if name != hop.name && link.is_emulated() {
                return unknown(format!(
                    "link `{name}`, which has a rate, a delay or losses"
                ));
            }
        }
        if scenario.peps.values().any(|pep| pep.enabled) || scenario.traffic.is_some() {
            return unknown("a PEP or cross traffic beside it");
        }
        if options.wire {
            return unknown("the option `wire`");
        }
        for flow in &scenario.flows {
            fits(flow, pair, &topology)?;
        }
        let (Some(near), Some(end)) = (
            scenario.gateways[pair.near].splits(),
            ends::end(scenario, pair.near),
        ) else {
            return Ok(None);
        };
        let ipv6 = scenario.ip == Ip::V6;
        let identities = [identity()?, identity()?];
        let keys = identities.each_ref().map(Identity::public);
        let [near_identity, far_identity] = identities;
        let [near_key, far_key] = keys;
        let link = Link::of_leg(&near.config().sat, &end.path);
        let near_config = link.config(near_identity, vec![far_key], ipv6)?;
        let far_config = far(scenario, pair, near_key)?.quic(far_identity)?;
        let seed = options.seed.unwrap_or(scenario.seed);
        let config = |own: u64, config: Config| Config {
            seed: Some(seed.wrapping_mul(2).wrapping_add(own)),
            // Of several datagrams in one each would have its own fate on the link.
            segments: 1,
            ..config
        };
        let near_address: IpAddr = Addresses::new(scenario).near(&hop);
        let headers = scenario.ip.header() + Bytes(8);
        Ok(Some(Self {
            scenario,
            seed,
            pair,
            hop,
            addresses: [(near_address, NEAR_PORT).into(), pair.listens],
            headers,
            configs: [config(0, near_config), config(1, far_config)],
            early: end.handshake == Handshake::Early,
            refuses: end.refuses,
        }))
    }
}

fn identity() -> Result<Identity, PairError> {
    Identity::generate().map_err(|error| PairError::Endpoint(error.to_string()))
}

/// What the far end's proxy would read.
fn far(
    scenario: &Scenario,
    pair: Pair<'_>,
    client: PublicKey,
) -> Result<bentpipe_proxy::Config, PairError> {
    let split = scenario.gateways[pair.far].splits();
    let keys = split.map(|split| {
        ends::proxy(
            split.written(),
            scenario.ip,
            "/key",
            vec![client.to_string()],
        )
    });
    let text = keys
        .flatten()
        .map(|keys| keys.to_string())
        .unwrap_or_default();
    Ok(bentpipe_proxy::Config::parse(
        &format!("gateways.{}", pair.far),
        &text,
    )?)
}

/// Refuses a flow that these ends do not know.
fn fits(flow: &Flow, pair: Pair<'_>, topology: &Topology<'_>) -> Result<(), PairError> {
    let name = &flow.name;
    if flow.app.is_some() {
        return unknown(format!("the program of flow `{name}`"));
    }
    if flow.kind != FlowKind::Bulk {
        return unknown(format!("the kind `{}` of flow `{name}`", flow.kind.name()));
    }
    if matches!(flow.amount, Amount::Segments(_)) {
        return unknown(format!("an amount in segments of flow `{name}`"));
    }
    let path = topology.path(&flow.opened_by, flow.acceptor());
    let nodes = path.into_iter().flat_map(|path| path.hops);
    let mut nodes = nodes
        .map(|hop| hop.to)
        .filter(|node| [pair.near, pair.far].contains(node));
    if [nodes.next(), nodes.next()] != [Some(pair.near), Some(pair.far)] {
        return unknown(format!(
            "flow `{name}`, which does not pass `{}` and then `{}` from the host that opens it",
            pair.near, pair.far
        ));
    }
    Ok(())
}
