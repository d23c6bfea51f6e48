//! What a congestion control that models the path is told of deliveries: the delivery rate samples and lost segments of
//! draft-ietf-ccwg-bbr-06, section 4.1, step by step against its equations.

#[path = "support/script.rs"]
mod script;

use bentpipe_base::{Instant, Rate};
use bentpipe_cc::{self as cc, Ack, Congestion, Delivery, LostSegment, RateUse, Window};
use bentpipe_tcp::{Config, recovery};
use bentpipe_wire::TcpOptions;
use script::{ACK, Script, mss, plain, seg};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the recorder was told, by the thread of each test.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Ack(Delivery),
    Lost(LostSegment),
}

thread_local! {
    static TOLD: Mutex<Vec<Told>> = const { Mutex::new(Vec::new()) };
    static HOLDS: Mutex<bool> = const { Mutex::new(false) };
}

/// A window that nothing changes, and a note of all that it is told.
#[derive(Debug)]
struct Recorder;

fn note(told: Told) {
    TOLD.with(|all| {
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(told)
    });
}

impl Congestion for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn governs_recovery(&self) -> bool {
        true
    }

    fn samples_deliveries(&self) -> bool {
        true
    }

    fn holds_back(&self) -> bool {
        HOLDS.with(|holds| *holds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn on_lost(&mut self, _window: &Window, lost: &LostSegment) {
        note(Told::Lost(*lost));
    }

    fn on_ack(&mut self, _window: &mut Window, ack: &Ack) {
        note(Told::Ack(ack.delivery.expect("it asked for it")));
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        window.cwnd
    }
}

static RECORDER: cc::Algorithm = cc::Algorithm {
    name: "recorder",
    summary: "notes what it is told",
    rate: RateUse::Ignores,
    kernel: None,
    new: |_| Box::new(Recorder),
};

/// Sends with `cwnd` segments of 1000 bytes; the handshake took 100 ms.
fn open(cwnd: u32) -> Script {
    let config = Config {
        congestion: &RECORDER,
        recovery: recovery::find("prr-rack").expect("it is in the registry"),
        sack_blocks: 4,
        initial_window: cwnd,
        ..plain()
    };
    let options = TcpOptions {
        sack_permitted: true,
        ..mss(1000)
    };
    Script::open_with(config, options)
}

fn told() -> Vec<Told> {
    TOLD.with(|all| std::mem::take(&mut *all.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// What the only acknowledgement since the last call told.
fn delivery() -> Delivery {
    match told()[..] {
        [Told::Ack(delivery)] => delivery,
        ref other => panic!("{other:?}"),
    }
}

fn ms(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

#[test]
fn the_rate_is_what_was_delivered_since_the_segment_was_sent_over_the_longer_time() {
    let mut script = open(4);
    script.tcp.write_virtual(u64::MAX);
    assert_eq!(script.data().len(), 4);
    script.pass(100);
    script.inject(seg(ACK, 1, 1001));
    let first = delivery();
    assert_eq!((first.total, first.newly, first.prior_in_flight), (1, 1, 4));
    let sample = first.sample.expect("one was delivered");
    // All four left at once from rest: 1 in 100 ms, all of it the acknowledgement's.
    assert_eq!((sample.prior_delivered, sample.tx_in_flight), (0, 1));
    assert_eq!(sample.interval, ms(100));
    script.data();
    script.pass(10);
    script.inject(seg(ACK, 1, 2001));
    let sample = delivery().sample.expect("one was delivered");
    // 2 in 110 ms.
    assert_eq!((sample.prior_delivered, sample.interval), (0, ms(110)));
    script.data();
    script.pass(90);
    // All up to the segment that was sent when the first acknowledgement had come, 100 ms ago.
    script.inject(seg(ACK, 1, 5001));
    let third = delivery();
    assert_eq!((third.total, third.newly), (5, 3));
    let sample = third.sample.expect("three were delivered");
    // 4 in the 100 ms since the first was delivered; the flight was sent in 100 ms too.
    assert_eq!((sample.prior_delivered, sample.interval), (1, ms(100)));
    assert_eq!(sample.tx_in_flight, 4);
    assert!(third.cwnd_full);
}

#[test]
fn what_is_acknowledged_faster_than_it_was_sent_counts_by_its_sending() {
    let mut script = open(100);
    for _ in 0..5 {
        script.tcp.write_virtual(1000);
        assert_eq!(script.data().len(), 1);
        script.pass(20);
    }
    // Sent over 80 ms; acknowledged in one stroke, 180 ms after the first was sent.
    script.pass(80);
    script.inject(seg(ACK, 1, 1001));
    told();
    script.pass(1);
    script.inject(seg(ACK, 1, 5001));
    let sample = delivery().sample.expect("four were delivered");
    // Since the first was sent, from rest.
    assert_eq!(sample.interval, ms(181));
    script.tcp.write_virtual(1000);
    script.data();
    script.pass(50);
    // The path has become shorter: the round-trip time of the acknowledgement itself is the least.
    script.inject(seg(ACK, 1, 6001));
    let sample = delivery().sample.expect("one was delivered");
    assert_eq!((sample.prior_delivered, sample.interval), (5, ms(50)));
}

/// Section 4.1.3.5: no rate where the acknowledgement may be of the first transmission.
#[test]
fn what_is_acknowledged_sooner_than_any_round_trip_after_it_was_sent_again_gives_no_rate() {
    let mut script = open(10);
    script.tcp.write_virtual(u64::MAX);
    script.data();
    script.pass(100);
    script.inject(seg(ACK, 1, 1).sack(&[(2001, 5001)]));
    assert_eq!(script.data()[..2], [(1, 1000), (1001, 1000)]);
    told();
    script.pass(10);
    script.inject(seg(ACK, 1, 5001));
    let early = delivery();
    assert_eq!((early.total, early.newly), (5, 2));
    let rate = early.sample.and_then(|sample| sample.interval);
    assert_eq!(rate, None, "10 ms after it was sent again: {early:?}");
}

/// Section 4.1.2.4.
#[test]
fn samples_of_an_application_that_has_no_more_to_send_say_so_for_a_round_trip() {
    let mut script = open(4);
    script.tcp.write_virtual(2000);
    script.data();
    script.pass(100);
    // There was nothing left to send, and there is room.
    script.inject(seg(ACK, 1, 1001));
    told();
    script.tcp.write_virtual(20_000);
    assert_eq!(script.data().len(), 3);
    script.pass(100);
    script.inject(seg(ACK, 1, 2001));
    told();
    script.data();
    script.inject(seg(ACK, 1, 3001));
    let sample = delivery().sample.expect("one was delivered");
    assert!(sample.app_limited, "sent after the gap");
    script.data();
    script.pass(100);
    // Sent after what followed the gap had been delivered.
    script.inject(seg(ACK, 1, 7001));
    let sample = delivery().sample.expect("some were delivered");
    assert!(!sample.app_limited, "{sample:?}");
    script.data();
    HOLDS.with(|holds| *holds.lock().unwrap_or_else(PoisonError::into_inner) = true);
    script.pass(100);
    script.inject(seg(ACK, 1, 8001));
    HOLDS.with(|holds| *holds.lock().unwrap_or_else(PoisonError::into_inner) = false);
    told();
    script.data();
    script.pass(100);
    script.inject(seg(ACK, 1, 12_001));
    let sample = delivery().sample.expect("some were delivered");
    assert!(sample.app_limited, "the control held back: {sample:?}");
}

#[test]
fn each_lost_segment_is_told_before_the_acknowledgement_and_duplicates_give_samples() {
    let mut script = open(10);
    script.tcp.write_virtual(u64::MAX);
    assert_eq!(script.data().len(), 10);
    script.pass(100);
    // The first two are lost.
    script.inject(seg(ACK, 1, 1).sack(&[(2001, 3001)]));
    let first = delivery();
    assert_eq!((first.total, first.newly), (1, 1), "out of order");
    assert_eq!(first.sample.expect("one was delivered").tx_in_flight, 3);
    script.pass(1);
    script.inject(seg(ACK, 1, 1).sack(&[(2001, 5001)]));
    let now = script.now;
    let lost = |tx_in_flight, lost| {
        Told::Lost(LostSegment {
            now,
            delivered: 3,
            tx_in_flight,
            lost,
            app_limited: true,
        })
    };
    let all = told();
    assert_eq!(all[..2], [lost(1, 1), lost(2, 2)]);
    let Told::Ack(second) = all[2] else {
        panic!("{all:?}");
    };
    let sample = second.sample.expect("two were delivered");
    assert_eq!((sample.lost, sample.tx_in_flight), (2, 5));
    assert_eq!(all.len(), 3);
    // Sent again, lost again: told again, with what was in flight the second time.
    let again = script.data();
    assert_eq!(again[..2], [(1, 1000), (1001, 1000)]);
    script.pass(100);
    script.inject(seg(ACK, 1, 1).sack(&[(2001, 12_001)]));
    let all = told();
    // 10 were sent, 3 had arrived and 2 were lost: 5 in flight before them.
    let again: Vec<_> = { all.iter() }
        .filter_map(|told| match told {
            Told::Lost(lost) => Some((lost.delivered, lost.tx_in_flight, lost.lost)),
            Told::Ack(_) => None,
        })
        .collect();
    assert_eq!(again, [(10, 6, 1), (10, 7, 2)], "{all:?}");
}

#[test]
fn a_timeout_tells_of_all_that_was_in_flight() {
    let mut script = open(4);
    script.tcp.write_virtual(u64::MAX);
    script.data();
    script.expire();
    let all = told();
    assert_eq!(all.len(), 4, "{all:?}");
    for (told, number) in all.iter().zip(1..) {
        let Told::Lost(lost) = told else {
            panic!("{all:?}");
        };
        assert_eq!((lost.tx_in_flight, lost.lost), (number, number));
    }
    // Nothing was in flight, so what goes again begins a new interval.
    let at = script.now;
    assert_eq!(script.data(), [(1, 1000)]);
    script.pass(100);
    script.inject(seg(ACK, 1, 1001));
    let sample = delivery().sample.expect("one was delivered");
    assert_eq!(sample.interval, Some(script.now.since(at)));
    assert!(at > Instant::ZERO);
}

/// [`bentpipe_tcp::Connection::set_congestion`] replaces a control that does not sample.
#[test]
fn a_control_that_is_put_in_later_is_told_as_well() {
    let mut script = Script::connect(Config {
        congestion: cc::find("reno").expect("it is in the registry"),
        ..plain()
    });
    script.tcp.set_congestion(Box::new(Recorder));
    script.out();
    script.pass(100);
    script.inject(seg(bentpipe_wire::Flags::SYN | ACK, 0, 1).options(mss(1000)));
    script.tcp.write_virtual(u64::MAX);
    script.out();
    script.pass(100);
    script.inject(seg(ACK, 1, 1001));
    assert_eq!(delivery().total, 1);
}

#[test]
fn what_a_late_driver_costs_a_paced_sender_is_made_up_for_within_a_bound() {
    let config = Config {
        pacing: Some(Rate::from_bits_per_sec(1_000_000)),
        initial_window: 100,
        ..plain()
    };
    let mut script = Script::open_with(config, mss(1000));
    script.tcp.write_virtual(u64::MAX);
    assert_eq!(script.data().len(), 2, "then 8 ms for each");
    let began = script.now;
    let at = |millis| Some(began + Duration::from_millis(millis));
    assert_eq!(script.tcp.deadline(), at(16));
    let mut late = |millis: u64| {
        script.now = began + Duration::from_millis(millis);
        script.tcp.timeout(script.now);
        (script.data().len(), script.tcp.deadline())
    };
    // 5 ms late; the next are in time.
    assert_eq!(late(21), (2, at(32)));
    // 100 ms late: 10 ms of them are made up for, the next leave so much sooner.
    assert_eq!(late(132), (2, at(138)));
    // Nothing is left of it.
    assert_eq!(late(138), (2, at(154)));
}
