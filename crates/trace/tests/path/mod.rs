//! A sender and a receiver of our own TCP at the ends of a path that loses, delays and reorders; the capture at the sender,
//! and the sender's own state at each turn.

#![allow(unreachable_pub, reason = "a module of a test binary")]

use bentpipe_base::{Bytes, Instant, Rate, Stream};
use bentpipe_cc::Phase;
use bentpipe_tcp::{Config, Connection, State};
use bentpipe_wire::pcapng::Writer;
use bentpipe_wire::{Ip, Packet, Payload, Segment};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// What the application at the sender does.
#[derive(Clone, Copy, Debug)]
pub enum Writes {
    /// All at once, as far as the send buffer takes it.
    Bulk,
    /// So much at a time, so far apart.
    Pieces { bytes: u64, every: Duration },
}

/// One connection and its path.
#[derive(Clone, Debug)]
pub struct Setting {
    pub congestion: &'static str,
    pub recovery: &'static str,
    /// Linux's settings, not the RFCs'.
    pub linux: bool,
    pub rate: u64,
    pub rtt: Duration,
    /// Packets before the link.
    pub queue: usize,
    pub loss: f64,
    /// How often a packet comes later, and how much at most.
    pub late: (f64, Duration),
    pub amount: u64,
    pub writes: Writes,
    pub send_buffer: u64,
    pub receive_buffer: u64,
    /// What the application at the receiver reads, in bytes every 20 ms; all at once if it is none.
    pub reads: Option<u64>,
    pub seed: u64,
}

/// The sender's state from one turn to the next.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    pub at: Instant,
    pub phase: Phase,
    pub una: u64,
    pub flight: u64,
    pub unsent: u64,
    pub peer_window: u64,
    /// The congestion window is below the threshold of slow start.
    pub slow_start: bool,
    /// The application has more than the send buffer takes.
    pub blocked: bool,
    /// A segment was sent or received.
    pub packet: bool,
    /// Segments received so far.
    received: u64,
    /// Duplicate acknowledgements received so far.
    dupacks: u64,
}

/// What came of it.
pub struct Finished {
    pub capture: Vec<u8>,
    pub turns: Vec<Turn>,
    /// Bytes of the stream that were lost on the way, and when they were sent.
    pub lost: Vec<(u64, u64, Instant)>,
}

const LIMIT: Duration = Duration::from_secs(60);
const READ_EVERY: Duration = Duration::from_millis(20);

/// Where the capture is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Sender,
    Receiver,
}

pub fn run(setting: &Setting) -> Finished {
    run_seen_from(setting, Place::Sender)
}

pub fn run_seen_from(setting: &Setting, place: Place) -> Finished {
    let mut path = Path::new(setting, place);
    path.turn(true);
    while path.step() {}
    Finished {
        capture: path.capture.finish().unwrap(),
        turns: path.turns,
        lost: path.lost,
    }
}

struct Path<'a> {
    setting: &'a Setting,
    place: Place,
    sender: Connection,
    receiver: Connection,
    now: Instant,
    /// What is under way, by arrival; whether it goes to the receiver.
    flight: BTreeMap<(Instant, u64), (bool, Segment)>,
    number: u64,
    /// When the link is free again.
    free: Instant,
    /// When packets that wait for it leave.
    leaving: Vec<Instant>,
    chance: Stream,
    given: u64,
    next_write: Instant,
    next_read: Instant,
    closed: bool,
    capture: Writer<Vec<u8>>,
    interface: bentpipe_wire::pcapng::Interface,
    turns: Vec<Turn>,
    lost: Vec<(u64, u64, Instant)>,
}

impl<'a> Path<'a> {
    fn new(setting: &'a Setting, place: Place) -> Self {
        let base = if setting.linux {
            Config::linux()
        } else {
            Config::rfc()
        };
        let config = Config {
            congestion: bentpipe_cc::find(setting.congestion).unwrap(),
            recovery: bentpipe_tcp::recovery::find(setting.recovery).unwrap(),
            receive_buffer: Bytes(setting.receive_buffer),
            sack_blocks: if setting.recovery == "newreno" { 0 } else { 4 },
            nagle: false,
            ..base
        };
        let config = Arc::new(config);
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut capture = Writer::new(Vec::new(), "test", Duration::ZERO).unwrap();
        let interface = capture.interface("path").unwrap();
        let chance = Stream::new(setting.seed, "path");
        Self {
            sender: Connection::connect(Arc::clone(&config), bentpipe_base::Seq(1000), now),
            receiver: Connection::listen(config, bentpipe_base::Seq(5000), now),
            setting,
            place,
            now,
            flight: BTreeMap::new(),
            number: 0,
            free: now,
            leaving: Vec::new(),
            chance,
            given: 0,
            next_write: now,
            next_read: now,
            closed: false,
            capture,
            interface,
            turns: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// The next thing that happens; whether there was one.
    fn step(&mut self) -> bool {
        let arrival = self.flight.first_key_value().map(|((at, _), _)| *at);
        let writes = self.sender.state() == State::Established && !self.closed;
        let write = (writes && matches!(self.setting.writes, Writes::Pieces { .. }))
            .then_some(self.next_write);
        let read = self.setting.reads.map(|_| self.next_read);
        let timers = [self.sender.deadline(), self.receiver.deadline()];
        let all = [arrival, write, read, timers[0], timers[1]];
        let Some(next) = all.into_iter().flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        let acked = self.sender.counters().bytes_acked >= self.setting.amount;
        if acked || self.now > Instant::ZERO + LIMIT {
            return false;
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= self.now);
        if due(arrival) {
            let Some((_, (forth, segment))) = self.flight.pop_first() else {
                return false;
            };
            if forth {
                self.record(&segment, Place::Receiver, true);
                self.receiver.receive(&segment, self.now);
            } else {
                self.record(&segment, Place::Sender, false);
                self.sender.receive(&segment, self.now);
            }
            self.turn(!forth);
        } else if due(read) {
            self.next_read = self.now + READ_EVERY;
            self.receiver.consume(self.setting.reads.unwrap_or(0));
            self.turn(false);
        } else if due(write) {
            self.turn(true);
        } else {
            self.sender.timeout(self.now);
            self.receiver.timeout(self.now);
            self.turn(due(timers[0]));
        }
        true
    }

    /// Applications write and read, both ends send, and the sender's state is noted if it had a `part`.
    fn turn(&mut self, part: bool) {
        while self.sender.event().is_some() || self.receiver.event().is_some() {}
        if part {
            self.write();
        }
        if self.setting.reads.is_none() {
            let waiting = self.receiver.readable();
            self.receiver.consume(waiting);
        }
        let before = *self.sender.counters();
        while let Some(segment) = self.sender.transmit(self.now) {
            self.record(&segment, Place::Sender, true);
            self.forth(segment);
        }
        while let Some(segment) = self.receiver.transmit(self.now) {
            self.record(&segment, Place::Receiver, false);
            let at = self.now + self.setting.rtt / 2;
            self.enter(at, false, segment);
        }
        if part {
            self.note(before.segments_sent);
        }
    }

    fn write(&mut self) {
        if self.sender.state() != State::Established {
            return;
        }
        let left = self.setting.amount - self.given;
        let room = self
            .setting
            .send_buffer
            .saturating_sub(self.sender.unacknowledged());
        let wanted = match self.setting.writes {
            Writes::Bulk => left,
            Writes::Pieces { bytes, every } => {
                if self.now < self.next_write {
                    return;
                }
                self.next_write = self.now + every;
                bytes.min(left)
            }
        };
        self.given += self.sender.write_virtual(wanted.min(room));
        if self.given == self.setting.amount && !self.closed {
            self.closed = true;
            self.sender.close(self.now);
        }
    }

    fn note(&mut self, sent_before: u64) {
        let gauges = self.sender.gauges();
        let counters = self.sender.counters();
        let (received, dupacks) = (counters.segments_received, counters.dupacks);
        let last = self.turns.last();
        let heard = last.map_or(0, |turn| turn.received);
        // A recovery without SACK counts duplicates, and calls the first two no disorder.
        let goes_on = last.is_some_and(|last| {
            last.una == counters.bytes_acked
                && (last.phase == Phase::Disorder || dupacks > last.dupacks)
        });
        let phase = match gauges.phase {
            Phase::Open if goes_on => Phase::Disorder,
            phase => phase,
        };
        self.turns.push(Turn {
            at: self.now,
            phase,
            una: counters.bytes_acked,
            flight: gauges.flight,
            unsent: gauges.unsent,
            peer_window: gauges.peer_window,
            slow_start: gauges
                .ssthresh
                .is_none_or(|ssthresh| gauges.cwnd < f64::from(ssthresh)),
            blocked: self.given < self.setting.amount
                && matches!(self.setting.writes, Writes::Bulk),
            packet: counters.segments_sent > sent_before || received > heard,
            received,
            dupacks,
        });
    }

    /// The capture sees `segment`, which goes to the receiver or back, if it is made at `place`.
    fn record(&mut self, segment: &Segment, place: Place, forth: bool) {
        if self.place != place {
            return;
        }
        let [near, far] = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)));
        let packet = match forth {
            true => {
                Packet::of_segment(Ip::between(near, far).unwrap(), 1000, 2000, segment.clone())
            }
            false => {
                Packet::of_segment(Ip::between(far, near).unwrap(), 2000, 1000, segment.clone())
            }
        };
        let bytes = packet.to_vec().unwrap();
        self.capture
            .packet(self.interface, self.now, &bytes, "")
            .unwrap();
    }

    /// The way to the receiver: a queue before a link, loss, and the delay.
    fn forth(&mut self, segment: Segment) {
        let now = self.now;
        self.leaving.retain(|at| *at > now);
        let [drop, late, how] = [(); 3].map(|()| self.chance.uniform());
        let stretch = match &segment.payload {
            Payload::Virtual { offset, len } => Some((*offset, offset + u64::from(*len), now)),
            _ => None,
        };
        // What has no data is spared, so that each connection comes about.
        let struck = drop < self.setting.loss || self.leaving.len() >= self.setting.queue;
        if struck && let Some(stretch) = stretch {
            self.lost.push(stretch);
            return;
        }
        let length = self.sender.wire_len(&segment) as u64;
        let rate = Rate::from_bits_per_sec(self.setting.rate);
        self.free = self.free.max(now) + rate.serialisation(Bytes(length));
        self.leaving.push(self.free);
        let (share, most) = self.setting.late;
        let extra = if late < share {
            most.mul_f64(how)
        } else {
            Duration::ZERO
        };
        self.enter(self.free + self.setting.rtt / 2 + extra, true, segment);
    }

    fn enter(&mut self, at: Instant, forth: bool, segment: Segment) {
        self.number += 1;
        self.flight.insert((at, self.number), (forth, segment));
    }
}
