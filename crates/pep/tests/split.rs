//! Streams through a split: two endpoints, one on either side, and links that lose.

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Output, Seq};
use bentpipe_gateway_config::{Handshake, Intercept};
use bentpipe_pep::split::{Config, Split};
use bentpipe_pep::{BuildPacket, Pep, Side};
use bentpipe_tcp::{self as tcp, Cause, Connection, Event, State};
use bentpipe_wire::{Flags, Packet, Payload, Segment, TcpOptions, Timestamps, Transport};
use core::convert::Infallible;
use core::time::Duration;
use proptest::prelude::*;
use std::net::SocketAddr;
use std::sync::Arc;
use support::leaving;

/// One end: what it has still to write, and what it has read.
struct End {
    connection: Connection,
    unsent: Vec<u8>,
    /// Closes when all is written; otherwise when the other end has closed.
    closes_first: bool,
    read: Vec<u8>,
    broken: Option<Cause>,
    ended: bool,
}

impl End {
    fn new(connection: Connection, bytes: usize, salt: u8, closes_first: bool) -> Self {
        let unsent = (0..bytes).map(|i| (i % 251) as u8 ^ salt).collect();
        Self {
            connection,
            unsent,
            closes_first,
            read: Vec::new(),
            broken: None,
            ended: false,
        }
    }

    fn act(&mut self, now: Instant) {
        while let Some(event) = self.connection.event() {
            match event {
                Event::Aborted(cause) => self.broken = Some(cause),
                Event::PeerClosed => self.ended = true,
                _ => {}
            }
        }
        let mut piece = [0; 3000];
        loop {
            let read = self.connection.read(&mut piece);
            if read == 0 {
                break;
            }
            self.read.extend_from_slice(&piece[..read]);
        }
        let taken = self.connection.write(&self.unsent);
        self.unsent.drain(..taken);
        let stands = matches!(
            self.connection.state(),
            State::Established | State::CloseWait
        );
        if stands && self.unsent.is_empty() && (self.closes_first || self.ended) {
            self.connection.close(now);
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.connection.state(), State::Closed | State::TimeWait)
    }
}

impl Machine for End {
    type Packet = Segment;
    type Port = ();
    type Event = Infallible;

    fn input(&mut self, (): (), segment: Segment, now: Instant) {
        self.connection.input(segment, now);
    }

    fn timeout(&mut self, now: Instant) {
        self.connection.timeout(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Segment)> {
        self.act(now);
        let segment = self.connection.transmit(now)?;
        Some(((), segment))
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        self.connection.deadline()
    }
}

/// Ground end, split, space end; 10 ms and 250 ms away.
struct Net {
    split: Split<Packet>,
    ends: [End; 2],
    /// When, to whom (0 and 1: the ends; 2: the split), from which side, what.
    flying: Vec<(Instant, u8, Side, Packet)>,
    now: Instant,
    losses: Vec<bool>,
    sent: usize,
    most: u64,
}

const SIDES: [Side; 2] = [Side::Ground, Side::Space];
const DELAYS: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(250)];

fn address(side: usize) -> SocketAddr {
    let port = if side == 0 { 40_000 } else { 80 };
    SocketAddr::from(([10, 0, 0, side as u8 + 1], port))
}

impl Net {
    fn fly(&mut self, side: usize, to: u8, packet: Packet) {
        self.sent += 1;
        let lost = !self.losses.is_empty() && self.losses[self.sent % self.losses.len()];
        // A pattern that fits the flow's own rhythm must not last for ever.
        if !(lost && self.sent < 3000) {
            self.flying
                .push((self.now + DELAYS[side], to, SIDES[side], packet));
        }
    }

    fn drain(&mut self) {
        for side in 0..2 {
            let mut sent = Vec::new();
            self.ends[side].drain(self.now, |output| match output {
                Output::Packet((), segment) => sent.push(segment),
                Output::Event(never) => match never {},
            });
            for segment in sent {
                let packet = Packet::build(address(side), address(1 - side), segment, Bytes(0));
                self.fly(side, 2, packet.expect("both are of one family"));
            }
        }
        for (side, packet) in leaving(&mut self.split, self.now) {
            let side = usize::from(side == Side::Space);
            self.fly(side, side as u8, packet);
        }
        self.most = self.most.max(self.split.buffered().0);
    }

    /// Runs until both ends are over or `limit` has come.
    fn run(&mut self, limit: Duration) {
        self.drain();
        while !self.ends.iter().all(End::is_over) {
            let packets = self.flying.iter().map(|one| one.0);
            let ends = self.ends.iter().filter_map(Machine::deadline);
            let Some(next) = packets.chain(ends).chain(self.split.deadline()).min() else {
                return;
            };
            if next.since(Instant::ZERO) > limit {
                return;
            }
            self.now = self.now.max(next);
            // In the order of sending, as a link delivers.
            while let Some(at) = self.flying.iter().position(|one| one.0 <= self.now) {
                let (_, to, side, packet) = self.flying.remove(at);
                match to {
                    2 => self.split.input(side, packet, self.now),
                    end => {
                        let segment = packet.segment().expect("it is TCP");
                        let end = &mut self.ends[usize::from(end)];
                        end.input((), segment, self.now);
                    }
                }
            }
            for end in &mut self.ends {
                if end.deadline().is_some_and(|due| due <= self.now) {
                    end.timeout(self.now);
                }
            }
            if self.split.deadline().is_some_and(|due| due <= self.now) {
                self.split.timeout(self.now);
            }
            self.drain();
        }
    }
}

fn net(opener: usize, config: Config, amounts: [usize; 2], first: [bool; 2]) -> Net {
    let ends = [0, 1].map(|side| {
        // Ends that differ in what they offer.
        let tcp = tcp::Config {
            mss: [1460, 900][side],
            receive_buffer: Bytes([300_000, 40_000][side]),
            sack_blocks: [4, 3][side],
            ..tcp::Config::rfc()
        };
        let iss = Seq([u32::MAX - 5000, 7][side]);
        let open = if side == opener {
            Connection::connect
        } else {
            Connection::listen
        };
        let connection = open(Arc::new(tcp), iss, Instant::ZERO);
        End::new(connection, amounts[side], side as u8, first[side])
    });
    Net {
        split: Split::new(config),
        ends,
        flying: Vec::new(),
        now: Instant::ZERO,
        losses: Vec::new(),
        sent: 0,
        most: 0,
    }
}

fn handshake(early: bool) -> Handshake {
    if early {
        Handshake::Early
    } else {
        Handshake::EndToEnd
    }
}

fn stock() -> Config {
    Config::new(tcp::Config::rfc(), tcp::Config::rfc())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Both streams arrive whole in either set-up, whoever opens, closes first, and however much is
    /// lost, and the bound on what is held holds.
    #[test]
    fn streams_arrive_whole(
        opener in 0..2usize,
        early: bool,
        bound in prop::option::of(3_000u64..40_000),
        amounts in prop::array::uniform2(0..60_000usize),
        first in prop_oneof![Just([true, true]), Just([true, false]), Just([false, true])],
        // Longer than a connection goes on trying: a short pattern that repeats itself may hit all its tries.
        losses in prop_oneof![
            1 => Just(Vec::new()),
            9 => prop::collection::vec(prop::bool::weighted(0.08), 997..1009),
        ],
    ) {
        let leg = tcp::Config {
            send_buffer: Bytes(bound.unwrap_or(u64::MAX)),
            receive_buffer: Bytes(bound.unwrap_or(4 << 20)),
            ..tcp::Config::rfc()
        };
        let config = Config {
            handshake: handshake(early),
            ..Config::new(leg.clone(), leg)
        };
        let mut net = net(opener, config, amounts, first);
        net.losses = losses;
        net.run(Duration::from_secs(3600));
        for (side, &amount) in amounts.iter().enumerate() {
            let want: Vec<u8> = (0..amount).map(|i| (i % 251) as u8 ^ side as u8).collect();
            prop_assert_eq!(net.ends[side].broken, None, "side {}", side);
            prop_assert!(net.ends[1 - side].read == want, "side {}: {} of {}",
                side, net.ends[1 - side].read.len(), want.len());
        }
        if let Some(bound) = bound {
            // A send and a receive buffer each way.
            prop_assert!(net.most <= 4 * bound, "{} of {bound}", net.most);
        }
        if net.losses.iter().all(|lost| !lost) {
            prop_assert_eq!(net.split.tally().split, 1);
        }
    }

    /// Whatever comes, nothing panics, and all that is not TCP passes.
    #[test]
    fn arbitrary_packets_do_no_harm(
        early: bool,
        packets in prop::collection::vec(
            (any::<bool>(), any::<bool>(), 0..0x1ffu16, 0..40u32, 0..40u32, any::<u16>(),
             prop::collection::vec(any::<u8>(), 0..30), 0..400u64),
            0..80,
        ),
    ) {
        let without_handshake = Some(Arc::new(tcp::Config::ns2())).filter(|_| !early);
        let mut split = Split::<Packet>::new(Config {
            handshake: handshake(early), without_handshake, flows: 1, idle: Some(Duration::from_secs(7200)), ..stock()
        });
        let mut now = Instant::ZERO;
        for (ground, other, flags, seq, ack, window, payload, wait) in packets {
            let (from, to) = if ground { (0, 1) } else { (1, 0) };
            let mut bytes = Packet::build(address(from), address(to), Segment {
                seq: Seq(seq), ack: Seq(ack), window,
                payload: Payload::from(payload.as_slice()),
                ..Segment::default()
            }, Bytes(0)).expect("one family").to_vec().expect("it is short");
            bytes[32] |= (flags >> 8) as u8;
            bytes[33] = flags as u8;
            let mut packet = Packet::parse(&bytes, bentpipe_wire::Checksums::Ignore).expect("it is whole");
            if other {
                packet.transport = Transport::Other { protocol: 47 };
            }
            split.input(SIDES[from], packet.clone(), now);
            let mut sent = leaving(&mut split, now);
            if other {
                prop_assert_eq!(sent.pop(), Some((SIDES[to], packet)));
            }
            now += Duration::from_millis(wait);
            if split.deadline().is_some_and(|due| due <= now) {
                split.timeout(now);
            }
            prop_assert!(split.flows() <= 1);
        }
        while let Some(due) = split.deadline() {
            now = now.max(due);
            split.timeout(now);
            leaving(&mut split, now);
        }
        prop_assert_eq!((split.flows(), split.buffered()), (0, Bytes(0)));
    }
}

#[test]
fn a_reset_on_one_side_resets_the_other() {
    for resetter in 0..2 {
        let mut net = net(0, stock(), [50_000, 50_000], [false, false]);
        net.run(Duration::from_secs(5));
        assert_eq!(net.split.tally().split, 1);
        net.ends[resetter].connection.abort(net.now);
        net.run(Duration::from_secs(100));
        assert_eq!(net.ends[1 - resetter].broken, Some(Cause::Reset));
        assert_eq!((net.split.flows(), net.split.buffered()), (0, Bytes(0)));
    }
}

/// The sender is done in its own round trips; the other end is 260 ms away.
#[test]
fn the_sender_is_done_before_the_receiver_has_begun() {
    let mut net = net(0, stock(), [20_000, 0], [true, false]);
    // SYN and SYN-ACK take 520 ms, two flights to the proxy 40 ms.
    net.run(Duration::from_millis(565));
    assert_eq!(net.ends[0].connection.unacknowledged(), 0);
    assert!(net.ends[1].read.is_empty());
    assert_eq!(net.split.buffered(), Bytes(20_000));
    assert_eq!(net.split.tally().to_space, 20_000);
}

#[test]
fn a_silent_connection_is_given_up_on_both_sides() {
    let config = Config {
        idle: Some(Duration::from_secs(30)),
        ..stock()
    };
    let mut net = net(0, config, [1000, 1000], [false, false]);
    net.run(Duration::from_secs(100));
    let broken = [0, 1].map(|side| net.ends[side].broken);
    assert_eq!(broken, [Some(Cause::Reset); 2]);
    assert_eq!(net.split.tally().expired, 1);
}

/// By the side from which the connection is opened.
#[test]
fn only_connections_of_the_configured_side_are_split() {
    for (intercept, split) in [
        (Intercept::Lan, [1, 0]),
        (Intercept::Sat, [0, 1]),
        (Intercept::Both, [1, 1]),
    ] {
        for (opener, split) in split.into_iter().enumerate() {
            let config = Config {
                intercept,
                ..stock()
            };
            let mut net = net(opener, config, [5_000, 5_000], [true, true]);
            net.run(Duration::from_secs(60));
            assert_eq!(net.ends.each_ref().map(|end| end.read.len()), [5_000; 2]);
            assert_eq!(net.split.tally().split, split, "{intercept:?} {opener}");
        }
    }
}

/// An end whose clock for timestamps ticks once a second (RFC 7323 allows it), or stands still, is heard.
#[test]
fn a_clock_that_ticks_slowly_is_no_old_segment() {
    for opener in 0..2 {
        let mut split = Split::new(stock());
        let (mut acknowledged, mut now) = ([Seq(0); 2], Instant::ZERO);
        let mut say =
            |side: usize, flags: Flags, [seq, ack, value]: [u32; 3], payload: &'static [u8]| {
                let options = TcpOptions {
                    mss: flags.contains(Flags::SYN).then_some(1_460),
                    ..TcpOptions::default()
                };
                let segment = Segment {
                    seq: Seq(seq),
                    ack: Seq(ack),
                    flags,
                    window: 60_000,
                    timestamps: Some(Timestamps { value, echo: 1 }),
                    options: options.boxed(),
                    payload: Payload::from(payload),
                };
                let packet = Packet::build(address(side), address(1 - side), segment, Bytes(0));
                now += Duration::from_millis(300);
                split.input(SIDES[side], packet.unwrap(), now);
                while let Some((to, packet)) = split.transmit(now) {
                    let Transport::Tcp(tcp) = &packet.transport else {
                        continue;
                    };
                    if to == SIDES[side] {
                        acknowledged[side] = tcp.ack;
                    }
                }
            };
        let answerer = 1 - opener;
        say(opener, Flags::SYN, [10, 0, 7], b"");
        say(answerer, Flags::SYN | Flags::ACK, [20, 11, 9], b"");
        say(opener, Flags::ACK, [11, 21, 7], b"");
        // What the clocks showed before.
        say(answerer, Flags::ACK | Flags::PSH, [21, 11, 9], b"one");
        say(answerer, Flags::ACK | Flags::PSH, [24, 11, 9], b"two");
        say(opener, Flags::ACK | Flags::PSH, [11, 21, 7], b"three");
        say(opener, Flags::ACK | Flags::PSH, [16, 21, 7], b"four");
        assert_eq!(acknowledged[answerer], Seq(27), "{opener}");
        assert_eq!(acknowledged[opener], Seq(20), "{opener}");
    }
}
