//! Which sender is told which link rate, and which flows share it.

use bentpipe_base::{Bytes, Rate};
use bentpipe_cc::{LinkParams, RateUse};
use bentpipe_scenario::{Flow, Path};

/// What a sender is told about the slowest link on its path. Senders that are told the same share that link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bottleneck {
    /// The link's name.
    pub link: String,
    /// The node from which packets enter it.
    pub from: String,
    /// What the link carries on the wire.
    pub rate: Rate,
    /// Bytes that the link adds to each packet.
    pub overhead: Bytes,
}

impl Bottleneck {
    /// Tells a congestion control of it, whose parameters are `link`.
    pub fn tell(&self, link: &mut LinkParams) {
        link.rate = Some(self.rate);
        link.overhead = self.overhead;
    }
}

/// What the sender of `flow` is told about its path `way`, if its congestion control uses a rate as `of` says. A
/// control that shares the link's rate is always told it; one that only heeds a rate is told what the scenario says.
pub fn bottleneck(flow: &Flow, of: RateUse, way: &Path<'_>) -> Option<Bottleneck> {
    let rate = match of {
        RateUse::Heeds => flow.path_rate,
        RateUse::Shares => flow.path_rate.or_else(|| way.rate()),
        RateUse::Ignores => None,
    }?;
    let slowest = { way.hops.iter() }
        .min_by_key(|hop| { hop.direction.rate }.map_or(u64::MAX, Rate::bits_per_sec))?;
    Some(Bottleneck {
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
