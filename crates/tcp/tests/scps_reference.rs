//! SCPS-TP between our endpoint and a peer that behaves as the reference implementation, either of them at either end, over a
//! link in virtual time: 8 Mbit/s, 300 ms each way, as the one its captures were made on.

#![allow(clippy::unwrap_used, reason = "part of tests")]

#[path = "support/reference.rs"]
mod reference;

use bentpipe_base::{Bytes, Instant, Rate, Seq};
use bentpipe_tcp::{Config, Connection, Event, State};
use bentpipe_wire::{Flags, Segment};
use reference::{Reference, Settings};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const BITS: u64 = 8_000_000;
const WAY: Duration = Duration::from_millis(300);

/// One direction: a queue before the link, and what is under way.
#[derive(Default)]
struct Way {
    free: Instant,
    flight: VecDeque<(Instant, Segment)>,
    /// Packets that came to it.
    count: u64,
    /// The longest that one waited for the link.
    longest_queue: Duration,
}

/// Both ends, and the link between them.
struct Net {
    ours: Connection,
    theirs: Reference,
    /// From us to the peer, and back.
    ways: [Way; 2],
    now: Instant,
    /// Whether packet `n` of a way is lost.
    loses: fn(usize, u64, &Segment) -> bool,
    /// The link is out from one time to another.
    out: (Instant, Instant),
    /// What we send and have not written yet.
    writes: u64,
    read: u64,
}

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds)
}

fn config() -> Arc<Config> {
    let mut config = Config::scps();
    config.settings.link.rate = Some(Rate::from_bits_per_sec(BITS));
    (config.receive_buffer, config.send_buffer) = (Bytes(2_000_000), Bytes(8_000_000));
    Arc::new(config)
}

fn nothing_is_lost(_: usize, _: u64, _: &Segment) -> bool {
    false
}

impl Net {
    /// We open, or the peer does; both send so many octets, and close.
    fn new(we_open: bool, ours: u64, theirs: u64) -> Self {
        let settings = Settings::new(BITS, theirs);
        let (tcp, peer) = if we_open {
            let tcp = Connection::connect(config(), Seq(u32::MAX - 9_000), Instant::ZERO);
            (tcp, Reference::listen(settings, Instant::ZERO))
        } else {
            let tcp = Connection::listen(config(), Seq(u32::MAX - 9_000), Instant::ZERO);
            (tcp, Reference::connect(settings, Instant::ZERO))
        };
        Self {
            ours: tcp,
            theirs: peer,
            ways: [Way::default(), Way::default()],
            now: Instant::ZERO,
            loses: nothing_is_lost,
            out: (Instant::MAX, Instant::MAX),
            writes: ours,
            read: 0,
        }
    }

    fn send(&mut self, way: usize, segment: Segment) {
        let (now, lossy) = (self.now, self.loses);
        let out = self.out.0 <= now && now < self.out.1;
        let way_out = &mut self.ways[way];
        way_out.count += 1;
        let octets = 20 + segment.header_len() + segment.payload.len();
        way_out.longest_queue = way_out.longest_queue.max(way_out.free.since(now));
        let sent = way_out.free.max(now)
            + Rate::from_bits_per_sec(BITS).serialisation(Bytes(octets as u64));
        way_out.free = sent;
        if !out && !lossy(way, way_out.count, &segment) {
            way_out.flight.push_back((sent + WAY, segment));
        }
    }

    fn drain(&mut self) {
        if self.ours.state() == State::Established {
            self.writes -= self.ours.write_virtual(self.writes);
            self.ours.close(self.now);
        }
        while let Some(segment) = self.ours.transmit(self.now) {
            self.send(0, segment);
        }
        while let Some(event) = self.ours.event() {
            assert!(
                !matches!(event, Event::Aborted(_)),
                "{event:?} at {:?}",
                self.now
            );
        }
        let waiting = self.ours.readable();
        self.read += self.ours.consume(waiting);
        while let Some(segment) = self.ours.transmit(self.now) {
            self.send(0, segment);
        }
        while let Some(segment) = self.theirs.transmit(self.now) {
            self.send(1, segment);
        }
    }

    /// To the end of all that happens until then.
    fn run(&mut self, until: Instant) {
        loop {
            self.drain();
            let arrivals = self
                .ways
                .iter()
                .filter_map(|way| Some(way.flight.front()?.0));
            let deadlines = [self.ours.deadline(), self.theirs.deadline()];
            let next = arrivals.chain(deadlines.into_iter().flatten()).min();
            let Some(next) = next.filter(|at| *at <= until) else {
                self.now = until;
                return;
            };
            self.now = self.now.max(next);
            for way in 0..2 {
                let flight = &mut self.ways[way].flight;
                while flight.front().is_some_and(|(at, _)| *at <= self.now)
                    && let Some((_, segment)) = flight.pop_front()
                {
                    match way {
                        0 => self.theirs.input(segment, self.now),
                        _ => self.ours.input(segment, self.now),
                    }
                }
            }
            self.ours.timeout(self.now);
            self.theirs.timeout(self.now);
        }
    }

    /// What a transfer of so many octets takes at least: the handshake, its packets at the link's rate, and the way there.
    fn ideal(octets: u64) -> Duration {
        let packets = octets.div_ceil(1448);
        Rate::from_bits_per_sec(BITS).serialisation(Bytes(octets + packets * 52)) + WAY * 3
    }
}

/// Every 41st packet with data, retransmissions among them, and every fiftieth acknowledgement. A round trip has 400 packets:
/// every fortieth would be all that was sent again, each time.
fn both_ways_lose(_: usize, count: u64, segment: &Segment) -> bool {
    if segment.payload.is_empty() {
        count % 50 == 49 && segment.flags == Flags::ACK
    } else {
        count % 41 == 13
    }
}

#[test]
fn what_we_send_arrives_at_the_rate_of_the_link_whoever_opens() {
    for we_open in [true, false] {
        let mut net = Net::new(we_open, 8_000_000, 0);
        net.loses = both_ways_lose;
        let limit = Net::ideal(8_000_000).mul_f64(1.025);
        net.run(Instant::ZERO + limit + WAY * 8);
        let (counters, seen) = (net.ours.counters(), net.theirs.seen);
        assert_eq!(net.theirs.received(), 8_000_000, "{counters:?} {seen:?}");
        assert!(net.ours.speaks_scps());
        assert_eq!((counters.timeouts, counters.outages), (0, 0), "{we_open}");
        let lost = counters.data_sent.div_ceil(41);
        assert!(
            counters.retransmitted <= lost + lost / 4,
            "{lost}: {counters:?}"
        );
        // The rate is the link's, headers included: no queue grows but by the first segments.
        let queue = net.ways[0].longest_queue;
        assert!(queue < Duration::from_millis(20), "{queue:?}");
    }
}

#[test]
fn what_it_sends_arrives_by_our_snacks_alone_whoever_opens() {
    for we_open in [true, false] {
        let mut net = Net::new(we_open, 0, 2_000_000);
        net.loses = both_ways_lose;
        let limit = Net::ideal(2_000_000).mul_f64(1.025);
        net.run(Instant::ZERO + limit + WAY * 8);
        let (counters, seen) = (net.ours.counters(), net.theirs.seen);
        assert_eq!(net.read, 2_000_000, "{counters:?} {seen:?}");
        assert!(seen.snacks > 20, "{seen:?}");
        // A segment that is lost twice takes it longer than its timer does.
        assert!(seen.timeouts <= 1, "{seen:?}");
        net.run(net.now + Duration::from_secs(120));
        assert!(net.theirs.is_done(), "{seen:?}");
    }
}

#[test]
fn both_halves_carry_at_once() {
    let mut net = Net::new(true, 1_000_000, 1_000_000);
    net.loses = both_ways_lose;
    net.run(at(60.0));
    assert_eq!((net.theirs.received(), net.read), (1_000_000, 1_000_000));
    // We held octets beyond gaps, and offered no SACK that it would have to look at.
    assert_eq!(net.theirs.seen.sacks, 0);
    assert!(net.theirs.is_done());
}

/// The first SYN, and the first answer to one.
fn loses_the_first_syn(_: usize, count: u64, segment: &Segment) -> bool {
    count == 1 && segment.flags.contains(Flags::SYN)
}

#[test]
fn a_syn_that_is_lost_goes_again_after_seven_seconds_there_and_after_one_here() {
    let mut net = Net::new(false, 0, 100_000);
    net.loses = loses_the_first_syn;
    net.run(at(7.2));
    assert_eq!((net.theirs.seen.syns, net.read), (2, 0));
    // Our answer to the second is the first of our packets, and lost: it goes again by itself.
    net.run(at(12.0));
    assert_eq!((net.theirs.seen.syns, net.read), (2, 100_000));

    let mut net = Net::new(true, 100_000, 0);
    net.loses = loses_the_first_syn;
    net.run(at(6.0));
    // Its first answer was lost, and the bare acknowledgement behind it means nothing to who has none; our SYN goes again.
    assert_eq!(net.theirs.received(), 100_000, "{:?}", net.ours.counters());
}

#[test]
fn after_an_idle_time_in_which_its_clock_turned_it_is_believed() {
    let again = at(36.0 * 60.0);
    let settings = Settings {
        pause: Some((1448, again)),
        ..Settings::new(BITS, 200_000)
    };
    let mut net = Net::new(true, 0, 0);
    net.theirs = Reference::listen(settings, Instant::ZERO);
    net.ours = Connection::connect(config(), Seq(99), Instant::ZERO);
    net.run(again);
    assert_eq!(net.read, 1448);
    net.run(again + Duration::from_secs(5));
    let counters = net.ours.counters();
    assert_eq!((net.read, counters.paws), (200_000, 0), "{counters:?}");
}

#[test]
fn an_outage_in_what_we_send_is_waited_for_and_next_to_nothing_goes_again() {
    // Wherever between two probes it ends. The second timeout of so young a connection comes 5.2 s after it began.
    let cases = (0..10).map(|tenth| 6.0 + f64::from(tenth) / 10.0);
    for seconds in cases.chain([30.0, 120.0]) {
        let mut net = Net::new(true, 4_000_000, 0);
        net.out = (at(2.0), at(2.0 + seconds));
        net.run(at(2.0 + seconds));
        let during = *net.ours.counters();
        assert_eq!(during.outages, 1, "{during:?}");
        assert!(during.retransmitted <= 2, "{during:?}");
        // A probe finds that it is over, its answer starts the transfer again within two round trips, and what is sent then
        // arrives half of one later.
        let before = net.theirs.received();
        net.run(at(2.0 + seconds + 1.51));
        assert!(net.theirs.received() > before, "{seconds}: {during:?}");
        net.run(at(2.0 + seconds + 9.0));
        assert_eq!(
            net.theirs.received(),
            4_000_000,
            "{:?}",
            net.ours.counters()
        );
    }
}

#[test]
fn its_probes_of_one_octet_are_answered_when_an_outage_ends() {
    let mut net = Net::new(true, 0, 4_000_000);
    net.out = (at(2.0), at(14.0));
    net.run(at(14.0));
    let seen = net.theirs.seen;
    assert!(seen.probes >= 1 && seen.timeouts == 2, "{seen:?}");
    net.run(at(50.0));
    assert_eq!(net.read, 4_000_000, "{:?}", net.theirs.seen);
    assert!(net.theirs.is_done());
}

#[test]
fn an_end_of_ours_without_scps_gets_tcp_from_it_and_gives_it_tcp() {
    for we_open in [true, false] {
        let mut net = Net::new(we_open, 300_000, 0);
        let mut plain = Config::linux();
        plain.receive_buffer = Bytes(2_000_000);
        let plain = Arc::new(plain);
        net.ours = if we_open {
            Connection::connect(plain, Seq(5), Instant::ZERO)
        } else {
            Connection::listen(plain, Seq(5), Instant::ZERO)
        };
        net.run(at(30.0));
        assert_eq!(net.theirs.received(), 300_000, "{:?}", net.ours.counters());
        assert_eq!(net.theirs.seen.snacks, 0);
    }
}
