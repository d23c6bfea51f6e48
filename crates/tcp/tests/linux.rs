//! What the preset `linux` has beside the RFCs' rules.

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::{Cause, Config, Event, State};
use bentpipe_wire::{Flags, TcpOptions};
use script::{ACK, FIN, RST, SYN, Script, mss, plain, seg};

fn quick(acks: u32) -> Config {
    Config {
        quick_acks: acks,
        ..delayed()
    }
}

fn delayed() -> Config {
    Config {
        delayed_ack: Config::rfc().delayed_ack,
        ..plain()
    }
}

#[test]
fn the_first_segments_are_acknowledged_one_by_one_and_later_ones_in_pairs() {
    let mut script = Script::open(quick(3));
    for at in 0..3 {
        script.inject(seg(ACK, 1 + 100 * at, 1).data(100));
        assert_eq!(script.acks(), [101 + 100 * at as u32]);
    }
    script.inject(seg(ACK, 301, 1).data(100));
    assert!(script.acks().is_empty());
    script.inject(seg(ACK, 401, 1).data(100));
    assert_eq!(script.acks(), [501]);
    // What arrives twice asks for more of them.
    script.inject(seg(ACK, 401, 1).data(100));
    assert_eq!(script.acks(), [501]);
    script.inject(seg(ACK, 501, 1).data(100));
    assert_eq!(script.acks(), [601]);
    // Without them the first segment waits.
    let mut script = Script::open(delayed());
    script.inject(seg(ACK, 1, 1).data(100));
    assert!(script.acks().is_empty());
}

#[test]
fn a_connection_that_answers_delays_its_acknowledgements_until_no_answer_comes() {
    let mut script = Script::open(quick(16));
    script.inject(seg(ACK, 1, 1).data(100));
    assert_eq!(script.acks(), [101]);
    script.tcp.write_virtual(10);
    assert_eq!(script.data(), [(1, 10)]);
    script.inject(seg(ACK, 101, 11).data(100));
    assert!(script.acks().is_empty(), "it waits for an answer");
    script.pass(40);
    assert_eq!(script.acks(), [201]);
    script.inject(seg(ACK, 201, 11).data(100));
    assert_eq!(script.acks(), [301], "no answer came to the last");
}

#[test]
fn by_minshall_a_small_segment_waits_for_small_ones_only() {
    let config = || Config {
        nagle: true,
        minshall: true,
        ..plain()
    };
    let mut script = Script::open(config());
    script.tcp.write_virtual(2_100);
    assert_eq!(script.data(), [(1, 1000), (1001, 1000), (2001, 100)]);
    script.tcp.write_virtual(100);
    assert!(script.data().is_empty(), "a small one is in flight");
    script.inject(seg(ACK, 1, 2101));
    assert_eq!(script.data(), [(2101, 100)]);
    // By the RFC's rule it waits for all.
    let mut script = Script::open(Config {
        minshall: false,
        ..config()
    });
    script.tcp.write_virtual(2_100);
    assert_eq!(script.data(), [(1, 1000), (1001, 1000)]);
}

#[test]
fn corked_data_waits_until_it_is_uncorked() {
    let mut script = Script::open(plain());
    script.tcp.set_corked(true);
    script.tcp.write_virtual(1_200);
    assert_eq!(script.data(), [(1, 1000)]);
    script.tcp.set_corked(false);
    assert_eq!(script.data(), [(1001, 200)]);
}

#[test]
fn a_syn_that_comes_again_is_answered_as_the_first() {
    let mut script = Script::listen(plain());
    script.inject(seg(SYN, 0, 0).options(mss(1000)));
    let first = script.out();
    assert!(first.len() == 1 && first[0].has(SYN | ACK));
    script.inject(seg(SYN, 0, 0).options(mss(1000)));
    let again = script.out();
    assert!(again.len() == 1 && again[0].has(SYN | ACK), "{again:?}");
    // One of another number is not the peer's (RFC 5961, section 4).
    script.inject(seg(SYN, 5, 0).options(mss(1000)));
    let challenge = script.out();
    assert!(challenge.iter().all(|out| !out.has(SYN)), "{challenge:?}");
    script.inject(seg(ACK, 1, 1));
    script.tcp.write_virtual(10);
    assert_eq!(script.data(), [(1, 10)]);
}

#[test]
fn a_fin_without_data_pushes_nothing() {
    let mut script = Script::open(plain());
    script.tcp.close(script.now);
    let out = script.out();
    assert!(
        out.len() == 1 && out[0].has(FIN | ACK) && !out[0].has(Flags::PSH),
        "{out:?}"
    );
}

#[test]
fn data_for_who_reads_no_more_is_answered_as_by_a_closed_port() {
    for first_acknowledged in [false, true] {
        let mut script = Script::open(plain());
        script.tcp.shut_read();
        // While we may still send, it is taken.
        script.inject(seg(ACK, 1, 1).data(100));
        script.pass(100);
        assert_eq!(script.acks(), [101]);
        script.tcp.close(script.now);
        script.out();
        if first_acknowledged {
            script.inject(seg(ACK, 101, 2));
        }
        // What arrived before is no new data.
        script.inject(seg(ACK, 1, 2).data(100));
        assert_eq!(script.acks(), [101]);
        script.events();
        script.inject(seg(ACK, 101, 2).data(100));
        let out = script.out();
        assert_eq!(out.len(), 1);
        assert_eq!((out[0].flags, out[0].seq), (RST, 2));
        assert_eq!(script.tcp.state(), State::Closed);
        assert!(script.events().contains(&Event::Aborted(Cause::Local)));
    }
}

#[test]
fn a_fin_beyond_a_gap_is_told_by_sack_and_ends_the_stream_once_that_is_filled() {
    for linux_sack in [true, false] {
        let config = Config {
            sack_blocks: 4,
            linux_sack,
            ..plain()
        };
        let options = TcpOptions {
            sack_permitted: true,
            ..mss(1000)
        };
        let mut script = Script::open_with(config, options);
        script.inject(seg(ACK | FIN, 501, 1).data(100));
        let told = script.out();
        assert_eq!(told[0].sack, [(501, 601 + u32::from(linux_sack))]);
        // Bytes beyond the FIN belong to nobody.
        script.inject(seg(ACK, 602, 1).data(100));
        script.out();
        assert!(!script.events().contains(&Event::PeerClosed));
        script.inject(seg(ACK, 1, 1).data(500));
        assert_eq!(script.tcp.readable(), 600);
        assert_eq!(script.acks(), [602]);
        assert!(script.events().contains(&Event::PeerClosed));
        assert_eq!(script.tcp.state(), State::CloseWait);
        script.inject(seg(ACK | FIN, 501, 1).data(100));
        assert_eq!(script.acks(), [602]);
    }
    // A FIN alone.
    let mut script = Script::open_with(
        Config {
            sack_blocks: 4,
            linux_sack: true,
            ..plain()
        },
        TcpOptions {
            sack_permitted: true,
            ..mss(1000)
        },
    );
    script.inject(seg(ACK | FIN, 501, 1));
    assert_eq!(script.out()[0].sack, [(501, 502)]);
    script.inject(seg(ACK, 1, 1).data(500));
    assert_eq!((script.tcp.readable(), script.acks()), (500, vec![502]));
    assert_eq!(script.tcp.state(), State::CloseWait);
}

#[test]
fn a_silence_halves_the_window_for_each_timeout_down_to_the_first() {
    let after = |halves_when_idle, silence: u64| {
        let mut script = Script::open(Config {
            halves_when_idle,
            initial_window: 4,
            ..plain()
        });
        script.tcp.write_virtual(60_000);
        let mut acked = 1;
        while script.tcp.unacknowledged() > 0 {
            let sent: usize = script.data().iter().map(|(_, len)| len).sum();
            acked += sent as i64;
            script.pass(100);
            for number in (acked - sent as i64 + 1000..=acked).step_by(1000) {
                script.inject(seg(ACK, 1, number));
            }
        }
        let grown = script.tcp.gauges().cwnd;
        script.pass(silence);
        script.tcp.write_virtual(1000);
        script.out();
        (grown, script.tcp.gauges().cwnd)
    };
    // The timeout is a second, its least.
    let (grown, same) = after(true, 900);
    assert_eq!((grown, same), (32.0, 32.0));
    // The last segment went out 100 ms before.
    assert_eq!(after(true, 1_500).1, 16.0);
    assert_eq!(after(true, 2_500).1, 8.0);
    assert_eq!(after(true, 60_000).1, 4.0);
    assert_eq!(after(false, 1_500).1, 4.0);
}
