//! The sending half of the layer: packets with their numbers, and the repairs between and behind them.

use crate::coefficients::coefficients;
use crate::equations::length_of;
use crate::frame::{Frame, Window};
use crate::gf256::{combine, mul};
use crate::{Report, Strength};
use bentpipe_base::Instant;
use bytes::Bytes;
use core::time::Duration;
use std::collections::VecDeque;

/// How an encoder protects what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How much it sends besides.
    pub overhead: Overhead,
    /// After so long without a packet the latest ones are taken for the end of an answer ([`crate::silence`]).
    pub silence: Duration,
}

/// Where the strength comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overhead {
    /// It stands fast.
    Fixed(Strength),
    /// It follows what the other end has measured ([`Strength::against`]).
    Measured,
}

/// The packets after which one that has not come is taken for lost where the strength follows the losses: four times as many as
/// go before a repair at 1% of independent ones.
const MEASURED_THRESHOLD: u32 = 128;

impl Overhead {
    /// As [`Strength::packet_threshold`].
    pub fn packet_threshold(self) -> u32 {
        match self {
            Self::Fixed(strength) => strength.packet_threshold(),
            Self::Measured => MEASURED_THRESHOLD,
        }
    }

    fn strength(self, heard: Report) -> Strength {
        match self {
            Self::Fixed(strength) => strength,
            Self::Measured => Strength::against(heard),
        }
    }
}

/// After so long without a packet a window begins anew: what was lost before is repaired by then, or QUIC repeats it, and
/// would be one more unknown in the repairs of what comes.
pub const FRESH: Duration = Duration::from_millis(100);

/// What an encoder has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets.
    pub sources: u64,
    /// Repairs that followed every so many packets.
    pub repairs: u64,
    /// Repairs that followed the last packet before a silence.
    pub tail_repairs: u64,
}

/// Numbers packets, and makes repairs of the latest ones.
#[derive(Debug)]
pub(crate) struct Encoder {
    config: Config,
    strength: Strength,
    /// The latest packets, the newest last, at most as many as a window has.
    packets: VecDeque<Bytes>,
    /// The id of the next packet.
    next: u32,
    /// The key of the next repair.
    key: u16,
    /// Packets since the last repair.
    unrepaired: u16,
    /// Whether a repair is due because as many packets as it follows were sent.
    due: bool,
    /// Repairs that are due at the end of an answer.
    tail: u8,
    /// When the latest packet was sent, if silence has not been noticed since.
    busy_since: Option<Instant>,
    /// When the latest packet was sent.
    latest: Instant,
    sent: Sent,
}

impl Encoder {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            strength: config.overhead.strength(Report::default()),
            packets: VecDeque::new(),
            next: 0,
            key: 0,
            unrepaired: 0,
            due: false,
            tail: 0,
            busy_since: None,
            latest: Instant::ZERO,
            sent: Sent::default(),
        }
    }

    pub(crate) const fn strength(&self) -> Strength {
        self.strength
    }

    pub(crate) const fn sent(&self) -> Sent {
        self.sent
    }

    /// The other end has measured `report`.
    pub(crate) fn hear(&mut self, report: Report) {
        self.strength = self.config.overhead.strength(report);
    }

    /// Numbers a packet; `report` goes with it.
    pub(crate) fn source(&mut self, packet: Bytes, report: Report, now: Instant) -> Frame {
        if now.since(self.latest) >= FRESH {
            self.packets.clear();
            self.unrepaired = 0;
        }
        while self.packets.len() >= usize::from(self.strength.window) {
            self.packets.pop_front();
        }
        self.packets.push_back(packet.clone());
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.unrepaired += 1;
        if self.unrepaired >= self.strength.every {
            self.unrepaired = 0;
            self.due = true;
        }
        // What the end of an answer still owed is made by what goes on.
        self.tail = 0;
        self.busy_since = Some(now);
        self.latest = now;
        self.sent.sources += 1;
        Frame::Source { report, id, packet }
    }

    /// As if `packets` more had been sent, and all been lost.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, packets: u32) {
        self.next = self.next.wrapping_add(packets);
        self.packets.clear();
    }

    /// When the latest packets are taken for the end of an answer, if nothing follows.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.busy_since.map(|since| since + self.config.silence)
    }

    /// The time is `now`.
    pub(crate) fn timeout(&mut self, now: Instant) {
        if self.deadline().is_some_and(|silent| silent <= now) {
            self.busy_since = None;
            self.unrepaired = 0;
            self.tail = self.strength.tail;
        }
    }

    /// The next repair that is due; `report` goes with it.
    pub(crate) fn repair(&mut self, report: Report) -> Option<Frame> {
        if core::mem::take(&mut self.due) {
            self.sent.repairs += 1;
        } else if self.tail > 0 {
            self.tail -= 1;
            self.sent.tail_repairs += 1;
        } else {
            return None;
        }
        Some(self.combined(report))
    }

    fn combined(&mut self, report: Report) -> Frame {
        let key = self.key;
        self.key = key.wrapping_add(1);
        let longest = self.packets.iter().map(Bytes::len).max().unwrap_or(0);
        let factors = coefficients(key, self.packets.len());
        let terms: Vec<(u8, &[u8])> = factors.zip(self.packets.iter().map(|it| &it[..])).collect();
        let mut length = [0; 2];
        for (factor, packet) in &terms {
            for (sum, octet) in length.iter_mut().zip(length_of(packet)) {
                *sum ^= mul(*factor, octet);
            }
        }
        let mut symbol = vec![0; longest];
        combine(&mut symbol, &terms);
        // No window is longer than 16 bits can tell.
        let count = self.packets.len() as u16;
        let window = Window {
            first: self.next.wrapping_sub(count.into()),
            count,
        };
        Frame::Repair {
            report,
            window,
            key,
            length,
            symbol: symbol.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRENGTH: Strength = Strength {
        every: 4,
        window: 6,
        tail: 2,
    };
    const SILENCE: Duration = Duration::from_millis(4);

    fn encoder(overhead: Overhead) -> Encoder {
        Encoder::new(Config {
            overhead,
            silence: SILENCE,
        })
    }

    fn send(encoder: &mut Encoder, now: Instant) -> Option<Window> {
        encoder.source(Bytes::from_static(b"packet"), Report::default(), now);
        repair(encoder)
    }

    fn repair(encoder: &mut Encoder) -> Option<Window> {
        match encoder.repair(Report::default())? {
            Frame::Repair { window, .. } => Some(window),
            Frame::Source { .. } => panic!("not a repair"),
        }
    }

    #[test]
    fn a_repair_of_the_window_follows_every_so_many_packets() {
        let mut encoder = encoder(Overhead::Fixed(STRENGTH));
        let windows: Vec<_> = (0..12).map(|_| send(&mut encoder, Instant::ZERO)).collect();
        let repairs: Vec<_> = windows.iter().flatten().collect();
        assert_eq!(windows.iter().position(Option::is_some), Some(3));
        let expected = [(0, 4), (2, 6), (6, 6)].map(|(first, count)| Window { first, count });
        assert!(repairs.into_iter().eq(&expected));
        assert_eq!(encoder.sent().sources, 12);
        assert_eq!(encoder.sent().repairs, 3);
    }

    #[test]
    fn repairs_follow_the_last_packet_before_a_silence_once() {
        let mut encoder = encoder(Overhead::Fixed(STRENGTH));
        let start = Instant::from_nanos(1_000);
        send(&mut encoder, start);
        assert_eq!(encoder.deadline(), Some(start + SILENCE));
        encoder.timeout(start + SILENCE / 2);
        assert_eq!(repair(&mut encoder), None);
        encoder.timeout(start + SILENCE);
        assert_eq!(encoder.deadline(), None);
        let window = Some(Window { first: 0, count: 1 });
        assert_eq!([repair(&mut encoder), repair(&mut encoder)], [window; 2]);
        assert_eq!(repair(&mut encoder), None);
        assert_eq!(encoder.sent().tail_repairs, 2);
        // What soon follows is protected together with that; what follows later by itself.
        let window = |first, count| Some(Window { first, count });
        let soon = start + (FRESH - Duration::from_nanos(1));
        send(&mut encoder, soon);
        encoder.timeout(soon + SILENCE);
        assert_eq!(repair(&mut encoder), window(0, 2));
        let later = soon + FRESH;
        send(&mut encoder, later);
        encoder.timeout(later + SILENCE);
        assert_eq!(repair(&mut encoder), window(2, 1));
    }

    #[test]
    fn overhead_follows_what_the_other_end_measures() {
        let mut following = encoder(Overhead::Measured);
        assert_eq!(following.strength(), Strength::INITIAL);
        let report = Report {
            loss: 6554,
            burst: 16,
        };
        following.hear(report);
        assert_eq!(following.strength(), Strength::against(report));
        let mut repairs = 0;
        for _ in 0..400 {
            repairs += usize::from(send(&mut following, Instant::ZERO).is_some());
        }
        assert_eq!(repairs, 400 / usize::from(following.strength().every));
        let mut fixed = encoder(Overhead::Fixed(STRENGTH));
        fixed.hear(report);
        assert_eq!(fixed.strength(), STRENGTH);
    }

    #[test]
    fn ids_go_round() {
        let mut encoder = encoder(Overhead::Fixed(STRENGTH));
        encoder.next = u32::MAX - 1;
        let windows: Vec<_> = (0..4)
            .filter_map(|_| send(&mut encoder, Instant::ZERO))
            .collect();
        let window = Window {
            first: u32::MAX - 1,
            count: 4,
        };
        assert_eq!(windows, [window]);
    }
}
