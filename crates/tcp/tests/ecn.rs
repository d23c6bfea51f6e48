//! Explicit congestion notification (RFC 3168).

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::{Config, EcnMode, State, recovery};
use bentpipe_wire::{Ecn, Flags, TcpOptions};
use script::{ACK, FIN, Out, SYN, Script, mss, plain, seg};

const ECE: Flags = Flags::ECE;
const CWR: Flags = Flags::CWR;

fn config(ecn: EcnMode) -> Config {
    Config {
        ecn,
        initial_window: 10,
        ..plain()
    }
}

/// A connection of which both ends speak ECN, with the recovery called `name`.
fn speaking(name: &str) -> Script {
    let recovery = recovery::find(name).expect("it is in the registry");
    let mut script = Script::connect(Config {
        recovery,
        sack_blocks: if recovery.without_sack.is_some() {
            4
        } else {
            0
        },
        ..config(EcnMode::Ask)
    });
    script.out();
    script.pass(100);
    let options = TcpOptions {
        sack_permitted: recovery.without_sack.is_some(),
        ..mss(1000)
    };
    script.inject(seg(SYN | ACK | ECE, 0, 1).options(options));
    script.out();
    assert!(script.tcp.speaks_ecn());
    script
}

/// Ten segments in flight from number 1, cwnd 10, no threshold, by each recovery.
fn flights() -> impl Iterator<Item = (&'static str, Script)> {
    let names = [
        "tahoe", "reno", "newreno", "sack", "fack", "prr-rack", "rack-tlp",
    ];
    names.into_iter().map(|name| {
        let mut script = speaking(name);
        script.tcp.write_virtual(1_000_000);
        script.expect(1, 10);
        script.pass(100);
        (name, script)
    })
}

fn one(out: Vec<Out>) -> Out {
    assert_eq!(out.len(), 1, "{out:?}");
    out.into_iter().next().expect("one")
}

fn cwnd(script: &Script) -> f64 {
    script.tcp.gauges().cwnd
}

#[test]
fn the_first_syn_asks_and_the_second_does_not() {
    let mut script = Script::connect(config(EcnMode::Ask));
    let syn = one(script.out());
    assert_eq!(syn.flags, SYN | ECE | CWR);
    assert_eq!(syn.ecn, Ecn::NotCapable);
    script.expire();
    assert_eq!(one(script.out()).flags, SYN);
    // The answer is to the first: marks that come are echoed, but what we send is not capable (section 6.1.1).
    script.inject(seg(SYN | ACK | ECE, 0, 1).options(mss(1000)));
    script.out();
    script.inject_by(Ecn::Marked, seg(ACK, 1, 1).data(1000));
    assert!(one(script.out()).has(ECE));
    script.tcp.write_virtual(1000);
    let data = one(script.out());
    assert_eq!((data.len, data.ecn), (1000, Ecn::NotCapable));
    // Who does not ask does not: Linux's value 2.
    for mode in [EcnMode::Off, EcnMode::Accept] {
        assert_eq!(one(Script::connect(config(mode)).out()).flags, SYN);
    }
}

#[test]
fn an_answer_agrees_with_ece_alone() {
    for (flags, agrees) in [
        (ECE, true),
        (ECE | CWR, false),
        (CWR, false),
        (Flags::empty(), false),
    ] {
        let mut script = Script::connect(config(EcnMode::Ask));
        script.out();
        script.inject(seg(SYN | ACK | flags, 0, 1).options(mss(1000)));
        assert_eq!(script.tcp.speaks_ecn(), agrees, "{flags:?}");
        script.out();
        script.tcp.write_virtual(1000);
        assert_eq!(one(script.out()).ecn.is_capable(), agrees);
        // What did not agree echoes nothing, and heeds no echo.
        script.inject_by(Ecn::Marked, seg(ACK | ECE, 1, 1001).data(1000));
        script.pass(100);
        assert_eq!(one(script.out()).has(ECE), agrees);
        assert_eq!(script.tcp.counters().mark_reductions, u64::from(agrees));
    }
    // An answer that agrees to what was not asked for.
    let mut script = Script::connect(config(EcnMode::Accept));
    script.out();
    script.inject(seg(SYN | ACK | ECE, 0, 1).options(mss(1000)));
    assert!(!script.tcp.speaks_ecn());
}

#[test]
fn a_listener_agrees_where_it_is_asked() {
    let cases = [
        (EcnMode::Off, ECE | CWR, Ecn::NotCapable, false),
        (EcnMode::Accept, ECE | CWR, Ecn::NotCapable, true),
        (EcnMode::Ask, ECE | CWR, Ecn::NotCapable, true),
        (EcnMode::Ask, ECE, Ecn::NotCapable, false),
        (EcnMode::Ask, Flags::empty(), Ecn::NotCapable, false),
        // Somebody on the path tampered with it.
        (EcnMode::Ask, ECE | CWR, Ecn::Marked, false),
    ];
    for (mode, flags, ecn, agrees) in cases {
        let mut script = Script::listen(config(mode));
        script.inject_by(ecn, seg(SYN | flags, 0, 0).options(mss(1000)));
        let answer = one(script.out());
        let agreed = if agrees { ECE } else { Flags::empty() };
        assert_eq!(
            answer.flags,
            SYN | ACK | agreed,
            "{mode:?} {flags:?} {ecn:?}"
        );
        assert_eq!(answer.ecn, Ecn::NotCapable);
        script.inject(seg(ACK, 1, 1));
        assert_eq!(script.tcp.state(), State::Established);
        assert_eq!(script.tcp.speaks_ecn(), agrees);
    }
    // The client has given ECN up, for its first SYN was lost, or the answer to it.
    let mut script = Script::listen(config(EcnMode::Accept));
    script.inject(seg(SYN | ECE | CWR, 0, 0).options(mss(1000)));
    script.out();
    script.inject(seg(SYN, 0, 0).options(mss(1000)));
    assert_eq!(one(script.out()).flags, SYN | ACK);
    script.inject(seg(ACK, 1, 1));
    assert!(!script.tcp.speaks_ecn());
}

#[test]
fn both_may_open_at_once_and_ask() {
    let mut script = Script::connect(config(EcnMode::Ask));
    script.out();
    script.inject(seg(SYN | ECE | CWR, 0, 0).options(mss(1000)));
    assert_eq!(one(script.out()).flags, SYN | ACK | ECE);
    script.inject(seg(ACK, 1, 1));
    assert!(script.tcp.speaks_ecn());
}

#[test]
fn only_new_data_is_capable() {
    for (name, mut script) in flights() {
        script.inject(seg(ACK, 1, 1001));
        let sent = script.out();
        assert!(!sent.is_empty() && sent.iter().all(|out| out.ecn == Ecn::Capable0));
        // The second is lost.
        for held in 1..=4 {
            let blocks = [(2001, 2001 + held * 1000)];
            let ack = seg(ACK, 1, 1001);
            let sack = !matches!(name, "tahoe" | "reno" | "newreno");
            script.inject(if sack { ack.sack(&blocks) } else { ack });
        }
        script.pass(60);
        let out = script.out();
        let again: Vec<_> = out.iter().filter(|out| out.seq == 1001).collect();
        assert_eq!(again.len(), 1, "{name}: {out:?}");
        for data in &out {
            // After a loss Tahoe sends all again.
            let fresh = data.seq > 10_000 && name != "tahoe";
            assert_eq!(data.ecn.is_capable(), fresh, "{name}: {data:?}");
        }
        // Nor is an acknowledgement.
        script.inject(seg(ACK, 1, 1001).data(1000));
        script.pass(100);
        let out = script.out();
        let ack = out.iter().find(|out| out.len == 0).expect("one");
        assert_eq!(ack.ecn, Ecn::NotCapable);
    }
}

#[test]
fn a_mark_is_echoed_at_once_and_until_the_peer_has_reduced_its_window() {
    let mut script = Script::listen(config(EcnMode::Accept));
    script.inject(seg(SYN | ECE | CWR, 0, 0).options(mss(1000)));
    script.out();
    script.inject_by(Ecn::Capable0, seg(ACK, 1, 1).data(1000));
    assert!(script.out().is_empty(), "it waits for a second one");
    script.inject_by(Ecn::Marked, seg(ACK, 1001, 1).data(1000));
    assert_eq!(one(script.out()).flags, ACK | ECE);
    // A single mark is echoed at once too, and then in each segment, data among them.
    script.inject_by(Ecn::Capable0, seg(ACK, 2001, 1).data(1000));
    script.tcp.write_virtual(1000);
    assert!(one(script.out()).has(ACK | ECE));
    script.inject_by(Ecn::Capable0, seg(ACK | CWR, 3001, 1).data(1000));
    let ack = one(script.out());
    assert!(!ack.has(ECE), "{ack:?}");
    // One with CWR may be marked itself.
    script.inject_by(Ecn::Marked, seg(ACK | CWR, 4001, 1).data(1000));
    assert!(one(script.out()).has(ECE));
    assert_eq!(script.tcp.counters().marks, 2);
    // Marks on what lies outside the window, and on what has no data, count for nothing (section 6.1.5).
    script.inject_by(Ecn::Capable0, seg(ACK | CWR, 5001, 1).data(1000));
    script.out();
    script.inject_by(Ecn::Marked, seg(ACK, 1, 1).data(1000));
    script.inject_by(Ecn::Marked, seg(ACK, 6001, 1));
    assert!(!script.out().iter().any(|out| out.has(ECE)));
    assert_eq!(script.tcp.counters().marks, 2);
}

/// The congestion control is asked once; no recovery takes an echo for more.
#[test]
fn an_echo_halves_the_window_once_a_round_trip_and_the_next_new_data_says_so() {
    for (name, mut script) in flights() {
        let gradual = matches!(name, "prr-rack" | "rack-tlp");
        // All ten are acknowledged, one by one, and each acknowledgement echoes.
        let mut sent = Vec::new();
        for number in 1..=10 {
            script.inject(seg(ACK | ECE, 1, 1 + number * 1000));
            if !gradual {
                assert_eq!(cwnd(&script), 5.0, "{name}");
            }
            sent.extend(script.out());
        }
        assert_eq!(script.tcp.gauges().ssthresh, Some(5), "{name}");
        assert_eq!(script.tcp.counters().mark_reductions, 1, "{name}");
        assert_eq!(script.tcp.counters().recoveries, 0, "{name}");
        assert_eq!(sent.len(), 5, "{name}: {sent:?}");
        let reduced: Vec<bool> = sent.iter().map(|out| out.has(CWR)).collect();
        assert_eq!(reduced, [true, false, false, false, false], "{name}");
        // The peer has had CWR and goes on without: the window grows again, by one in a round trip.
        script.pass(100);
        for number in 11..=15 {
            script.inject(seg(ACK, 1, 1 + number * 1000));
            script.out();
        }
        assert!(
            (5.0..=6.0).contains(&cwnd(&script)),
            "{name}: {}",
            cwnd(&script)
        );
        // A peer that lies goes on to echo.
        for trip in 0..20 {
            let before = script.tcp.counters().mark_reductions;
            let from = script.tcp.counters().bytes_acked / 1000 + 1;
            let to = script.tcp.counters().bytes_sent / 1000;
            script.pass(100);
            for number in from..=to {
                script.inject(seg(ACK | ECE, 1, 1 + number as i64 * 1000));
                script.out();
            }
            let reductions = script.tcp.counters().mark_reductions - before;
            assert!(reductions <= 1, "{name}: {reductions} in round trip {trip}");
            assert!(cwnd(&script) >= 1.0, "{name}");
        }
        assert_eq!(script.tcp.gauges().ssthresh, Some(2), "{name}");
    }
}

#[test]
fn a_loss_in_the_window_of_an_echo_does_not_reduce_it_again() {
    for (name, mut script) in flights() {
        let sack = !matches!(name, "tahoe" | "reno" | "newreno");
        script.inject(seg(ACK | ECE, 1, 1001));
        script.out();
        let dupack = |held: u32| {
            let ack = seg(ACK | ECE, 1, 1001);
            if sack {
                ack.sack(&[(2001, 2001 + held * 1000)])
            } else {
                ack
            }
        };
        for held in 1..=5 {
            script.inject(dupack(held));
            script.pass(10);
            script.out();
        }
        script.pass(50);
        script.out();
        assert_eq!(script.tcp.counters().recoveries, 1, "{name}");
        assert_eq!(script.tcp.gauges().ssthresh, Some(5), "{name}");
        assert_eq!(script.tcp.counters().mark_reductions, 1, "{name}");
        // Nor does a timeout of what was in flight.
        while script.tcp.counters().timeouts == 0 {
            script.expire();
            script.out();
        }
        assert!(script.tcp.gauges().ssthresh >= Some(2), "{name}");
    }
}

#[test]
fn a_timeout_in_the_window_of_an_echo_leaves_the_threshold() {
    for (name, mut script) in flights() {
        script.inject(seg(ACK | ECE, 1, 1001));
        script.out();
        while script.tcp.counters().timeouts == 0 {
            script.expire();
            script.out();
        }
        assert_eq!(script.tcp.gauges().ssthresh, Some(5), "{name}");
        assert_eq!(cwnd(&script), 1.0, "{name}");
    }
}

#[test]
fn who_reduces_its_window_for_a_loss_says_so_and_heeds_no_echo_of_what_was_in_flight() {
    for (name, mut script) in flights() {
        let sack = !matches!(name, "tahoe" | "reno" | "newreno");
        for held in 1..=4 {
            let ack = seg(ACK, 1, 1);
            script.inject(if sack {
                ack.sack(&[(1001, 1001 + held * 1000)])
            } else {
                ack
            });
        }
        script.pass(60);
        script.out();
        assert_eq!(script.tcp.counters().recoveries, 1, "{name}");
        let sent = script.tcp.counters().bytes_sent;
        script.inject(seg(ACK | ECE, 1, 10_001));
        let out = script.out();
        assert!(script.tcp.counters().bytes_sent > sent, "{name}");
        assert_eq!(script.tcp.counters().mark_reductions, 0, "{name}");
        assert_eq!(script.tcp.gauges().ssthresh, Some(5), "{name}");
        let reduced = out.iter().filter(|out| out.has(CWR)).count();
        // With SACK new data may have gone out in recovery already.
        assert!(reduced <= 1, "{name}: {out:?}");
    }
}

#[test]
fn the_last_acknowledgement_and_the_fin_are_not_capable() {
    let mut script = speaking("reno");
    script.inject_by(Ecn::Marked, seg(ACK | FIN, 1, 1).data(1000));
    let ack = one(script.out());
    assert!(ack.has(ECE), "{ack:?}");
    script.tcp.close(script.now);
    let fin = one(script.out());
    assert!(fin.has(FIN | ECE) && !fin.ecn.is_capable(), "{fin:?}");
}
