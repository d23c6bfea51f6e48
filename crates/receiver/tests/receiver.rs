//! A receiving half by itself. How it does within a connection is in the tests of the crate `tcp`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_base::{Bytes, Instant, Seq, TimerWheel};
use bentpipe_receiver::{Receiver, Settings};
use bentpipe_wire::Payload;
use std::time::Duration;

const MSS: u16 = 1000;
const NOW: Instant = Instant::ZERO;

/// One whose peer's SYN was numbered 100, with room for `segments` segments.
fn receiver(segments: u64) -> Receiver {
    let mut receiver = Receiver::new(&Settings {
        mss: MSS,
        receive_buffer: Bytes(segments * u64::from(MSS)),
        scale: 0,
        delayed_ack: Duration::from_millis(40),
        timers: TimerWheel::default(),
        ack_every: 2,
        quick_acks: 0,
        acks_first_byte: false,
        sacks_fin: false,
        tells_duplicates: true,
    });
    receiver.synchronise(Seq(100));
    receiver.acknowledge();
    receiver
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

/// The first segment that each SACK block covers.
fn blocks(receiver: &Receiver) -> Vec<u32> {
    let begins = receiver
        .blocks(4)
        .iter()
        .map(|block| block.left)
        .collect::<Vec<_>>();
    begins
        .into_iter()
        .map(|left| (left.0 - 101) / u32::from(MSS))
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
    let mut receiver = Receiver::new(&Settings {
        mss: MSS,
        receive_buffer: Bytes(100_000),
        scale: 0,
        delayed_ack: Duration::from_millis(40),
        timers: TimerWheel::default(),
        ack_every: 2,
        quick_acks: 2,
        acks_first_byte: false,
        sacks_fin: false,
        tells_duplicates: true,
    });
    receiver.synchronise(Seq(100));
    receiver.acknowledge();
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
