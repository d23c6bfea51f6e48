//! Outages and replayed losses: no chance, so to the packet and the nanosecond.

mod common;

use bentpipe_base::{Bytes, DropCause, Instant, Rate};
use bentpipe_link::channel::{Outage, Replay};
use bentpipe_link::{Channel, Direction, Settings};
use common::{Log, arrivals, at, direction};
use core::time::Duration;

const fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Which of the packets that leave at `times` pass.
fn passed(channel: impl Channel + 'static, times: &[u64]) -> Vec<u64> {
    let mut link = direction(Settings {
        channels: vec![Box::new(channel)],
        ..Settings::default()
    });
    for (number, time) in (0..).zip(times) {
        link.push(number, Bytes(40), at(*time));
    }
    let seen = arrivals(&mut link, Instant::MAX);
    let lost = link.observer().drops(DropCause::Lost);
    assert_eq!(seen.len() + lost, times.len());
    seen.into_iter().map(|(time, _)| time).collect()
}

#[test]
fn the_link_is_down_from_the_start_of_an_outage_until_its_end() {
    let outage = Outage::new([(nanos(100), nanos(50)), (nanos(300), nanos(1))]);
    let times = [0, 99, 100, 149, 150, 299, 300, 301];
    assert_eq!(passed(outage, &times), [0, 99, 150, 299, 301]);
}

#[test]
fn outages_may_overlap_in_any_order() {
    let outage = Outage::new([
        (nanos(300), nanos(100)),
        (nanos(100), nanos(250)),
        (nanos(120), nanos(10)),
        (nanos(500), nanos(0)),
    ]);
    let times = [99, 100, 130, 350, 399, 400, 500];
    assert_eq!(passed(outage, &times), [99, 400, 500]);
}

#[test]
fn an_outage_may_last_for_ever() {
    let outage = Outage::new([(nanos(5), Duration::MAX)]);
    assert_eq!(passed(outage, &[4, 5, 1_000_000_000]), [4]);
}

#[test]
fn a_periodic_outage_comes_back() {
    let outage = Outage::periodic(nanos(100), nanos(10), nanos(50)).unwrap();
    let times = [
        0, 50, 99, 100, 109, 110, 149, 150, 159, 160, 100_000, 100_050,
    ];
    let expected = [0, 50, 99, 110, 149, 160];
    assert_eq!(passed(outage, &times), expected);
}

#[test]
fn an_outage_that_never_ends_is_refused() {
    for (length, period) in [(10, 10), (11, 10), (0, 0)] {
        let Err(error) = Outage::periodic(nanos(0), nanos(length), nanos(period)) else {
            panic!("{length} every {period} was taken");
        };
        assert!(error.to_string().contains("longer"), "{error}");
    }
}

#[test]
fn the_last_bit_decides_whether_an_outage_meets_a_packet() {
    // 1500 bytes at 12 Mb/s leave in one millisecond.
    let mut link = direction(Settings {
        rate: Some(Rate::from_bits_per_sec(12_000_000)),
        channels: vec![Box::new(Outage::new([(nanos(1_500_000), nanos(500_000))]))],
        ..Settings::default()
    });
    for number in 0..3 {
        link.push(number, Bytes(1500), at(number as u64 * 200_000));
    }
    // They end at 1, 2 and 3 ms: the second as the link comes back.
    let all = [(1_000_000, 0), (2_000_000, 1), (3_000_000, 2)];
    assert_eq!(arrivals(&mut link, Instant::MAX), all);
    let mut link = direction(Settings {
        rate: Some(Rate::from_bits_per_sec(12_000_000)),
        channels: vec![Box::new(Outage::new([(nanos(1_500_000), nanos(500_001))]))],
        ..Settings::default()
    });
    (0..3).for_each(|number| assert!(link.push(number, Bytes(1500), at(0)).is_none()));
    assert_eq!(
        arrivals(&mut link, Instant::MAX),
        [(1_000_000, 0), (3_000_000, 2)]
    );
}

/// In wall time a link carries packets before the run begins.
#[test]
fn outages_count_from_the_beginning_of_the_run() {
    let once = || Outage::new([(nanos(0), nanos(50))]);
    let again = || Outage::periodic(nanos(20), nanos(10), nanos(100)).unwrap();
    let channels = || -> Vec<Box<dyn Channel>> { vec![Box::new(once()), Box::new(again())] };
    let settings = Settings {
        channels: channels(),
        ..Settings::default()
    };
    let mut link = Direction::new(settings, 1, "test", Log::default());
    let sent = |link: &mut Direction<u32, Log>, times: &[u64]| -> Vec<u64> {
        times
            .iter()
            .for_each(|time| assert!(link.push(0, Bytes(40), at(*time)).is_none()));
        let seen = arrivals(link, at(times[2]));
        seen.into_iter().map(|(time, _)| time).collect()
    };
    assert_eq!(sent(&mut link, &[0, 20, 999]), [0, 20, 999]);
    link.begin(at(1000));
    assert_eq!(sent(&mut link, &[1000, 1049, 1050]), [1050]);
    // Channels that come later are told too.
    link.set_channels(channels(), at(1060));
    assert_eq!(sent(&mut link, &[1119, 1120, 1130]), [1119, 1130]);
}

#[test]
fn exactly_the_listed_packets_are_lost() {
    let times: Vec<u64> = (0..10).collect();
    let replay = Replay::new([9, 0, 3, 4, 3, 77]);
    assert_eq!(passed(replay, &times), [1, 2, 5, 6, 7, 8]);
    assert_eq!(passed(Replay::new([]), &times), times);
}
