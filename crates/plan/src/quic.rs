//! Who is whose far end of the legs over QUIC, and where it listens.

use crate::addresses::Addresses;
use bentpipe_gateway_config::QuicEnd;
use bentpipe_scenario::{Ip, Scenario, Topology};
use core::net::SocketAddr;
use toml::{Table, Value};

/// The UDP port of every far end.
pub const PORT: u16 = 4_433;

/// Keys of a leg that say which end it is, and not how it carries.
const WHO: [&str; 2] = ["carrier", "proxy"];

/// A near end and its far end, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'s> {
    /// The gateway that asks.
    pub near: &'s str,
    /// The gateway in whose place a proxy dials.
    pub far: &'s str,
    /// Where the near end finds it.
    pub listens: SocketAddr,
}

/// The pairs of `scenario`, whose checks have found a way between the two of each.
pub fn pairs(scenario: &Scenario) -> Vec<Pair<'_>> {
    let topology = Topology::new(scenario);
    let addresses = Addresses::new(scenario);
    let pairs = scenario.gateways.keys().filter_map(|near| {
        let far = end(scenario, near)?.proxy.as_deref()?;
        let path = topology.path(near, far)?;
        let listens = (addresses.far(path.hops.last()?), PORT).into();
        Some(Pair { near, far, listens })
    });
    pairs.collect()
}

/// Which end of a leg over QUIC the gateway called `name` is, if it has one.
pub fn end<'s>(scenario: &'s Scenario, name: &str) -> Option<&'s QuicEnd> {
    let split = scenario.gateways.get(name)?.splits()?;
    split.config().sat.quic_end.as_ref()
}

/// Whether the gateway called `name` is a far end: it splits nothing.
pub fn is_far(scenario: &Scenario, name: &str) -> bool {
    end(scenario, name).is_some_and(|end| end.proxy.is_none())
}

/// The keys of the proxy in the place of a far end whose own keys are `split`, with its secret key in the file `identity`, for
/// `clients`, public keys; `None` where it says nothing of its leg.
pub fn proxy(split: &Table, ip: Ip, identity: &str, clients: Vec<String>) -> Option<Table> {
    let mut link = split.get("sat").and_then(Value::as_table).cloned()?;
    link.retain(|key, _| !WHO.contains(&key));
    let (any, hosts) = match ip {
        Ip::V4 => ("0.0.0.0", "10.0.0.0/8"),
        Ip::V6 => ("[::]", "fd00::/8"),
    };
    // A scenario's hosts have private addresses, which a proxy dials for nobody otherwise.
    let policy = Table::from_iter([
        ("to".to_owned(), Value::from(vec![hosts])),
        ("action".to_owned(), "allow".into()),
    ]);
    Some(Table::from_iter([
        ("listen".to_owned(), format!("{any}:{PORT}").into()),
        ("identity".to_owned(), identity.into()),
        ("clients".to_owned(), clients.into()),
        ("link".to_owned(), link.into()),
        ("policy".to_owned(), Value::from(vec![policy])),
    ]))
}
