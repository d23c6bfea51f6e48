//! TCP Fast Open (RFC 7413), one endpoint against a script.

mod support {
    pub(crate) mod script;
}

use bentpipe_tcp::{Cause, Config, Event, FastOpenResult, State, fast_open_offered};
use bentpipe_wire::{FastOpenCookie, FastOpenOption, Flags, Payload, Segment, TcpOptions};
use support::script::{ACK, FIN, In, Out, RST, SYN, Script, mss, plain, seg};

fn cookie() -> FastOpenCookie {
    FastOpenCookie::new(&[1, 2, 3, 4, 5, 6, 7, 8]).expect("eight bytes")
}

/// Options of a SYN whose sender takes segments of 1000 bytes.
fn with(option: FastOpenOption) -> TcpOptions {
    TcpOptions {
        unknown: option.to_raw(),
        ..mss(1000)
    }
}

fn config() -> Config {
    Config {
        fast_open: true,
        ..plain()
    }
}

/// A client that knows a cookie, and has `written` bytes to send.
fn client(written: u64) -> Script {
    let mut script = Script::connect(config());
    script.tcp.use_fast_open(cookie(), 1000);
    script.tcp.write_virtual(written);
    script
}

/// What a segment that came out says of Fast Open.
fn offer(out: &Out) -> Option<FastOpenOption> {
    fast_open_offered(&Segment {
        flags: out.flags,
        options: out.options.clone(),
        ..Segment::default()
    })
}

/// A server that opens early, or only gives a cookie, and a SYN with `data` bytes.
fn server(accepts: bool, data: u32) -> Script {
    let mut script = Script::listen(plain());
    let gives = (!accepts).then(cookie);
    script.tcp.grant_fast_open(gives, accepts);
    let syn = In(Segment {
        payload: Payload::Virtual {
            offset: 0,
            len: data,
        },
        ..seg(SYN, 0, 0).options(mss(1000)).0
    });
    script.inject(syn);
    script
}

#[test]
fn who_has_no_cookie_asks_for_one_and_sends_no_data() {
    let mut script = Script::connect(config());
    script.tcp.write_virtual(500);
    let syn = script.out();
    assert_eq!((syn.len(), syn[0].len), (1, 0));
    assert_eq!(offer(&syn[0]), Some(FastOpenOption::Request));
    script.inject(seg(SYN | ACK, 0, 1).options(with(FastOpenOption::Cookie(cookie()))));
    assert_eq!(script.data(), [(1, 500)]);
    let result = script.tcp.take_fast_open_result();
    let expected = FastOpenResult {
        cookie: Some(cookie()),
        mss: 1000,
        ..FastOpenResult::default()
    };
    assert_eq!(result, Some(expected));
    assert_eq!(script.tcp.take_fast_open_result(), None);
}

#[test]
fn who_is_not_told_to_says_nothing_of_it() {
    let mut script = Script::connect(plain());
    script.tcp.use_fast_open(cookie(), 1000);
    script.tcp.write_virtual(500);
    let syn = script.out();
    assert_eq!((offer(&syn[0]), syn[0].len), (None, 0));
}

#[test]
fn a_cookie_goes_with_what_was_written_and_the_answer_acknowledges_it() {
    let mut script = client(500);
    let syn = script.out();
    assert_eq!((syn.len(), syn[0].len, syn[0].flags), (1, 500, SYN));
    assert_eq!(offer(&syn[0]), Some(FastOpenOption::Cookie(cookie())));
    script.pass(100);
    script.inject(seg(SYN | ACK, 0, 501).options(mss(1000)));
    let events = script.events();
    assert!(events.contains(&Event::Connected) && events.contains(&Event::Drained));
    let ack = script.out();
    assert_eq!((ack.len(), ack[0].len, ack[0].seq), (1, 0, 501));
    script.tcp.write_virtual(100);
    assert_eq!(script.data(), [(501, 100)]);
    let result = script.tcp.take_fast_open_result().expect("it was tried");
    assert_eq!(
        (result.sent, result.acknowledged, result.syn_lost),
        (500, 500, false)
    );
    assert_eq!(script.tcp.counters().bytes_acked, 500);
    assert_eq!(script.tcp.counters().retransmitted, 0);
}

#[test]
fn no_more_goes_than_fits_a_segment_of_the_server_with_its_options() {
    let mut script = client(5_000);
    let syn = script.out();
    // 4 bytes of MSS option and 10 of the cookie, in whole words.
    assert_eq!(syn[0].len, 1000 - 16);
    script.inject(seg(SYN | ACK, 0, 985).options(mss(1000)));
    script.expect(985, 4);
}

#[test]
fn what_the_answer_does_not_acknowledge_goes_again_at_once() {
    for acknowledged in [0, 200] {
        let mut script = client(500);
        assert_eq!(script.out()[0].len, 500);
        script.inject(seg(SYN | ACK, 0, 1 + acknowledged).options(mss(1000)));
        let rest = 500 - acknowledged as usize;
        assert_eq!(script.data(), [(1 + acknowledged as u32, rest)]);
        assert_eq!(script.tcp.counters().bytes_retransmitted, rest as u64);
        script.inject(seg(ACK, 1, 501));
        assert_eq!(script.tcp.unacknowledged(), 0);
    }
}

#[test]
fn an_answer_that_acknowledges_more_than_the_syn_had_is_reset() {
    let mut script = client(500);
    assert_eq!(script.out()[0].len, 500);
    script.inject(seg(SYN | ACK, 0, 502).options(mss(1000)));
    let reset = script.out();
    assert!(reset[0].has(RST) && reset[0].seq == 502, "{reset:?}");
    assert_eq!(script.tcp.state(), State::SynSent);
}

#[test]
fn a_syn_that_is_sent_again_has_neither_data_nor_cookie() {
    let mut script = client(500);
    assert_eq!(script.out()[0].len, 500);
    script.expire();
    let again = script.out();
    assert_eq!((again.len(), again[0].len, again[0].seq), (1, 0, 0));
    assert_eq!(offer(&again[0]), None);
    script.inject(seg(SYN | ACK, 0, 1).options(mss(1000)));
    assert_eq!(script.data(), [(1, 500)]);
    let result = script.tcp.take_fast_open_result().expect("it was tried");
    assert!(result.syn_lost && result.acknowledged == 0);

    // The server had the first one, and its answer was lost.
    let mut script = client(500);
    script.out();
    script.expire();
    script.out();
    script.inject(seg(SYN | ACK, 0, 501).options(mss(1000)));
    assert_eq!(script.data(), []);
    assert_eq!(script.tcp.unacknowledged(), 0);
}

#[test]
fn data_of_a_good_syn_is_read_and_answered_before_the_handshake_is_complete() {
    let mut script = server(true, 300);
    assert_eq!(script.events(), [Event::Readable]);
    assert_eq!(script.tcp.consume(1000), 300);
    script.tcp.write_virtual(1500);
    let out = script.out();
    assert_eq!((out[0].flags, out[0].seq, out[0].ack), (SYN | ACK, 0, 301));
    let data: Vec<_> = out[1..]
        .iter()
        .map(|out| (out.seq, out.len, out.ack))
        .collect();
    assert_eq!(data, [(1, 1000, 301), (1001, 500, 301)]);
    assert_eq!(script.tcp.state(), State::SynReceived);
    script.pass(100);
    script.inject(seg(ACK, 301, 1501));
    assert_eq!(script.tcp.state(), State::Established);
    assert!(script.events().contains(&Event::Connected));
    assert_eq!(script.tcp.unacknowledged(), 0);
    script.inject(seg(ACK, 301, 1501).data(100));
    assert_eq!(script.tcp.readable(), 100);
}

#[test]
fn an_answer_may_end_with_the_end_of_the_stream() {
    let mut script = server(true, 300);
    script.tcp.write_virtual(200);
    let now = script.now;
    script.tcp.close(now);
    let out = script.out();
    assert!(out[1].has(FIN) && out[1].len == 200, "{out:?}");
    script.inject(seg(ACK, 301, 202));
    assert_eq!(script.tcp.state(), State::FinWait2);
}

#[test]
fn no_more_is_sent_before_the_handshake_than_the_first_window() {
    let mut script = server(true, 300);
    script.tcp.write_virtual(100_000);
    let data = script.data();
    assert_eq!(data, [(1, 1000), (1001, 1000), (2001, 1000), (3001, 1000)]);
    // An unscaled window of the SYN bounds it too.
    let mut script = Script::listen(plain());
    script.tcp.grant_fast_open(None, true);
    script.inject(seg(SYN, 0, 0).window(1500).options(mss(1000)));
    script.tcp.write_virtual(100_000);
    assert_eq!(script.data(), [(1, 1000)]);
}

#[test]
fn a_server_that_does_not_take_the_data_acknowledges_the_syn_alone_and_gives_a_cookie() {
    let mut script = server(false, 300);
    assert_eq!(script.events(), []);
    let out = script.out();
    assert_eq!((out.len(), out[0].ack), (1, 1));
    assert_eq!(offer(&out[0]), Some(FastOpenOption::Cookie(cookie())));
    script.tcp.write_virtual(100);
    assert_eq!(script.data(), []);
    script.inject(seg(ACK, 1, 1).data(300));
    assert_eq!(script.tcp.readable(), 300);
    assert_eq!(script.data(), [(1, 100)]);
}

#[test]
fn an_answer_that_is_lost_goes_again_alone_and_the_data_once_it_is_acknowledged() {
    let mut script = server(true, 300);
    script.tcp.write_virtual(1500);
    assert_eq!(script.out().len(), 3);
    // The timer, and the client's SYN that comes once more without data, have the same effect.
    for comes in [false, true] {
        if comes {
            script.inject(seg(SYN, 0, 0).options(mss(1000)));
        } else {
            script.expire();
        }
        let again = script.out();
        assert_eq!(again.len(), 1, "{again:?}");
        assert_eq!(
            (again[0].flags, again[0].seq, again[0].ack),
            (SYN | ACK, 0, 301)
        );
    }
    script.pass(50);
    script.inject(seg(ACK, 301, 1));
    assert_eq!(script.tcp.state(), State::Established);
    // A window of one segment, as after any lost SYN.
    assert_eq!(script.data(), [(1, 1000)]);
    script.pass(50);
    script.inject(seg(ACK, 301, 1001));
    assert_eq!(script.data(), [(1001, 500)]);
    script.inject(seg(ACK, 301, 1501));
    assert_eq!(script.tcp.unacknowledged(), 0);
}

#[test]
fn timers_that_expire_before_the_answer_goes_again_do_no_harm() {
    let config = Config {
        sack_blocks: 4,
        recovery: bentpipe_tcp::recovery::find("rack-tlp").expect("it is there"),
        ..plain()
    };
    let syn = || {
        seg(SYN, 0, 0).options(TcpOptions {
            sack_permitted: true,
            ..mss(1000)
        })
    };
    let mut script = Script::listen(config);
    script.tcp.grant_fast_open(None, true);
    script.inject(syn());
    script.tcp.write_virtual(3000);
    assert_eq!(script.out().len(), 4);
    for _ in 0..3 {
        script.inject(syn());
        script.pass(1500);
    }
    let again = script.out();
    assert_eq!((again[0].flags, again[0].seq), (SYN | ACK, 0));
    script.inject(seg(ACK, 1, 1));
    assert_eq!(script.tcp.state(), State::Established);
    script.inject(seg(ACK, 1, 3001));
    assert_eq!(script.tcp.unacknowledged(), 0);
}

#[test]
fn a_reset_ends_a_connection_whose_data_was_taken() {
    let mut script = server(true, 300);
    script.out();
    script.inject(seg(RST, 301, 0));
    assert_eq!(script.tcp.state(), State::Closed);
    assert!(script.events().contains(&Event::Aborted(Cause::Reset)));
    // Without data it goes back to LISTEN, as ever.
    let mut script = server(false, 0);
    script.out();
    script.inject(seg(RST, 1, 0));
    assert_eq!(script.tcp.state(), State::Listen);
}

#[test]
fn the_option_means_nothing_outside_syns() {
    let segment = |flags| Segment {
        flags,
        options: with(FastOpenOption::Cookie(cookie())).boxed(),
        ..Segment::default()
    };
    assert_eq!(fast_open_offered(&segment(ACK)), None);
    assert_eq!(fast_open_offered(&segment(Flags::FIN | ACK)), None);
    let option = FastOpenOption::Cookie(cookie());
    assert_eq!(fast_open_offered(&segment(SYN)), Some(option));
}
