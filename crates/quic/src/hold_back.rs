//! Packets that wait for earlier ones, which repairs may still give back.
//!
//! quinn-proto takes a packet that is more than 128 numbers behind the newest for a repetition, and drops it: what repairs give back later
//! than that is lost all the same, and holds its stream up for a round trip. So the newest packets wait a little where one before them is
//! missing for so long that it would be dropped. Their acknowledgements wait with them: for no longer than what a guard of the link takes
//! for a queue, and not at all where repairs are too few for the losses, and most waiting would be in vain.

use bentpipe_base::Instant;
use bentpipe_fec::Layer;
use bytes::Bytes as Chunk;
use core::time::Duration;
use std::collections::VecDeque;

/// How many packets later than a missing one others are handed on at once. The rest to 128 is for packets that have no frame, and so no
/// number of the layer: acknowledgements.
const AHEAD: u64 = 112;
/// Behind so many packets nothing is waited for.
const REACH: u64 = 160;
/// The longest that a packet waits. The guard of the rate's control takes a delay of 60 ms for a queue.
const LONGEST: Duration = Duration::from_millis(50);
/// How many times as many repairs as losses there must be: fewer than twice as many close few gaps in time (docs/fec.md).
const REPAIRS: f64 = 1.8;

/// What waits of one connection.
#[derive(Debug, Default)]
pub(crate) struct HoldBack {
    /// Packets with their numbers, in the order of these.
    held: VecDeque<(u64, Chunk)>,
    /// When the first of them has waited for long enough.
    until: Option<Instant>,
    /// Nothing before this is waited for.
    settled: u64,
}

impl HoldBack {
    /// When [`Self::timeout`] is due.
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        self.until
    }

    /// The newest packet, which has just come, waits if it has to; else it is given back.
    pub(crate) fn newest(&mut self, packet: Chunk, layer: &Layer, now: Instant) -> Option<Chunk> {
        let number = layer.next().saturating_sub(1);
        if number <= self.last(layer) || !keeps_up(layer) {
            return Some(packet);
        }
        self.held.push_back((number, packet));
        self.until.get_or_insert(now + LONGEST);
        None
    }

    /// Packets that wait no more, since what they waited for has come or is too long ago.
    pub(crate) fn release(&mut self, layer: &Layer) -> Vec<Chunk> {
        let last = self.last(layer);
        let count = self.held.partition_point(|&(number, _)| number <= last);
        self.take(count)
    }

    /// Packets that have waited for long enough, at the time `now`.
    pub(crate) fn timeout(&mut self, now: Instant) -> Vec<Chunk> {
        if self.until.is_none_or(|until| until > now) {
            return Vec::new();
        }
        if let Some(&(newest, _)) = self.held.back() {
            // What is further behind would be dropped now.
            self.settled = newest.saturating_sub(AHEAD);
        }
        self.take(self.held.len())
    }

    fn take(&mut self, count: usize) -> Vec<Chunk> {
        let taken = { self.held.drain(..count) }
            .map(|(_, packet)| packet)
            .collect();
        if self.held.is_empty() {
            self.until = None;
        }
        taken
    }

    /// The latest packet that need not wait.
    fn last(&self, layer: &Layer) -> u64 {
        let from = layer.next().saturating_sub(REACH).max(self.settled);
        { layer.oldest_missing(from) }.map_or(u64::MAX, |missing| missing + AHEAD)
    }
}

/// Whether there are repairs enough for the losses.
fn keeps_up(layer: &Layer) -> bool {
    let received = layer.counters().received;
    layer.losses().share().is_none_or(|share| {
        received.repairs as f64 >= REPAIRS * share.value() * received.sources as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::Machine;
    use bentpipe_fec::{Config, Overhead, Side, Strength};

    fn layer() -> Layer {
        Layer::new(Config {
            overhead: Overhead::Fixed(Strength::INITIAL),
            silence: Duration::from_millis(4),
        })
    }

    /// A sender's frames without repairs, and what the receiver has.
    struct Path {
        sender: Layer,
        receiver: Layer,
        hold_back: HoldBack,
    }

    impl Path {
        fn new() -> Self {
            let [sender, receiver] = [(); 2].map(|()| layer());
            let hold_back = HoldBack::default();
            Self {
                sender,
                receiver,
                hold_back,
            }
        }

        fn frame(&mut self, at: Instant) -> Chunk {
            let packet = Chunk::from_static(b"a packet");
            self.sender.input(Side::Quic, packet, at);
            let mut frame = None;
            while let Some((_, sent)) = self.sender.transmit(at) {
                // The packet goes before repairs.
                frame.get_or_insert(sent);
            }
            frame.unwrap_or_default()
        }

        /// The next packet comes; how many are handed on.
        fn come(&mut self, frame: Chunk, at: Instant) -> usize {
            self.receiver.input(Side::Path, frame, at);
            let mut arrived: Vec<_> = self.receiver.arrived().collect();
            let newest = arrived.remove(0);
            let newest = self.hold_back.newest(newest, &self.receiver, at);
            usize::from(newest.is_some()) + self.hold_back.release(&self.receiver).len()
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// The second packet is missing, and five wait for it; its frame.
    fn waiting() -> (Path, Chunk) {
        let mut path = Path::new();
        let frame = path.frame(at(0));
        assert_eq!(path.come(frame, at(0)), 1);
        let missing = path.frame(at(0));
        for _ in 0..AHEAD {
            let frame = path.frame(at(0));
            assert_eq!(path.come(frame, at(0)), 1);
        }
        for _ in 0..5 {
            let frame = path.frame(at(1));
            assert_eq!(path.come(frame, at(1)), 0);
        }
        (path, missing)
    }

    #[test]
    fn the_newest_wait_until_what_is_missing_has_come() {
        let (mut path, missing) = waiting();
        path.receiver.input(Side::Path, missing, at(2));
        assert_eq!(path.hold_back.release(&path.receiver).len(), 5);
        assert_eq!(path.hold_back.deadline(), None);
    }

    #[test]
    fn they_wait_for_a_while_and_then_nothing_waits_for_it_any_more() {
        let (mut path, _) = waiting();
        let due = at(1) + LONGEST;
        assert_eq!(path.hold_back.deadline(), Some(due));
        assert!(path.hold_back.timeout(at(2)).is_empty());
        assert_eq!(path.hold_back.timeout(due).len(), 5);
        assert_eq!(path.hold_back.deadline(), None);
        let frame = path.frame(due);
        assert_eq!(path.come(frame, due), 1);
    }

    #[test]
    fn behind_the_reach_nothing_is_waited_for() {
        let (mut path, _) = waiting();
        let mut handed_on = 0;
        for _ in 0..REACH {
            let frame = path.frame(at(2));
            handed_on += path.come(frame, at(2));
        }
        assert_eq!(handed_on as u64, 5 + REACH);
        assert!(path.hold_back.held.is_empty());
    }
}
