//! Who is told which rate, and who shares it.

use bentpipe_base::{Bytes, Rate};
use bentpipe_cc::RateUse;
use bentpipe_scenario::{Flow, Path};

/// What a sender is told of the slowest link on its way. Those that are told the same share that link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Told {
    /// The link's name.
    pub link: String,
    /// The node from which packets enter it.
    pub from: String,
    /// What the link carries on the wire.
    pub rate: Rate,
    /// Bytes that the link adds to each packet.
    pub overhead: Bytes,
}

/// What the sender of `flow` by a control that makes this `of` a rate is told of its `way`: who shares a link is told its
/// rate without being asked, who heeds one only what the scenario says.
pub fn told(flow: &Flow, of: RateUse, way: &Path<'_>) -> Option<Told> {
    let rate = match of {
        RateUse::Heeds => flow.path_rate,
        RateUse::Shares => flow.path_rate.or_else(|| way.rate()),
        RateUse::Ignores => None,
    }?;
    let slowest = { way.hops.iter() }
        .min_by_key(|hop| { hop.direction.rate }.map_or(u64::MAX, Rate::bits_per_sec))?;
    Some(Told {
        link: slowest.name.to_owned(),
        from: slowest.from.to_owned(),
        rate,
        overhead: slowest.direction.overhead,
    })
}

/// The rate at which Saratoga moves the file of `flow` over `way`; `None` where neither says one.
pub fn of_file(flow: &Flow, way: &Path<'_>) -> Option<Rate> {
    flow.path_rate.or_else(|| way.rate())
}
