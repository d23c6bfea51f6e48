//! The user timeout (RFC 9293, section 3.8.3; RFC 5482; Linux `TCP_USER_TIMEOUT`).

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::{Cause, Config, Event, State};
use script::{ACK, RST, Script, plain, seg};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn config(seconds: u64) -> Config {
    Config {
        user_timeout: Some(Duration::from_secs(seconds)),
        ..plain()
    }
}

/// Runs until the connection ends; returns after how many milliseconds, and how many segments with data went out.
fn until_given_up(script: &mut Script) -> (u64, usize) {
    let (mut waited, mut sent) = (0, script.data().len());
    while script.tcp.state() != State::Closed {
        waited += script.expire();
        let out = script.out();
        sent += out.iter().filter(|out| out.len > 0).count();
        if script.tcp.state() == State::Closed {
            assert!(
                out.len() == 1 && out[0].has(RST),
                "the peer is told: {out:?}"
            );
        }
    }
    let given_up = Event::Aborted(Cause::TimedOut);
    assert!(script.events().contains(&given_up));
    (waited, sent)
}

#[test]
fn data_that_nobody_acknowledges_ends_the_connection_at_the_very_time() {
    for seconds in [5, 20, 600] {
        let mut script = Script::open(config(seconds));
        script.tcp.write_virtual(1000);
        let (waited, sent) = until_given_up(&mut script);
        assert_eq!(waited, seconds * 1000);
        assert!(sent > 1);
    }
    // It takes the place of the count of retransmissions, which would have been over sooner.
    let mut script = Script::open(Config {
        max_retries: 2,
        ..config(600)
    });
    script.tcp.write_virtual(1000);
    assert_eq!(until_given_up(&mut script).0, 600_000);
}

#[test]
fn at_least_one_retransmission_goes_out() {
    let mut script = Script::open(config(5));
    script.tcp.set_user_timeout(Some(Duration::from_millis(1)));
    script.tcp.write_virtual(1000);
    let (waited, sent) = until_given_up(&mut script);
    // The first RTO is a second or more.
    assert!((300..=3_000).contains(&waited), "{waited}");
    assert_eq!(sent, 2);
}

#[test]
fn an_acknowledgement_of_new_data_begins_the_time_anew() {
    let mut script = Script::open(config(10));
    script.tcp.write_virtual(2000);
    script.out();
    script.pass(9_000);
    script.out();
    script.inject(seg(ACK, 1, 1001));
    script.out();
    script.pass(9_900);
    script.out();
    assert_eq!(script.tcp.state(), State::Established);
    // Duplicates do not: the peer lives, but what was sent is not delivered.
    script.inject(seg(ACK, 1, 1001));
    script.pass(200);
    assert_eq!(script.tcp.state(), State::Closed);
}

#[test]
fn what_was_idle_long_has_the_whole_time_for_what_it_sends_then() {
    let mut script = Script::open(config(10));
    script.pass(1_000_000);
    script.tcp.write_virtual(1000);
    script.out();
    script.pass(9_900);
    script.out();
    assert_eq!(script.tcp.state(), State::Established);
    script.inject(seg(ACK, 1, 1001));
    assert_eq!(script.tcp.unacknowledged(), 0);
}

#[test]
fn a_window_that_stays_shut_ends_it_though_its_probes_are_answered() {
    let answered = |timeout: Option<u64>| {
        let mut script = Script::open(plain());
        script
            .tcp
            .set_user_timeout(timeout.map(Duration::from_secs));
        script.inject(seg(ACK, 1, 1).window(0));
        script.tcp.write_virtual(1000);
        script.out();
        let began = script.now;
        while script.now.since(began) < 300 * SECOND && script.tcp.state() != State::Closed {
            script.expire();
            if !script.out().is_empty() && script.tcp.state() != State::Closed {
                script.inject(seg(ACK, 1, 1).window(0));
                script.out();
            }
        }
        (script.tcp.state(), script.now.since(began).as_secs())
    };
    assert_eq!(answered(None).0, State::Established);
    assert_eq!(answered(Some(20)), (State::Closed, 20));
}

#[test]
fn a_syn_has_it_too() {
    let mut script = Script::connect(config(5));
    script.out();
    let mut waited = 0;
    while script.tcp.state() != State::Closed {
        waited += script.expire();
        script.out();
    }
    assert_eq!(waited, 5_000);
    // But not more than its own tries.
    let mut script = Script::connect(Config {
        max_retries: 3,
        ..config(100_000)
    });
    script.out();
    while script.tcp.state() != State::Closed {
        script.expire();
        script.out();
    }
    assert!(script.tcp.counters().timeouts <= 4);
}

#[test]
fn keep_alive_probes_end_by_it() {
    let mut script = Script::open(Config {
        keep_alive: Some(10 * SECOND),
        ..config(25)
    });
    let began = script.now;
    while script.tcp.state() != State::Closed {
        script.expire();
        script.out();
    }
    // Silent for ten seconds, then a probe each ten.
    assert_eq!(script.now.since(began).as_secs(), 30);
}
