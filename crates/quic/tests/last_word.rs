//! What an end says that goes, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Instant, Stream};
use bentpipe_link::channel::{Channel, Fate};
use bentpipe_quic::{Code, Event, Quic as _};
use std::time::Duration;
use support::{Pair, at, configs, geo};

/// Loses all from a time on, the first way that is made.
struct Silent(Instant);

impl Channel for Silent {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn strike(&mut self, _bits: u64, now: Instant, _draw: &mut Stream) -> Fate {
        if now < self.0 {
            Fate::Deliver
        } else {
            Fate::Lose
        }
    }
}

#[test]
fn a_close_is_told_whatever_is_in_flight() {
    let path = geo(10, 0.0);
    for control in ["rate", "cubic"] {
        let configs = configs(&path, control, 1);
        let ways = core::cell::Cell::new(0);
        let mut pair = Pair::with_losses(&path, &configs, 1, || {
            let nth = ways.replace(ways.get() + 1);
            // Nothing reaches the far side after ten seconds.
            let silent = if nth == 0 { at(10_000) } else { Instant::MAX };
            Box::new(Silent(silent))
        });
        pair.stand();
        for _ in 0..8 {
            pair.ask(u64::MAX / 2);
        }
        // By then the window of what it sends is full, and there is more to be sent.
        pair.run_until(at(16_000), |_| false);
        let connection = { pair.told.iter() }.find_map(|(side, event)| match event {
            Event::Connected { connection, .. } if *side == "far" => Some(*connection),
            _ => None,
        });
        let now = pair.now;
        { &mut pair.far }.close(connection.unwrap(), Code(0x100), "blocked", now);
        let lost = |pair: &Pair| {
            { pair.told.iter() }.any(|(side, event)| {
                *side == "near"
                    && matches!(event, Event::Lost { reason, .. } if reason.contains("blocked"))
            })
        };
        pair.run_until(now + Duration::from_millis(400), lost);
        assert!(lost(&pair), "{control}: {:?}", pair.told);
    }
}
