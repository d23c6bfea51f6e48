//! SCPS-TP (CCSDS 714.0-B-2) as a configuration of the endpoint: what a SYN offers, what both ends agree on, and how a
//! SNACK names a hole. Which holes a receiver announces is in the crate `receiver`; what a sender makes of them in
//! `recovery/snack.rs`; what a link that is out does to a connection in `outage.rs`; the options' layout in [`bentpipe_wire::scps`].
//!
//! Left out: best effort transport (BETS), record boundaries (read and ignored), compressed headers and the long form of
//! SNACK (neither offered nor sent; of a long one that comes the first hole is heeded).

mod outage;

pub use outage::Outage;

use crate::connection::Connection;
use bentpipe_base::Instant;
use bentpipe_wire::scps::{self, Capabilities, CapabilityVector, ScpsOptions, Snack};
use bentpipe_wire::{Flags, RawOptions, Segment};
use std::time::Duration;

/// How long a peer's timestamps are compared (RFC 7323, section 5.5): the reference implementation's clock counts
/// microseconds, whose sign turns after 35.8 minutes.
const STAMPS_BELIEVED: Duration = Duration::from_secs(30 * 60);

/// What of SCPS-TP an endpoint offers to its peer. A peer that offers nothing gets ordinary TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scps {
    /// Holes are announced once they are this old; zero: at once, as the reference implementation does. A path that
    /// reorders packets wants some of them to close by themselves.
    pub snack_delay: Duration,
}

/// What losses mean where nothing else tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossCause {
    /// A queue overflowed: the window is reduced (RFC 5681).
    #[default]
    Congestion,
    /// The link damaged a packet: it is sent again, and the window stays (CCSDS 714.0-B-2, "corruption response").
    Corruption,
}

/// The units of SNACKs on one connection whose ends both offered them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnackUnits {
    /// In what the peer misses of our data, in bytes.
    pub(crate) ours: u64,
    /// In what we miss of the peer's.
    pub(crate) theirs: u64,
}

/// The option of a SYN that offers SNACK, and nothing else.
pub(crate) fn offer() -> Option<Box<RawOptions>> {
    let options = ScpsOptions {
        capabilities: Some(Capabilities {
            vector: CapabilityVector::SNACK_SHORT,
            connection: 0,
        }),
        ..ScpsOptions::default()
    };
    options.to_raw().ok().flatten().map(Box::new)
}

/// The options of SCPS-TP in a segment that came.
fn of(segment: &Segment) -> Option<ScpsOptions> {
    let unknown = segment.options.as_deref()?.unknown.as_deref()?;
    Some(ScpsOptions::parse(unknown))
}

/// Whether a SYN offers SCPS-TP with SNACK.
pub fn is_offered(segment: &Segment) -> bool {
    let capabilities = of(segment).and_then(|scps| scps.capabilities);
    capabilities.is_some_and(|offer| offer.vector.contains(CapabilityVector::SNACK_SHORT))
}

/// Adds the offer of SCPS-TP to a SYN or its answer that another TCP made, where it has no unknown options so far.
pub fn add_offer(segment: &mut Segment) {
    let options = segment.options.get_or_insert_default();
    if options.unknown.is_none() {
        options.unknown = offer();
    }
}

/// Whether a segment has no options but those that endpoints here speak, with SCPS-TP, and no urgent data.
pub fn is_understood(segment: &Segment) -> bool {
    let unknown = segment
        .options
        .as_deref()
        .and_then(|o| o.unknown.as_deref());
    let mut kinds = unknown.into_iter().flat_map(|unknown| unknown.kinds());
    kinds.all(|kind| scps::KINDS.contains(&kind)) && !segment.flags.contains(Flags::URG)
}

/// The hole `[from, to)` of the peer's stream beyond `ack`, in `unit`s; `None` where the option has no room for it.
pub(crate) fn snack(ack: u64, (from, to): (u64, u64), unit: u64) -> Option<Box<RawOptions>> {
    let offset = u16::try_from((from - ack) / unit).ok()?;
    let begin = ack + u64::from(offset) * unit;
    let size = (to - begin).div_ceil(unit).min(u16::MAX.into()) as u16;
    let options = ScpsOptions {
        snack: Some(Snack::short(offset, size)),
        ..ScpsOptions::default()
    };
    options.to_raw().ok().flatten().map(Box::new)
}

impl Connection {
    /// Both ends offered SCPS-TP, with these MSS options in our SYN and in the peer's. Timestamps are agreed on already.
    pub(crate) fn agree_on_scps(&mut self, (ours, theirs): (u16, u16)) {
        let Some(scps) = self.config.scps else {
            return;
        };
        let stamps = if self.agreed.timestamps { 12 } else { 0 };
        let unit = |mss: u16| u64::from(mss.saturating_sub(stamps).max(1));
        self.agreed.snack = Some(SnackUnits {
            ours: unit(ours),
            theirs: unit(theirs),
        });
        self.rx.announce_holes(scps.snack_delay);
        self.rx.believe_stamps_for(STAMPS_BELIEVED);
    }

    /// The bytes of our stream that the peer tells to miss, as far as they are in flight.
    pub(crate) fn snacked(&self, segment: &Segment, ack: u64) -> Option<(u64, u64)> {
        let unit = self.agreed.snack?.ours;
        let snack = of(segment)?.snack?;
        let from = ack + u64::from(snack.offset) * unit;
        let to = (from + u64::from(snack.size) * unit).min(self.tx.max);
        (from < to).then_some((from, to))
    }

    /// The SNACK that the acknowledgement at `now` carries.
    pub(crate) fn announce(&mut self, now: Instant) -> Option<Box<RawOptions>> {
        let unit = self.agreed.snack?.theirs;
        let patience = self
            .tx
            .rto
            .srtt()
            .map_or(Duration::from_secs(1), |srtt| srtt * 2);
        let hole = self.rx.announce(patience, now)?;
        snack(self.rx.next, hole, unit)
    }

    /// Whether both ends offered SCPS-TP.
    pub fn speaks_scps(&self) -> bool {
        self.agreed.snack.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(ack: u64, hole: (u64, u64), unit: u64) -> Option<Snack> {
        ScpsOptions::parse(snack(ack, hole, unit)?.as_ref()).snack
    }

    #[test]
    fn a_hole_is_named_in_whole_units_that_hold_it() {
        assert_eq!(announced(1, (1, 1449), 1448), Some(Snack::short(0, 1)));
        // As captured from the reference implementation: the 25th segment.
        let from = 1 + 24 * 1448;
        assert_eq!(
            announced(1, (from, from + 1448), 1448),
            Some(Snack::short(24, 1))
        );
        // A hole that begins and ends within units.
        assert_eq!(announced(1, (700, 3000), 1448), Some(Snack::short(0, 3)));
    }

    #[test]
    fn a_hole_too_far_away_is_not_named_and_a_long_one_is_cut() {
        assert_eq!(announced(0, (65_536 * 10, 65_537 * 10), 10), None);
        assert_eq!(
            announced(0, (0, 70_000), 1),
            Some(Snack::short(0, u16::MAX))
        );
    }
}
