//! A loss in a queue that still fills: what is sent again arrives behind all that waits, later than
//! any round trip before. Linux does not take that for a second loss.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::{Config, Connection, Counters, recovery};
use std::sync::Arc;
use std::time::Duration;
use support::Line;

/// 500 segments in slow start over 2 Mb/s and 560 ms; number 300 is lost.
fn slow_start_with_a_loss(recovery: &str) -> Counters {
    let config = Arc::new(Config {
        recovery: recovery::find(recovery).unwrap(),
        min_rto: Duration::from_millis(200),
        rto_variance: Duration::from_millis(200),
        ..Config::rfc()
    });
    let new =
        |iss, irs| Connection::established(Arc::clone(&config), Seq(iss), Seq(irs), Instant::ZERO);
    let mut line = Line::satellite(new(1, 2), new(2, 1));
    line.drops = vec![300];
    line.near.write_virtual(u64::MAX);
    line.run_for(8);
    *line.near.counters()
}

#[test]
fn a_round_trip_that_grows_is_no_second_loss() {
    let counters = slow_start_with_a_loss("prr-rack");
    assert_eq!((counters.recoveries, counters.timeouts), (1, 0));
    assert_eq!(counters.retransmitted, 1);
    // RFC 6298 starts the timer anew only when data is acknowledged in order.
    assert!(slow_start_with_a_loss("sack").timeouts > 0);
}
