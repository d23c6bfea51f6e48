//! The `ns2` preset against figures of ns-2 2.35.

mod support;

use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::{Config, Connection};
use std::sync::Arc;
use support::Line;

/// A bulk transfer over the satellite line with ns-2's handshake: one round trip.
fn line(variant: &str, drops: &[u64]) -> Line {
    let config = Arc::new(
        Config::ns2()
            .variant(variant)
            .expect("a variant of the table"),
    );
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
