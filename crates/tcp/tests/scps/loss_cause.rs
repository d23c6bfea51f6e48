//! What a loss means: told by option 23, by marks of ECN, or by a setting.

use super::script::{ACK, SYN, Script, seg};
use super::{offer, open, plain, said, snack};
use bentpipe_tcp::{Config, EcnMode, LossCause, Scps};
use bentpipe_wire::scps::ScpsOptions;
use bentpipe_wire::{Flags, TcpOptions};
use std::time::Duration;

/// Losses mean congestion, but for a second after the peer told of corruption, where that is believed.
#[test]
fn corruption_that_the_peer_experiences_keeps_the_window_for_a_bounded_time() {
    let believed = Some(Duration::from_secs(1));
    for (believes, waits, stays) in [
        (believed, 0, true),
        (believed, 1001, false),
        (None, 0, false),
    ] {
        let config = Config {
            loss_cause: LossCause::Congestion,
            scps: Some(Scps {
                corruption_experienced: believes,
                ..Scps::default()
            }),
            ..plain()
        };
        let mut script = open(config);
        script.tcp.write_virtual(30_000);
        script.expect(1, 10);
        script.pass(100);
        let corruption = ScpsOptions {
            corruption_experienced: true,
            ..ScpsOptions::default()
        };
        script.inject(seg(ACK, 1, 3001).options(TcpOptions {
            unknown: corruption.to_raw().expect("it fits").map(Box::new),
            ..TcpOptions::default()
        }));
        script.data();
        // New acknowledgements keep the timers away.
        for step in 0..waits / 143 {
            script.pass(143);
            script.inject(seg(ACK, 1, 3002 + step));
            script.data();
        }
        let window = script.tcp.gauges().cwnd;
        script.inject(snack(3002 + waits / 143, 0, 1));
        assert!(!script.data().is_empty());
        let kept = script.tcp.gauges().cwnd >= window;
        assert_eq!(kept, stays, "{believes:?}, {waits} ms later");
    }
}

#[test]
fn a_damaged_packet_is_told_with_one_acknowledgement_where_that_is_wanted() {
    for wanted in [None, Some(Duration::from_secs(1))] {
        let mut script = open(Config {
            scps: Some(Scps {
                corruption_experienced: wanted,
                ..Scps::default()
            }),
            ..plain()
        });
        script.tcp.note_damaged();
        for (i, told) in [(1, wanted.is_some()), (2, false)] {
            script.inject(seg(ACK, i * 1000 + 1, 1).data(1000));
            let out = script.out();
            assert_eq!(
                said(&out[0]).corruption_experienced,
                told,
                "{wanted:?}: {i}"
            );
            assert!(said(&out[0]).snack.is_some());
        }
    }
}

/// Losses are corruption, and marks are congestion: which of the two happened is told, not guessed.
#[test]
fn marks_reduce_the_window_where_losses_do_not() {
    let mut script = Script::connect(Config {
        ecn: EcnMode::Ask,
        ..plain()
    });
    script.out();
    script.pass(100);
    script.inject(seg(SYN | ACK | Flags::ECE, 0, 1).options(offer(1000)));
    script.out();
    assert!(script.tcp.speaks_scps() && script.tcp.speaks_ecn());
    script.tcp.write_virtual(100_000);
    let out = script.out();
    assert!(out.iter().all(|out| out.ecn.is_capable()), "{out:?}");
    script.pass(100);
    let window = script.tcp.gauges().cwnd;
    script.inject(snack(1, 2, 1));
    assert_eq!(script.data()[0], (2001, 1000));
    assert!(script.tcp.gauges().cwnd >= window);
    script.pass(100);
    script.inject(seg(ACK, 1, 10_001));
    script.data();
    let window = script.tcp.gauges().cwnd;
    script.inject(seg(ACK | Flags::ECE, 1, 11_001));
    assert!(script.tcp.gauges().cwnd <= window / 2.0 + 1.0);
    assert_eq!(script.tcp.counters().mark_reductions, 1);
}
