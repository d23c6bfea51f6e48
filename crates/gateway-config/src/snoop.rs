//! How connections are helped that pass end to end, by a policy with `action = "snoop"`.

use crate::{Leg, LegId};
use bentpipe_base::{Bytes, Rate};
use std::time::Duration;

/// The link, or links, that lose packets: data that goes there is cached, and sent again when it is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// The link of one leg.
    Leg(LegId),
    /// The links of both legs.
    Both,
}

impl Toward {
    /// The leg behind which data is lost; that of the satellite, where it is lost behind both.
    pub fn lossy(self) -> LegId {
        match self {
            Self::Leg(leg) => leg,
            Self::Both => LegId::Sat,
        }
    }
}

/// `[snoop]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snoop {
    /// Where data is lost.
    pub toward: Toward,
    /// The cache of one connection and direction, in bytes of packets. `None`: see [`Snoop::cache_of`].
    pub cache: Option<Bytes>,
}

impl Default for Snoop {
    fn default() -> Self {
        Self {
            toward: Toward::Leg(LegId::Sat),
            cache: None,
        }
    }
}

impl Snoop {
    /// Over a geostationary satellite.
    const ROUND_TRIP: Duration = Duration::from_millis(600);
    /// The cache of one connection where nothing is said and the rate is not known: 10 Mbit/s times 600 ms.
    const USUAL: Bytes = Bytes(750_000);
    /// Over the slowest links: some forty packets.
    const LEAST: Bytes = Bytes(64_000);

    /// The cache of one connection and direction over the link of `sat`: what is under way on it. What the link drops is
    /// sent again a round trip later, so that as much has to be kept.
    pub fn cache_of(&self, sat: &Leg) -> Bytes {
        let under_way = |rate: Rate| rate.over(Self::ROUND_TRIP).max(Self::LEAST);
        let known = sat.link.rate.map(under_way);
        self.cache.or(known).unwrap_or(Self::USUAL)
    }
}
