//! The `ns2` preset against figures of ns-2 2.35.

mod support;

use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_tcp::{Config, Connection};
use std::sync::Arc;
use support::Line;

/// A bulk transfer over the satellite line with ns-2's handshake: one round trip.
fn line(variant: &str, drops: &[u64]) -> Line {
    let config = Config::ns2().variant(variant);
    between(config.expect("a variant of the table"), drops)
}

/// As [`line`], by a configuration of both ends.
fn between(config: Config, drops: &[u64]) -> Line {
    let config = Arc::new(config);
    let mut near = Connection::connect(Arc::clone(&config), Seq(7), Instant::ZERO);
    let far = Connection::listen(config, Seq(9), Instant::ZERO);
    near.write_virtual(u64::MAX);
    let mut line = Line::satellite(near, far);
    line.drops = drops.to_vec();
    line
}

#[test]
fn the_loss_free_run_delivers_what_ns2_delivers() {
    for variant in ["tahoe", "reno", "newreno", "sack", "fack"] {
        let mut line = line(variant, &[]);
        line.run_for(300);
        let segments = line.far.counters().bytes_delivered / 500;
        assert_eq!(segments, 142_242, "{variant}");
    }
}

/// Segments that ns-2 2.35 delivers in 40 s when the packets of these numbers (its SYN is 0) are lost
/// on the satellite link: `ErrorModel/List` before the link, default random stream.
#[test]
fn losses_cost_what_they_cost_in_ns2() {
    type Row = (&'static [u64], [u64; 5]);
    const VARIANTS: [&str; 5] = ["tahoe", "reno", "newreno", "sack", "fack"];
    const ROWS: [Row; 4] = [
        (&[30], [1424, 1526, 1526, 1504, 1555]),
        (&[3], [1139, 1170, 1170, 1137, 1063]),
        (&[30, 31, 33], [1417, 1073, 1196, 1504, 1604]),
        (&[100, 110, 111, 150], [2309, 1552, 1620, 2618, 2676]),
    ];
    for (drops, expected) in ROWS {
        for (variant, expected) in VARIANTS.into_iter().zip(expected) {
            let mut line = line(variant, drops);
            line.run_for(40);
            let segments = line.far.counters().bytes_delivered / 500;
            // Where a timeout decides, ns-2's clock has a random phase within its tick of 10 ms, which
            // pairs segments otherwise for the delayed acknowledgements that follow.
            let by_timeout = drops.len() == 3 && variant.ends_with("reno");
            let reordered = drops.len() == 4 && variant == "tahoe";
            let slack = if by_timeout || reordered { 0.05 } else { 0.0 };
            let error = segments.abs_diff(expected) as f64 / expected as f64;
            assert!(
                error <= slack,
                "{variant} without {drops:?}: {segments} segments, ns-2 has {expected}"
            );
        }
    }
}

/// As ns-2 has it a lost SYN leaves what any timeout does: a threshold of two segments and a timeout of 6 s
/// until a round trip is timed. Segments delivered in 40 s when these packets are lost, the SYN and the SYN sent
/// again among them. Of Fack whose first data is lost too one row is left out: ns-2 times a round trip by the
/// duplicate acknowledgement, from a SYN that ours has told it nothing of.
#[test]
fn a_lost_syn_costs_what_it_costs_in_ns2() {
    type Row = (&'static [u64], [u64; 5]);
    const VARIANTS: [&str; 5] = ["tahoe", "reno", "newreno", "sack", "fack"];
    const ROWS: [Row; 4] = [
        (&[0], [1052, 1052, 1052, 1052, 1091]),
        (&[0, 1], [743, 743, 743, 743, 769]),
        (&[0, 2], [743, 743, 743, 743, 847]),
        (&[1], [1125, 1125, 1125, 1136, 1101]),
    ];
    for (drops, expected) in ROWS {
        for (variant, expected) in VARIANTS.into_iter().zip(expected) {
            let mut line = line(variant, drops);
            line.run_for(40);
            let segments = line.far.counters().bytes_delivered / 500;
            if (variant, drops) != ("fack", &[0, 2][..]) {
                assert_eq!(segments, expected, "{variant} without {drops:?}");
            }
        }
    }
}

/// ns-2 halves what it may send, min(cwnd, window), not a congestion window that the receiver's leaves unused.
/// Segments delivered in 60 s through a receive window of so many segments.
#[test]
fn a_limited_window_is_halved_as_in_ns2() {
    type Row = (u64, &'static [u64], [u64; 5]);
    const VARIANTS: [&str; 5] = ["tahoe", "reno", "newreno", "sack", "fack"];
    const ROWS: [Row; 6] = [
        (40, &[], [3995; 5]),
        (40, &[200], [3337, 3509, 3509, 3510, 3529]),
        (40, &[200, 210, 260], [2426, 2358, 2934, 2933, 3002]),
        (101, &[], [9819; 5]),
        (101, &[200], [6479, 7147, 7147, 7139, 7185]),
        (101, &[200, 210, 260], [6463, 4243, 4380, 7139, 7182]),
    ];
    for (window, drops, expected) in ROWS {
        for (variant, expected) in VARIANTS.into_iter().zip(expected) {
            let config = Config::ns2().variant(variant);
            let config = Config {
                receive_buffer: Bytes(500 * window),
                ..config.expect("a variant of the table")
            };
            let mut line = between(config, drops);
            line.run_for(60);
            let segments = line.far.counters().bytes_delivered / 500;
            // As above, by a timeout.
            let by_timeout = window == 101 && drops.len() == 3 && variant.ends_with("reno");
            let slack = if by_timeout { 0.01 } else { 0.0 };
            let error = segments.abs_diff(expected) as f64 / expected as f64;
            assert!(
                error <= slack,
                "{variant} without {drops:?} by a window of {window}: {segments} segments, ns-2 has {expected}"
            );
        }
    }
}
