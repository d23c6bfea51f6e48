//! The first flight of a connection that is made again: what it saves, and what an enemy gets of it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the figures are for the docs")]

mod support;

use bentpipe_base::{Instant, Machine, Output};
use bentpipe_quic::{
    Code, Config, ConnectionId, Datagram, Endpoint, Event, Identity, PublicKey, Quic,
};
use std::time::Duration;
use support::{FAR, NEAR, Pair, configs, geo};

const HUNDRED_KILOBYTES: u64 = 100_000;

fn lost(pair: &Pair, side: &str) -> Option<String> {
    pair.told.iter().find_map(|(told, event)| match event {
        Event::Lost { reason, .. } if *told == side => Some(reason.clone()),
        _ => None,
    })
}

/// The keys that a side has seen of connected peers.
fn connected(pair: &Pair, side: &str) -> Vec<PublicKey> {
    let told = pair.told.iter().filter(|(told, _)| *told == side);
    told.filter_map(|(_, event)| match event {
        Event::Connected { key, .. } => Some(*key),
        _ => None,
    })
    .collect()
}

/// Ends the connection, and waits until nothing is left of it.
fn part(pair: &mut Pair) {
    let connection = pair.connection.take().unwrap();
    pair.near.close(connection, Code(0x100), "done", pair.now);
    let later = pair.now + Duration::from_secs(20);
    pair.run_until(later, |_| false);
    assert_eq!((pair.near.connections(), pair.far.connections()), (0, 0));
    pair.told.clear();
    pair.early.clear();
}

/// A pair that has been connected, and holds tickets.
fn acquainted(loss: f64, configs: &[Config; 2], seed: u64) -> Pair {
    let mut pair = Pair::new(&geo(10, loss), configs, seed);
    pair.stand();
    pair.fetch(1000);
    let later = pair.now + Duration::from_secs(5);
    pair.run_until(later, |_| false);
    part(&mut pair);
    pair
}

fn configured(seed: u64) -> [Config; 2] {
    configs(&geo(10, 0.0), "rate", seed)
}

/// Connects, and asks at once.
fn fetch_at_once(pair: &mut Pair) -> Duration {
    pair.connect();
    pair.fetch(HUNDRED_KILOBYTES)
}

fn is_early(pair: &Pair, connection: ConnectionId) -> bool {
    pair.early.contains(&("near", connection))
}

/// Two round trips and the answer's time on the line at first, one afterwards: 84 ms are 100 kB's.
#[test]
fn the_first_answer_of_all_takes_two_round_trips_and_that_of_a_connection_made_again_one() {
    let configs = configured(3);
    let mut pair = Pair::new(&geo(10, 0.0), &configs, 3);
    pair.stand();
    pair.fetch(HUNDRED_KILOBYTES);
    let first = pair.now.since(support::at(0));
    assert!(pair.early.iter().all(|(side, _)| *side == "far"));
    part(&mut pair);
    let again = fetch_at_once(&mut pair);
    assert!(is_early(&pair, pair.connection.unwrap()));
    println!("100 kB at 600 ms: first of all {first:?}, made again {again:?}");
    assert!((1280..=1310).contains(&first.as_millis()), "{first:?}");
    assert!((683..=720).contains(&again.as_millis()), "{again:?}");
    pair.run_until(pair.now + Duration::from_secs(2), |_| false);
    let keys = [1, 0].map(|other| vec![configs[other].identity.public()]);
    assert_eq!(connected(&pair, "near"), keys[0]);
    assert_eq!(connected(&pair, "far"), keys[1]);
    // And again, by the tickets of that one.
    part(&mut pair);
    assert!(fetch_at_once(&mut pair) < Duration::from_millis(720));
}

#[test]
fn a_far_side_that_has_forgotten_is_asked_again_after_the_handshake() {
    for loss in [0.0, 0.02] {
        let configs = configured(4);
        let mut pair = acquainted(loss, &configs, 4);
        let restarted = Config {
            seed: Some(99),
            ..configs[1].clone()
        };
        pair.restart_far(&restarted);
        let connection = pair.connect();
        let began = pair.now;
        let streams = [(); 3].map(|()| pair.ask(HUNDRED_KILOBYTES));
        pair.run_until(began + Duration::from_secs(30), |pair| {
            streams.iter().all(|it| pair.got[it].finished.is_some())
        });
        assert!(is_early(&pair, connection));
        for stream in streams {
            assert_eq!(pair.got[&stream].bytes, HUNDRED_KILOBYTES);
        }
        assert_eq!(pair.asked(), 3, "each is asked once");
        assert_eq!(lost(&pair, "near"), None);
        let took = pair.now.since(began);
        assert!(loss > 0.0 || took < Duration::from_millis(1500), "{took:?}");
    }
}

/// A ticket of one far side is none of another's.
#[test]
fn a_foreign_ticket_is_a_full_handshake() {
    let mut configs = configured(5);
    let other = Identity::generate().unwrap();
    configs[0].peers.push(other.public());
    let mut pair = acquainted(0.0, &configs, 5);
    let moved = Config {
        identity: other.clone(),
        ..configs[1].clone()
    };
    pair.restart_far(&moved);
    fetch_at_once(&mut pair);
    assert_eq!(connected(&pair, "near"), [other.public()]);
}

#[test]
fn an_old_ticket_is_not_used() {
    let mut pair = acquainted(0.0, &configured(6), 6);
    let tomorrow = pair.now + Duration::from_secs(25 * 3600);
    pair.run_until(tomorrow, |_| false);
    pair.stand();
    assert!(!is_early(&pair, pair.connection.unwrap()));
    pair.fetch(HUNDRED_KILOBYTES);
}

/// Losses of the first flight are repaired, on either way.
#[test]
fn nothing_is_lost_where_packets_are() {
    for seed in 0..20 {
        let mut pair = acquainted(0.1, &configured(seed), seed);
        fetch_at_once(&mut pair);
        assert_eq!(pair.asked(), 2, "seed {seed}");
        assert_eq!(lost(&pair, "near"), None, "seed {seed}");
    }
}

/// Gives an endpoint datagrams, as from `peer`, and so much time; what it tells and sends.
fn give(
    endpoint: &mut Endpoint,
    flight: &[Datagram],
    peer: &str,
    now: &mut Instant,
    time: Duration,
) -> (Vec<Event>, Vec<Datagram>) {
    let (mut told, mut sent) = (Vec::new(), Vec::new());
    let mut drain = |endpoint: &mut Endpoint, now| {
        endpoint.drain(now, |output| match output {
            Output::Event(event) => told.push(event),
            Output::Packet((), datagram) => sent.push(datagram),
        });
    };
    for datagram in flight {
        let datagram = Datagram {
            peer: peer.parse().unwrap(),
            ..datagram.clone()
        };
        endpoint.input((), datagram, *now);
        drain(endpoint, *now);
    }
    let end = *now + time;
    while let Some(due) = endpoint.deadline().filter(|&due| due < end) {
        *now = due.max(*now);
        endpoint.timeout(*now);
        drain(endpoint, *now);
    }
    *now = end;
    (told, sent)
}

/// Gives a far side what was recorded, and an hour; what it tells.
fn replay(far: &mut Endpoint, flight: &[Datagram], peer: &str, pair: &Pair) -> Vec<Event> {
    give(
        far,
        flight,
        peer,
        &mut pair.now.clone(),
        Duration::from_secs(3600),
    )
    .0
}

/// Whether anything was told that a driver would act on: who is connected, or a stream.
fn is_acted_on(told: &[Event]) -> bool {
    { told.iter() }.any(|event| !matches!(event, Event::Early { .. } | Event::Lost { .. }))
}

/// Whoever has recorded a first flight may send it again, to the far side itself, while the connection stands and after, or to its
/// successor: nothing is asked of either a second time.
#[test]
fn a_flight_that_is_sent_again_asks_nothing() {
    let configs = configured(7);
    let mut pair = acquainted(0.0, &configs, 7);
    pair.recorded = Some(Vec::new());
    pair.connect();
    let began = pair.now;
    pair.ask(HUNDRED_KILOBYTES);
    pair.run_until(began + Duration::from_millis(10), |_| false);
    let flight = pair.recorded.take().unwrap();
    assert!(!flight.is_empty());
    pair.run_until(began + Duration::from_secs(5), |_| false);
    assert_eq!(pair.asked(), 2);
    let mut far = Endpoint::new(&configs[1], true).unwrap();
    // The same flight is acted on where nothing of it has come before: by the far side as it was.
    core::mem::swap(&mut far, &mut pair.far);
    for peer in [NEAR, "10.9.9.9:1"] {
        let told = replay(&mut far, &flight, peer, &pair);
        assert!(!is_acted_on(&told), "while it stands: {told:?}");
        // An hour has passed: nothing is left of the connection.
        assert_eq!(far.connections(), 0);
        let told = replay(&mut far, &flight, peer, &pair);
        assert!(!is_acted_on(&told), "afterwards: {told:?}");
    }
    let mut successor = Endpoint::new(&configs[1], true).unwrap();
    let told = replay(&mut successor, &flight, NEAR, &pair);
    assert!(!is_acted_on(&told), "of its successor: {told:?}");
}

/// A flight that was held back is acted on when it comes first, and only then: the recording is a good one.
#[test]
fn a_flight_that_comes_late_is_acted_on_once() {
    let configs = configured(8);
    let mut pair = acquainted(0.0, &configs, 8);
    pair.recorded = Some(Vec::new());
    pair.connect();
    pair.ask(HUNDRED_KILOBYTES);
    pair.run_until(pair.now + Duration::from_millis(10), |_| false);
    let flight = pair.recorded.take().unwrap();
    let mut far = Endpoint::new(&configs[1], true).unwrap();
    core::mem::swap(&mut far, &mut pair.far);
    assert!(is_acted_on(&replay(&mut far, &flight, NEAR, &pair)));
    assert!(!is_acted_on(&replay(&mut far, &flight, NEAR, &pair)));
}

/// An enemy delivers a flight that he holds back, forges the end of that connection and lets the flight itself through. The far side, which
/// knows nothing of the connection any more, must not ask for a full handshake: after that the near side would say again what was acted on.
#[test]
fn what_was_acted_on_is_not_said_again() {
    let mut pair = acquainted(0.0, &configured(11), 11);
    pair.recorded = Some(Vec::new());
    pair.connect();
    pair.ask(HUNDRED_KILOBYTES);
    let mut now = pair.now + Duration::from_millis(10);
    pair.run_until(now, |_| false);
    let flight = pair.recorded.take().unwrap();
    let moment = Duration::from_millis(1);
    let (told, _) = give(&mut pair.far, &flight, NEAR, &mut now, moment);
    assert!(is_acted_on(&told));
    let Some(Event::Connected { connection, .. }) = told.first() else {
        panic!("{told:?}")
    };
    pair.far.close(*connection, Code(0), "forged", now);
    give(&mut pair.far, &[], NEAR, &mut now, Duration::from_secs(4));
    assert_eq!(pair.far.connections(), 0);
    let (told, answers) = give(&mut pair.far, &flight, NEAR, &mut now, moment);
    assert!(told.is_empty() && !answers.is_empty(), "{told:?}");
    let (told, said) = give(&mut pair.near, &answers, FAR, &mut now, moment);
    assert!(matches!(told[..], [Event::Lost { .. }]), "{told:?}");
    let (told, _) = give(
        &mut pair.far,
        &said,
        NEAR,
        &mut now,
        Duration::from_secs(60),
    );
    assert!(!is_acted_on(&told), "{told:?}");
}

/// A ticket says whose it is as of when it was given: whose key is taken back has it no more.
#[test]
fn a_key_that_is_taken_back_is_not_got_round_by_a_ticket() {
    let configs = configured(9);
    let mut pair = acquainted(0.0, &configs, 9);
    let stranger = Identity::generate().unwrap().public();
    pair.far.trust(vec![stranger], None);
    pair.connect();
    pair.ask(HUNDRED_KILOBYTES);
    let later = pair.now + Duration::from_secs(20);
    pair.run_until(later, |_| false);
    assert_eq!(pair.asked(), 1, "only what was asked before");
    assert_eq!(connected(&pair, "far"), []);
    let reason = lost(&pair, "near").unwrap();
    assert!(reason.contains("this side's key"), "{reason}");
    // Nor on the other side.
    let mut pair = acquainted(0.0, &configs, 9);
    pair.near.trust(vec![stranger], None);
    let connection = pair.connect();
    let later = pair.now + Duration::from_secs(20);
    pair.run_until(later, |_| false);
    assert!(!is_early(&pair, connection));
    assert_eq!(connected(&pair, "near"), []);
    // And who is trusted again shakes hands in full.
    pair.near.trust(configs[0].peers.clone(), None);
    let connection = pair.connect();
    let began = pair.now;
    pair.run_until(began + Duration::from_secs(5), |pair| {
        !connected(pair, "near").is_empty()
    });
    assert!(!is_early(&pair, connection));
    assert_eq!(connected(&pair, "near").len(), 1);
}

/// The key may also be taken back while the handshake is under way.
#[test]
fn a_key_that_is_taken_back_during_the_handshake_is_refused() {
    let configs = configured(10);
    let mut pair = Pair::new(&geo(10, 0.0), &configs, 10);
    pair.connect();
    pair.run_until(support::at(700), |_| false);
    pair.far
        .trust(vec![Identity::generate().unwrap().public()], None);
    pair.run_until(support::at(20_000), |_| false);
    assert_eq!(connected(&pair, "far"), []);
    assert!(lost(&pair, "near").is_some(), "{:?}", pair.told);
}
