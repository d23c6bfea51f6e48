//! One connection: its two directions, and what each segment adds to their counts.

use crate::direction::Direction;
use crate::event::{Acknowledgement, Event, Kind};
use crate::{Flags, Segment};
use bentpipe_base::Instant;
use std::net::SocketAddr;

/// An end of a connection: A sent the first segment that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who sent the first segment.
    A,
    /// The other.
    B,
}

/// An address and a port.
pub type Endpoint = SocketAddr;

/// All segments between two endpoints, from one handshake to the next.
#[derive(Debug)]
pub struct Connection {
    /// Who sent the first segment.
    pub a: Endpoint,
    /// The other.
    pub b: Endpoint,
    /// When its first segment was seen.
    pub first: Instant,
    /// When its last segment was seen.
    pub last: Instant,
    /// What A sent.
    pub a2b: Direction,
    /// What B sent.
    pub b2a: Direction,
}

impl Connection {
    pub(crate) fn new(segment: &Segment, now: Instant) -> Self {
        Self {
            a: segment.source,
            b: segment.destination,
            first: now,
            last: now,
            a2b: Direction::default(),
            b2a: Direction::default(),
        }
    }

    /// What the end on `side` sent.
    pub fn direction(&self, side: Side) -> &Direction {
        match side {
            Side::A => &self.a2b,
            Side::B => &self.b2a,
        }
    }

    /// Segments of both directions.
    pub fn packets(&self) -> u64 {
        self.a2b.packets + self.b2a.packets
    }

    /// Whether both handshakes were seen.
    pub fn is_complete(&self) -> bool {
        self.ends(|one| one.syns) == 2 && self.ends(|one| one.fins) == 2
    }

    /// Whether one end sent RST.
    pub fn is_reset(&self) -> bool {
        self.a2b.resets + self.b2a.resets > 0
    }

    /// How many ends have sent what `count` counts.
    pub fn ends(&self, count: fn(&Direction) -> u64) -> u64 {
        u64::from(count(&self.a2b) > 0) + u64::from(count(&self.b2a) > 0)
    }

    /// From the first segment to the last, in nanoseconds.
    pub fn elapsed(&self) -> u64 {
        self.last.nanos_since(self.first)
    }

    /// Bytes per second that `direction` sent for the first time, over the whole connection.
    pub fn throughput(&self, direction: &Direction) -> Option<f64> {
        match self.elapsed() {
            0 => None,
            nanos => Some(direction.unique_bytes as f64 * 1e9 / nanos as f64),
        }
    }

    /// Whether `segment` begins another connection between the same endpoints: a SYN that is no repetition.
    pub(crate) fn is_over(&self, segment: &Segment) -> bool {
        if !segment.flags.has(Flags::SYN) {
            return false;
        }
        let own = self.direction(self.side(segment));
        let closed = self.is_reset() || self.ends(|one| one.fins) > 0;
        match own.syn {
            Some(syn) => syn as u32 != segment.sequence,
            None => closed,
        }
    }

    pub(crate) fn side(&self, segment: &Segment) -> Side {
        match segment.source == self.a && segment.destination == self.b {
            true => Side::A,
            false => Side::B,
        }
    }

    /// Takes `segment`, seen at `now`.
    pub(crate) fn take(&mut self, segment: &Segment, now: Instant) -> Event {
        // Times may go backwards: nothing then took less than no time.
        self.last = self.last.max(now);
        let side = self.side(segment);
        let (own, peer) = match side {
            Side::A => (&mut self.a2b, &mut self.b2a),
            Side::B => (&mut self.b2a, &mut self.a2b),
        };
        Step {
            own,
            peer,
            segment,
            now,
        }
        .count(side)
    }

    /// The capture ended at `now`: whoever had not closed was idle until then.
    pub(crate) fn end(&mut self, now: Instant) {
        if self.ends(|one| one.fins) == 2 || self.is_reset() {
            return;
        }
        for direction in [&mut self.a2b, &mut self.b2a] {
            if let Some(last) = direction.last {
                direction.longest_idle = direction.longest_idle.max(now.nanos_since(last));
            }
        }
    }
}

/// One segment on its way into the counts.
struct Step<'a> {
    own: &'a mut Direction,
    peer: &'a mut Direction,
    segment: &'a Segment,
    now: Instant,
}

impl Step<'_> {
    fn has(&self, flag: Flags) -> bool {
        self.segment.flags.has(flag)
    }

    fn count(&mut self, side: Side) -> Event {
        let start = self.own.places.of(self.segment.sequence);
        let end = start + u64::from(self.segment.length);
        self.own.places.see(end);
        self.own.latest = end;
        self.flags(start, end);
        self.options();
        let window = self.window();
        self.data();
        self.own.packets += 1;
        self.own.windows.count_packet();
        let kind = self.stream(start, end);
        let acknowledgement = self.has(Flags::ACK).then(|| self.acknowledgement(window));
        let acknowledged = self.own.acknowledged.unwrap_or(start);
        let event = Event {
            at: self.now,
            side,
            start,
            length: self.segment.length,
            kind,
            outstanding: end.saturating_sub(acknowledged),
            acknowledgement,
        };
        // A reset says nothing of windows.
        if self.has(Flags::RST) {
            return event;
        }
        self.advertise(window);
        if acknowledgement.is_some() {
            self.acknowledges();
        }
        self.initial_window(acknowledgement.map(|it| it.place), kind);
        if !self.has(Flags::SYN) && !matches!(kind, Kind::Again | Kind::OutOfOrder) {
            self.own.outstanding.see(event.outstanding);
        }
        event
    }

    fn acknowledgement(&mut self, window: u64) -> Acknowledgement {
        let place = self.peer.places.of(self.segment.acknowledgement);
        self.peer.places.see(place);
        self.own.acks += 1;
        let others = [Flags::SYN, Flags::FIN, Flags::RST];
        let alone = self.segment.length == 0 && !others.into_iter().any(|flag| self.has(flag));
        let bare = alone && window == self.own.window;
        let (duplicate, sample) = self.peer.acknowledge(place, bare, self.now);
        Acknowledgement {
            place,
            window,
            duplicate,
            sample,
        }
    }

    fn flags(&mut self, start: u64, end: u64) {
        if let Some(last) = self.own.last {
            self.own.longest_idle = self.own.longest_idle.max(self.now.nanos_since(last));
        }
        self.own.last = Some(self.now);
        if self.has(Flags::SYN) {
            self.own.syns += 1;
            self.own.syn = Some(start);
        }
        if self.has(Flags::FIN) {
            self.own.fins += 1;
            self.own.fin = Some(end);
        }
        self.own.resets += u64::from(self.has(Flags::RST));
    }

    fn options(&mut self) {
        let options = &self.segment.options;
        if let Some(mss) = options.mss {
            self.own.mss = mss;
        }
        if let Some(scale) = options.window_scale {
            self.own.window_scale = scale;
            self.own.requests_window_scale = true;
        }
        self.own.requests_timestamps |= options.timestamps;
        self.own.permits_sack |= options.sack_permitted;
        if !self.has(Flags::SYN) && !self.scales() {
            self.own.window_scale = 0;
            self.peer.window_scale = 0;
        }
    }

    /// Whether both ends have asked for scaled windows.
    fn scales(&self) -> bool {
        self.own.requests_window_scale && self.peer.requests_window_scale
    }

    /// What the sender of the segment has room for, in bytes.
    fn window(&self) -> u64 {
        let window = u64::from(self.segment.window);
        match (
            self.has(Flags::ACK) || self.has(Flags::SYN),
            self.has(Flags::SYN),
        ) {
            (false, _) => 0,
            (true, false) if self.scales() => {
                // RFC 7323 allows 14 at most.
                window << self.own.window_scale.min(14)
            }
            (true, _) => window,
        }
    }

    fn data(&mut self) {
        let (length, kept) = (self.segment.length, self.segment.kept);
        if length == 0 {
            return;
        }
        self.own.data_packets += 1;
        self.own.data_bytes += u64::from(length);
        self.own.pushed += u64::from(self.has(Flags::PSH));
        if self.has(Flags::URG) {
            self.own.urgent_packets += 1;
            self.own.urgent_bytes += u64::from(self.segment.urgent);
        }
        self.own.longest = self.own.longest.max(length);
        self.own.shortest = match self.own.shortest {
            0 => length,
            shortest => shortest.min(length),
        };
        let first = self.own.data_times.map_or(self.now, |(first, _)| first);
        self.own.data_times = Some((first, self.now));
        if kept < length {
            self.own.truncated_packets += 1;
            self.own.truncated_bytes += u64::from(length - kept);
        }
    }

    /// What of the segment is new in the stream, SYN and FIN being a number each.
    fn stream(&mut self, start: u64, end: u64) -> Kind {
        let length = u64::from(self.segment.length);
        let (syn, fin) = (self.has(Flags::SYN), self.has(Flags::FIN));
        let numbers = length + u64::from(syn) + u64::from(fin);
        if numbers == 0 {
            return Kind::Nothing;
        }
        if self.peer.window == 0 && self.peer.packets > 0 {
            self.own.window_probes += 1;
            self.own.window_probe_bytes += length;
            return Kind::Probe;
        }
        let end = end + u64::from(syn) + u64::from(fin);
        let recorded = self.own.sent.record(start, end, self.now);
        self.own.out_of_order += u64::from(recorded.out_of_order);
        if let Some((since, times)) = recorded.retransmitted {
            let rtt = &mut self.own.rtt;
            rtt.retransmissions.add(since);
            rtt.most_retransmissions = rtt.most_retransmissions.max(times);
        }
        if recorded.again > 0 {
            self.own.retransmitted_packets += 1;
            self.own.retransmitted_bytes += recorded.again;
        }
        // A SYN or FIN that was sent again is no data.
        let flags = u64::from(syn && self.own.syns > 1) + u64::from(fin && self.own.fins > 1);
        let again = recorded.again.saturating_sub(flags);
        self.own.unique_bytes += length.saturating_sub(again);
        match (recorded.again > 0, recorded.out_of_order) {
            (true, _) => Kind::Again,
            (false, true) => Kind::OutOfOrder,
            (false, false) => Kind::New,
        }
    }

    fn advertise(&mut self, window: u64) {
        self.own.window = window;
        if self.has(Flags::ACK) || self.has(Flags::SYN) {
            let scaled = self.scales() && !self.has(Flags::SYN);
            self.own.windows.see(window, scaled);
            self.own.windows.zero += u64::from(self.has(Flags::ACK) && window == 0);
        }
    }

    fn acknowledges(&mut self) {
        let bare = !self.has(Flags::SYN) && !self.has(Flags::FIN);
        self.own.pure_acks += u64::from(bare && self.segment.length == 0);
        let sacks = self.segment.options.sacks();
        if sacks.is_empty() {
            return;
        }
        self.own.sacks += 1;
        self.own.most_sack_blocks = self.own.most_sack_blocks.max(sacks.len() as u64);
        if reports_duplicate(sacks, self.segment.acknowledgement) {
            self.own.dsacks += 1;
        }
    }

    fn initial_window(&mut self, acknowledgement: Option<u64>, kind: Kind) {
        let of_syn = self.peer.syn.map(|syn| syn + 1);
        if acknowledgement.is_some() && acknowledgement != of_syn {
            self.peer.data_acknowledged = true;
        }
        if self.segment.length > 0 && !self.own.data_acknowledged && kind != Kind::Again {
            self.own.initial_window_bytes += u64::from(self.segment.length);
            self.own.initial_window_packets += 1;
        }
    }
}

/// Whether the first of `sacks` reports what had been received already: it is below the acknowledgement, or within the
/// second block (RFC 2883, section 4).
fn reports_duplicate(sacks: &[(u32, u32)], acknowledgement: u32) -> bool {
    let up_to = |a: u32, b: u32| b.wrapping_sub(a) as i32 >= 0;
    let Some(&(left, right)) = sacks.first() else {
        return false;
    };
    let second = sacks.get(1);
    up_to(right, acknowledgement)
        || second.is_some_and(|second| up_to(second.0, left) && up_to(right, second.1))
}
