//! SCPS-TP against a peer that behaves as the standard's reference implementation does on the wire: it answers SNACK, not
//! SACK, names a hole on the first segment behind it, opens with a window of 0, and counts its clock in microseconds.

#[path = "scps/long_form.rs"]
mod long_form;
#[path = "scps/loss_cause.rs"]
mod loss_cause;
#[path = "support/script.rs"]
mod script;
mod support;

use bentpipe_base::{Instant, Rate};
use bentpipe_cc as cc;
use bentpipe_tcp::{Config, Connection, Event, Outage, Scps, State};
use bentpipe_wire::scps::{ScpsOptions, Snack};
use bentpipe_wire::{RawOptions, TcpOptions};
use proptest::prelude::*;
use script::{ACK, In, Out, RST, SYN, Script, mss, seg};
use std::sync::Arc;
use std::time::Duration;
use support::{Hop, Line, Way};

/// What the reference implementation's SYN says of SCPS: SNACK in its short form.
const OFFER: [u8; 4] = [0x14, 0x04, 0x40, 0x00];
/// Both forms of SNACK.
const LONG_OFFER: [u8; 4] = [0x14, 0x04, 0x60, 0x00];

/// Segments of 1000 bytes without other options, Reno's window of ten.
fn plain() -> Config {
    Config {
        congestion: cc::find("reno").expect("a control"),
        mss: 1000,
        timestamps: false,
        window_scaling: false,
        sack_blocks: 0,
        nagle: false,
        ..Config::scps()
    }
}

fn scps_option(bytes: &[u8]) -> Option<Box<RawOptions>> {
    RawOptions::new(bytes).map(Box::new)
}

fn offer(mss: u16) -> TcpOptions {
    TcpOptions {
        mss: Some(mss),
        unknown: scps_option(&OFFER),
        ..TcpOptions::default()
    }
}

fn open(config: Config) -> Script {
    Script::open_with(config, offer(1000))
}

/// An acknowledgement with a SNACK.
fn snack(ack: i64, offset: u16, size: u16) -> In {
    snacked(ack, &Snack::short(offset, size))
}

fn snacked(ack: i64, snack: &Snack) -> In {
    let snack = ScpsOptions {
        snack: Some(snack.clone()),
        ..ScpsOptions::default()
    };
    seg(ACK, 1, ack).options(TcpOptions {
        unknown: snack.to_raw().expect("it fits").map(Box::new),
        ..TcpOptions::default()
    })
}

/// What a segment says of SCPS.
fn said(out: &Out) -> ScpsOptions {
    let unknown = out
        .options
        .as_deref()
        .and_then(|options| options.unknown.as_deref());
    unknown.map(ScpsOptions::parse).unwrap_or_default()
}

fn snacks(script: &mut Script) -> Vec<(u16, u16)> {
    let out = script.out();
    let snacks = out.iter().filter_map(|out| said(out).snack);
    snacks.map(|snack| (snack.offset, snack.size)).collect()
}

#[test]
fn a_syn_offers_snack_and_nothing_else() {
    for (short_snacks_only, offer) in [(false, LONG_OFFER), (true, OFFER)] {
        let scps = Scps {
            short_snacks_only,
            ..Scps::default()
        };
        let mut script = Script::connect(Config {
            scps: Some(scps),
            ..plain()
        });
        let syn = script.out();
        let options = syn[0].options.as_deref();
        let unknown = options.and_then(|options| options.unknown.as_deref());
        assert_eq!(unknown.map(RawOptions::as_slice), Some(&offer[..]));
    }
}

/// No SNACK tells of it: a probe does, two round trips after the last that was heard, and before the timer.
#[test]
fn a_tail_that_is_lost_is_probed_after_two_round_trips() {
    for lost in [1, 3] {
        let mut script = open(plain());
        script.tcp.write_virtual(10_000);
        script.tcp.close(script.now);
        let sent = script.data();
        assert_eq!(sent.len(), 10);
        script.pass(100);
        script.inject(seg(ACK, 1, 10_001 - lost * 1000));
        assert_eq!(script.data(), []);
        assert_eq!(script.expire(), 200, "2 SRTT");
        // The last segment again, with the FIN.
        assert_eq!(script.data(), [(9001, 1000)]);
        script.pass(100);
        if lost > 1 {
            script.inject(snack(7001, 0, 2));
            // Without SACK nothing tells that the probe itself arrived.
            let again = [(7001, 1000), (8001, 1000), (9001, 1000)];
            assert_eq!(script.data(), again);
            script.pass(100);
        }
        script.inject(seg(ACK, 1, 10_002));
        let counters = script.tcp.counters();
        assert_eq!((counters.timeouts, counters.loss_probes), (0, 1));
    }
}

/// In a recovery too, once nothing is known to be missing.
#[test]
fn a_tail_that_is_lost_beside_others_is_probed_as_well() {
    let mut script = open(plain());
    script.tcp.write_virtual(10_000);
    script.tcp.close(script.now);
    script.out();
    script.pass(100);
    // The third and the last are lost.
    script.inject(snack(2001, 0, 1));
    assert_eq!(script.data(), [(2001, 1000)]);
    script.pass(100);
    script.inject(seg(ACK, 1, 9001));
    assert_eq!(script.data(), []);
    assert!((190..=210).contains(&script.expire()), "2 SRTT");
    assert_eq!(script.data(), [(9001, 1000)]);
    assert_eq!(script.tcp.counters().timeouts, 0);
}

/// A lone segment may wait for its acknowledgement, and where the timer expires before two round trips, that finds the loss.
#[test]
fn no_probe_goes_later_than_the_timer() {
    let mut script = open(plain());
    script.tcp.write_virtual(1000);
    script.expect(1, 1);
    assert_eq!(script.expire(), 300, "SRTT and 200 ms");
    script.expect(1, 1);
    let counters = script.tcp.counters();
    assert_eq!((counters.timeouts, counters.loss_probes), (1, 0));
}

#[test]
fn the_answer_to_a_syn_offers_it_only_to_who_did() {
    for (options, offers) in [(offer(1000), true), (mss(1000), false)] {
        let mut script = Script::listen(plain());
        script.inject(seg(SYN, 0, 0).options(options));
        let answer = script.out();
        assert_eq!(
            said(&answer[0]).capabilities.is_some(),
            offers,
            "{answer:?}"
        );
    }
}

/// As the reference implementation answers a peer without the option, but with SACK in place of none.
#[test]
fn a_peer_without_scps_gets_tcp() {
    let mut config = plain();
    config.sack_blocks = 4;
    for (sack, lost_by) in [(true, 3), (false, 3)] {
        let mut script = Script::open_with(
            config.clone(),
            TcpOptions {
                sack_permitted: sack,
                ..mss(1000)
            },
        );
        script.tcp.write_virtual(10_000);
        script.expect(1, 10);
        script.pass(100);
        // A SNACK means nothing to it.
        script.inject(snack(1, 0, 1));
        assert_eq!(script.data(), []);
        for i in 1..=lost_by {
            let mut ack = seg(ACK, 1, 1);
            if sack {
                ack = ack.sack(&[(1001, 1001 + i * 1000)]);
            }
            script.inject(ack);
        }
        assert_eq!(script.data().first(), Some(&(1, 1000)));
        script.inject(seg(ACK, 1, 10_001));
        script.inject(seg(ACK, 1002, 10_001).data(1000));
        assert_eq!(snacks(&mut script), []);
    }
}

#[test]
fn what_a_snack_names_goes_again_at_once_and_the_window_stays() {
    let mut script = open(plain());
    script.tcp.write_virtual(20_000);
    script.expect(1, 10);
    script.pass(100);
    let window = script.tcp.gauges().cwnd;
    script.inject(snack(1, 2, 2));
    assert_eq!(script.data()[..2], [(2001, 1000), (3001, 1000)]);
    // The reference implementation tells of the first hole four times.
    for _ in 0..3 {
        script.inject(snack(1, 2, 2));
        // Each acknowledgement tells of a segment that arrived: a new one goes.
        assert!(script.data().iter().all(|&(seq, _)| seq > 10_000));
    }
    assert!(script.tcp.gauges().cwnd >= window);
    assert_eq!(script.tcp.counters().retransmitted, 2);
}

/// It hears of a hole once, and the retransmission may be lost as well.
#[test]
fn a_retransmission_of_which_nothing_is_heard_goes_again_by_itself() {
    let mut script = open(plain());
    script.tcp.write_virtual(10_000);
    script.expect(1, 10);
    script.pass(100);
    script.inject(snack(1, 0, 1));
    assert_eq!(script.data(), [(1, 1000)]);
    script.pass(124);
    assert_eq!(script.data(), []);
    // What was sent behind the hole arrives still.
    script.inject(seg(ACK, 1, 1));
    script.pass(2);
    assert_eq!(script.data(), [(1, 1000)]);
    assert_eq!(script.tcp.counters().timeouts, 0);
}

/// Without SACK nothing else starts the timer anew, which would expire before the answer; two timeouts are an outage.
#[test]
fn no_timeout_comes_while_what_went_again_by_itself_is_on_its_way() {
    let mut script = open(plain());
    script.tcp.write_virtual(20_000);
    script.expect(1, 10);
    script.pass(100);
    script.inject(snack(1, 0, 1));
    assert_eq!(script.data()[0], (1, 1000));
    for again in 1..3 {
        script.pass(200);
        script.inject(seg(ACK, 1, 1));
        script.pass(50);
        assert!(script.data().contains(&(1, 1000)), "{again}");
    }
    script.pass(200);
    let counters = script.tcp.counters();
    assert_eq!((counters.retransmitted, counters.timeouts), (3, 0));
}

/// Seen on the wire: a sender whose peer takes shorter segments than its own SYN said still counts SNACKs in the latter.
#[test]
fn a_snack_counts_in_the_mss_of_the_data_senders_own_syn() {
    let mut script = Script::open_with(plain(), offer(500));
    script.tcp.write_virtual(10_000);
    assert_eq!(script.data().len(), 10);
    script.pass(100);
    script.inject(snack(1, 2, 1));
    assert_eq!(script.data()[..2], [(2001, 500), (2501, 500)]);

    // The other way round the peer's SYN said 500.
    let mut script = Script::open_with(plain(), offer(500));
    script.inject(seg(ACK, 1501, 1).data(500));
    assert_eq!(snacks(&mut script), [(0, 3)]);
}

#[test]
fn each_hole_is_announced_at_once_twice_and_again_if_it_stays() {
    let mut script = open(plain());
    script.inject(seg(ACK, 1001, 1).data(1000));
    assert_eq!(snacks(&mut script), [(0, 1)]);
    script.inject(seg(ACK, 4001, 1).data(1000));
    assert_eq!(snacks(&mut script), [(2, 2)]);
    script.inject(seg(ACK, 5001, 1).data(1000));
    assert_eq!(snacks(&mut script), [(0, 1)]);
    script.inject(seg(ACK, 6001, 1).data(1000));
    assert_eq!(snacks(&mut script), [(2, 2)]);
    script.inject(seg(ACK, 7001, 1).data(1000));
    assert_eq!(snacks(&mut script), []);
    // Nothing more comes: after two round trips the peer hears of them again.
    script.pass(201);
    assert_eq!(snacks(&mut script), [(0, 1)]);
    script.pass(1);
    assert_eq!(snacks(&mut script), [(2, 2)]);
    script.inject(seg(ACK, 1, 1).data(1000));
    script.inject(seg(ACK, 2001, 1).data(1000));
    script.inject(seg(ACK, 3001, 1).data(1000));
    script.pass(10_000);
    assert_eq!(snacks(&mut script), []);
    assert_eq!(script.tcp.readable(), 8000);
}

#[test]
fn sack_goes_beside_snack_where_both_offer_it() {
    let mut config = plain();
    (config.sack_blocks, config.timestamps) = (4, true);
    let mut options = offer(1000);
    options.sack_permitted = true;
    let mut script = Script::open_with(config, options);
    for i in [2, 4, 6, 8] {
        script.inject(seg(ACK, i * 988 + 1, 1).data(988).stamp(51, 1));
    }
    let out = script.out();
    let last = out.last().expect("an acknowledgement");
    assert_eq!(
        said(last).snack.map(|snack| (snack.offset, snack.size)),
        Some((0, 2))
    );
    // There is room for two blocks beside it.
    assert_eq!(last.sack.len(), 2);
}

#[test]
fn a_window_of_zero_in_the_answer_to_a_syn_opens_later() {
    let mut script = Script::connect(plain());
    script.tcp.write_virtual(5000);
    script.out();
    script.pass(100);
    script.inject(seg(SYN | ACK, 0, 1).options(offer(1000)).window(0));
    assert_eq!(script.data(), []);
    script.pass(50);
    script.inject(seg(ACK, 1, 1));
    script.expect(1, 5);
}

#[test]
fn a_clock_in_microseconds_that_turned_while_idle_is_believed() {
    let mut config = plain();
    config.timestamps = true;
    let mut script = Script::open_with(config, offer(1000));
    script.pass(36 * 60_000);
    let clock = 50 + (1u32 << 31) + 100;
    script.inject(seg(ACK, 1, 1).data(988).stamp(clock, 0));
    assert_eq!(script.tcp.readable(), 988);
}

/// The reference implementation sends the whole window again.
#[test]
fn a_timeout_sends_one_segment_again_and_its_answer_the_rest() {
    let mut script = open(plain());
    script.tcp.write_virtual(10_000);
    script.expect(1, 10);
    script.expire();
    assert_eq!(script.data(), [(9001, 1000)], "a probe");
    script.expire();
    assert_eq!(script.data(), [(1, 1000)]);
    script.pass(100);
    // The peer has nothing beyond, or it would say so.
    script.inject(seg(ACK, 1, 1001));
    script.expect(1001, 9);
}

#[test]
fn a_link_that_is_out_is_probed_and_nothing_goes_again() {
    let mut script = open(plain());
    script.tcp.write_virtual(20_000);
    script.expect(1, 10);
    script.expire();
    assert_eq!(script.data(), [(10_001, 1000)], "a probe");
    script.expire();
    assert_eq!(script.data(), [(1, 1000)]);
    script.expire();
    assert!(script.tcp.is_frozen());
    for _ in 0..240 {
        let probe = script.out();
        assert_eq!((probe.len(), probe[0].len), (1, 0));
        assert_eq!(script.expire(), 500);
    }
    script.out();
    assert_eq!(script.tcp.counters().retransmitted, 1);
    script.pass(100);
    script.inject(seg(ACK, 1, 4001));
    assert!(!script.tcp.is_frozen());
    assert_eq!(script.data()[0], (4001, 1000));
    assert_eq!(script.events(), []);
}

#[test]
fn a_modem_that_knows_says_so() {
    let mut script = open(plain());
    script.tcp.write_virtual(5000);
    script.expect(1, 5);
    script.tcp.link_out(script.now);
    assert_eq!(script.data(), []);
    script.pass(60_000);
    script.out();
    script.tcp.link_restored(script.now);
    script.expect(1, 5);
    // Nothing under way: there is nothing to be frozen.
    script.inject(seg(ACK, 1, 5001));
    script.tcp.link_out(script.now);
    assert!(!script.tcp.is_frozen());
}

#[test]
fn a_link_that_stays_out_ends_the_connection() {
    let mut config = plain();
    config.outage = config.outage.map(|outage| Outage {
        most: Duration::from_secs(10),
        ..outage
    });
    let mut script = open(config);
    script.tcp.write_virtual(1000);
    script.out();
    script.pass(30_000);
    assert!(
        script
            .events()
            .iter()
            .any(|event| matches!(event, Event::Aborted(_)))
    );
}

proptest! {
    /// Whatever a peer says to miss, each segment goes again at most once an embargo.
    #[test]
    fn a_peer_that_lies_makes_nobody_send_more(
        lies in prop::collection::vec((any::<u16>(), any::<u16>(), 0i64..10_001), 1..400),
    ) {
        let mut script = open(plain());
        script.tcp.write_virtual(10_000);
        script.expect(1, 10);
        script.pass(100);
        for (offset, size, ack) in lies {
            script.inject(snack(ack, offset % 16, size));
            script.out();
        }
        // Within one round trip.
        prop_assert!(script.tcp.counters().retransmitted <= 10);
    }
}

/// 2 Mbit/s, 280 ms each way, of whose packets every fortieth is lost, retransmissions among them: the rate is kept, no
/// timer expires, and what is sent again is what was lost.
#[test]
fn a_pair_keeps_the_rate_of_a_link_that_loses() {
    for sack_blocks in [0, 4] {
        let mut config = Config::scps();
        config.sack_blocks = sack_blocks;
        config.settings.link.rate = Some(Rate::from_bits_per_sec(2_000_000));
        let config = Arc::new(config);
        let mut near =
            Connection::connect(Arc::clone(&config), bentpipe_base::Seq(7), Instant::ZERO);
        let far = Connection::listen(config, bentpipe_base::Seq(9), Instant::ZERO);
        near.write_virtual(5_000_000);
        let mut line = Line::satellite(near, far);
        line.out = Way::new(vec![Hop::new(100_000_000, 1), Hop::new(2_000_000, 279)]);
        line.back = Way::new(vec![Hop::new(2_000_000, 280)]);
        line.drops = (1..200).map(|i| i * 40).collect();
        line.run_for(26);
        let (sent, got) = (line.near.counters(), line.far.counters());
        assert_eq!(got.bytes_delivered, 5_000_000, "{sack_blocks}: {sent:?}");
        assert_eq!((sent.timeouts, sent.outages), (0, 0), "{sack_blocks}");
        assert!(got.snacks_sent > 50);
        let lost = sent.data_sent.div_ceil(40);
        assert!(
            sent.retransmitted <= lost + lost / 10,
            "{sack_blocks}: {sent:?}"
        );
    }
}

/// Found by the torture test, on a path that reorders: two ends took each other's acknowledgements for old and answered
/// each, for ever.
#[test]
fn old_segments_without_data_are_answered_twice_a_second() {
    let mut config = plain();
    config.timestamps = true;
    let mut script = Script::open_with(config, offer(1000));
    for _ in 0..10 {
        script.inject(seg(ACK, 1, 1).stamp(49, 0));
    }
    assert_eq!(script.acks(), [1]);
    script.pass(500);
    script.inject(seg(ACK, 1, 1).stamp(49, 0));
    assert_eq!(script.acks(), [1]);
    // Data is no part of such a loop.
    for _ in 0..3 {
        script.inject(seg(ACK, 1, 1).data(10).stamp(49, 0));
        assert_eq!(script.acks(), [1]);
    }
}

/// Who waits for more from a peer that has died asks soon, for nobody else says so, and ever less often.
#[test]
fn silence_after_data_is_asked_about() {
    let mut script = open(Config {
        keep_alive: Some(Duration::from_secs(600)),
        ..plain()
    });
    script.pass(599_000);
    assert!(script.out().is_empty(), "nothing is waited for");
    script.inject(seg(ACK, 1, 1).data(1000));
    script.pass(1000);
    script.out();
    // In milliseconds since it was heard: the first after 10 s, then after twice as long, and the usual one after 600 s.
    let mut asked = Vec::new();
    for second in 2..=600 {
        script.pass(1000);
        let probes = script.out();
        assert!(probes.iter().all(|out| (out.seq, out.len) == (0, 0)));
        asked.extend(probes.iter().map(|_| second));
    }
    assert_eq!(asked, [10, 30, 70, 150, 310, 600]);
    assert_ne!(script.tcp.state(), State::Closed);
    script.inject(seg(RST, 1001, 0));
    assert_eq!(script.tcp.state(), State::Closed);
}
