//! Connection states and what they answer: RFC 9293, section 3, and RFC 5961.

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::{Cause, Config, Event, State};
use bentpipe_wire::TcpOptions;
use script::{ACK, FIN, RST, SYN, Script, mss, plain, seg};
use std::time::Duration;

#[test]
fn an_active_open_takes_three_segments() {
    let mut script = Script::connect(plain());
    let syn = script.out();
    assert_eq!(
        (syn[0].flags, syn[0].seq, syn[0].ack),
        (SYN, 0, (0u32).wrapping_sub(script::PEER.0))
    );
    assert_eq!(
        syn[0].options.as_ref().and_then(|options| options.mss),
        Some(1000)
    );
    script.inject(seg(SYN | ACK, 0, 1).options(mss(1000)));
    assert_eq!(script.acks(), [1]);
    assert_eq!(script.events(), [Event::Connected]);
}

#[test]
fn only_syns_carry_what_only_syns_may() {
    let mut script = Script::open(Config::rfc());
    script.tcp.write_virtual(3000);
    let out = script.out();
    assert!(!out.is_empty());
    for options in out.iter().filter_map(|out| out.options.as_ref()) {
        let only_in_syns = (options.mss, options.window_scale, options.sack_permitted);
        assert_eq!(only_in_syns, (None, None, false));
    }
}

#[test]
fn a_passive_open_answers_one_syn() {
    let mut script = Script::listen(plain());
    script.inject(seg(SYN, 0, 0).options(mss(700)));
    let answer = script.out();
    assert_eq!(
        (answer.len(), answer[0].flags, answer[0].ack),
        (1, SYN | ACK, 1)
    );
    assert_eq!(script.tcp.state(), State::SynReceived);
    script.inject(seg(ACK, 1, 1));
    assert_eq!(script.tcp.state(), State::Established);
    script.tcp.write_virtual(900);
    assert_eq!(script.data(), [(1, 700), (701, 200)]);
}

#[test]
fn a_peer_without_the_mss_option_gets_536_bytes() {
    let mut script = Script::connect(plain());
    script.out();
    script.inject(seg(SYN | ACK, 0, 1));
    script.tcp.write_virtual(600);
    assert_eq!(script.data(), [(1, 536), (537, 64)]);
}

#[test]
fn over_ipv6_a_peer_without_the_mss_option_gets_1220_bytes() {
    let config = Config {
        mss: 1440,
        ip_header: 40,
        ..plain()
    };
    let mut script = Script::open_with(config, TcpOptions::default());
    script.tcp.write_virtual(1300);
    assert_eq!(script.data(), [(1, 1220), (1221, 80)]);
}

#[test]
fn both_may_open_at_once() {
    let mut script = Script::connect(plain());
    script.out();
    script.inject(seg(SYN, 0, 0).options(mss(1000)));
    let answer = script.out();
    assert_eq!(
        (answer[0].flags, answer[0].seq, answer[0].ack),
        (SYN | ACK, 0, 1)
    );
    script.inject(seg(SYN | ACK, 0, 1).options(mss(1000)));
    assert_eq!(script.acks(), [1]);
    script.inject(seg(ACK, 1, 1));
    assert_eq!(script.tcp.state(), State::Established);
}

#[test]
fn nonsense_before_the_connection_stands_is_reset() {
    let mut script = Script::listen(plain());
    script.inject(seg(ACK, 5, 77));
    let reset = script.out();
    assert_eq!((reset[0].flags, reset[0].seq), (RST, 77));
    assert_eq!(script.tcp.state(), State::Listen);
    script.inject(seg(RST, 5, 0));
    assert!(script.out().is_empty(), "a reset is never answered");

    let mut script = Script::connect(plain());
    script.out();
    script.inject(seg(SYN | ACK, 0, 2));
    let reset = script.out();
    assert_eq!((reset[0].flags, reset[0].seq), (RST, 2));
    assert_eq!(script.tcp.state(), State::SynSent);
    script.inject(seg(RST | ACK, 0, 1));
    assert_eq!(script.events(), [Event::Aborted(Cause::Refused)]);
}

#[test]
fn a_reset_of_a_half_open_passive_connection_returns_to_listen() {
    let mut script = Script::listen(plain());
    script.inject(seg(SYN, 0, 0));
    script.out();
    script.inject(seg(RST, 1, 0));
    assert_eq!(script.tcp.state(), State::Listen);
    script.inject(seg(SYN, 0, 0));
    assert_eq!(script.out()[0].flags, SYN | ACK);
}

#[test]
fn closing_first_goes_through_fin_wait_and_time_wait() {
    let mut script = Script::open(plain());
    script.tcp.write_virtual(10);
    script.tcp.close(script.now);
    let fin = script.out();
    assert_eq!((fin.len(), fin[0].len), (1, 10));
    assert!(fin[0].has(FIN));
    assert_eq!(script.tcp.state(), State::FinWait1);
    script.inject(seg(ACK, 1, 12));
    assert_eq!(script.tcp.state(), State::FinWait2);
    // Half-close: the peer goes on.
    script.inject(seg(ACK, 1, 12).data(500));
    assert_eq!(script.tcp.consume(u64::MAX), 500);
    script.inject(seg(FIN | ACK, 501, 12));
    assert_eq!(script.tcp.state(), State::TimeWait);
    assert_eq!(script.acks(), [502]);
    // A FIN that comes again is acknowledged again, and TIME-WAIT starts anew.
    script.pass(40_000);
    script.inject(seg(FIN | ACK, 501, 12));
    assert_eq!(script.acks(), [502]);
    script.pass(59_000);
    assert_eq!(script.tcp.state(), State::TimeWait);
    script.pass(1_001);
    assert_eq!(script.tcp.state(), State::Closed);
    assert!(script.events().contains(&Event::Closed));
}

#[test]
fn closing_last_goes_through_close_wait_and_last_ack() {
    let mut script = Script::open(plain());
    script.inject(seg(FIN | ACK, 1, 1));
    assert_eq!(script.acks(), [2]);
    assert_eq!(script.tcp.state(), State::CloseWait);
    assert_eq!(script.events(), [Event::PeerClosed]);
    script.tcp.write_virtual(100);
    assert_eq!(script.data(), [(1, 100)]);
    script.tcp.close(script.now);
    assert!(script.out()[0].has(FIN));
    assert_eq!(script.tcp.state(), State::LastAck);
    script.inject(seg(ACK, 2, 102));
    assert_eq!(script.tcp.state(), State::Closed);
    assert!(script.events().contains(&Event::Closed));
}

#[test]
fn both_may_close_at_once() {
    let mut script = Script::open(plain());
    script.tcp.close(script.now);
    script.out();
    script.inject(seg(FIN | ACK, 1, 1));
    assert_eq!(script.tcp.state(), State::Closing);
    assert_eq!(script.acks(), [2]);
    script.inject(seg(ACK, 2, 2));
    assert_eq!(script.tcp.state(), State::TimeWait);
}

#[test]
fn abort_sends_a_reset() {
    let mut script = Script::open(plain());
    script.tcp.abort(script.now);
    let reset = script.out();
    assert_eq!(
        (reset.len(), reset[0].flags, reset[0].seq),
        (1, RST | ACK, 1)
    );
    assert_eq!(script.events(), [Event::Aborted(Cause::Local)]);
    assert_eq!(script.tcp.deadline(), None);
}

#[test]
fn only_the_exact_reset_counts_and_others_are_challenged() {
    let mut script = Script::open(plain());
    script.inject(seg(RST, 2, 0));
    assert_eq!(script.acks(), [1], "RFC 5961, section 3.2");
    script.inject(seg(RST, -5, 0));
    script.inject(seg(RST, 4_000_000_000, 0));
    assert!(script.out().is_empty(), "outside the window: dropped");
    assert_eq!(script.tcp.state(), State::Established);
    script.inject(seg(RST, 1, 0));
    assert_eq!(script.events(), [Event::Aborted(Cause::Reset)]);
}

#[test]
fn a_syn_in_the_window_is_challenged_at_most_ten_times_in_five_seconds() {
    let mut script = Script::open(plain());
    let mut answers = 0;
    for _ in 0..30 {
        script.inject(seg(SYN, 10, 0));
        answers += script.acks().len();
    }
    assert_eq!((answers, script.tcp.counters().challenges), (10, 10));
    assert_eq!(script.tcp.state(), State::Established);
    script.pass(5_000);
    script.inject(seg(SYN, 10, 0));
    assert_eq!(script.acks(), [1]);
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_challenged_and_change_nothing() {
    let mut script = Script::open(plain());
    script.tcp.write_virtual(1000);
    script.expect(1, 1);
    script.inject(seg(ACK, 1, 1002).data(10));
    assert_eq!(script.acks(), [1], "the data is dropped too");
    // Long before (RFC 5961, section 5.2).
    script.inject(seg(ACK, 1, -70_000).data(10));
    assert_eq!(script.acks(), [1]);
    assert_eq!(script.tcp.gauges().flight, 1000);
}

#[test]
fn a_segment_outside_the_window_is_answered_and_dropped() {
    let mut script = Script::open(plain());
    script.inject(seg(ACK, -10, 1).data(10));
    assert_eq!(script.acks(), [1]);
    script.inject(seg(ACK, 100_000_000, 1).data(10));
    assert_eq!(script.acks(), [1]);
    assert_eq!(script.tcp.readable(), 0);
    // Half in, half out.
    script.inject(seg(ACK, -4, 1).data(10));
    assert_eq!(script.tcp.readable(), 5);
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut script = Script::open(plain());
    script.inject(seg(bentpipe_wire::Flags::PSH, 1, 1).data(10));
    assert!(script.out().is_empty());
    assert_eq!(script.tcp.readable(), 0);
}

#[test]
fn a_syn_without_an_answer_is_given_up_after_three_minutes_or_more() {
    let mut script = Script::connect(plain());
    let mut waited = 0;
    let mut last = 0;
    while script.tcp.state() != State::Closed {
        script.out();
        let wait = script.expire();
        assert!(
            last == 0 || wait == (last * 2).min(60_000),
            "{last} then {wait}"
        );
        last = wait;
        waited += wait;
    }
    assert!(waited >= 180_000, "gave up after {waited} ms");
    assert_eq!(script.events(), [Event::Aborted(Cause::TimedOut)]);
}

#[test]
fn keep_alive_is_off_unless_asked_for_and_finds_a_dead_peer() {
    assert_eq!(Config::rfc().keep_alive, None);
    let mut script = Script::open(Config {
        keep_alive: Some(Duration::from_secs(7200)),
        ..plain()
    });
    script.pass(7_199_000);
    assert!(script.out().is_empty());
    script.pass(1_001);
    let probe = script.out();
    assert_eq!(
        (probe[0].seq, probe[0].len),
        (0, 0),
        "a number that must be answered"
    );
    // An answer is a sign of life.
    script.inject(seg(ACK, 1, 1));
    script.pass(7_199_000);
    assert!(script.out().is_empty());
    let mut probes = 0;
    while script.tcp.state() != State::Closed {
        script.expire();
        probes += script.out().iter().filter(|out| out.flags == ACK).count();
    }
    assert_eq!(probes, 9);
    assert_eq!(script.events(), [Event::Aborted(Cause::TimedOut)]);
}

#[test]
fn a_probe_of_the_peer_is_answered() {
    let mut script = Script::open(plain());
    script.inject(seg(ACK, 0, 1));
    assert_eq!(script.acks(), [1]);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut script = Script::open(plain());
    script.tcp.close(script.now);
    assert!(script.out()[0].has(FIN));
    script.expire();
    let again = script.out();
    assert!(again[0].has(FIN) && again[0].seq == 1);
}

#[test]
fn sequence_numbers_wrap_without_notice() {
    let mut script = Script::open(plain());
    script.tcp.write_virtual(2000);
    script.expect(1, 2);
    script.inject(seg(ACK, 1, 2001).data(400));
    assert_eq!(script.tcp.counters().bytes_acked, 2000);
    assert_eq!(script.tcp.readable(), 400);
}

#[test]
fn a_listener_takes_no_options_that_were_not_offered() {
    let mut script = Script::listen(Config::rfc());
    script.inject(seg(SYN, 0, 0).options(TcpOptions {
        mss: Some(1000),
        ..TcpOptions::default()
    }));
    let answer = script.out();
    let options = answer[0].options.as_ref().expect("a SYN has an MSS");
    assert_eq!(
        (options.window_scale, options.sack_permitted),
        (None, false)
    );
    assert_eq!(answer[0].stamp, None);
}
