//! The receiving half of the layer: packets in the order they come, and those that repairs give back.

use crate::coefficients::coefficients;
use crate::equations::{Added, Equations, Sum, length_of};
use crate::frame::Window;
use crate::gf256::{add_scaled, combine};
use crate::loss_report::{LossMeter, OUTAGE, Report};
use crate::{MAX_PACKET, MAX_WINDOW};
use bytes::Bytes;
use std::collections::VecDeque;

/// Packets that a decoder remembers: those of the longest window, and as many that came before or after their turn.
const HISTORY: usize = 2 * MAX_WINDOW;
/// A packet that has not come when so many later ones have is lost, not late.
const LATE: usize = 64;

/// What a decoder has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Source packets.
    pub sources: u64,
    /// Repairs.
    pub repairs: u64,
    /// Repairs that were not needed, since all of their packets are known or what they say is.
    pub redundant: u64,
    /// Repairs that are of no use: of packets that are forgotten, longer than packets are, or more than can be kept.
    pub unusable: u64,
    /// Packets that repairs have given back.
    pub recovered: u64,
    /// Packets that neither came nor were given back, counted when they are forgotten, some thousand packets later.
    pub lost: u64,
    /// Repairs that contradict what was received, and what they gave that could not have been sent: somebody has changed or
    /// forged a frame.
    pub contradictions: u64,
}

/// What is known of a packet.
#[derive(Clone, Debug)]
enum Slot {
    Missing,
    Arrived(Bytes),
    /// From repairs.
    Recovered(Bytes),
}

impl Slot {
    fn packet(&self) -> Option<&Bytes> {
        match self {
            Self::Missing => None,
            Self::Arrived(packet) | Self::Recovered(packet) => Some(packet),
        }
    }
}

/// Finds lost packets from repairs.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// What is known of the packets from `base` on.
    slots: VecDeque<Slot>,
    /// Ids are counted without wrapping.
    base: u64,
    /// Up to here the fates of packets were told to `losses`.
    judged: u64,
    /// An id far from all others. If the next frame is near it, packets were lost for long; else somebody has made it up.
    suspect: Option<u64>,
    equations: Equations,
    losses: LossMeter,
    recovered: VecDeque<(u64, Bytes)>,
    received: Received,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        // The first id is 0. Ids before it can be told, as if a round of them had gone before.
        let base = 1 << 32;
        Self {
            slots: VecDeque::new(),
            base,
            judged: base,
            suspect: None,
            equations: Equations::default(),
            losses: LossMeter::default(),
            recovered: VecDeque::new(),
            received: Received::default(),
        }
    }

    pub(crate) const fn received(&self) -> Received {
        self.received
    }

    /// What the other end is to know.
    pub(crate) fn report(&self) -> Report {
        self.losses.report()
    }

    /// The next packet that repairs gave back, and its id.
    pub(crate) fn recovered(&mut self) -> Option<(u64, Bytes)> {
        self.recovered.pop_front()
    }

    /// The packet `id` has arrived: its number, counted without wrapping, if it is believed. The caller hands it on in any case: a
    /// forged one must not keep the true one away.
    pub(crate) fn source(&mut self, id: u32, packet: &Bytes) -> Option<u64> {
        self.received.sources += 1;
        let id = self.place(id, 1)?;
        let slot = self.slot(id)?;
        match slot {
            Slot::Arrived(_) => {}
            Slot::Recovered(known) => *slot = Slot::Arrived(known.clone()),
            Slot::Missing if packet.len() > MAX_PACKET => {}
            Slot::Missing => {
                *slot = Slot::Arrived(packet.clone());
                self.equations.know(id, packet);
                self.solve();
            }
        }
        self.judge();
        Some(id)
    }

    /// A repair has arrived: what its packets, each times its factor, make.
    pub(crate) fn repair(&mut self, window: Window, key: u16, length: [u8; 2], symbol: &Bytes) {
        self.received.repairs += 1;
        if symbol.len() > MAX_PACKET {
            self.received.unusable += 1;
            return;
        }
        let first = self.place(window.first, window.count.into());
        let Some(first) = first.filter(|first| *first >= self.base) else {
            self.received.unusable += 1;
            return;
        };
        // Within what is remembered, where `place` has made room.
        let from = (first - self.base) as usize;
        let range = from..from + usize::from(window.count);
        let factors = || (first..).zip(coefficients(key, range.len()));
        let missing = |slot: &Slot| matches!(slot, Slot::Missing);
        if !self.slots.range(range.clone()).any(missing) {
            self.received.redundant += 1;
            return;
        }
        let slots = || self.slots.range(range.clone()).zip(factors());
        let unknowns: Vec<(u64, u8)> = slots()
            .filter(|(slot, _)| missing(slot))
            .map(|(_, unknown)| unknown)
            .collect();
        if !self.equations.has_room(&unknowns) {
            self.received.unusable += 1;
            return;
        }
        let known: Vec<(u8, &[u8])> = slots()
            .filter_map(|(slot, (_, factor))| Some((factor, &slot.packet()?[..])))
            .collect();
        let longest = known.iter().map(|(_, packet)| packet.len()).max();
        let mut sum = Sum {
            length,
            symbol: symbol.to_vec(),
        };
        sum.symbol.resize(symbol.len().max(longest.unwrap_or(0)), 0);
        combine(&mut sum.symbol, &known);
        for (factor, packet) in &known {
            add_scaled(&mut sum.length, &length_of(packet), *factor);
        }
        match self.equations.add(&unknowns, sum) {
            Added::Kept => self.solve(),
            Added::Redundant => self.received.redundant += 1,
            Added::Contradiction => self.received.contradictions += 1,
            Added::Full => self.received.unusable += 1,
        }
    }

    /// Hands on what the equations tell by now.
    fn solve(&mut self) {
        while let Some((id, packet)) = self.equations.solved() {
            let Some(packet) = packet.filter(|it| it.len() <= MAX_PACKET) else {
                self.received.contradictions += 1;
                continue;
            };
            let packet = Bytes::from(packet);
            self.received.recovered += 1;
            if let Some(slot) = self.slot(id) {
                *slot = Slot::Recovered(packet.clone());
            }
            self.recovered.push_back((id, packet));
        }
    }

    fn slot(&mut self, id: u64) -> Option<&mut Slot> {
        let index = id.checked_sub(self.base)?;
        self.slots.get_mut(usize::try_from(index).ok()?)
    }

    /// The id after the latest that frames were about.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// The first packet from `from` on that has neither come nor been given back, nor is one of an outage.
    pub(crate) fn oldest_missing(&self, from: u64) -> Option<u64> {
        let from = from.clamp(self.base, self.next());
        let slots = self.slots.range((from - self.base) as usize..);
        let mut row = 0;
        for (id, slot) in (from..).zip(slots) {
            match slot {
                Slot::Missing => row += 1,
                _ if (1..=OUTAGE).contains(&row) => return Some(id - row),
                _ => row = 0,
            }
        }
        (1..=OUTAGE).contains(&row).then(|| self.next() - row)
    }

    /// Which of the packets that have the number `id`, counted without wrapping, a frame about `count` from there on is about.
    /// What is remembered is moved so that they are within it, unless they are too old or the number is not believed.
    fn place(&mut self, id: u32, count: u64) -> Option<u64> {
        let next = self.next();
        let ahead = id.wrapping_sub(next as u32).cast_signed();
        let id = next.checked_add_signed(ahead.into())?;
        let near = |other: u64| id.abs_diff(other) <= MAX_WINDOW as u64;
        if !near(next) && (id > next || id + (HISTORY as u64) < next) {
            let believed = self.suspect.is_some_and(near);
            self.suspect = Some(id);
            if !believed {
                return None;
            }
            self.start_anew(id);
        }
        self.suspect = None;
        self.extend(id + count);
        Some(id)
    }

    /// All that was remembered is past: frames are about packets near `id`.
    fn start_anew(&mut self, id: u64) {
        self.slots.clear();
        self.equations.clear();
        // The frame that was not believed is a little before it, or behind.
        self.base = id.saturating_sub(MAX_WINDOW as u64);
        self.judged = id;
    }

    /// Remembers packets up to `next`, and forgets what is too long ago.
    fn extend(&mut self, next: u64) {
        while self.next() < next {
            self.slots.push_back(Slot::Missing);
        }
        while self.slots.len() > HISTORY {
            self.judged = self.judged.max(self.base + 1);
            if let Some(Slot::Missing) = self.slots.pop_front() {
                self.equations.forget(self.base);
                self.received.lost += 1;
            }
            self.base += 1;
        }
    }

    /// Tells the fates of packets that are late no more.
    fn judge(&mut self) {
        let settled = self.next().saturating_sub(LATE as u64);
        for id in self.judged..settled {
            let arrived = matches!(self.slot(id), Some(Slot::Arrived(_)));
            self.losses.packet(arrived);
        }
        self.judged = self.judged.max(settled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::{Config, Encoder, Overhead};
    use crate::{Frame, Strength};
    use bentpipe_base::Instant;
    use core::time::Duration;

    const STRENGTH: Strength = Strength {
        every: 4,
        window: 16,
        tail: 0,
    };

    /// Packet number `n`: none is like another, neither in octets nor in length.
    fn packet(n: u32) -> Bytes {
        let len = 4 + n % 97;
        (0..len)
            .map(|i| (n + i) as u8)
            .chain(n.to_be_bytes())
            .collect()
    }

    struct Path {
        encoder: Encoder,
        decoder: Decoder,
        sent: u32,
    }

    impl Path {
        fn new(strength: Strength) -> Self {
            let config = Config {
                overhead: Overhead::Fixed(strength),
                silence: Duration::from_millis(4),
            };
            Self {
                encoder: Encoder::new(config),
                decoder: Decoder::new(),
                sent: 0,
            }
        }

        /// Sends the next packet, which arrives or does not, and the repairs that follow; returns what these gave back.
        fn send(&mut self, arrives: bool) -> Vec<Bytes> {
            let sent = packet(self.sent);
            self.sent += 1;
            let frame = self.encoder.source(sent, Report::default(), Instant::ZERO);
            if arrives {
                self.arrive(frame);
            }
            while let Some(repair) = self.encoder.repair(Report::default()) {
                self.arrive(repair);
            }
            core::iter::from_fn(|| self.decoder.recovered())
                .map(|(_, packet)| packet)
                .collect()
        }

        fn arrive(&mut self, frame: Frame) {
            match frame {
                Frame::Source { id, packet, .. } => {
                    self.decoder.source(id, &packet);
                }
                Frame::Repair {
                    window,
                    key,
                    length,
                    symbol,
                    ..
                } => self.decoder.repair(window, key, length, &symbol),
            }
        }
    }

    #[test]
    fn a_lost_packet_comes_back_with_the_next_repair() {
        let mut path = Path::new(STRENGTH);
        for n in 0..100 {
            let back = path.send(n % 10 != 0);
            let lost = (n % 4 == 3)
                .then(|| (n - 3..=n).find(|n| n % 10 == 0))
                .flatten();
            assert_eq!(
                back,
                lost.map(packet).into_iter().collect::<Vec<_>>(),
                "{n}"
            );
        }
        assert_eq!(path.decoder.received().recovered, 10);
        assert_eq!(path.decoder.received().contradictions, 0);
    }

    #[test]
    fn a_burst_comes_back_once_as_many_repairs_have_come() {
        let mut path = Path::new(STRENGTH);
        let back: Vec<_> = (0..20).map(|n| path.send(!(4..7).contains(&n))).collect();
        let at: Vec<_> = (0..20).filter(|n| !back[*n].is_empty()).collect();
        // Repairs follow packets 7, 11 and 15.
        assert_eq!(at, [15]);
        let mut packets = back[15].clone();
        packets.sort();
        let mut expected = [4, 5, 6].map(packet);
        expected.sort();
        assert_eq!(packets, expected);
    }

    #[test]
    fn after_an_outage_longer_than_what_is_remembered_it_goes_on() {
        let mut path = Path::new(STRENGTH);
        (0..50).for_each(|_| assert!(path.send(true).is_empty()));
        path.encoder.skip(1_000_000);
        let mut back: Vec<_> = (50..70).flat_map(|n| path.send(n != 60)).collect();
        // The first frame after it is not believed, and so a repair gives its packet once more.
        assert_eq!(back.pop(), Some(packet(60)));
        assert_eq!(back, [packet(50)]);
    }

    #[test]
    fn one_forged_id_far_away_disturbs_nothing() {
        let mut path = Path::new(STRENGTH);
        (0..50).for_each(|_| assert!(path.send(true).is_empty()));
        for forged in [1 << 30, 3 << 30, 0, u32::MAX, 5_000] {
            path.decoder.source(forged, &packet(0));
            let back: Vec<_> = (0..5).flat_map(|n| path.send(n != 0)).collect();
            assert_eq!(back, [packet(path.sent - 5)], "{forged}");
        }
    }

    #[test]
    fn a_forged_packet_is_noticed_and_hides_no_true_one() {
        let mut path = Path::new(STRENGTH);
        path.send(true);
        path.send(true);
        path.decoder.source(2, &Bytes::from_static(b"forged"));
        path.send(true);
        assert!(path.send(false).len() <= 1);
        (0..8).for_each(|_| {
            path.send(true);
        });
        assert!(path.decoder.received().contradictions > 0);
        // As soon as the window has passed it, all is well.
        (0..16).for_each(|_| {
            path.send(true);
        });
        assert!(path.send(false).is_empty());
        let back: Vec<_> = (0..4).flat_map(|_| path.send(true)).collect();
        assert_eq!(back, [packet(path.sent - 5)]);
    }

    #[test]
    fn ids_go_round() {
        let mut path = Path::new(STRENGTH);
        path.encoder.skip(u32::MAX - 10);
        path.decoder
            .start_anew((1 << 32) + u64::from(u32::MAX - 10));
        let back: Vec<_> = (0..40).flat_map(|n| path.send(n % 8 != 1)).collect();
        assert_eq!(back.len(), 5);
        assert_eq!(path.decoder.received().unusable, 0);
    }
}
