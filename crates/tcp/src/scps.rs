//! SCPS-TP (CCSDS 714.0-B-2) as a configuration of the endpoint: what a SYN offers, what both ends agree on, and what its
//! options say. Which holes a receiver announces, and how, is in the crate `receiver`; what a sender makes of them in
//! `recovery/snack.rs`; what a link that is out does to a connection in `outage.rs`; the options' layout in [`bentpipe_wire::scps`].
//!
//! Left out: best effort transport (BETS), record boundaries (read and ignored), and compressed headers, which are not
//! offered.

mod outage;

pub use outage::Outage;

use crate::connection::Connection;
use crate::sender::Sender;
use bentpipe_base::Instant;
use bentpipe_wire::scps::{self, Capabilities, CapabilityVector, ScpsOptions, Snack};
use bentpipe_wire::{Flags, RawOptions, Segment};
use std::time::Duration;

/// How long a peer's timestamps are compared (RFC 7323, section 5.5): the reference implementation's clock counts
/// microseconds, whose sign turns after 35.8 minutes.
const STAMPS_BELIEVED: Duration = Duration::from_secs(30 * 60);
/// Bytes of a SNACK without a bit vector.
const SHORT: usize = 6;
/// Bytes of the option that tells of corruption.
const CORRUPTION: usize = 2;

/// What of SCPS-TP an endpoint offers to its peer. A peer that offers nothing gets ordinary TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scps {
    /// Holes are announced once they are this old; zero: at once, as the reference implementation does. A path that
    /// reorders packets wants some of them to close by themselves.
    pub snack_delay: Duration,
    /// The long form of SNACK is not offered, and so is not sent either. The reference implementation, which does not speak
    /// it, bears the offer.
    pub short_snacks_only: bool,
    /// The peer is told that its packets arrive damaged, and is believed for so long after it tells the same (option 23,
    /// "corruption experienced"): losses mean corruption meanwhile. `None`: it is neither told nor believed, for whoever can
    /// write an option into an acknowledgement could switch congestion control off.
    pub corruption_experienced: Option<Duration>,
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

/// What the SYNs of a connection said whose ends both offered SCPS-TP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScpsHandshake {
    /// The MSS option of our SYN.
    pub our_mss: u16,
    /// The MSS option of the peer's SYN.
    pub peer_mss: u16,
    /// What the peer offered.
    pub peer: CapabilityVector,
}

/// How SNACKs count on one connection whose ends both offered them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnackTerms {
    /// The unit in what the peer misses of our data, in bytes.
    pub(crate) ours: u64,
    /// The unit in what we miss of the peer's, in bytes.
    pub(crate) theirs: u64,
    /// Both offered the long form.
    pub(crate) long: bool,
}

impl Scps {
    fn capabilities(&self) -> CapabilityVector {
        let short = CapabilityVector::SNACK_SHORT;
        if self.short_snacks_only {
            short
        } else {
            short | CapabilityVector::SNACK_LONG
        }
    }

    /// The option of a SYN that offers SNACK, and nothing else.
    pub(crate) fn offer(&self) -> Option<Box<RawOptions>> {
        raw(&ScpsOptions {
            capabilities: Some(Capabilities {
                vector: self.capabilities(),
                connection: 0,
            }),
            ..ScpsOptions::default()
        })
    }
}

/// `options` as a segment carries them; `None` where there are none.
fn raw(options: &ScpsOptions) -> Option<Box<RawOptions>> {
    options.to_raw().ok().flatten().map(Box::new)
}

/// The options of SCPS-TP in a segment that came.
fn of(segment: &Segment) -> Option<ScpsOptions> {
    let unknown = segment.options.as_deref()?.unknown.as_deref()?;
    Some(ScpsOptions::parse(unknown))
}

/// What a SYN offers that speaks SCPS-TP with SNACK; `None` of another.
pub fn offered(segment: &Segment) -> Option<CapabilityVector> {
    let offer = of(segment)?.capabilities?.vector;
    Some(offer).filter(|offer| offer.contains(CapabilityVector::SNACK_SHORT))
}

/// Adds the offer of `scps` to a SYN or its answer that another TCP made, where it has no unknown options so far.
pub fn add_offer(segment: &mut Segment, scps: &Scps) {
    let options = segment.options.get_or_insert_default();
    if options.unknown.is_none() {
        options.unknown = scps.offer();
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

impl Sender {
    /// What losses that are found at `now` mean.
    pub(crate) fn loss_cause(&self, now: Instant) -> LossCause {
        if now < self.corrupted_until {
            LossCause::Corruption
        } else {
            self.config.loss_cause
        }
    }
}

impl Connection {
    /// Both ends offered SCPS-TP. Timestamps are agreed on already.
    pub(crate) fn agree_on_scps(&mut self, handshake: ScpsHandshake) {
        let Some(scps) = self.config.scps else {
            return;
        };
        let stamps = if self.agreed.timestamps { 12 } else { 0 };
        let unit = |mss: u16| u64::from(mss.saturating_sub(stamps).max(1));
        let agreed = scps.capabilities().agreed(handshake.peer);
        self.agreed.snack = Some(SnackTerms {
            ours: unit(handshake.our_mss),
            theirs: unit(handshake.peer_mss),
            long: agreed.contains(CapabilityVector::SNACK_LONG),
        });
        self.rx.announce_holes(scps.snack_delay);
        self.rx.believe_stamps_for(STAMPS_BELIEVED);
    }

    /// Takes what the acknowledgement of all before `ack` tells by options of SCPS-TP; returns whether it names bytes of our
    /// stream that the peer misses and that are in flight.
    pub(crate) fn hear_scps(&mut self, segment: &Segment, ack: u64, now: Instant) -> bool {
        let (Some(terms), Some(told)) = (self.agreed.snack, of(segment)) else {
            return false;
        };
        let believed = self
            .config
            .scps
            .and_then(|scps| scps.corruption_experienced);
        if let Some(time) = believed.filter(|_| told.corruption_experienced) {
            self.tx.corrupted_until = now + time;
        }
        let tx = &mut self.tx;
        tx.missing.clear();
        for (offset, size) in told.snack.iter().flat_map(Snack::holes) {
            let from = ack + u64::from(offset) * terms.ours;
            let to = (from + u64::from(size) * terms.ours).min(tx.max);
            if from < to {
                tx.missing.push((from, to));
            }
        }
        let names = !tx.missing.is_empty();
        tx.counters.snacks += u64::from(names);
        names
    }

    /// The hole that the acknowledgement at `now` announces.
    pub(crate) fn announce(&mut self, now: Instant) -> Option<(u64, u64)> {
        self.agreed.snack?;
        let srtt = self.tx.rto.srtt();
        let patience = srtt.map_or(Duration::from_secs(1), |srtt| srtt * 2);
        self.rx.announce(patience, now)
    }

    /// The options of SCPS-TP in an acknowledgement that announces `hole`, beside so many SACK `blocks`.
    pub(crate) fn scps_options(
        &mut self,
        hole: Option<(u64, u64)>,
        blocks: usize,
    ) -> Option<Box<RawOptions>> {
        let terms = self.agreed.snack?;
        let corruption = core::mem::take(&mut self.received_damaged);
        let stamps = if self.agreed.timestamps { 12 } else { 0 };
        let sack = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        let others = stamps + sack + SHORT + if corruption { CORRUPTION } else { 0 };
        let room = if terms.long {
            RawOptions::MOST.saturating_sub(others)
        } else {
            0
        };
        let snack = hole.and_then(|hole| self.rx.snack(hole, terms.theirs, room));
        self.tx.counters.snacks_sent += u64::from(snack.is_some());
        raw(&ScpsOptions {
            snack,
            corruption_experienced: corruption,
            ..ScpsOptions::default()
        })
    }

    /// A packet of the peer arrived damaged, says who saw its checksum: the peer is told with the next acknowledgement, where
    /// [`Scps::corruption_experienced`] says so.
    pub fn note_damaged(&mut self) {
        let tells = self
            .config
            .scps
            .is_some_and(|scps| scps.corruption_experienced.is_some());
        self.received_damaged = tells && self.agreed.snack.is_some();
    }

    /// Whether both ends offered SCPS-TP.
    pub fn speaks_scps(&self) -> bool {
        self.agreed.snack.is_some()
    }
}
