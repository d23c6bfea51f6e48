//! Torture: two endpoints over a network that loses, reorders, doubles, damages, marks and forges, with
//! windows and segments of all sizes. Both streams must arrive intact and both ends reach CLOSED.
//!
//! `BENTPIPE_SEEDS` says how many seeds (300 by default), `BENTPIPE_SEED` which one alone.

use bentpipe_base::{Bytes, Instant, Seq, Stream};
use bentpipe_tcp::{Config, Connection, EcnMode, Event, PRESETS, State, VARIANTS, recovery};
use bentpipe_wire::{Ecn, Flags, Payload, Segment};
use std::sync::Arc;
use std::time::Duration;

/// More than any seed needs: a run that takes more hangs.
const STEPS: u32 = 400_000;

/// One end: its endpoint, what it writes, what it has read.
struct End {
    tcp: Connection,
    /// Bytes to write; virtual ones are only counted.
    stream: Vec<u8>,
    written: usize,
    virtually: bool,
    read: Vec<u8>,
    /// Bytes taken by one read.
    gulp: usize,
    /// It does not read before then.
    awake: Instant,
    pause: u64,
    ended: bool,
}

struct World {
    dice: Stream,
    now: Instant,
    ends: [End; 2],
    /// Arrival, tie-breaker, which end it goes to.
    flight: Vec<(Instant, u64, usize, Segment)>,
    count: u64,
    loss: f64,
    jitter: u64,
    delay: u64,
    doubles: bool,
    forges: bool,
    /// Virtual payloads become real ones on the way, as `--wire` does.
    wire: bool,
    /// Chance of its own, for what the path does to the ECN field and to the flags of ECN.
    ecn: Stream,
    marks: bool,
    lies: bool,
}

fn config(dice: &mut Stream, variant: usize, seed: u64) -> Config {
    let preset = PRESETS[(seed / 7) as usize % PRESETS.len()];
    let name = VARIANTS[variant % VARIANTS.len()].name;
    let mut config = (preset.new)();
    // SCPS-TP has a recovery of its own, and at times a peer that does not speak it.
    if preset.name != "scps" {
        config = config.variant(name).expect("a variant of the table");
    } else if dice.one_in(4) {
        config.scps = None;
    }
    if let Some(scps) = &mut config.scps {
        scps.short_snacks_only = seed.is_multiple_of(4);
        scps.corruption_experienced = seed.is_multiple_of(3).then_some(Duration::from_secs(1));
    }
    config.ack_every = dice.choose(&[1, 2, 2, 8]);
    if preset.name == "rfc" && dice.one_in(4) {
        let name = dice.choose(&["prr-rack", "rack-tlp"]);
        config.recovery = recovery::find(name).expect("it is in the registry");
        config.sack_blocks = 4;
    }
    config.dsack = dice.one_in(2);
    config.frto = dice.one_in(2);
    config.eifel = dice.one_in(2);
    config.mss = dice.choose(&[1, 2, 13, 100, 536, 1460, 9000]);
    config.initial_window = 1 + dice.below(12) as u32;
    config.limited_transmit = dice.one_in(2);
    config.delayed_ack = Duration::from_millis(dice.choose(&[0, 10, 200]));
    config.min_rto = Duration::from_millis(dice.choose(&[20, 200, 1000]));
    config.max_rto = Duration::from_secs(4);
    config.max_retries = 1000;
    config.sack_blocks = config.sack_blocks.min(dice.below(6) as u8);
    config.timestamps = dice.one_in(2);
    config.window_scaling = dice.one_in(2);
    config.nagle = dice.one_in(2);
    config.keep_alive = dice.one_in(4).then(|| Duration::from_secs(30));
    config.receive_buffer = Bytes(dice.choose(&[1, 7, 100, 1000, 70_000, 1 << 20]));
    config.send_buffer = Bytes(dice.choose(&[1, 100, 3000, 1 << 20]));
    config.time_wait = Duration::from_secs(30);
    config
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Stream::new(seed, "torture");
        let variant = seed as usize;
        let (mut near, mut far) = (
            config(&mut dice, variant, seed),
            config(&mut dice, variant, seed),
        );
        let mut ecn = Stream::new(seed, "torture.ecn");
        let modes = [EcnMode::Off, EcnMode::Accept, EcnMode::Ask, EcnMode::Ask];
        (near.ecn, far.ecn) = (ecn.choose(&modes), ecn.choose(&modes));
        // Every byte may take a round trip of its own.
        let slow = [&near, &far]
            .iter()
            .any(|config| config.mss < 100 || config.receive_buffer.0 < 1000);
        let most = if slow { 150 } else { 60_000 };
        let (a, b) = (Seq(dice.bits() as u32), Seq(dice.bits() as u32));
        let both = dice.one_in(5);
        let (near, far) = (Arc::new(near), Arc::new(far));
        let now = Instant::ZERO;
        let far = if both {
            Connection::connect(far, b, now)
        } else {
            Connection::listen(far, b, now)
        };
        let near = Connection::connect(near, a, now);
        let virtually = dice.one_in(2);
        let mut end = |tcp| {
            let len = dice.below(most);
            let stream = (0..len)
                .map(|i| {
                    if virtually {
                        Payload::pattern(i)
                    } else {
                        dice.bits() as u8
                    }
                })
                .collect();
            let pause = dice.choose(&[0, 0, 5, 3000]);
            // A slow reader of few bytes at a time would read for weeks.
            let least = if pause > 100 { most / 100 } else { 1 };
            End {
                tcp,
                stream,
                written: 0,
                virtually,
                read: Vec::new(),
                gulp: dice.choose(&[1, 10, 1000, 100_000]).max(least) as usize,
                awake: Instant::ZERO,
                pause,
                ended: false,
            }
        };
        let ends = [end(near), end(far)];
        Self {
            loss: dice.choose(&[0.0, 0.01, 0.1, 0.3]),
            jitter: dice.choose(&[0, 1, 30, 300]),
            delay: dice.choose(&[0, 5, 250]),
            doubles: dice.one_in(3),
            forges: dice.one_in(3),
            wire: dice.one_in(2),
            marks: ecn.one_in(2),
            lies: ecn.one_in(4),
            ecn,
            dice,
            now,
            ends,
            flight: Vec::new(),
            count: 0,
        }
    }

    fn send(&mut self, from: usize, mut segment: Segment) {
        if self.wire
            && let Payload::Virtual { offset, len } = segment.payload
        {
            let bytes: Vec<u8> = (0..u64::from(len))
                .map(|i| Payload::pattern(offset + i))
                .collect();
            segment.payload = Payload::from(bytes.as_slice());
        }
        if self.forges && self.dice.one_in(10) {
            self.forge(1 - from, &segment);
        }
        // Damage that the checksum finds is loss.
        if self.dice.uniform() < self.loss {
            return;
        }
        if self.doubles && self.dice.one_in(10) {
            self.deliver(1 - from, segment.clone());
        }
        self.deliver(1 - from, segment);
    }

    fn deliver(&mut self, to: usize, segment: Segment) {
        let late = self.delay + self.dice.below(self.jitter + 1);
        let at = self.now + Duration::from_millis(late);
        self.count += 1;
        self.flight.push((at, self.count, to, segment));
    }

    /// A segment from outside the window, with any flags and a guessed acknowledgement.
    fn forge(&mut self, to: usize, like: &Segment) {
        if self.ends.iter().any(|end| {
            matches!(
                end.tcp.state(),
                State::Listen | State::SynSent | State::SynReceived | State::Closed
            )
        }) {
            return;
        }
        let mut segment = like.clone();
        segment.seq = like.seq + (1 << 30) + self.dice.below(1 << 30) as u32;
        segment.ack = like.ack + self.dice.bits() as u32;
        segment.flags = self.dice.choose(&[
            Flags::RST,
            Flags::RST | Flags::ACK,
            Flags::SYN,
            Flags::ACK,
            Flags::FIN | Flags::ACK,
            Flags::ACK | Flags::PSH,
        ]);
        segment.window = self.dice.bits() as u16;
        self.deliver(to, segment);
    }

    fn work(&mut self, i: usize) {
        let now = self.now;
        let end = &mut self.ends[i];
        if end.written < end.stream.len() {
            let rest = &end.stream[end.written..];
            end.written += if end.virtually {
                end.tcp.write_virtual(rest.len() as u64) as usize
            } else {
                end.tcp.write(rest)
            };
        }
        let state = end.tcp.state();
        if end.written == end.stream.len()
            && !end.ended
            && state != State::Listen
            && state != State::SynSent
        {
            end.ended = true;
            end.tcp.close(now);
        }
        if end.tcp.readable() > 0 && end.awake <= now {
            let mut gulp = vec![0; end.gulp];
            let got = end.tcp.read(&mut gulp);
            end.read.extend_from_slice(&gulp[..got]);
            end.awake = now + Duration::from_millis(end.pause);
        }
        while let Some(event) = end.tcp.event() {
            let aborted = matches!(event, Event::Aborted(_));
            assert!(!aborted, "end {i} at {now}: {event:?} {:?}", end.tcp);
        }
        while let Some(segment) = self.ends[i].tcp.transmit(now) {
            let capable = self.ends[i].tcp.ecn().is_capable();
            assert!(!capable || !segment.payload.is_empty(), "{segment:?}");
            self.send(i, segment);
        }
    }

    /// When anything happens next.
    fn next(&self) -> Option<Instant> {
        let arrival = self.flight.iter().map(|entry| entry.0).min();
        let timers = self.ends.iter().flat_map(|end| {
            let reads = (end.tcp.readable() > 0).then_some(end.awake.max(self.now));
            [end.tcp.deadline(), reads]
        });
        timers.flatten().chain(arrival).min()
    }

    fn arrive(&mut self) {
        while let Some(i) = (0..self.flight.len())
            .filter(|&i| self.flight[i].0 <= self.now)
            .min_by_key(|&i| (self.flight[i].0, self.flight[i].1))
        {
            let (_, _, to, mut segment) = self.flight.swap_remove(i);
            if self.ends[to].tcp.state() == State::Closed {
                // The host answers for a connection that is no more (RFC 9293, section 3.10.7.1).
                let reset = segment.flags.contains(Flags::RST);
                if !reset && segment.flags.contains(Flags::ACK) {
                    self.deliver(
                        1 - to,
                        Segment {
                            seq: segment.ack,
                            flags: Flags::RST,
                            ..Segment::default()
                        },
                    );
                }
                continue;
            }
            let mut ecn = Ecn::NotCapable;
            if self.marks {
                ecn = self
                    .ecn
                    .choose(&[ecn, Ecn::Capable0, Ecn::Capable1, Ecn::Marked]);
            }
            if self.lies && self.ecn.one_in(3) {
                let flags = [Flags::ECE, Flags::CWR, Flags::ECE | Flags::CWR];
                segment.flags = segment.flags | self.ecn.choose(&flags);
            }
            self.ends[to].tcp.receive_marked(&segment, ecn, self.now);
            self.work(to);
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.work(0);
            self.work(1);
            let done = |end: &End| end.tcp.state() == State::Closed && end.tcp.readable() == 0;
            if self.ends.iter().all(done) {
                self.check();
                return;
            }
            let next = self.next().expect("an open connection has a timer");
            self.now = next.max(self.now);
            self.arrive();
            for end in &mut self.ends {
                end.tcp.timeout(self.now);
            }
        }
        let states = self.ends.each_ref().map(|end| end.tcp.state());
        let read = self
            .ends
            .each_ref()
            .map(|end| (end.read.len(), end.stream.len(), end.tcp.gauges()));
        panic!("hangs at {} in {states:?}, read {read:?}", self.now);
    }

    fn check(&self) {
        for (reader, writer) in [(0, 1), (1, 0)] {
            let (read, sent) = (&self.ends[reader].read, &self.ends[writer].stream);
            let same = read.iter().zip(sent).take_while(|(a, b)| a == b).count();
            assert!(
                read == sent,
                "end {reader} read {} bytes of {}, the first {same} right",
                read.len(),
                sent.len()
            );
        }
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "how long to torture is the caller's choice"
)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn streams_arrive_intact_and_both_ends_close() {
    let seeds = match number("BENTPIPE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BENTPIPE_SEEDS").unwrap_or(300),
    };
    let failed: Vec<u64> = seeds
        .filter(|&seed| std::panic::catch_unwind(|| World::new(seed).run()).is_err())
        .collect();
    assert!(failed.is_empty(), "replay with BENTPIPE_SEED: {failed:?}");
}
