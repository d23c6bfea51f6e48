//! Packets that wait for earlier ones, which repairs may still give back.
//!
//! quinn-proto takes a packet that is more than 128 numbers behind the newest for a repetition, and drops it: what repairs give back later
//! than that would be lost all the same, and hold its stream up for a round trip. So packets wait where one before them is
//! missing for so long that it would be dropped, and go on in their order once it is there.
//!
//! Their acknowledgements wait with them. The guard of the link takes no harm from that, since it goes by the least delay: the newest
//! of those that go on together has waited least. Where repairs are too few for the losses most waiting would be in vain, and nothing
//! waits.

use bentpipe_base::Instant;
use bentpipe_fec::{FRESH, Layer};
use bytes::Bytes as Chunk;
use core::time::Duration;
use std::collections::VecDeque;

/// How many packets later than a missing one others are handed on at once. The rest to 128 is for packets that have no frame, and so no
/// number of the layer's own: acknowledgements.
const AHEAD: u64 = 112;
/// No more packets wait: as many as the layer remembers, from one that is missing to the newest.
const MOST: usize = 1024;
/// How many times as many repairs as losses there must be. Twice as many close most gaps in time (docs/fec.md), and the measured share of
/// losses is a tenth and more off now and then.
const REPAIRS: f64 = 1.4;

/// The packets of one connection that wait.
#[derive(Debug, Default)]
pub(crate) struct HoldBack {
    /// With their numbers, in the order of these.
    held: VecDeque<(u64, Chunk)>,
    /// Nothing before this is waited for; it is the first that is missing, if there is one.
    settled: u64,
    /// When that has been missing for a round trip, and is given up: QUIC's own repetition comes then, and is not to wait as well.
    until: Option<Instant>,
    /// When the latest packet became known, and the number after it.
    latest: (Instant, u64),
}

impl HoldBack {
    /// When [`Self::pass`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.until.filter(|_| !self.held.is_empty())
    }

    /// Takes what `layer` has got, and gives back what need not wait, or waits no more.
    pub(crate) fn pass(
        &mut self,
        layer: &mut Layer,
        round_trip: Duration,
        now: Instant,
    ) -> Vec<Chunk> {
        let mut passed = Vec::new();
        for (number, packet) in layer.arrived() {
            match number {
                Some(number) => self.push(number, packet),
                None => passed.push(packet),
            }
        }
        self.notice_silence(layer, now);
        let last = self.last(layer, round_trip, now);
        let free = self.held.partition_point(|&(number, _)| number <= last);
        let free = free.max(self.held.len().saturating_sub(MOST));
        passed.extend(self.held.drain(..free).map(|(_, packet)| packet));
        passed
    }

    /// Behind those that have its number: a packet without a frame, which has the latest one's, was numbered behind that by QUIC.
    fn push(&mut self, number: u64, packet: Chunk) {
        let at = self.held.partition_point(|&(other, _)| other <= number);
        self.held.insert(at, (number, packet));
    }

    /// After a silence no repairs are about what was lost before.
    fn notice_silence(&mut self, layer: &Layer, now: Instant) {
        let next = layer.next();
        let (since, before) = self.latest;
        if next == before {
            return;
        }
        self.latest = (now, next);
        if now.since(since) >= FRESH {
            self.settled = self.settled.max(before);
        }
    }

    /// The latest packet that need not wait.
    fn last(&mut self, layer: &Layer, round_trip: Duration, now: Instant) -> u64 {
        if self.until.is_some_and(|until| until <= now) {
            // What is so far behind would be dropped now.
            let behind = layer.next().saturating_sub(1 + AHEAD);
            self.settled = behind.max(self.settled + 1);
            self.until = None;
        }
        let Some(missing) = layer.oldest_missing(self.settled) else {
            self.settled = layer.next();
            self.until = None;
            return u64::MAX;
        };
        if missing > self.settled || self.until.is_none() {
            self.settled = missing;
            self.until = Some(now + round_trip);
        }
        if keeps_up(layer) {
            missing + AHEAD
        } else {
            u64::MAX
        }
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

    const ROUND_TRIP: Duration = Duration::from_millis(600);

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
        sent: u32,
    }

    impl Path {
        fn new() -> Self {
            let [sender, receiver] = [(); 2].map(|()| layer());
            let hold_back = HoldBack::default();
            Self {
                sender,
                receiver,
                hold_back,
                sent: 0,
            }
        }

        /// The next packet, which is its number; the first is 0.
        fn frame(&mut self, at: Instant) -> Chunk {
            let packet = Chunk::copy_from_slice(&self.sent.to_be_bytes());
            self.sent += 1;
            self.sender.input(Side::Quic, packet, at);
            let mut frame = None;
            while let Some((_, sent)) = self.sender.transmit(at) {
                // The packet goes before repairs.
                frame.get_or_insert(sent);
            }
            frame.unwrap_or_default()
        }

        /// A datagram comes; what is handed on.
        fn come(&mut self, datagram: Chunk, at: Instant) -> Vec<Chunk> {
            self.receiver.input(Side::Path, datagram, at);
            self.pass(at)
        }

        fn pass(&mut self, at: Instant) -> Vec<Chunk> {
            self.hold_back.pass(&mut self.receiver, ROUND_TRIP, at)
        }

        /// The next `count` packets come; how many are handed on.
        fn go_on(&mut self, count: u64, at: Instant) -> usize {
            (0..count)
                .map(|_| {
                    let frame = self.frame(at);
                    self.come(frame, at).len()
                })
                .sum()
        }
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn numbers(packets: &[Chunk]) -> Vec<u32> {
        let number = |packet: &Chunk| u32::from_be_bytes(packet[..].try_into().unwrap());
        packets.iter().map(number).collect()
    }

    /// The second packet is missing, and five wait for it; its frame.
    fn waiting() -> (Path, Chunk) {
        let mut path = Path::new();
        assert_eq!(path.go_on(1, at(0)), 1);
        let missing = path.frame(at(0));
        assert_eq!(path.go_on(AHEAD, at(0)) as u64, AHEAD);
        assert_eq!(path.go_on(5, at(1)), 0);
        (path, missing)
    }

    #[test]
    fn the_newest_wait_until_what_is_missing_has_come_and_go_on_in_order() {
        let (mut path, missing) = waiting();
        let passed = path.come(missing, at(2));
        assert_eq!(numbers(&passed), [1, 114, 115, 116, 117, 118]);
        assert_eq!(path.hold_back.deadline(), None);
    }

    /// QUIC's number of an acknowledgement alone is one after those of what waits: handed on before them it would take the missing one's
    /// turn away.
    #[test]
    fn what_has_no_frame_waits_behind_them() {
        let (mut path, missing) = waiting();
        let bare = Chunk::from_static(b"\x40ACK");
        assert!(path.come(bare.clone(), at(2)).is_empty());
        let passed = path.come(missing, at(3));
        assert_eq!((passed.len(), passed.last()), (7, Some(&bare)));
        assert_eq!(path.come(bare.clone(), at(4)), [bare]);
    }

    #[test]
    fn after_a_round_trip_nothing_waits_for_it_any_more() {
        let (mut path, _) = waiting();
        let due = at(0) + ROUND_TRIP;
        assert_eq!(path.hold_back.deadline(), Some(due));
        assert!(path.pass(at(2)).is_empty());
        assert_eq!(path.pass(due).len(), 5);
        assert_eq!(path.hold_back.deadline(), None);
        assert_eq!(path.go_on(1, due), 1);
    }

    #[test]
    fn what_is_missing_from_before_a_pause_is_not_waited_for() {
        let mut path = Path::new();
        assert_eq!(path.go_on(1, at(0)), 1);
        drop(path.frame(at(0)));
        assert_eq!(path.go_on(50, at(0)), 50);
        assert_eq!(path.go_on(200, at(0) + FRESH), 200);
    }

    #[test]
    fn what_the_layer_has_forgotten_is_not_waited_for() {
        let (mut path, _) = waiting();
        assert_eq!(path.go_on(MOST as u64, at(2)), 5 + MOST);
        assert_eq!(path.hold_back.deadline(), None);
    }

    #[test]
    fn an_outage_is_not_waited_for() {
        let mut path = Path::new();
        assert_eq!(path.go_on(1, at(0)), 1);
        (0..100).for_each(|_| drop(path.frame(at(0))));
        assert_eq!(path.go_on(500, at(1)), 500);
    }

    /// Whoever repeats a frame that waits, or sends what is none, makes no more wait than that.
    #[test]
    fn no_more_than_so_many_wait() {
        let (mut path, _) = waiting();
        let frame = path.frame(at(2));
        let bare = Chunk::from_static(b"\x40 forged");
        for _ in 0..2 * MOST {
            path.come(frame.clone(), at(2));
            path.come(bare.clone(), at(2));
            assert!(path.hold_back.held.len() <= MOST);
        }
    }
}
