//! A peer that does on the wire what the reference implementation of SCPS-TP was seen to do (SCPS-RI 1.1, pure rate control),
//! written from those observations, and sharing no code with our endpoint:
//!
//! * the SYN offers SNACK and no SACK, has the clock for its number, and goes again after 7 and 32 s; the answer to a SYN has a
//!   window of 0, and a bare acknowledgement with the whole window follows it at once; timestamps count microseconds;
//! * the receiver names the first hole in the four acknowledgements behind it, then each further hole once, and the first one
//!   again when the acknowledgement number moves; it acknowledges at once while it misses anything;
//! * the sender keeps a rate by a bucket filled each 10 ms, of five fills; what a SNACK names goes again once, and again by
//!   itself when an embargo ends; SACK is ignored; a timeout sends the whole window again, and from the given number of them on
//!   only one octet, after 5, 6, 12, 24, 48 and then each 60 s; a FIN goes by itself.
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "reference_receiver.rs"]
mod receiver;

use bentpipe_base::{Instant, Seq};
use bentpipe_wire::scps::{Capabilities, CapabilityVector, ScpsOptions, Snack};
use bentpipe_wire::{Flags, Payload, Segment, TcpOptions, Timestamps};
use receiver::Receiver;
use std::collections::VecDeque;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(10);
const MTU: u64 = 1500;
const MSS: u16 = 1460;
/// Of every segment: 20 octets of IP, 20 of TCP and the timestamps.
const HEADERS: u64 = 52;
const STAMP: u64 = 12;
const SYN_AGAIN: [Duration; 2] = [Duration::from_secs(7), Duration::from_secs(32)];
/// Between probes of one octet.
const PROBES: [u64; 6] = [5, 6, 12, 24, 48, 60];
const BUFFER: u64 = 2_000_000;
const SCALE: u8 = 5;

/// What its operator sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Octets of IP a second (`BIF_RATE`, there in bits).
    pub(crate) rate: u64,
    /// `BIF_MINRTO`.
    pub(crate) min_rto: Duration,
    /// Timeouts after which it probes (`BIF_RTO_TO_PERSIST_CTR`); `None`: never.
    pub(crate) persist_after: Option<u32>,
    /// Octets that it sends before it closes its half.
    pub(crate) sends: u64,
    /// It sends nothing from that octet on before that time.
    pub(crate) pause: Option<(u64, Instant)>,
    /// What its clock shows at the beginning, in microseconds.
    pub(crate) clock: u32,
}

impl Settings {
    pub(crate) fn new(bits: u64, sends: u64) -> Self {
        Self {
            rate: bits / 8,
            min_rto: Duration::from_millis(800),
            persist_after: Some(2),
            sends,
            pause: None,
            clock: 0x9837_ea00,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Listening,
    SynSent,
    SynReceived,
    Established,
}

/// Octets `[from, to)` that were sent and are not acknowledged; the octet behind the last is the FIN.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: u64,
    to: u64,
    times: u32,
    /// It goes again as soon as the rate allows.
    again: bool,
    /// A SNACK named it: it goes again by itself then.
    embargo: Option<Instant>,
}

/// What it did and saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) syns: u32,
    pub(crate) data_sent: u64,
    pub(crate) again: u64,
    pub(crate) timeouts: u32,
    pub(crate) probes: u32,
    pub(crate) snacks: u64,
    pub(crate) snacks_sent: u64,
    /// Our acknowledgements with SACK blocks, which it does not look at.
    pub(crate) sacks: u64,
    pub(crate) resets: u64,
}

/// One end of a connection.
pub(crate) struct Reference {
    settings: Settings,
    stage: Stage,
    began: Instant,
    /// Both SYNs' numbers.
    iss: Seq,
    irs: Seq,
    control: VecDeque<Segment>,
    pub(crate) seen: Seen,

    una: u64,
    next: u64,
    window: u64,
    peer_scale: u8,
    segment: u64,
    sent: VecDeque<Sent>,
    bucket: u64,
    filled: Instant,
    srtt: Option<Duration>,
    rttvar: Duration,
    timer: Option<Instant>,
    /// Timeouts in a row.
    timeouts: u32,
    /// Probes so far, where there is nothing else.
    probing: Option<usize>,
    dupacks: u32,
    echo: u32,

    receiver: Receiver,
}

fn offer() -> TcpOptions {
    let offer = ScpsOptions {
        capabilities: Some(Capabilities {
            vector: CapabilityVector::SNACK_SHORT,
            connection: 0,
        }),
        ..ScpsOptions::default()
    };
    TcpOptions {
        mss: Some(MSS),
        window_scale: Some(SCALE),
        unknown: offer.to_raw().unwrap().map(Box::new),
        ..TcpOptions::default()
    }
}

impl Reference {
    pub(crate) fn listen(settings: Settings, now: Instant) -> Self {
        Self {
            stage: Stage::Listening,
            began: now,
            iss: Seq(settings.clock.wrapping_sub(100)),
            irs: Seq(0),
            control: VecDeque::new(),
            seen: Seen::default(),
            una: 0,
            next: 0,
            window: 0,
            peer_scale: 0,
            segment: u64::from(MSS) - STAMP,
            sent: VecDeque::new(),
            bucket: 5 * (settings.rate / 100).max(MTU),
            filled: now,
            srtt: None,
            rttvar: Duration::ZERO,
            timer: None,
            timeouts: 0,
            probing: None,
            dupacks: 0,
            echo: 0,
            receiver: Receiver::default(),
            settings,
        }
    }

    pub(crate) fn connect(settings: Settings, now: Instant) -> Self {
        let mut peer = Self::listen(settings, now);
        peer.stage = Stage::SynSent;
        peer.syn(now);
        peer
    }

    /// Both halves are closed, and what it sent is acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        self.receiver.is_closed() && self.una > self.settings.sends
    }

    /// Octets that arrived in order.
    pub(crate) fn received(&self) -> u64 {
        self.receiver.octets()
    }

    fn clock(&self, now: Instant) -> u32 {
        let micros = now.since(self.began).as_micros() as u32;
        self.settings.clock.wrapping_add(micros)
    }

    fn bare(&self, now: Instant) -> Segment {
        let established = matches!(self.stage, Stage::Established | Stage::SynReceived);
        let window = if established { BUFFER >> SCALE } else { 65_535 };
        Segment {
            seq: self.iss + (self.next as u32).wrapping_add(1),
            ack: self.irs + (self.receiver.next() as u32).wrapping_add(1),
            flags: Flags::ACK,
            window: window as u16,
            timestamps: Some(Timestamps {
                value: self.clock(now),
                echo: self.echo,
            }),
            ..Segment::default()
        }
    }

    /// The SYN or the answer to one, and when it goes again.
    fn syn(&mut self, now: Instant) {
        let answers = self.stage == Stage::SynReceived;
        let mut syn = Segment {
            seq: self.iss,
            flags: Flags::SYN,
            window: 65_535,
            options: Some(Box::new(offer())),
            ..self.bare(now)
        };
        if answers {
            (syn.flags, syn.window) = (Flags::SYN | Flags::ACK, 0);
        } else {
            syn.ack = Seq(0);
        }
        self.control.push_back(syn);
        if answers {
            let bare = Segment {
                window: 65_535,
                ..self.bare(now)
            };
            self.control.push_back(bare);
        }
        self.timer = { SYN_AGAIN.get(self.seen.syns as usize) }.map(|after| self.began + *after);
        self.seen.syns += 1;
    }

    pub(crate) fn input(&mut self, segment: Segment, now: Instant) {
        if segment.flags.contains(Flags::RST) {
            self.seen.resets += 1;
            return;
        }
        if segment.flags.contains(Flags::SYN) {
            return self.on_syn(&segment, now);
        }
        if self.stage == Stage::Listening || !segment.flags.contains(Flags::ACK) {
            return;
        }
        if self.stage == Stage::SynReceived {
            (self.stage, self.timer) = (Stage::Established, None);
        }
        self.on_ack(&segment, now);
        self.on_data(&segment, now);
    }

    fn on_syn(&mut self, syn: &Segment, now: Instant) {
        let answer = syn.flags.contains(Flags::ACK);
        match self.stage {
            Stage::Listening if !answer => {
                (self.stage, self.began) = (Stage::SynReceived, now);
            }
            Stage::SynReceived if !answer => {}
            Stage::SynSent if answer => (self.stage, self.timer) = (Stage::Established, None),
            // Its acknowledgement was lost.
            Stage::Established => {
                let ack = self.bare(now);
                return self.control.push_back(ack);
            }
            _ => return,
        }
        self.irs = syn.seq;
        self.echo = syn.timestamps.map_or(0, |stamp| stamp.value);
        if let Some(options) = syn.options.as_deref() {
            self.peer_scale = options.window_scale.unwrap_or(0);
            let mss = options.mss.unwrap_or(536).min(MSS);
            self.segment = u64::from(mss) - STAMP;
        }
        self.window = u64::from(syn.window);
        if answer {
            let ack = self.bare(now);
            self.control.push_back(ack);
        } else {
            self.syn(now);
        }
    }

    fn on_ack(&mut self, segment: &Segment, now: Instant) {
        self.seen.sacks += u64::from(!segment.sack().is_empty());
        let near = (segment.ack - self.iss.0).0.wrapping_sub(1);
        let ahead = near.wrapping_sub(self.una as u32);
        let window = u64::from(segment.window) << self.peer_scale;
        let opens = window > self.window;
        self.window = window;
        if ahead > 0 && u64::from(ahead) <= self.next - self.una {
            self.una += u64::from(ahead);
            while self.sent.front().is_some_and(|sent| sent.to <= self.una) {
                self.sent.pop_front();
            }
            if let Some(first) = self.sent.front_mut() {
                first.from = first.from.max(self.una);
            }
            let echo = segment.timestamps.map_or(0, |stamp| stamp.echo);
            let micros = self.clock(now).wrapping_sub(echo);
            self.measure(Duration::from_micros(micros.into()));
            (self.timeouts, self.dupacks) = (0, 0);
            if self.probing.take().is_some() {
                self.sent.iter_mut().for_each(|sent| sent.again = true);
            }
            self.timer = (self.una < self.next).then(|| now + self.rto());
        } else if ahead == 0 && segment.payload.is_empty() && !self.sent.is_empty() && !opens {
            self.dupacks += 1;
            if self.dupacks == 3 && self.sent[0].embargo.is_none() {
                self.name(self.una, self.una + 1, now);
            }
        }
        if opens && self.sent.is_empty() {
            (self.probing, self.timer) = (None, None);
        }
        let options = segment.options.as_deref();
        let raw = options.and_then(|options| options.unknown.as_deref());
        if let Some(Snack { offset, size, .. }) = raw.and_then(|raw| ScpsOptions::parse(raw).snack)
        {
            self.seen.snacks += 1;
            // In units of the MSS that its own SYN offered.
            let unit = u64::from(MSS) - STAMP;
            let from = self.una + u64::from(offset) * unit;
            self.name(from, from + u64::from(size) * unit, now);
        }
    }

    fn measure(&mut self, rtt: Duration) {
        let Some(srtt) = self.srtt else {
            (self.srtt, self.rttvar) = (Some(rtt), rtt / 2);
            return;
        };
        self.rttvar = (self.rttvar * 3 + srtt.abs_diff(rtt)) / 4;
        self.srtt = Some((srtt * 7 + rtt) / 8);
    }

    fn rto(&self) -> Duration {
        let measured = self.srtt.map_or(Duration::from_secs(6), |srtt| {
            srtt + (self.rttvar * 4).max(Duration::from_millis(500))
        });
        measured.max(self.settings.min_rto) * (1 << self.timeouts.min(6))
    }

    /// How long a segment that was named waits until it goes again by itself.
    fn embargo(&self, sent: &Sent) -> Duration {
        let least = self.settings.min_rto / 8;
        let whole = self.srtt.map_or(least, |srtt| srtt.max(least));
        let whole = if sent.from == self.una {
            whole
        } else {
            whole * 2
        };
        whole * (1 << sent.times.saturating_sub(4).min(6))
    }

    /// The peer misses what lies in `[from, to)`: whole segments that it touches go again.
    fn name(&mut self, from: u64, to: u64, now: Instant) {
        for at in 0..self.sent.len() {
            let sent = self.sent[at];
            if sent.to > from && sent.from < to && sent.embargo.is_none() {
                let embargo = Some(now + self.embargo(&sent));
                self.sent[at] = Sent {
                    again: true,
                    embargo,
                    ..sent
                };
            }
        }
    }

    fn on_data(&mut self, segment: &Segment, now: Instant) {
        let fin = segment.flags.contains(Flags::FIN);
        let near = (segment.seq - self.irs.0).0.wrapping_sub(1);
        let next = self.receiver.next();
        let ahead = near.wrapping_sub(next as u32).cast_signed();
        if segment.payload.is_empty() && !fin {
            // Before the window: a probe of ours, to be answered.
            if ahead < 0 {
                let ack = self.bare(now);
                self.control.push_back(ack);
            }
            return;
        }
        if ahead <= 0 {
            self.echo = segment.timestamps.map_or(self.echo, |stamp| stamp.value);
        }
        let from = next.wrapping_add_signed(ahead.into());
        if self.receiver.input(from, &segment.payload, fin, now) {
            self.acknowledge(now);
        }
    }

    fn acknowledge(&mut self, now: Instant) {
        let mut ack = self.bare(now);
        if let Some((from, to)) = self.receiver.acknowledge() {
            self.seen.snacks_sent += 1;
            let unit = u64::from(MSS) - STAMP;
            let next = self.receiver.next();
            let offset = (from - next) / unit;
            let size = (to - next - offset * unit).div_ceil(unit);
            let snack = ScpsOptions {
                snack: Some(Snack::short(offset as u16, size as u16)),
                ..ScpsOptions::default()
            };
            ack.options = Some(Box::new(TcpOptions {
                unknown: snack.to_raw().unwrap().map(Box::new),
                ..TcpOptions::default()
            }));
        }
        self.control.push_back(ack);
    }

    pub(crate) fn transmit(&mut self, now: Instant) -> Option<Segment> {
        if let Some(control) = self.control.pop_front() {
            return Some(control);
        }
        if self.stage != Stage::Established {
            return None;
        }
        self.fill(now);
        if let Some(at) = self.sent.iter().position(|sent| sent.again) {
            let sent = self.sent[at];
            if !self.take(sent.to - sent.from) {
                return None;
            }
            self.sent[at].again = false;
            self.sent[at].times += 1;
            self.seen.again += 1;
            return Some(self.cut(sent.from, sent.to, now));
        }
        let pauses = self.pause(now).is_some();
        if self.probing.is_some() || self.next > self.settings.sends || pauses {
            return None;
        }
        let from = self.next;
        let to = match self.settings.sends - from {
            // The FIN, by itself.
            0 => from + 1,
            left => from + left.min(self.segment),
        };
        if to - self.una > self.window {
            if self.sent.is_empty() && self.timer.is_none() {
                self.probing = Some(0);
                self.timer = Some(now + Duration::from_secs(PROBES[0]));
            }
            return None;
        }
        if !self.take(to - from) {
            return None;
        }
        self.send_first(to);
        if self.timer.is_none() {
            self.timer = Some(now + self.rto());
        }
        Some(self.cut(from, to, now))
    }

    /// What is up to `to` leaves for the first time.
    fn send_first(&mut self, to: u64) {
        self.sent.push_back(Sent {
            from: self.next,
            to,
            times: 1,
            again: false,
            embargo: None,
        });
        self.next = to;
    }

    /// The segment of `[from, to)`, with the acknowledgement that is due.
    fn cut(&mut self, from: u64, to: u64, now: Instant) -> Segment {
        self.seen.data_sent += 1;
        let sends = self.settings.sends;
        let octets: Vec<u8> = (from..to.min(sends)).map(Payload::pattern).collect();
        let mut flags = Flags::ACK;
        if to == sends && from < to {
            flags = flags | Flags::PSH;
        }
        if to > sends {
            flags = flags | Flags::FIN;
        }
        Segment {
            seq: self.iss + (from as u32).wrapping_add(1),
            flags,
            payload: Payload::from(octets),
            ..self.bare(now)
        }
    }

    /// The bucket gets its 10 ms' worth for each that has passed.
    fn fill(&mut self, now: Instant) {
        let each = self.settings.rate / 100;
        let ticks = now.since(self.filled).as_nanos() / TICK.as_nanos();
        self.bucket = (self.bucket + each * ticks as u64).min(5 * each.max(MTU));
        self.filled += TICK * ticks as u32;
    }

    fn take(&mut self, payload: u64) -> bool {
        let octets = payload + HEADERS;
        let enough = self.bucket >= octets;
        if enough {
            self.bucket -= octets;
        }
        enough
    }

    pub(crate) fn timeout(&mut self, now: Instant) {
        if self.receiver.deadline().is_some_and(|at| at <= now) {
            self.acknowledge(now);
        }
        for at in 0..self.sent.len() {
            let sent = self.sent[at];
            if sent.embargo.is_some_and(|at| at <= now) {
                let embargo = Some(now + self.embargo(&sent));
                self.sent[at] = Sent {
                    again: true,
                    embargo,
                    ..sent
                };
            }
        }
        if self.timer.is_some_and(|at| at <= now) {
            self.expire(now);
        }
    }

    fn expire(&mut self, now: Instant) {
        match self.stage {
            Stage::SynSent | Stage::SynReceived => return self.syn(now),
            Stage::Listening => return,
            Stage::Established => {}
        }
        if let Some(probes) = self.probing {
            self.seen.probes += 1;
            let at = self.una;
            if self.next == at {
                self.send_first(at + 1);
            }
            let probe = Segment {
                flags: Flags::ACK,
                ..self.cut(at, at + 1, now)
            };
            self.control.push_back(probe);
            self.probing = Some(probes + 1);
            let wait = PROBES[(probes + 1).min(PROBES.len() - 1)];
            self.timer = Some(now + Duration::from_secs(wait));
            return;
        }
        self.timeouts += 1;
        self.seen.timeouts += 1;
        let persists = { self.settings.persist_after }.is_some_and(|most| self.timeouts >= most);
        for sent in &mut self.sent {
            (sent.again, sent.embargo) = (true, None);
            if persists {
                break;
            }
        }
        if persists {
            self.probing = Some(0);
            self.timer = Some(now + Duration::from_secs(PROBES[0]));
        } else {
            self.timer = Some(now + self.rto());
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        let embargo = self.sent.iter().filter(|sent| !sent.again);
        let embargo = embargo.filter_map(|sent| sent.embargo).min();
        let waits = self.stage == Stage::Established
            && (self.sent.iter().any(|sent| sent.again)
                || (self.probing.is_none() && self.next <= self.settings.sends && self.has_room()));
        let pause = self.settings.pause.filter(|pause| self.next >= pause.0);
        let tick = pause.map_or(self.filled + TICK, |pause| pause.1.max(self.filled + TICK));
        let tick = waits.then_some(tick);
        [embargo, tick, self.timer, self.receiver.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Until when it has nothing to say.
    fn pause(&self, now: Instant) -> Option<Instant> {
        let (at, until) = self.settings.pause?;
        (self.next >= at && now < until).then_some(until)
    }

    /// Whether the window has room for the next segment.
    fn has_room(&self) -> bool {
        let next = (self.settings.sends - self.next).clamp(1, self.segment);
        self.next + next - self.una <= self.window
    }
}
