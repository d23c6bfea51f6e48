//! Who gets in, and what an enemy gets.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "trust/certificates.rs"]
mod certificates;
mod support;

use bentpipe_base::{Bytes, Instant, Machine, Output, Rate, Stream};
use bentpipe_quic::{
    Closed, Code, Config, ConfigError, CongestionControl, Datagram, Direction, End, Endpoint,
    Event, Identity, Limits, Quic, StreamId, StreamRef, UnusableControl,
};
use bytes::{Bytes as Chunk, BytesMut};
use std::time::Duration;
use support::{FAR, NEAR, Pair, at, configs, geo};

fn lost(pair: &Pair, side: &str) -> Option<String> {
    pair.told.iter().find_map(|(told, event)| match event {
        Event::Lost { reason, .. } if *told == side => Some(reason.clone()),
        _ => None,
    })
}

fn connected(pair: &Pair, side: &str) -> bool {
    { pair.told.iter() }
        .any(|(told, event)| *told == side && matches!(event, Event::Connected { .. }))
}

#[test]
fn a_stranger_gets_no_connection_and_a_stranger_is_given_none() {
    let path = geo(10, 0.0);
    for side in [0, 1] {
        let mut configs = configs(&path, "rate", 1);
        // The other side still trusts the key that this one had before.
        configs[side].identity = Identity::generate().unwrap();
        let mut pair = Pair::new(&path, &configs, 1);
        pair.connect();
        // What has been closed is remembered for a while, for packets that come late.
        pair.run_until(at(20_000), |_| false);
        assert!(!connected(&pair, "far"), "side {side}: {:?}", pair.told);
        let reason = lost(&pair, "near").expect("the near side is told");
        assert!(
            reason.contains(["this side's key", "is not trusted here"][side]),
            "{reason}"
        );
        assert_eq!(pair.far.connections(), 0);
        assert_eq!(pair.near.connections(), 0);
    }
}

#[test]
fn both_sides_know_whom_they_are_connected_with() {
    let path = geo(10, 0.0);
    let configs = configs(&path, "rate", 1);
    let mut pair = Pair::new(&path, &configs, 1);
    pair.stand();
    pair.run_until(at(2000), |_| false);
    for (told, event) in &pair.told {
        let Event::Connected { key, .. } = event else {
            panic!("{event:?}")
        };
        let other = if *told == "near" { 1 } else { 0 };
        assert_eq!(*key, configs[other].identity.public());
    }
    assert_eq!(pair.told.len(), 2);
}

/// The new process has the old one's key, so that what it says of connections it does not know is believed.
#[test]
fn after_a_restart_of_the_far_side_the_near_one_knows_within_a_round_trip_of_its_next_packet() {
    let path = geo(10, 0.0);
    let configs = configs(&path, "rate", 1);
    let mut pair = Pair::new(&path, &configs, 1);
    pair.stand();
    pair.fetch(10_000);
    let restarted = Config {
        seed: Some(99),
        ..configs[1].clone()
    };
    pair.far = Endpoint::new(&restarted, true).unwrap();
    pair.ask(10_000);
    let killed = pair.now;
    pair.run_until(killed + Duration::from_secs(60), |pair| {
        lost(pair, "near").is_some()
    });
    let reason = lost(&pair, "near").unwrap();
    assert!(reason.contains("started anew"), "{reason}");
    assert!(
        pair.now.since(killed) < Duration::from_millis(700),
        "{}",
        pair.now
    );
}

#[test]
fn a_close_is_told_to_the_other_side_with_its_reason() {
    let mut pair = Pair::over(&geo(10, 0.0), "rate", 1);
    pair.stand();
    let stream = pair.ask(1_000_000);
    let connection = pair.connection.unwrap();
    let began = pair.now;
    pair.near.close(connection, Code(0x100), "draining", began);
    pair.run_until(began + Duration::from_secs(10), |pair| {
        lost(pair, "far").is_some()
    });
    let reason = lost(&pair, "far").unwrap();
    assert!(reason.contains("draining"), "{reason}");
    // Nothing is left of it once the time for late packets is over.
    pair.run_until(began + Duration::from_secs(20), |_| false);
    assert_eq!((pair.near.connections(), pair.far.connections()), (0, 0));
    let stream = StreamRef { connection, stream };
    assert_eq!(pair.near.read(stream, 100), Err(Closed));
    assert_eq!(
        pair.near.write(stream, &mut Chunk::from_static(b"x")),
        Err(Closed)
    );
    assert_eq!(pair.near.end(stream, End::Stop(Code(0))), Err(Closed));
}

#[test]
fn a_side_that_does_not_answer_is_lost_after_the_idle_time() {
    let path = geo(10, 0.0);
    let mut pair = Pair::over(&path, "rate", 1);
    pair.stand();
    pair.fetch(1000);
    let quiet = pair.now;
    // Keep-alives hold the connection as long as they are answered.
    pair.run_until(quiet + Duration::from_secs(300), |_| false);
    assert_eq!(lost(&pair, "near"), None);
    for way in &mut pair.ways {
        way.set_rate(Some(Rate::from_bits_per_sec(0)), pair.now);
    }
    let cut = pair.now;
    pair.run_until(cut + Duration::from_secs(120), |pair| {
        lost(pair, "near").is_some()
    });
    assert_eq!(
        lost(&pair, "near").as_deref(),
        Some("nothing is heard of the peer")
    );
    assert!(
        pair.now.since(cut) <= Duration::from_secs(41),
        "{:?}",
        pair.now.since(cut)
    );
}

/// A stream's sides are told apart, and a wrong use is an error, not a panic.
#[test]
fn the_wrong_side_of_a_stream_is_refused() {
    let mut pair = Pair::over(&geo(10, 0.0), "rate", 1);
    pair.stand();
    let connection = pair.connection.unwrap();
    let stream = pair.near.open(connection, Direction::One).unwrap();
    let own = StreamRef { connection, stream };
    assert_eq!(pair.near.read(own, 1), Err(Closed));
    assert_eq!(pair.near.end(own, End::Stop(Code(1))), Err(Closed));
    for stream in [StreamId(3), StreamId(4_000_000), StreamId(u64::MAX)] {
        let none = StreamRef { connection, stream };
        assert_eq!(
            pair.near.write(none, &mut Chunk::from_static(b"x")),
            Err(Closed),
            "{stream:?}"
        );
        assert_eq!(pair.near.end(none, End::Reset(Code(u64::MAX))), Err(Closed));
    }
}

#[test]
fn what_cannot_work_is_refused_before_it_starts() {
    let path = geo(10, 0.0);
    let [config, _] = configs(&path, "rate", 1);
    let refused = |config: &Config| Endpoint::new(config, true).err().unwrap();
    let nobody = Config {
        peers: Vec::new(),
        ..config.clone()
    };
    assert_eq!(refused(&nobody), ConfigError::NoPeers);
    let small = Config {
        limits: Limits {
            memory: Bytes(1000),
            ..Limits::default()
        },
        ..config.clone()
    };
    assert!(
        refused(&small).to_string().contains("1500kB"),
        "{}",
        refused(&small)
    );
    let fast = Config {
        path: geo(500, 0.02),
        ..config
    };
    assert!(matches!(refused(&fast), ConfigError::Gaps(_)));
    let control = |name| CongestionControl::new(name, Default::default()).err();
    assert_eq!(
        control("bbr"),
        Some(UnusableControl::SamplesDeliveries("bbr"))
    );
    assert!(matches!(control("fast"), Some(UnusableControl::Unknown(_))));
}

/// All that one side sends now.
fn sent(side: &mut Endpoint, now: Instant) -> Vec<Datagram> {
    let mut all = Vec::new();
    side.drain(now, |output| {
        if let Output::Packet((), datagram) = output {
            all.push(datagram);
        }
    });
    all
}

/// First packets from forged addresses: each is answered with at most three times its bytes, beyond some the address is
/// asked to prove itself, and beyond twice as many nobody is let in; a client that is there gets in all the same.
#[test]
fn a_flood_of_first_packets_is_not_amplified_and_holds_little() {
    let path = geo(10, 0.0);
    let mut configs = configs(&path, "rate", 1);
    configs[1].limits.half_open = 4;
    let mut far = Endpoint::new(&configs[1], true).unwrap();
    let (mut received, mut answered) = (0, 0);
    for forger in 0..100_u64 {
        let config = Config {
            seed: Some(1000 + forger),
            ..configs[0].clone()
        };
        let mut client = Endpoint::new(&config, false).unwrap();
        client.connect(FAR.parse().unwrap(), at(0)).unwrap();
        for mut datagram in sent(&mut client, at(0)) {
            datagram.peer = format!("10.9.0.{}:1000", forger + 1).parse().unwrap();
            received += datagram.data.len();
            far.input((), datagram, at(0));
        }
    }
    let mut now = at(0);
    for _ in 0..1000 {
        answered += sent(&mut far, now)
            .iter()
            .map(|datagram| datagram.data.len())
            .sum::<usize>();
        let Some(due) = far.deadline().filter(|&due| due < at(60_000)) else {
            break;
        };
        now = due.max(now);
        far.timeout(now);
    }
    assert!(far.connections() <= 4, "{}", far.connections());
    assert!(answered <= 3 * received, "{answered} for {received}");
    // A real one, by way of a Retry.
    let mut pair = Pair::new(&path, &configs, 1);
    pair.far = far;
    pair.now = now;
    pair.stand();
    pair.fetch(1000);
}

/// Datagrams of noise, and ours with bits flipped, change nothing.
#[test]
fn noise_is_no_packet() {
    let mut pair = Pair::over(&geo(10, 0.0), "rate", 1);
    pair.stand();
    let mut noise = Stream::new(1, "noise");
    for round in 0..2000_u64 {
        let length = (noise.bits() % 1500) as usize;
        let mut data = BytesMut::zeroed(length);
        for byte in data.iter_mut() {
            *byte = noise.bits() as u8;
        }
        let datagram = Datagram {
            peer: if round % 2 == 0 { NEAR } else { "10.7.7.7:7" }
                .parse()
                .unwrap(),
            local: None,
            data,
            segment: (round % 3 == 0).then_some((noise.bits() % 200) as usize),
        };
        pair.far.input((), datagram.clone(), pair.now);
        pair.near.input(
            (),
            Datagram {
                peer: FAR.parse().unwrap(),
                ..datagram
            },
            pair.now,
        );
    }
    pair.fetch(100_000);
    assert_eq!(pair.far.connections(), 1);
}

/// The terminal's address changes, as behind a NAT that forgot it: the connection goes on.
#[test]
fn a_new_address_of_the_near_side_is_followed() {
    let mut pair = Pair::over(&geo(10, 0.0), "rate", 1);
    pair.stand();
    pair.fetch(100_000);
    let connection = pair.connection.unwrap();
    let stream = pair.ask(100_000);
    // The request leaves from elsewhere, and so does all that follows it.
    let elsewhere = "10.0.0.1:5544".parse().unwrap();
    pair.near_address = elsewhere;
    let began = pair.now;
    pair.run_until(began + Duration::from_secs(10), |pair| {
        pair.got[&stream].finished.is_some()
    });
    assert_eq!(pair.got[&stream].bytes, 100_000, "{:?}", pair.told);
    assert!(pair.near.stats(connection).is_some());
    assert_eq!(pair.far_sent_to, Some(elsewhere));
}

/// Ten thousand streams at once: so many are open as the far side allows, and the rest wait for their turn.
#[test]
fn streams_beyond_the_limit_wait() {
    let path = geo(10, 0.0);
    let mut configs = configs(&path, "rate", 1);
    configs[1].limits.streams = 100;
    let mut pair = Pair::new(&path, &configs, 1);
    pair.stand();
    let connection = pair.connection.unwrap();
    let mut opened = 0;
    while pair.near.open(connection, Direction::Both).is_ok() {
        opened += 1;
    }
    assert_eq!(opened, 100);
}
