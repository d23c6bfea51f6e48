//! Flows of IPv4 and IPv6, and of several legs, that share one split.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Rate, Seq};
use bentpipe_gateway_config::{Action, Handshake};
use bentpipe_pep::ack_filter;
use bentpipe_pep::split::{Config, Decision, Split};
use bentpipe_pep::{BuildPacket, Packet as _, Side};
use bentpipe_tcp::{self as tcp, Connection, State};
use bentpipe_wire::{Flags, Packet};
use core::mem;
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;
use support::leaving;

/// A client on the ground and a server in space, both on links without delay.
struct Flow {
    ends: [(SocketAddr, Connection); 2],
    /// What either end writes once its connection stands.
    unwritten: [usize; 2],
    /// Packets towards either end.
    seen: [Vec<Packet>; 2],
}

fn endpoint(header: u16) -> Arc<tcp::Config> {
    let mss = 1500 - 20 - header;
    Arc::new(tcp::Config {
        mss,
        ip_header: header,
        ..tcp::Config::rfc()
    })
}

impl Flow {
    fn new(addresses: [&str; 2], header: u16) -> Self {
        let now = Instant::ZERO;
        let client = Connection::connect(endpoint(header), Seq(1), now);
        let server = Connection::listen(endpoint(header), Seq(2), now);
        let [source, destination] = addresses.map(|address| address.parse().unwrap());
        Self {
            ends: [(source, client), (destination, server)],
            unwritten: [0, 0],
            seen: [Vec::new(), Vec::new()],
        }
    }

    /// What its ends send now, with the side that it comes from.
    fn sent(&mut self, now: Instant) -> Vec<(Side, Packet)> {
        let addresses = [self.ends[0].0, self.ends[1].0];
        let mut sent = Vec::new();
        for (index, (address, connection)) in self.ends.iter_mut().enumerate() {
            while connection.event().is_some() {}
            if connection.state() == State::Established {
                connection.write(&vec![1; mem::take(&mut self.unwritten[index])]);
            }
            let (from, to) = (*address, addresses[1 - index]);
            let side = [Side::Ground, Side::Space][index];
            while let Some(segment) = connection.transmit(now) {
                sent.push((side, Packet::build(from, to, segment, Bytes(0)).unwrap()));
            }
        }
        sent
    }

    /// Takes `packet` if it is for one of its ends.
    fn take(&mut self, packet: &Packet, now: Instant) {
        let to = packet.view().unwrap().destination;
        for ((address, connection), seen) in self.ends.iter_mut().zip(&mut self.seen) {
            if *address == to {
                seen.push(packet.clone());
                connection.input(packet.segment().unwrap(), now);
            }
        }
    }
}

/// Hands the flows what the split sends; whether that is anything.
fn pass_on(split: &mut Split<Packet>, flows: &mut [Flow], now: Instant) -> bool {
    let packets: Vec<_> = leaving(split, now);
    for (_, packet) in &packets {
        flows.iter_mut().for_each(|flow| flow.take(packet, now));
    }
    !packets.is_empty()
}

/// Lets `flows` go on through `split` until `end`.
fn run(split: &mut Split<Packet>, flows: &mut [Flow], end: Duration) {
    let mut now = Instant::ZERO;
    loop {
        let mut any = false;
        let sent: Vec<_> = flows.iter_mut().flat_map(|flow| flow.sent(now)).collect();
        // One after another, as from a link: what comes together is answered together.
        for (side, packet) in sent {
            any = true;
            split.input(side, packet, now);
            any |= pass_on(split, flows, now);
        }
        any |= pass_on(split, flows, now);
        if any {
            continue;
        }
        let ends = flows.iter().flat_map(|flow| &flow.ends);
        let timers = ends.filter_map(|(_, connection)| connection.deadline());
        let Some(next) = timers.chain(split.deadline()).min() else {
            return;
        };
        if next > Instant::ZERO + end {
            return;
        }
        now = now.max(next);
        for (_, connection) in flows.iter_mut().flat_map(|flow| &mut flow.ends) {
            if connection.deadline().is_some_and(|due| due <= now) {
                connection.timeout(now);
            }
        }
        if split.deadline().is_some_and(|due| due <= now) {
            split.timeout(now);
        }
    }
}

const V4: [&str; 2] = ["10.0.0.1:40000", "10.0.0.2:80"];
const V6: [&str; 2] = ["[fd00::1]:40000", "[fd00::2]:80"];

fn mss(packet: &Packet) -> u16 {
    let segment = packet.segment().unwrap();
    assert!(segment.flags.contains(Flags::SYN), "{packet:?}");
    segment.options.unwrap().mss.unwrap()
}

/// In either set-up both flows fill the packets of their links, and none is longer than those take.
#[test]
fn each_flow_counts_the_header_of_its_own_ip_version() {
    for handshake in [Handshake::Early, Handshake::EndToEnd] {
        let mut split = Split::<Packet>::new(Config {
            handshake,
            ..Config::new(tcp::Config::rfc(), tcp::Config::rfc())
        });
        let mut flows = [Flow::new(V4, 20), Flow::new(V6, 40)];
        for flow in &mut flows {
            flow.unwritten = [60_000, 60_000];
        }
        run(&mut split, &mut flows, Duration::from_secs(20));
        assert_eq!(split.tally().split, 2);
        for (flow, most) in flows.iter().zip([1460, 1440]) {
            for (end, seen) in flow.ends.iter().zip(&flow.seen) {
                assert_eq!(mss(&seen[0]), most, "{handshake:?}");
                assert_eq!(end.1.readable(), 60_000, "{handshake:?}");
                let longest = seen.iter().map(|packet| packet.wire_length().0).max();
                assert_eq!(longest, Some(1500), "{handshake:?} {}", end.0);
            }
        }
    }
}

/// The admission gives the second flow other legs.
#[test]
fn a_flow_has_the_legs_of_its_profile() {
    let small = |header| {
        Arc::new(tcp::Config {
            mss: 620 - header,
            ip_header: header,
            ..tcp::Config::rfc()
        })
    };
    let mut config = Config::new(tcp::Config::rfc(), tcp::Config::rfc());
    config.handshake = Handshake::Early;
    config.profiles = vec![[Arc::clone(&config.ground), small(20)]];
    let mut split = Split::<Packet>::new(config);
    split.admit_by(Box::new(|source: SocketAddr, _, _| Decision {
        action: Action::Split,
        profile: source.is_ipv6().then_some(0),
    }));
    let mut flows = [Flow::new(V4, 20), Flow::new(V6, 40)];
    run(&mut split, &mut flows, Duration::from_secs(5));
    let of = |flow: usize, end: usize| mss(&flows[flow].seen[end][0]);
    assert_eq!([of(0, 0), of(0, 1)], [1460, 1460]);
    // 600 is the profile's for IPv4; IPv6 takes 20 bytes more of the same packet.
    assert_eq!([of(1, 0), of(1, 1)], [1440, 580]);
}

/// Acknowledgements that the split sends towards space wait for their rate; all else does not, and nothing is lost.
#[test]
fn acknowledgements_towards_space_wait_for_their_rate() {
    // An acknowledgement of 52 bytes in 10 ms.
    let rate = Rate::from_bits_per_sec(52 * 8 * 100);
    let mut split = Split::<Packet>::new(Config {
        handshake: Handshake::Early,
        ack_filter: Some(ack_filter::Config {
            rate: Some(rate),
            ..ack_filter::Config::default()
        }),
        ..Config::new(tcp::Config::rfc(), tcp::Config::rfc())
    });
    let mut flows = [Flow::new(V4, 20)];
    flows[0].unwritten = [0, 1_000_000];
    run(&mut split, &mut flows, Duration::from_secs(60));
    let bare = |packet: &&Packet| packet.segment().unwrap().flags == Flags::ACK;
    let towards_space = flows[0].seen[1].iter().filter(bare).count() as u64;
    let thinned = split.tally().acks_thinned;
    assert_eq!(flows[0].ends[0].1.readable(), 1_000_000);
    assert!(thinned > towards_space, "{thinned} {towards_space}");
    // The other way nothing waits.
    assert!(flows[0].seen[0].len() > 690, "{}", flows[0].seen[0].len());
}
