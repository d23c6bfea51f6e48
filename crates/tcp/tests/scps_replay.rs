//! Our endpoint against what the reference implementation of SCPS-TP was seen to send: one side of a recorded connection is
//! played to it, packet by packet at the recorded times, whatever our end says.
//!
//! What is in `scps/` is played by every run, and the captures where they are at hand:
//! `BENTPIPE_SCPS_CAPTURES=DIRECTORY cargo test -p bentpipe-tcp --test scps_replay -- --ignored`

#![allow(clippy::unwrap_used, reason = "part of tests")]

#[path = "support/recording.rs"]
mod recording;

use bentpipe_base::{Instant, Rate, Seq};
use bentpipe_tcp::{Config, Connection, Event, State};
use bentpipe_wire::scps::{CapabilityVector, ScpsOptions, Snack};
use bentpipe_wire::{Flags, Segment};
use recording::{Origin, Recorded};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Close to the wrap, so that every replay crosses it.
const OURS: Seq = Seq(u32::MAX - 700);
const THEIRS: Seq = Seq(u32::MAX - 10_000);
/// The peer's clock turns its sign within a second, and ours was set when the machine began.
const CLOCK: u32 = (1 << 31) - 400_000;
const START: Instant = Instant::from_nanos(5_000_000_000);
/// The MSS of every SYN in the captures, less the timestamps: the unit of all SNACKs there.
const UNIT: u64 = 1448;

/// What the opener and the answerer of a set-up with 60 kB of data and no loss sent, both as seen at the sender.
const OPENER: &str = include_str!("scps/setup-opener.txt");
const ANSWERER: &str = include_str!("scps/setup-answerer.txt");
/// 600 kB of which 14 segments were lost: what of it reached the receiver, and what the sender heard.
const DATA: &str = include_str!("scps/data-with-losses.txt");
const ACKS: &str = include_str!("scps/acks-with-snacks.txt");

/// What came out of our end.
#[derive(Clone, Debug)]
struct Out {
    /// Microseconds since the first packet of the recording.
    at: u64,
    /// The first octet of our stream in it, from 0.
    from: u64,
    segment: Segment,
}

impl Out {
    fn to(&self) -> u64 {
        self.from + self.segment.payload.len() as u64
    }

    fn scps(&self) -> ScpsOptions {
        let options = self.segment.options.as_deref();
        let unknown = options.and_then(|options| options.unknown.as_deref());
        unknown.map_or_else(ScpsOptions::default, ScpsOptions::parse)
    }
}

/// Our end, to which the peer is played.
struct Replay {
    tcp: Connection,
    now: Instant,
    origin: Origin,
    out: Vec<Out>,
    /// The highest octet that left, for positions beyond 2^32.
    top: u64,
    aborted: bool,
    /// It closes its half once the connection stands.
    closes: bool,
}

/// 8 Mbit/s, as the link of the captures.
fn config() -> Config {
    let mut config = Config::scps();
    config.settings.link.rate = Some(Rate::from_bits_per_sec(8_000_000));
    config
}

impl Replay {
    fn new(config: Config, opens: bool) -> Self {
        let config = Arc::new(config);
        let tcp = if opens {
            Connection::connect(config, OURS, START)
        } else {
            Connection::listen(config, OURS, START)
        };
        let mut replay = Self {
            tcp,
            now: START,
            origin: Origin {
                seq: [THEIRS, OURS],
                clock: [CLOCK, 0],
            },
            out: Vec::new(),
            top: 0,
            aborted: false,
            closes: false,
        };
        replay.drain();
        if let Some(stamp) = replay.out.first().and_then(|syn| syn.segment.timestamps) {
            replay.origin.clock[1] = stamp.value;
        }
        replay
    }

    fn drain(&mut self) {
        if self.closes && self.tcp.state() == State::Established {
            self.tcp.close(self.now);
        }
        while let Some(event) = self.tcp.event() {
            self.aborted |= matches!(event, Event::Aborted(_));
            let waiting = self.tcp.readable();
            self.tcp.consume(waiting);
        }
        while let Some(segment) = self.tcp.transmit(self.now) {
            let near = (segment.seq - (OURS.0.wrapping_add(1))).0;
            let from = self
                .top
                .wrapping_add_signed(near.wrapping_sub(self.top as u32).cast_signed().into());
            let out = Out {
                at: self.now.since(START).as_micros() as u64,
                from,
                segment,
            };
            self.top = self.top.max(out.to());
            self.out.push(out);
        }
    }

    /// Timers expire, up to `end`.
    fn wait(&mut self, end: Instant) {
        while let Some(at) = self.tcp.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.tcp.timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    /// What comes out upon the arrival of `one`, `later` than it was recorded.
    fn arrives(&mut self, one: &Recorded, later: Duration) -> Vec<Out> {
        self.wait(START + Duration::from_micros(one.at) + later);
        let before = self.out.len();
        self.tcp.input(one.segment(&self.origin), self.now);
        self.drain();
        if before == 0
            && let Some(stamp) = self.out[0].segment.timestamps
        {
            self.origin.clock[1] = stamp.value;
        }
        self.out[before..].to_vec()
    }

    /// How often each octet left at most, of those sent between two times.
    fn most_transmissions(&self, from: u64, to: u64) -> usize {
        let data = self
            .out
            .iter()
            .filter(|out| out.to() > out.from && (from..to).contains(&out.at));
        let mut counts = std::collections::BTreeMap::new();
        for out in data {
            *counts.entry(out.from).or_insert(0) += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }
}

/// The peer answers our SYN and acknowledges what it got from the reference implementation; returns our end behind it.
fn we_send(config: Config, bytes: u64, peer: &[Recorded], later: Duration) -> Replay {
    let mut replay = Replay::new(config, true);
    replay.tcp.write_virtual(bytes);
    replay.closes = true;
    for one in peer {
        replay.arrives(one, later);
    }
    replay
}

/// Each hole that a peer names goes again at once, under the rate, and once.
fn what_is_named_goes_again(replay: &Replay, peer: &[Recorded]) {
    let mut named = 0;
    for one in peer {
        let Some((from, to)) = one.missed(UNIT) else {
            continue;
        };
        named += 1;
        // At 8 Mbit/s the six segments of the longest hole take 9 ms.
        let mut again = bentpipe_base::Ranges::default();
        for out in &replay.out {
            // One that was sent before, upon an earlier SNACK for the same hole, is on its way for 5/4 of a round trip.
            if out.at + 760_000 >= one.at && out.at <= one.at + 20_000 {
                again.insert(out.from, out.to());
            }
        }
        assert_eq!(
            again.uncovered(from, to),
            None,
            "{from} to {to} at {}",
            one.at
        );
    }
    assert_eq!(named, replay.tcp.counters().snacks);
}

/// Both forms of SNACK: the program that was recorded bears any offer, and answers with its own.
const OFFER: CapabilityVector = CapabilityVector::from_bits(0x60);

#[test]
fn a_window_of_zero_in_the_recorded_answer_holds_back_data_until_the_bare_acknowledgement() {
    let peer = recording::read(ANSWERER);
    assert_eq!((peer[0].window, peer[1].window), (0, 65_535));
    let mut replay = Replay::new(config(), true);
    let syn = replay.out[0].scps().capabilities.unwrap();
    assert_eq!(syn.vector, OFFER);
    replay.tcp.write_virtual(60_000);
    replay.closes = true;
    let answer = replay.arrives(&peer[0], Duration::ZERO);
    assert!(
        answer.iter().all(|out| out.segment.payload.is_empty()),
        "{answer:?}"
    );
    assert!(replay.tcp.speaks_scps());
    let opened = replay.arrives(&peer[1], Duration::ZERO);
    assert_eq!((opened[0].from, opened[0].segment.payload.len()), (0, 1448));
    for one in &peer[2..] {
        replay.arrives(one, Duration::ZERO);
    }
    let counters = replay.tcp.counters();
    assert_eq!(
        (
            counters.bytes_acked,
            counters.retransmitted,
            counters.timeouts
        ),
        (60_000, 0, 0)
    );
    assert_eq!(counters.window_probes, 0);
    assert_eq!(replay.tcp.state(), State::TimeWait);
}

#[test]
fn a_recorded_opener_is_answered_with_what_it_offers_and_its_window_at_once() {
    let peer = recording::read(OPENER);
    let mut replay = Replay::new(config(), false);
    let answer = replay.arrives(&peer[0], Duration::ZERO);
    let [syn, window] = &answer[..] else {
        panic!("{answer:?}");
    };
    assert_eq!(syn.segment.flags, Flags::SYN | Flags::ACK);
    assert_eq!(syn.scps().capabilities.unwrap().vector, OFFER);
    assert!(!window.segment.flags.contains(Flags::SYN) && window.segment.payload.is_empty());
    for one in &peer[1..peer.len() - 1] {
        replay.arrives(one, Duration::ZERO);
    }
    assert_eq!(replay.tcp.state(), State::CloseWait);
    replay.tcp.close(replay.now);
    replay.drain();
    replay.arrives(&peer[peer.len() - 1], Duration::ZERO);
    let counters = replay.tcp.counters();
    assert_eq!(
        (
            counters.bytes_delivered,
            counters.paws,
            counters.snacks_sent
        ),
        (60_000, 0, 0)
    );
    assert_eq!(replay.tcp.state(), State::Closed);
}

#[test]
fn what_recorded_snacks_name_goes_again_at_once_and_once() {
    let peer = recording::read(ACKS);
    // There is more to send than the recorded peer took.
    let replay = we_send(config(), 5_000_000, &peer, Duration::ZERO);
    what_is_named_goes_again(&replay, &peer);
    let counters = replay.tcp.counters();
    assert_eq!(
        (counters.retransmitted, counters.timeouts),
        (14, 0),
        "{counters:?}"
    );
}

#[test]
fn what_recorded_snacks_name_of_a_transfers_end_goes_three_times_at_most() {
    let peer = recording::read(ACKS);
    let replay = we_send(config(), 600_000, &peer, Duration::ZERO);
    what_is_named_goes_again(&replay, &peer);
    let counters = replay.tcp.counters();
    assert_eq!((counters.bytes_acked, counters.timeouts), (600_000, 0));
    assert!(counters.retransmitted <= 3 * 14, "{counters:?}");
    assert_eq!(replay.tcp.state(), State::TimeWait);
}

#[test]
fn holes_in_recorded_data_are_named_as_the_reference_implementation_names_them() {
    let peer = recording::read(DATA);
    let mut replay = Replay::new(config(), false);
    let (mut named, mut top) = (Vec::new(), 0);
    for one in &peer {
        let out = replay.arrives(one, Duration::ZERO);
        let snacks = out.iter().filter_map(|out| out.scps().snack);
        let snacks: Vec<Snack> = snacks.collect();
        let from = u64::from(one.seq.saturating_sub(1));
        // The segment that shows a hole is answered by an acknowledgement that names one.
        assert!(
            from <= top || one.len == 0 || !snacks.is_empty(),
            "at {}",
            one.at
        );
        top = top.max(from + u64::from(one.len));
        named.extend(snacks);
    }
    // The first six are those before anything arrived again; their repetitions are our own.
    let mut first: Vec<Snack> = Vec::new();
    for snack in named {
        if !first.contains(&snack) {
            first.push(snack);
        }
    }
    let holes = [(0, 1), (2, 1), (5, 3), (40, 1), (80, 2), (130, 6)];
    let holes = holes.map(|(offset, size)| Snack::short(offset, size));
    assert_eq!(first[..6], holes);
    let counters = replay.tcp.counters();
    assert_eq!((counters.bytes_delivered, counters.paws), (600_000, 0));
    assert_eq!(replay.tcp.state(), State::CloseWait);
}

/// We do not offer it, so the peer has to leave it too.
#[test]
fn compression_that_the_recorded_syn_offers_is_not_agreed_on() {
    let mut peer = recording::read(OPENER);
    // As captured with compression: `14 04 50 dc`, the connection's identity last.
    let options = "0 02 0 0 65535 0 0 0 140450dc020405b4030305";
    peer[0] = recording::read(options).remove(0);
    assert!(
        peer[0]
            .capabilities()
            .unwrap()
            .contains(CapabilityVector::COMPRESSION)
    );
    let mut replay = Replay::new(config(), false);
    let answer = replay.arrives(&peer[0], Duration::ZERO);
    let answer = answer[0].scps().capabilities.unwrap();
    assert_eq!((answer.vector, answer.connection), (OFFER, 0));
    for one in &peer[1..peer.len() - 1] {
        replay.arrives(one, Duration::ZERO);
    }
    assert_eq!(replay.tcp.counters().bytes_delivered, 60_000);
}

const CLIENT: [u8; 4] = [10, 99, 99, 2];
const SERVER: [u8; 4] = [10, 99, 99, 254];

#[allow(clippy::disallowed_methods, reason = "captures are files")]
fn captured(name: &str, side: [u8; 4]) -> Vec<Recorded> {
    let folder = std::env::var_os("BENTPIPE_SCPS_CAPTURES");
    let folder = folder.expect("BENTPIPE_SCPS_CAPTURES names the folder of the captures");
    let file = std::path::Path::new(&folder).join(name);
    recording::of_capture(&std::fs::read(file).unwrap(), IpAddr::from(side))
}

#[test]
#[ignore = "needs the captures of the reference implementation"]
fn what_is_played_is_what_was_captured() {
    for (text, file, side) in [
        (OPENER, "1-setup-lossfree.pcap", CLIENT),
        (ANSWERER, "1-setup-lossfree.pcap", SERVER),
        (DATA, "2-snack-receiver-side.pcap", CLIENT),
        (ACKS, "3-snack-sender-side.pcap", SERVER),
    ] {
        let lines = captured(file, side).into_iter();
        let lines: Vec<String> = lines.map(|one| one.to_string()).collect();
        let committed: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines, committed, "{file}");
    }
}

/// 4 MB, and a link that is out for 12 s in their midst.
#[test]
#[ignore = "needs the captures of the reference implementation"]
fn a_captured_outage_is_waited_for() {
    let peer = captured("6-outage-persist.pcap", SERVER);
    let replay = we_send(config(), 4_000_000, &peer, Duration::ZERO);
    let gap = peer
        .windows(2)
        .find(|two| two[1].at - two[0].at > 10_000_000)
        .unwrap();
    let (out, back) = (gap[0].at, gap[1].at);
    assert!(replay.most_transmissions(out + 100_000, back) <= 2);
    let counters = replay.tcp.counters();
    assert_eq!(counters.outages, 1, "{counters:?}");
    // The first segment that is heard sets it going again.
    assert!(
        replay
            .out
            .iter()
            .any(|out| out.to() > out.from && (back..back + 20_000).contains(&out.at))
    );
    assert!(!replay.aborted);
    // What the peer had acknowledged when the recording ended.
    assert_eq!(
        counters.bytes_acked,
        u64::from(peer[peer.len() - 1].ack.min(4_000_001) - 1)
    );

    let peer = captured("6-outage-persist.pcap", CLIENT);
    let mut replay = Replay::new(config(), false);
    for one in &peer {
        let answers = replay.arrives(one, Duration::ZERO);
        // Probes of one octet are answered at once.
        assert!(one.len != 1 || answers.len() == 1, "{answers:?}");
    }
    assert_eq!(replay.tcp.counters().bytes_delivered, 4_000_000);
}

/// The peer is a plain Linux host, which acknowledges what the reference implementation sent it without SACK; it was recorded
/// there, 300 ms away.
#[test]
#[ignore = "needs the captures of the reference implementation"]
fn a_captured_peer_without_scps_gets_tcp() {
    let peer = captured("5-fallback-plain-tcp-with-loss.pcap", SERVER);
    assert_eq!(peer[0].capabilities(), None);
    let replay = we_send(config(), 600_000, &peer, Duration::from_millis(300));
    assert!(!replay.tcp.speaks_scps() && !replay.aborted);
    assert_eq!(replay.tcp.counters().bytes_acked, 600_000);

    // A plain host of ours takes the same connection of the reference implementation, and says nothing of SCPS-TP.
    let peer = captured("5-fallback-plain-tcp-with-loss.pcap", CLIENT);
    let mut replay = Replay::new(Config::rfc(), false);
    for one in &peer {
        replay.arrives(one, Duration::ZERO);
    }
    let said = replay
        .out
        .iter()
        .all(|out| out.scps() == ScpsOptions::default());
    assert!(said && replay.tcp.counters().bytes_delivered == 600_000);
}

/// Behind the SYN and its answer the captured connection has compressed headers, which no connection of ours hears of.
#[test]
#[ignore = "needs the captures of the reference implementation"]
fn a_captured_offer_of_compression_is_declined() {
    let opener = captured("4-compressed-with-loss.pcap", CLIENT);
    let mut replay = Replay::new(config(), false);
    let answer = replay.arrives(&opener[0], Duration::ZERO);
    let answer = answer[0].scps().capabilities.unwrap();
    assert_eq!((answer.vector, answer.connection), (OFFER, 0));

    let answerer = captured("4-compressed-with-loss.pcap", SERVER);
    let replay = we_send(config(), 500_000, &answerer[..1], Duration::ZERO);
    assert!(replay.tcp.speaks_scps());
    let plain = replay.out[0].scps().capabilities.unwrap();
    assert!(!plain.vector.contains(CapabilityVector::COMPRESSION));
}
