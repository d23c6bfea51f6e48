//! A receiving half by itself. How it does within a connection is in the tests of the crate `tcp`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_base::{Bytes, Instant, Seq, TimerWheel};
use bentpipe_receiver::{Receiver, Settings};
use bentpipe_wire::{Payload, SackBlock};
use std::time::Duration;

const MSS: u16 = 1000;
const NOW: Instant = Instant::ZERO;

/// With room for `segments` segments.
fn settings(segments: u64) -> Settings {
    Settings {
        mss: MSS,
        receive_buffer: Bytes(segments * u64::from(MSS)),
        scale: 0,
        delayed_ack: Duration::from_millis(40),
        timers: TimerWheel::default(),
        ack_every: 2,
        quick_acks: 0,
        acks_first_byte: false,
        linux_sack: false,
        tells_duplicates: true,
    }
}

/// One whose peer's SYN was numbered 100.
fn receiver_as(settings: &Settings) -> Receiver {
    let mut receiver = Receiver::new(settings);
    receiver.synchronise(Seq(100));
    receiver.acknowledge();
    receiver
}

/// With room for `segments` segments.
fn receiver(segments: u64) -> Receiver {
    receiver_as(&settings(segments))
}

/// Takes segment `number`, counted from 0.
fn take(receiver: &mut Receiver, number: i64) {
    let from = number * i64::from(MSS);
    let payload = Payload::Virtual {
        offset: from as u64,
        len: MSS.into(),
    };
    receiver.take(1 + from, &payload, false, NOW);
}

/// The segments that each SACK block covers: from which on, and up to which.
fn stretches(receiver: &Receiver) -> Vec<(u32, u32)> {
    let segment = |seq: Seq| (seq.0 - 101) / u32::from(MSS);
    let blocks = receiver.blocks(4);
    let stretch = |block: &SackBlock| (segment(block.left), segment(block.right));
    blocks.iter().map(stretch).collect()
}

/// The first of them.
fn blocks(receiver: &Receiver) -> Vec<u32> {
    stretches(receiver)
        .into_iter()
        .map(|(from, _)| from)
        .collect()
}

#[test]
fn sack_blocks_begin_with_what_came_last_and_with_what_came_twice() {
    let mut receiver = receiver(20);
    for number in [1, 5, 3] {
        take(&mut receiver, number);
    }
    assert_eq!(blocks(&receiver), [3, 5, 1]);
    take(&mut receiver, 5);
    // RFC 2883, section 4: the duplicate, the stretch that it lies in, and then the others.
    assert_eq!(blocks(&receiver), [5, 5, 3, 1]);
    receiver.acknowledge();
    take(&mut receiver, 0);
    assert_eq!(receiver.readable(), 2000);
    assert_eq!(receiver.next, 2001);
}

/// Linux remembers four blocks: what fills a hole older than these is told by itself, though both its neighbours were here.
#[test]
fn linux_tells_of_what_lies_beside_none_of_its_last_four_blocks_alone() {
    let mut receiver = receiver_as(&Settings {
        linux_sack: true,
        ..settings(40)
    });
    for number in [2, 4, 6, 8, 10, 12] {
        take(&mut receiver, number);
    }
    assert_eq!(stretches(&receiver), [(12, 13), (10, 11), (8, 9), (6, 7)]);
    // Beside the oldest that is remembered.
    take(&mut receiver, 7);
    assert_eq!(stretches(&receiver), [(6, 9), (12, 13), (10, 11)]);
    take(&mut receiver, 3);
    assert_eq!(stretches(&receiver), [(3, 4), (6, 9), (12, 13), (10, 11)]);
    // A copy is told twice, as what arrived twice and as what arrived last.
    take(&mut receiver, 4);
    assert_eq!(stretches(&receiver), [(4, 5), (3, 5), (6, 9), (12, 13)]);
    receiver.acknowledge();
    for number in [0, 1] {
        take(&mut receiver, number);
    }
    assert_eq!(receiver.next, 5001);
    assert_eq!(stretches(&receiver), [(6, 9), (12, 13), (10, 11)]);
    take(&mut receiver, 5);
    assert_eq!(
        (receiver.next, stretches(&receiver)),
        (9001, vec![(12, 13), (10, 11)])
    );
}

#[test]
fn a_closed_window_opens_by_a_whole_segment_or_not_at_all() {
    let mut receiver = receiver(4);
    for number in 0..4 {
        take(&mut receiver, number);
    }
    assert_eq!(receiver.acknowledge(), 0);
    receiver.consume(999);
    assert!(!receiver.ack_now, "RFC 9293, section 3.8.6.2.2");
    receiver.consume(1);
    assert!(receiver.ack_now);
    assert_eq!(receiver.acknowledge(), 1000);
}

#[test]
fn every_second_segment_is_acknowledged_at_once_and_a_single_one_later() {
    let mut receiver = receiver(20);
    take(&mut receiver, 0);
    assert!(!receiver.ack_now);
    assert_eq!(receiver.delack, NOW + Duration::from_millis(40));
    take(&mut receiver, 1);
    assert!(receiver.ack_now);
    receiver.acknowledge();
    assert_eq!(receiver.delack, Instant::MAX);
}

#[test]
fn after_a_silence_longer_than_a_timeout_each_segment_is_acknowledged_again() {
    let mut receiver = receiver_as(&Settings {
        quick_acks: 2,
        ..settings(100)
    });
    receiver.set_patience(Duration::from_millis(250));
    let mut next = 0;
    let mut at_once = |millis: u64| {
        let payload = Payload::Virtual {
            offset: next,
            len: MSS.into(),
        };
        let now = NOW + Duration::from_millis(millis);
        receiver.take(1 + next as i64, &payload, false, now);
        next += u64::from(MSS);
        let due = receiver.ack_now;
        if due {
            receiver.acknowledge();
        }
        due
    };
    // The first two of the connection, then every second.
    assert_eq!(
        [0, 1, 2, 3, 4].map(&mut at_once),
        [true, true, false, true, false]
    );
    at_once(5);
    assert_eq!([255, 256].map(&mut at_once), [false, true]);
    assert_eq!(
        [600, 601, 602, 603].map(&mut at_once),
        [true, true, false, true]
    );
}

/// Somebody forged an end beyond a gap, whether acknowledgements tell of it or not: the stream ends where its own end is.
#[test]
fn an_end_in_order_counts_whatever_was_said_of_one_beyond_it() {
    for (linux_sack, data_beyond) in [(false, false), (true, false), (false, true), (true, true)] {
        let settings = Settings {
            linux_sack,
            ..settings(20)
        };
        let mut receiver = receiver_as(&settings);
        let (offset, len) = (0, MSS.into());
        let payload = Payload::Virtual { offset, len };
        let forged = match data_beyond {
            false => Payload::Virtual { offset, len: 0 },
            true => Payload::Virtual { offset, len },
        };
        assert!(
            !receiver
                .take(1 + 5 * i64::from(MSS), &forged, true, NOW)
                .fin
        );
        assert!(!receiver.finished());
        let taken = receiver.take(1, &payload, true, NOW);
        assert!(taken.fin && taken.readable && receiver.finished());
        assert_eq!(receiver.readable(), u64::from(MSS));
        assert!(!receiver.has_gap() && receiver.blocks(4).is_empty());
        // Both once more change nothing.
        for (from, payload) in [(1, &payload), (1 + 5 * i64::from(MSS), &forged)] {
            assert!(!receiver.take(from, payload, true, NOW).fin);
        }
        assert_eq!(receiver.readable(), u64::from(MSS));
        assert!(receiver.finished());
    }
}
