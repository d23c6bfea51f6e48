//! The oddity of ns-2's Vegas that its figures with Snoop depend on, by script.

use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::{Config, Connection};
use bentpipe_wire::{Flags, Segment};
use std::sync::Arc;

const MSS: u32 = 500;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// The numbers of the segments sent, from 0.
fn sent(tcp: &mut Connection, now: Instant) -> Vec<u32> {
    std::iter::from_fn(|| tcp.transmit(now))
        .map(|segment| segment.seq.offset_from(Seq(1)) as u32 / MSS)
        .collect()
}

/// All segments below number `next` are acknowledged.
fn acknowledge(tcp: &mut Connection, next: u32, now: Instant) -> Vec<u32> {
    let ack = Segment {
        seq: Seq(1),
        ack: Seq(1) + next * MSS,
        flags: Flags::ACK,
        window: u16::MAX,
        ..Segment::default()
    };
    tcp.input(ack, now);
    sent(tcp, now)
}

#[test]
fn what_was_never_sent_counts_as_expired_after_a_recovery() {
    let mut config = Config::ns2().variant("vegas").unwrap();
    config.initial_window = 2;
    let config = Arc::new(config);
    let mut tcp = Connection::established(config, Seq(0), Seq(0), at(0));
    tcp.write_virtual(u64::MAX);
    assert_eq!(sent(&mut tcp, at(0)), [0, 1]);
    assert_eq!(acknowledge(&mut tcp, 2, at(560)), [2, 3]);
    assert_eq!(acknowledge(&mut tcp, 4, at(1120)), [4, 5, 6]);
    // Segment 4 is lost; a first and a second duplicate release nothing (no limited transmit).
    assert_eq!(acknowledge(&mut tcp, 4, at(1680)), []);
    assert_eq!(acknowledge(&mut tcp, 4, at(1682)), []);
    // The third: the window of 3 becomes 2, inflated by 3.
    assert_eq!(acknowledge(&mut tcp, 4, at(1684)), [4, 7, 8]);
    // Nothing is left in flight: ns-2 sends 9 as "expired" and then again as the next.
    let next = acknowledge(&mut tcp, 9, at(2244));
    assert_eq!(next[..3], [9, 9, 10], "{next:?}");
}
