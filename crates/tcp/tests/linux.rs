//! What the preset `linux` has beside the RFCs' rules.

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::Config;
use bentpipe_wire::Flags;
use script::{ACK, FIN, SYN, Script, mss, plain, seg};

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
