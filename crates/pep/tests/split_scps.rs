//! A split whose leg towards space speaks SCPS-TP, scripted packet by packet.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Rate, Seq};
use bentpipe_gateway_config::{Carrier, Leg, LossCause};
use bentpipe_pep::split::{Config, Split, tcp_config};
use bentpipe_pep::{BuildPacket, Side};
use bentpipe_tcp as tcp;
use bentpipe_wire::scps::ScpsOptions;
use bentpipe_wire::{Flags, Packet, Payload, Segment, TcpOptions, Timestamps};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;
use support::leaving;

const ACK: Flags = Flags::ACK;

/// What the clocks of both ends showed in their SYNs.
const CLOCKS: [u32; 2] = [7_000, 900];

fn leg() -> Leg {
    Leg {
        carrier: Carrier::Scps,
        ..Leg::satellite(Some(Rate::from_bits_per_sec(8_000_000)))
    }
}

fn config() -> Config {
    let ground = tcp::Config {
        nagle: false,
        ..tcp::Config::linux()
    };
    Config::new(ground, tcp_config(&leg(), tcp::Config::linux()).unwrap())
}

/// Hosts in space open connections to others on the ground.
struct Script {
    split: Split<Packet>,
    now: Instant,
    /// The last byte of the addresses of those whose turn it is, in space and on the ground.
    hosts: [u8; 2],
}

impl Script {
    fn new(config: Config) -> Self {
        Self {
            split: Split::new(config),
            now: Instant::ZERO,
            hosts: [2, 1],
        }
    }

    /// Hands over `segment` between port `port` in space and the ground, and returns what leaves.
    fn say(&mut self, (from, port): (Side, u16), segment: Segment) -> Vec<(Side, Segment)> {
        let [space, ground] = self.hosts;
        let space = SocketAddr::from(([10, 0, 1, space], port));
        let ground = SocketAddr::from(([10, 0, 0, ground], 80));
        let (source, destination) = match from {
            Side::Space => (space, ground),
            Side::Ground => (ground, space),
        };
        let packet = Packet::build(source, destination, segment, Bytes(0)).unwrap();
        self.split.input(from, packet, self.now);
        let leaving = leaving(&mut self.split, self.now).into_iter();
        leaving
            .map(|(to, packet)| (to, packet.segment().unwrap()))
            .collect()
    }

    fn syn(&mut self, port: u16) {
        let mut segment = segment((Flags::SYN, 10, 0), (CLOCKS[0], 0), b"");
        segment.options = options();
        tcp::scps::add_offer(&mut segment, &tcp::Scps::default());
        self.say((Side::Space, port), segment);
    }

    /// The answer of the ground, and whether it offers SCPS-TP to space.
    fn answer(&mut self, port: u16) -> bool {
        let mut answer = segment((Flags::SYN | ACK, 20, 11), (CLOCKS[1], CLOCKS[0]), b"");
        answer.options = options();
        let sent = self.say((Side::Ground, port), answer);
        tcp::scps::offered(&sent[0].1).is_some()
    }

    fn establish(&mut self, port: u16) {
        self.syn(port);
        assert!(self.answer(port));
        // A round trip of the link.
        self.now += Duration::from_millis(600);
        let ack = segment((ACK, 11, 21), (CLOCKS[0] + 600, CLOCKS[1]), b"");
        self.say((Side::Space, port), ack);
    }
}

fn options() -> Option<Box<TcpOptions>> {
    let options = TcpOptions {
        mss: Some(1_460),
        window_scale: Some(7),
        sack_permitted: true,
        ..TcpOptions::default()
    };
    options.boxed()
}

fn segment(
    (flags, seq, ack): (Flags, u32, u32),
    (value, echo): (u32, u32),
    payload: &'static [u8],
) -> Segment {
    Segment {
        seq: Seq(seq),
        ack: Seq(ack),
        flags,
        window: 60_000,
        timestamps: Some(Timestamps { value, echo }),
        payload: Payload::from(payload),
        ..Segment::default()
    }
}

/// The kernel's socket drops, before it has heard the acknowledgement of its answer, a segment that echoes what it has not sent.
#[test]
fn the_first_segment_echoes_what_the_answer_said() {
    let mut script = Script::new(config());
    script.establish(4_000);
    let data = segment((ACK, 11, 21), (CLOCKS[0] + 600, CLOCKS[1]), b"question");
    let sent = script.say((Side::Space, 4_000), data);
    let (_, first) = sent.iter().find(|(to, _)| *to == Side::Ground).unwrap();
    assert_eq!(first.payload.len(), 8);
    let echo = first.timestamps.unwrap().echo;
    assert_eq!(echo, CLOCKS[1]);
}

/// A small segment towards space waits for the acknowledgement of no other (Nagle): who sent it has decided.
#[test]
fn a_byte_does_not_wait_for_the_acknowledgement_of_another() {
    let mut script = Script::new(config());
    script.establish(4_000);
    for number in 0..5 {
        let byte = segment(
            (ACK | Flags::PSH, 21 + number, 11),
            (CLOCKS[1] + 600, CLOCKS[0]),
            b"x",
        );
        let sent = script.say((Side::Ground, 4_000), byte);
        let mut bytes = sent.iter().filter(|(to, _)| *to == Side::Space);
        assert!(
            bytes.any(|(_, segment)| segment.payload.len() == 1),
            "{number}: {sent:?}"
        );
        script.now += Duration::from_millis(60);
    }
}

/// SYNs from space that nobody answers, however many, keep no connection from being carried, and are known up to a bound.
#[test]
fn a_flood_of_syns_from_space_keeps_no_connection_away() {
    let mut script = Script::new(Config {
        flows: 3,
        half_open: Some(10),
        ..config()
    });
    script.establish(4_000);
    for port in 10_000..11_000 {
        script.syn(port);
    }
    assert_eq!(script.split.flows(), 1 + 10);
    let tally = script.split.tally();
    assert_eq!((tally.over_half_open, tally.refused), (990, 0));
    // One that is answered meanwhile stays.
    script.syn(4_001);
    assert!(script.answer(4_001));
    for port in 10_000..11_000 {
        script.syn(port);
    }
    let ack = segment((ACK, 11, 21), (CLOCKS[0] + 600, CLOCKS[1]), b"");
    script.say((Side::Space, 4_001), ack);
    assert_eq!(script.split.tally().scps, 2);
    script.syn(4_003);
    script.establish(4_002);
    assert_eq!(script.split.tally().scps, 3);
    // The bound of all holds for those that are answered: the answer passes as it is.
    assert!(!script.answer(4_003));
    assert_eq!(script.split.tally().refused, 1);
}

/// SYNs that nobody answers, from one host to one or many, or from many to one, have others of their own forgotten, not one between
/// other hosts; from one host, not one of another host to the same destination either.
#[test]
fn a_flood_of_syns_has_its_own_forgotten() {
    // From whom and to whom the flood is, and between whom the connection.
    type Flood = fn(u16) -> [u8; 2];
    let floods: [(Flood, [u8; 2]); 3] = [
        (|_| [9, 1], [2, 1]),
        (|n| [9, (n % 200) as u8], [2, 1]),
        (|n| [(n % 200) as u8, 9], [250, 1]),
    ];
    for (case, (flood, connection)) in floods.into_iter().enumerate() {
        let mut script = Script::new(Config {
            half_open: Some(100),
            ..config()
        });
        script.hosts = connection;
        script.syn(4_001);
        for number in 0..5_000 {
            script.hosts = flood(number);
            script.syn(10_000 + number);
        }
        assert_eq!(script.split.flows(), 100, "{case}");
        script.hosts = connection;
        assert!(script.answer(4_001), "{case}: it is forgotten");
    }
}

/// Who is told so in an acknowledgement, and is asked to believe it, takes losses for corruption.
#[test]
fn damaged_packets_are_told_to_space_where_the_leg_says_so() {
    for (believed, tells) in [(None, false), (Some(Duration::from_secs(2)), true)] {
        let mut leg = leg();
        leg.corruption_experienced = believed;
        leg.loss_cause = Some(LossCause::Congestion);
        let space = tcp_config(&leg, tcp::Config::linux()).unwrap();
        assert_eq!(space.loss_cause, tcp::LossCause::Congestion);
        let ground = tcp::Config::clone(&config().ground);
        let mut script = Script::new(Config::new(ground, space));
        script.establish(4_000);
        let ends = ([10, 0, 0, 1].into(), [10, 0, 1, 2].into());
        script
            .split
            .note_damaged((SocketAddr::new(ends.0, 80), SocketAddr::new(ends.1, 4_000)));
        let stamps = (CLOCKS[0] + 700, CLOCKS[1]);
        // The first segment is the one that was damaged.
        let data = segment((ACK, 11 + 1_448, 21), stamps, &[7; 1_448]);
        let sent = script.say((Side::Space, 4_000), data);
        let (_, answer) = sent.iter().find(|(to, _)| *to == Side::Space).unwrap();
        let options = answer.options.as_deref().unwrap().unknown.as_deref();
        let told = ScpsOptions::parse(options.unwrap());
        assert_eq!(told.corruption_experienced, tells);
        assert!(told.snack.is_some());
    }
}

/// What comes from space is acknowledged as the leg says: after so many segments, or so long a time.
#[test]
fn acknowledgements_are_as_frequent_as_the_leg_says() {
    let mut leg = leg();
    (leg.ack_every, leg.ack_delay) = (Some(8), Some(Duration::from_millis(30)));
    let space = tcp_config(&leg, tcp::Config::linux()).unwrap();
    let config = config();
    let ground = tcp::Config::clone(&config.ground);
    let mut script = Script::new(Config::new(ground, space));
    script.establish(4_000);
    let data = |number: u32| {
        let stamps = (CLOCKS[0] + 700, CLOCKS[1]);
        segment((ACK, 11 + number * 1_448, 21), stamps, &[7; 1_448])
    };
    let to_space = |sent: Vec<(Side, Segment)>| {
        let space = sent.iter().filter(|(to, _)| *to == Side::Space);
        space.count()
    };
    let mut acknowledged = Vec::new();
    for number in 0..20 {
        let sent = script.say((Side::Space, 4_000), data(number));
        acknowledged.extend((to_space(sent) > 0).then_some(number));
    }
    assert_eq!(acknowledged, [7, 15]);
    for (after, expected) in [(29, 0), (1, 1)] {
        script.now += Duration::from_millis(after);
        script.split.timeout(script.now);
        let sent = leaving(&mut script.split, script.now).into_iter();
        let sent = sent.map(|(to, packet)| (to, packet.segment().unwrap()));
        assert_eq!(to_space(sent.collect()), expected, "{after} ms later");
    }
}

/// Packets that come together are answered together.
#[test]
fn a_batch_has_one_acknowledgement() {
    let mut script = Script::new(config());
    script.establish(4_000);
    let stamps = (CLOCKS[0] + 700, CLOCKS[1]);
    for number in 0..32 {
        let data = segment((ACK, 11 + number * 1_448, 21), stamps, &[7; 1_448]);
        let packet = Packet::build(
            ([10, 0, 1, 2], 4_000).into(),
            ([10, 0, 0, 1], 80).into(),
            data,
            Bytes(0),
        );
        script.split.input(Side::Space, packet.unwrap(), script.now);
    }
    let sent = leaving(&mut script.split, script.now);
    let acknowledgements: Vec<_> = sent.iter().filter(|(to, _)| *to == Side::Space).collect();
    let [(_, acknowledgement)] = acknowledgements.as_slice() else {
        panic!("{acknowledgements:?}");
    };
    assert_eq!(acknowledgement.segment().unwrap().ack, Seq(11 + 32 * 1_448));
}

/// A socket of this machine takes segments of any length, so that a packet to it may be as long as ten on the link.
#[test]
fn segments_to_sockets_of_this_machine_are_long() {
    for (ground_is_local, longest) in [(false, 1_448), (true, 14_480)] {
        let mut config = config();
        config.ground_is_local = ground_is_local;
        let ground = tcp::Config::clone(&config.ground);
        config.ground = Arc::new(tcp::Config {
            mss: 14_492,
            ..ground
        });
        let mut script = Script::new(config);
        script.establish(4_000);
        let mut sent = Vec::new();
        // The first of what comes is missing until all else is there.
        for place in (0..30).rev() {
            let stamps = (CLOCKS[0] + 700, CLOCKS[1]);
            let data = segment((ACK, 11 + place * 1_448, 21), stamps, &[7; 1_448]);
            sent.extend(script.say((Side::Space, 4_000), data));
        }
        let to_ground = sent.iter().filter(|(to, _)| *to == Side::Ground);
        let lengths: Vec<_> = to_ground
            .map(|(_, segment)| segment.payload.len())
            .collect();
        assert_eq!(lengths.iter().max(), Some(&longest), "{lengths:?}");
        assert_eq!(lengths[0], longest);
    }
}
