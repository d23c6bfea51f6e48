//! Forward error correction below QUIC over a geostationary link, in virtual time: exact, and the same each time.
#![allow(clippy::print_stdout, reason = "figures, for whoever asks for them")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Machine, Probability, Stream};
use bentpipe_link::channel::{Chain, Channel, Gilbert, PacketError};
use bentpipe_quic::{Datagram, Event, FecStats, Overhead, Path, Quic, Strength};
use bytes::BytesMut;
use std::time::Duration;
use support::{FAR, NEAR, Pair, ZEROS, configs, geo};

/// Losses of each way.
#[derive(Clone, Copy, Debug)]
enum Losses {
    Scattered(f64),
    /// In bursts of three on average.
    Bursts(f64),
}

impl Losses {
    fn share(self) -> f64 {
        match self {
            Self::Scattered(share) | Self::Bursts(share) => share,
        }
    }

    fn channel(self) -> Box<dyn Channel> {
        let share = Probability::new(self.share()).unwrap();
        match self {
            Self::Scattered(_) => Box::new(PacketError::new(share)),
            Self::Bursts(_) => Box::new(Gilbert::new(Chain::bursts(3.0, share).unwrap())),
        }
    }
}

fn fixed(percent: f64, window: u16) -> Option<Overhead> {
    let overhead = Probability::new(percent / 100.0).unwrap();
    Strength::fixed(overhead, window).ok().map(Overhead::Fixed)
}

/// A pair whose connection stands.
fn pair(path: &Path, losses: Losses, fec: [Option<Overhead>; 2], seed: u64) -> Pair {
    pair_with(path, "rate", losses, fec, seed)
}

fn pair_with(
    path: &Path,
    control: &str,
    losses: Losses,
    fec: [Option<Overhead>; 2],
    seed: u64,
) -> Pair {
    let mut configs = configs(path, control, seed);
    for (config, fec) in configs.iter_mut().zip(fec) {
        config.fec = fec;
    }
    let mut pair = Pair::with_losses(path, &configs, seed, || losses.channel());
    pair.stand();
    let later = pair.now + Duration::from_secs(1);
    pair.run_until(later, |_| false);
    pair
}

/// What the near side and the far one have done.
fn stats(pair: &Pair) -> [FecStats; 2] {
    agreed(pair).map(Option::unwrap)
}

/// The same; `None`: a side has no forward error correction.
fn agreed(pair: &Pair) -> [Option<FecStats>; 2] {
    let connected = |name: &str| {
        let made = pair.told.iter().filter_map(|(side, event)| match event {
            Event::Connected { connection, .. } if *side == name => Some(*connection),
            _ => None,
        });
        made.last().unwrap()
    };
    let near = pair.near.stats(connected("near")).unwrap().fec;
    let far = pair.far.stats(connected("far")).unwrap().fec;
    [near, far]
}

/// Milliseconds of 100 fetches of 100 kB one after the other, sorted.
fn fetches(losses: Losses, fec: Option<Overhead>, seed: u64) -> Vec<u128> {
    let mut pair = pair(&geo(10, losses.share()), losses, [fec; 2], seed);
    let mut took = Vec::new();
    for _ in 0..100 {
        took.push(pair.fetch(100_000).as_millis());
        let later = pair.now + Duration::from_secs(1);
        pair.run_until(later, |_| false);
    }
    took.sort_unstable();
    took
}

/// Milliseconds by which packets of a stream are read later than the path alone makes them, sorted: the far side writes a packet at a time, at 95%
/// of what the pace leaves to packets, for a minute.
fn in_order_delay(losses: Losses, fec: Option<Overhead>, seed: u64) -> Vec<f64> {
    const PAYLOAD: usize = 1350;
    let path = geo(10, losses.share());
    let mut pair = pair(&path, losses, [fec; 2], seed);
    pair.by_hand = Some(Vec::new());
    pair.progress = Some(Vec::new());
    pair.ask(1);
    let later = pair.now + Duration::from_secs(2);
    pair.run_until(later, |pair| {
        pair.by_hand.as_ref().is_some_and(|it| !it.is_empty())
    });
    let stream = pair.by_hand.as_ref().unwrap()[0];
    let every = match fec {
        Some(Overhead::Fixed(strength)) => f64::from(strength.every),
        // As much as there may be at 5% in bursts.
        Some(Overhead::Measured) => 5.0,
        None => f64::INFINITY,
    };
    // Its frame, headers of QUIC and of the layer, and what IP and UDP add.
    let wire = (PAYLOAD + 28 + 8 + 30) as f64 * (1.0 + 1.0 / every);
    let gap = Duration::from_secs_f64(wire * 8.0 / (0.95 * 0.985 * 1e7));
    let began = pair.now;
    let count = (60.0 / gap.as_secs_f64()) as u32;
    let mut due = 0;
    for packet in 0..count {
        due += PAYLOAD;
        let mut data = ZEROS.slice(..due.min(ZEROS.len()));
        due -= pair.far.write(stream, &mut data).unwrap();
        pair.run_until(began + gap * (packet + 1), |_| false);
    }
    let later = pair.now + Duration::from_secs(20);
    pair.run_until(later, |_| false);
    while due > 0 {
        let mut data = ZEROS.slice(..due.min(ZEROS.len()));
        due -= pair.far.write(stream, &mut data).unwrap();
        let later = pair.now + Duration::from_millis(100);
        pair.run_until(later, |_| false);
    }
    let later = pair.now + Duration::from_secs(20);
    pair.run_until(later, |_| false);
    let progress = pair.progress.take().unwrap();
    let alone = 300.0 + (PAYLOAD + 66) as f64 * 8.0 / 1e4;
    let mut late = Vec::new();
    let mut next = 0;
    for (at, bytes) in progress {
        while (u64::from(next) + 1) * PAYLOAD as u64 <= bytes {
            let took = at.since(began + gap * next).as_secs_f64() * 1e3;
            late.push((took - alone).max(0.0));
            next += 1;
        }
    }
    assert_eq!(next, count, "not all came");
    late.sort_by(f64::total_cmp);
    late
}

fn of<T: Copy>(sorted: &[T], part: f64) -> T {
    sorted[((sorted.len() - 1) as f64 * part).round() as usize]
}

#[test]
#[ignore = "prints the table of docs/fec.md"]
fn figures() {
    let all = [
        Losses::Scattered(0.01),
        Losses::Bursts(0.01),
        Losses::Scattered(0.05),
        Losses::Bursts(0.05),
    ];
    for (name, fec) in [
        ("none", None),
        ("5% (20, 200)", fixed(5.0, 200)),
        ("10% (10, 200)", fixed(10.0, 200)),
        ("14.3% (7, 200)", fixed(14.3, 200)),
        ("20% (5, 200)", fixed(20.0, 200)),
        ("measured", Some(Overhead::Measured)),
    ] {
        for losses in all {
            let took = fetches(losses, fec, 7);
            let late = in_order_delay(losses, fec, 1);
            let goodput = download(losses, fec);
            println!(
                "{name} {losses:?}: 100 kB p50 {} p90 {} p99 {} max {}; in order p50 {:.0} p99 {:.0} p99.9 {:.0}; {goodput:.2} Mbit/s",
                took[50],
                took[90],
                took[98],
                took[99],
                of(&late, 0.5),
                of(&late, 0.99),
                of(&late, 0.999),
            );
        }
    }
}

/// Megabits a second of a download that lasts a minute from its request on.
fn download(losses: Losses, fec: Option<Overhead>) -> f64 {
    let mut pair = pair(&geo(10, losses.share()), losses, [fec; 2], 1);
    let began = pair.now;
    let stream = pair.ask(u64::MAX / 2);
    pair.run_until(began + Duration::from_secs(60), |_| false);
    assert!(pair.longest_wait() <= Duration::from_millis(20));
    pair.got[&stream].bytes as f64 * 8.0 / 60.0 / 1e6
}

/// p99 of 100 fetches of 100 kB, losses both ways.
#[test]
fn a_small_answer_seldom_waits_for_a_round_trip_more() {
    for (losses, percent, most) in [
        (Losses::Scattered(0.01), 10.0, 750),
        (Losses::Bursts(0.01), 10.0, 750),
        (Losses::Scattered(0.05), 10.0, 750),
        (Losses::Bursts(0.05), 10.0, 1500),
        // Where repairs are too few, a round trip more has to do.
        (Losses::Scattered(0.05), 5.0, 1500),
    ] {
        let took = fetches(losses, fixed(percent, 200), 7);
        assert!(
            took[0] >= 683 && took[98] <= most,
            "{losses:?}, {percent}%: {took:?}"
        );
    }
}

/// p99 of what a stream that fills the link waits for order: what repairs give back late is not dropped as a repetition.
#[test]
fn what_is_lost_is_back_before_a_round_trip() {
    let measured = Some(Overhead::Measured);
    for (losses, fec, most) in [
        (Losses::Scattered(0.01), fixed(5.0, 200), 60.0),
        (Losses::Scattered(0.05), fixed(10.0, 200), 150.0),
        (Losses::Bursts(0.01), fixed(10.0, 200), 150.0),
        (Losses::Bursts(0.05), fixed(14.3, 200), 600.0),
        (Losses::Scattered(0.05), measured, 150.0),
        (Losses::Bursts(0.01), measured, 600.0),
    ] {
        let late = in_order_delay(losses, fec, 1);
        let p99 = of(&late, 0.99);
        assert!(p99 <= most, "{losses:?}, {fec:?}: {p99} ms");
    }
}

/// Repairs take from the pace: what is left of 9.35 Mbit/s is k of k + 1, and no queue grows.
#[test]
fn repairs_take_their_part_of_the_pace() {
    let goodput = download(Losses::Scattered(0.0), fixed(10.0, 200));
    let left = 9.35 * 10.0 / 11.0;
    assert!((0.98 * left..left).contains(&goodput), "{goodput}");
}

#[test]
fn a_peer_that_does_not_ask_for_it_is_sent_none() {
    for fec in [[fixed(10.0, 200), None], [None, fixed(10.0, 200)]] {
        let mut pair = pair(&geo(10, 0.01), Losses::Scattered(0.01), fec, 2);
        pair.fetch(1_000_000);
        assert_eq!(agreed(&pair), [None, None]);
    }
}

/// Each side has the overhead that it was told, and understands the other's.
#[test]
fn two_overheads_go_together_and_what_is_measured_is_followed() {
    let losses = Losses::Scattered(0.05);
    let fec = [fixed(20.0, 100), Some(Overhead::Measured)];
    let mut pair = pair(&geo(10, 0.05), losses, fec, 3);
    let later = pair.now + Duration::from_secs(30);
    pair.ask(u64::MAX / 2);
    pair.run_until(later, |_| false);
    let [near, far] = stats(&pair);
    assert_eq!(near.strength.every, 5);
    // 5% lost want 11%.
    assert!((7..=11).contains(&far.strength.every), "{far:?}");
    let received = near.counters.received;
    assert!(received.recovered > 500, "{received:?}");
    assert!(received.lost * 20 < received.recovered, "{received:?}");
    let share = near.losses.share().unwrap().value();
    assert!((0.035..0.065).contains(&share), "{share}");
    // Acknowledgements alone go bare.
    let ratio = far.counters.sent.sources / near.counters.sent.sources;
    assert!(ratio > 20, "{near:?} {far:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let fec = [Some(Overhead::Measured); 2];
    support::traces_follow_the_seed(|seed| pair(&geo(10, 0.02), Losses::Bursts(0.02), fec, seed));
}

/// The near side gets another address: its connection goes on, and after a while what is lost is repaired again.
#[test]
fn a_peer_that_moves_is_protected_again() {
    let losses = Losses::Scattered(0.02);
    let mut pair = pair(&geo(10, 0.02), losses, [fixed(10.0, 200); 2], 9);
    pair.fetch(300_000);
    pair.near_address = "10.0.0.77:5555".parse().unwrap();
    pair.fetch(300_000);
    assert_eq!(pair.far_sent_to, Some(pair.near_address));
    let later = pair.now + Duration::from_secs(5);
    pair.run_until(later, |_| false);
    let before = stats(&pair);
    for _ in 0..10 {
        pair.fetch(300_000);
    }
    let after = stats(&pair);
    for (before, after) in before.iter().zip(after) {
        assert!(after.counters.sent.sources > before.counters.sent.sources);
    }
    let recovered = after[0].counters.received.recovered - before[0].counters.received.recovered;
    assert!(recovered > 20, "{recovered}");
}

/// Somebody on the path sends what the peer might have sent: cut, repeated and made up frames, in its name. Every byte comes, and the
/// connection stands; at worst repairs are of no use.
#[test]
fn forged_frames_cost_repairs_and_no_more() {
    let losses = Losses::Scattered(0.01);
    let mut pair = pair(&geo(10, 0.01), losses, [fixed(10.0, 200); 2], 11);
    let mut chance = Stream::new(11, "forger");
    let stream = pair.ask(3_000_000);
    let end = pair.now + Duration::from_secs(60);
    while pair.got[&stream].finished.is_none() && pair.now < end {
        let later = pair.now + Duration::from_millis(20);
        pair.run_until(later, |_| false);
        let length = chance.bits() as usize % 1480;
        let mut data: Vec<u8> = (0..length).map(|_| chance.bits() as u8).collect();
        if let Some(first) = data.first_mut() {
            *first = 0x0c + (chance.bits() % 2) as u8;
        }
        // Every other one is about packets that there are.
        if let Some(id) = data
            .get_mut(4..8)
            .filter(|_| chance.bits().is_multiple_of(2))
        {
            let sent = stats(&pair)[1].counters.sent.sources as u32;
            id.copy_from_slice(&sent.saturating_sub(100).to_be_bytes());
        }
        for (peer, side) in [(FAR, &mut pair.near), (NEAR, &mut pair.far)] {
            for _ in 0..2 {
                let datagram = Datagram {
                    peer: peer.parse().unwrap(),
                    local: None,
                    data: BytesMut::from(&data[..]),
                    segment: None,
                };
                side.input((), datagram, pair.now);
            }
        }
    }
    assert_eq!(pair.got[&stream].bytes, 3_000_000);
    let lost = |(_, event): &(_, Event)| matches!(event, Event::Lost { .. });
    assert!(!pair.told.iter().any(lost), "{:?}", pair.told);
}
