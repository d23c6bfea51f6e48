//! Torture of gateways with SCPS-TP: two hosts, and between them a pair of splits, or one alone whose far end is a host of plain TCP; over
//! links that lose, reorder and double packets. Both streams must arrive intact and both hosts reach CLOSED.
//!
//! `BENTPIPE_SEEDS` says how many seeds (40 by default), `BENTPIPE_SEED` which one alone.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_base::{Bytes, Instant, Machine, Rate, Seq, Stream};
use bentpipe_gateway_config::{Carrier, Leg, LossCause};
use bentpipe_pep::split::{Config, Resets, Split, tcp_config};
use bentpipe_pep::{BuildPacket, Packet as _, Side};
use bentpipe_tcp::{self as tcp, Connection, Event, State};
use bentpipe_wire::{Flags, Packet, Segment};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// More than any seed needs: a run that takes more hangs.
const STEPS: u32 = 400_000;

/// A host.
struct End {
    tcp: Connection,
    stream: Vec<u8>,
    written: usize,
    read: Vec<u8>,
    /// Bytes taken by one read, and how long it sleeps behind each, in milliseconds.
    gulp: usize,
    pause: u64,
    awake: Instant,
    ended: bool,
}

/// What a link does to packets.
#[derive(Clone, Copy)]
struct Link {
    loss: f64,
    delay: u64,
    jitter: u64,
    doubles: bool,
}

/// The hosts are the first and the last of the places from left to right, the splits those between.
struct World {
    dice: Stream,
    now: Instant,
    ends: [End; 2],
    splits: Vec<Split<Packet>>,
    /// On which side of each split the first host is.
    left: Vec<Side>,
    links: Vec<Link>,
    /// Where each packet arrives.
    flight: BTreeMap<(Instant, u64), (usize, bool, Packet)>,
    count: u64,
    /// What a connection through here is: for a report.
    story: String,
}

fn host(dice: &mut Stream) -> tcp::Config {
    let preset: fn() -> tcp::Config =
        dice.choose(&[tcp::Config::rfc as fn() -> _, tcp::Config::linux]);
    tcp::Config {
        mss: dice.choose(&[88, 536, 1460, 9000]),
        timestamps: dice.one_in(2),
        window_scaling: dice.one_in(2),
        sack_blocks: dice.choose(&[0, 3, 4]),
        nagle: dice.one_in(2),
        receive_buffer: Bytes(dice.choose(&[3_000, 70_000, 1 << 20])),
        send_buffer: Bytes(dice.choose(&[3_000, 1 << 20])),
        delayed_ack: Duration::from_millis(dice.choose(&[0, 10, 200])),
        max_rto: Duration::from_secs(4),
        max_retries: 1000,
        time_wait: Duration::from_secs(30),
        ..preset()
    }
}

/// As the carrier of a gateway has it.
fn split(dice: &mut Stream) -> Split<Packet> {
    let leg = Leg {
        carrier: Carrier::Scps,
        ack_every: dice.choose(&[None, Some(8)]),
        loss_cause: dice.choose(&[None, Some(LossCause::Congestion)]),
        corruption_experienced: dice.choose(&[None, Some(Duration::from_secs(1))]),
        send_buffer: Bytes(dice.choose(&[20_000, 1 << 20])),
        receive_buffer: Bytes(dice.choose(&[20_000, 1 << 20])),
        ..Leg::satellite(Some(Rate::from_bits_per_sec(
            dice.choose(&[200_000, 8_000_000]),
        )))
    };
    let space = tcp::Config {
        congestion: match dice.one_in(4) {
            true => bentpipe_cc::find("vegas").unwrap(),
            false => bentpipe_cc::find("rate").unwrap(),
        },
        time_wait: Duration::from_secs(30),
        ..tcp_config(&leg, tcp::Config::linux()).unwrap()
    };
    let ground_is_local = dice.one_in(2);
    let ground = tcp::Config {
        mss: if ground_is_local { 14_492 } else { 1460 },
        delayed_ack: Duration::from_millis(dice.choose(&[0, 40])),
        receive_buffer: Bytes(512 << 10),
        send_buffer: Bytes(512 << 10),
        nagle: false,
        max_retries: 1000,
        time_wait: Duration::from_secs(30),
        ..tcp::Config::linux()
    };
    Split::new(Config {
        ground_is_local,
        half_open: Some(10),
        idle: None,
        resets: Resets {
            grace: Duration::from_secs(5),
            within_window: true,
        },
        ..Config::new(ground, space)
    })
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Stream::new(seed, "torture.gateways");
        // A pair, or the left or the right one of it alone.
        let which = dice.choose(&[[true, true], [true, true], [true, false], [false, true]]);
        let mut splits = Vec::new();
        let mut left = Vec::new();
        for (side, there) in [Side::Ground, Side::Space].into_iter().zip(which) {
            if there {
                splits.push(split(&mut dice));
                left.push(side);
            }
        }
        let worst = dice.choose(&[0.0, 0.02, 0.1, 0.2]);
        let links = (0..=splits.len()).map(|place| {
            // The ground's links lose less.
            let space = place == usize::from(which[0]);
            Link {
                loss: if space { worst } else { worst / 10.0 },
                delay: if space { dice.choose(&[1, 50, 300]) } else { 1 },
                jitter: dice.choose(&[0, 0, 3, 40]),
                doubles: dice.one_in(3),
            }
        });
        let links = links.collect();
        let (a, b) = (Seq(dice.bits() as u32), Seq(dice.bits() as u32));
        let now = Instant::ZERO;
        let near = Connection::connect(Arc::new(host(&mut dice)), a, now);
        let far = Connection::listen(Arc::new(host(&mut dice)), b, now);
        let mut end = |tcp| {
            let len = dice.below(150_000);
            End {
                tcp,
                stream: (0..len).map(|_| dice.bits() as u8).collect(),
                written: 0,
                read: Vec::new(),
                gulp: dice.choose(&[500, 20_000]),
                pause: dice.choose(&[0, 0, 20]),
                awake: Instant::ZERO,
                ended: false,
            }
        };
        let ends = [end(near), end(far)];
        let story = format!("{which:?}, worst loss {worst}");
        Self {
            ends,
            splits,
            left,
            links,
            dice,
            now,
            flight: BTreeMap::new(),
            count: 0,
            story,
        }
    }

    /// A packet leaves `place` to the right, or to the left.
    fn send(&mut self, place: usize, right: bool, packet: Packet) {
        let (link, to) = match right {
            true => (self.links[place], place + 1),
            false => (self.links[place - 1], place - 1),
        };
        if self.dice.uniform() < link.loss {
            return;
        }
        let copies = if link.doubles && self.dice.one_in(10) {
            2
        } else {
            1
        };
        for _ in 0..copies {
            let late = link.delay + self.dice.below(link.jitter + 1);
            self.count += 1;
            let at = (self.now + Duration::from_millis(late), self.count);
            self.flight.insert(at, (to, right, packet.clone()));
        }
    }

    fn say(&mut self, end: usize, segment: Segment) {
        let addresses: [SocketAddr; 2] =
            [([10, 0, 0, 1], 4_000).into(), ([10, 0, 0, 2], 80).into()];
        let packet = Packet::build(addresses[end], addresses[1 - end], segment, Bytes(0));
        let place = if end == 0 { 0 } else { self.splits.len() + 1 };
        self.send(place, end == 0, packet.unwrap());
    }

    fn work(&mut self, i: usize) {
        let now = self.now;
        let end = &mut self.ends[i];
        let state = end.tcp.state();
        end.written += end.tcp.write(&end.stream[end.written..]);
        if end.written == end.stream.len()
            && !end.ended
            && !matches!(state, State::Listen | State::SynSent)
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
            assert!(!aborted, "end {i} at {now}: {event:?} ({})", self.story);
        }
        while let Some(segment) = self.ends[i].tcp.transmit(now) {
            self.say(i, segment);
        }
    }

    fn drain(&mut self, split: usize) {
        while let Some((to, packet)) = self.splits[split].transmit(self.now) {
            self.send(split + 1, to != self.left[split], packet);
        }
    }

    fn arrive(&mut self, place: usize, right: bool, packet: Packet) {
        let now = self.now;
        if (1..=self.splits.len()).contains(&place) {
            let split = place - 1;
            let from = match right {
                true => self.left[split],
                false => self.left[split].opposite(),
            };
            // What arrives damaged is lost; that there was something is told.
            if from == Side::Space
                && self.dice.one_in(20)
                && let Some(view) = packet.view()
            {
                let ends = (view.destination, view.source);
                self.splits[split].note_damaged(ends);
            }
            self.splits[split].input(from, packet, now);
            // Several that come together are answered together, at times.
            if !self.dice.one_in(3) {
                self.drain(split);
            }
            return;
        }
        let end = usize::from(place > 0);
        let segment = packet.segment().unwrap();
        if self.ends[end].tcp.state() != State::Closed {
            self.ends[end].tcp.receive(&segment, now);
            return self.work(end);
        }
        // The host answers for a connection that is no more (RFC 9293, section 3.10.7.1).
        if !segment.flags.contains(Flags::RST) && segment.flags.contains(Flags::ACK) {
            let reset = Segment {
                seq: segment.ack,
                flags: Flags::RST,
                ..Segment::default()
            };
            self.say(end, reset);
        }
    }

    /// When anything happens next.
    fn next(&self) -> Option<Instant> {
        let timers = self.ends.iter().flat_map(|end| {
            let reads = (end.tcp.readable() > 0).then_some(end.awake.max(self.now));
            [end.tcp.deadline(), reads]
        });
        let splits = self.splits.iter().map(Machine::deadline);
        let arrival = self.flight.keys().next().map(|(at, _)| *at);
        timers.chain(splits).flatten().chain(arrival).min()
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.work(0);
            self.work(1);
            let done = |end: &End| end.tcp.state() == State::Closed && end.tcp.readable() == 0;
            if self.ends.iter().all(done) {
                return self.check();
            }
            let next = self.next().expect("an open connection has a timer");
            self.now = next.max(self.now);
            let now = self.now;
            while let Some((at, _)) = self.flight.first_key_value().filter(|(at, _)| at.0 <= now) {
                let (place, right, packet) = self.flight.remove(&at.clone()).unwrap();
                self.arrive(place, right, packet);
            }
            for split in 0..self.splits.len() {
                self.drain(split);
                if self.splits[split].deadline().is_some_and(|due| due <= now) {
                    self.splits[split].timeout(now);
                    self.drain(split);
                }
            }
            for end in &mut self.ends {
                end.tcp.timeout(now);
            }
        }
        let ends = self.ends.each_ref().map(|end| {
            let of = (end.read.len(), end.written, end.stream.len());
            (end.tcp.state(), of, end.tcp.gauges())
        });
        panic!("hangs at {}: {ends:?} ({})", self.now, self.story);
    }

    fn check(&self) {
        for (reader, writer) in [(0, 1), (1, 0)] {
            let (read, sent) = (&self.ends[reader].read, &self.ends[writer].stream);
            let same = read.iter().zip(sent).take_while(|(a, b)| a == b).count();
            assert!(
                read == sent,
                "end {reader} read {} bytes of {}, the first {same} right ({})",
                read.len(),
                sent.len(),
                self.story
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
fn streams_arrive_intact_through_gateways_and_both_ends_close() {
    let seeds = match number("BENTPIPE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BENTPIPE_SEEDS").unwrap_or(40),
    };
    let failed: Vec<u64> = seeds
        .filter(|&seed| std::panic::catch_unwind(|| World::new(seed).run()).is_err())
        .collect();
    assert!(failed.is_empty(), "replay with BENTPIPE_SEED: {failed:?}");
}
