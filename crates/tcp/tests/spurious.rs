//! What is sent again for nothing: the receiver tells of it (D-SACK, RFC 2883), and the sender takes back what it did to
//! its window (by D-SACK, RFC 3708; after timeouts by F-RTO, RFC 5682; by timestamps, RFC 3522).

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::{Config, recovery};
use bentpipe_wire::TcpOptions;
use script::{ACK, Script, mss, plain, seg};

fn config(recovery: &str) -> Config {
    Config {
        recovery: recovery::find(recovery).expect("it is in the registry"),
        sack_blocks: 4,
        initial_window: 10,
        dsack: true,
        frto: true,
        ..plain()
    }
}

fn open(config: Config) -> Script {
    let options = TcpOptions {
        sack_permitted: true,
        ..mss(1000)
    };
    Script::open_with(config, options)
}

/// Ten segments in flight, cwnd 10, from number 1.
fn flight(recovery: &str) -> Script {
    let mut script = open(config(recovery));
    script.tcp.write_virtual(1_000_000);
    script.expect(1, 10);
    script.pass(100);
    script
}

/// The acknowledgement number and the SACK blocks of the one acknowledgement that comes out.
fn answer(script: &mut Script) -> (u32, Vec<(u32, u32)>) {
    let out = script.out();
    let [ack] = &out[..] else {
        panic!("one acknowledgement: {out:?}");
    };
    (ack.ack, ack.sack.clone())
}

#[test]
fn what_arrives_twice_is_told_once_and_in_the_first_block() {
    let mut script = open(config("sack"));
    script.inject(seg(ACK, 1, 1).data(1000));
    script.inject(seg(ACK, 1001, 1).data(1000));
    assert_eq!(answer(&mut script), (2001, vec![]));
    // All of it is old, and tells so at once.
    script.inject(seg(ACK, 1001, 1).data(1000));
    assert_eq!(answer(&mut script), (2001, vec![(1001, 2001)]));
    // A part of it is old.
    script.inject(seg(ACK, 1501, 1).data(1000));
    script.inject(seg(ACK, 2501, 1).data(1000));
    assert_eq!(answer(&mut script), (3501, vec![(1501, 2001)]));
    // Beyond a gap the second block is the stretch that it lies in (RFC 2883, section 4, point 4).
    script.inject(seg(ACK, 5501, 1).data(1000));
    assert_eq!(answer(&mut script), (3501, vec![(5501, 6501)]));
    script.inject(seg(ACK, 6501, 1).data(1000));
    assert_eq!(answer(&mut script), (3501, vec![(5501, 7501)]));
    script.inject(seg(ACK, 5501, 1).data(1000));
    let told = vec![(5501, 6501), (5501, 7501)];
    assert_eq!(answer(&mut script), (3501, told));
    // The part of a segment that is beyond the gap and held.
    script.inject(seg(ACK, 7001, 1).data(1000));
    let told = vec![(7001, 7501), (5501, 8001)];
    assert_eq!(answer(&mut script), (3501, told));
    // Each is told once (point 2).
    script.inject(seg(ACK, 8001, 1).data(1000));
    assert_eq!(answer(&mut script), (3501, vec![(5501, 9001)]));
}

#[test]
fn who_is_not_asked_tells_nothing_of_what_arrives_twice() {
    let mut script = open(Config {
        dsack: false,
        ..config("sack")
    });
    for _ in 0..2 {
        script.inject(seg(ACK, 1, 1).data(1000));
    }
    assert_eq!(answer(&mut script), (1001, vec![]));
    // Nor does who did not agree on SACK.
    let mut script = Script::open(config("sack"));
    for _ in 0..2 {
        script.inject(seg(ACK, 1, 1).data(1000));
    }
    assert_eq!(answer(&mut script), (1001, vec![]));
}

#[test]
fn a_reduction_is_taken_back_when_all_that_was_sent_again_had_arrived() {
    for recovery in ["sack", "fack", "prr-rack", "rack-tlp"] {
        let mut script = flight(recovery);
        // Three held beyond the first, which is only late.
        script.inject(seg(ACK, 1, 1).sack(&[(1001, 4001)]));
        script.pass(30);
        assert!(script.data().contains(&(1, 1000)), "{recovery}");
        assert!(script.tcp.gauges().ssthresh.is_some(), "{recovery}");
        script.inject(seg(ACK, 1, 10_001));
        script.data();
        let reduced = script.tcp.gauges().cwnd;
        assert!(reduced < 10.0, "{recovery}: {reduced}");
        script.inject(seg(ACK, 1, 10_001).sack(&[(1, 1001)]));
        let gauges = script.tcp.gauges();
        assert!(gauges.cwnd >= 10.0, "{recovery}: {gauges:?}");
        assert_eq!(gauges.ssthresh, None, "{recovery}");
        assert_eq!(script.tcp.counters().undone, 1, "{recovery}");
        // Told again, it means nothing more.
        script.inject(seg(ACK, 1, 10_001).sack(&[(1, 1001)]));
        assert_eq!(script.tcp.counters().undone, 1, "{recovery}");
    }
}

#[test]
fn a_reduction_stays_while_one_of_those_sent_again_was_missing() {
    let mut script = flight("fack");
    // The first two are taken for lost.
    script.inject(seg(ACK, 1, 1).sack(&[(2001, 6001)]));
    let sent = script.data();
    assert_eq!(sent[0], (1, 1000));
    script.inject(seg(ACK, 1, 1).sack(&[(2001, 10_001)]));
    assert!(script.data().contains(&(1001, 1000)));
    script.inject(seg(ACK, 1, 10_001));
    script.data();
    script.inject(seg(ACK, 1, 10_001).sack(&[(1001, 2001)]));
    assert_eq!(script.tcp.counters().undone, 0);
    assert!(script.tcp.gauges().ssthresh.is_some());
    // What no sender ever sent, or sent before the reduction alone, tells nothing.
    script.inject(seg(ACK, 1, 10_001).sack(&[(0, 1)]));
    assert_eq!(script.tcp.counters().undone, 0);
}

#[test]
fn a_spurious_timeout_is_found_by_the_second_acknowledgement_and_taken_back() {
    for recovery in ["sack", "fack", "prr-rack"] {
        let mut script = flight(recovery);
        script.expire();
        assert_eq!(script.data(), [(1, 1000)], "{recovery}");
        assert_eq!(script.tcp.gauges().ssthresh, Some(5), "{recovery}");
        // Step 2: the acknowledgement of the first transmission comes late, and two new segments follow it.
        script.inject(seg(ACK, 1, 1001));
        let new = [(10_001, 1000), (11_001, 1000)];
        assert_eq!(script.data(), new, "{recovery}");
        // Step 3: the next one is of a segment that was sent once.
        script.inject(seg(ACK, 1, 2001));
        let gauges = script.tcp.gauges();
        assert!(gauges.cwnd >= 10.0, "{recovery}: {gauges:?}");
        assert_eq!(gauges.ssthresh, None, "{recovery}");
        assert_eq!(script.tcp.counters().undone, 1, "{recovery}");
        assert_eq!(script.tcp.counters().retransmitted, 1, "{recovery}");
        script.inject(seg(ACK, 1, 10_001));
        script.data();
        assert_eq!(script.tcp.counters().retransmitted, 1, "{recovery}");
    }
}

#[test]
fn a_true_timeout_goes_on_as_ever_after_the_two_new_segments() {
    for recovery in ["sack", "fack", "prr-rack"] {
        let mut script = flight(recovery);
        script.expire();
        script.data();
        script.inject(seg(ACK, 1, 1001));
        assert_eq!(script.data().len(), 2, "{recovery}");
        // A new segment arrives, nothing of the old flight: step 3a.
        let held = seg(ACK, 1, 1001).sack(&[(10_001, 11_001)]);
        script.inject(held);
        assert!(script.data().contains(&(1001, 1000)), "{recovery}");
        assert_eq!(script.tcp.counters().undone, 0, "{recovery}");
        assert!(script.tcp.gauges().cwnd <= 3.0, "{recovery}");
    }
}

#[test]
fn only_the_first_timeout_of_a_recovery_is_looked_at() {
    let mut script = flight("sack");
    script.expire();
    script.data();
    script.expire();
    script.data();
    // RFC 5682, section 3, step 1.
    script.inject(seg(ACK, 1, 1001));
    assert!(script.data().contains(&(1001, 1000)));
    assert_eq!(script.tcp.counters().undone, 0);
    // All at once is acknowledged: step 2a, and nothing is known.
    let mut script = flight("sack");
    script.expire();
    script.data();
    script.inject(seg(ACK, 1, 10_001));
    assert_eq!(script.tcp.counters().undone, 0);
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
    // Without new data there is nothing to go forward with.
    let mut script = open(config("sack"));
    script.tcp.write_virtual(10_000);
    script.expect(1, 10);
    script.expire();
    script.data();
    script.inject(seg(ACK, 1, 1001));
    assert!(script.data().contains(&(1001, 1000)));
}

/// Ten segments of 988 bytes in flight that carry the timestamp 1100.
fn stamped_flight(recovery: &str, eifel: bool) -> Script {
    let mut script = open(Config {
        timestamps: true,
        dsack: false,
        frto: false,
        eifel,
        ..config(recovery)
    });
    script.tcp.write_virtual(1_000_000);
    assert_eq!(script.data().len(), 10);
    script.pass(100);
    script
}

#[test]
fn a_reduction_is_taken_back_when_a_timestamp_tells_that_the_segment_was_late() {
    for recovery in ["sack", "prr-rack", "rack-tlp"] {
        // The first or the second transmission is acknowledged: with what was held, or with all.
        let held = 4 * 988 + 1;
        for (ack, echo) in [(held, 1100), (9881, 1100), (held, 1230), (9881, 1230)] {
            for eifel in [true, false] {
                let mut script = stamped_flight(recovery, eifel);
                let holds = seg(ACK, 1, 1).sack(&[(989, held)]);
                script.inject(holds.stamp(60, 1100));
                script.pass(30);
                script.data();
                let reduced = script.tcp.gauges();
                assert_eq!(reduced.ssthresh, Some(5), "{recovery}");
                script.pass(10);
                let again = script.tcp.counters().retransmitted;
                assert_eq!(again, 1, "{recovery}");
                script.inject(seg(ACK, 1, ack.into()).stamp(70, echo));
                let (undone, gauges) = (script.tcp.counters().undone, script.tcp.gauges());
                let late = eifel && echo == 1100;
                assert_eq!(undone, u64::from(late), "{recovery} {echo} {eifel}");
                assert_eq!(gauges.ssthresh.is_none(), late, "{recovery} {echo} {eifel}");
                assert!(!late || gauges.cwnd >= 10.0, "{recovery}: {gauges:?}");
            }
        }
    }
}

#[test]
fn nothing_more_goes_again_for_an_acknowledgement_that_tells_of_a_late_segment() {
    let held = [(989, 1977), (2965, 3953), (4941, 5929)];
    let sacks = |ack, end| {
        seg(ACK, 1, ack)
            .sack(&[held[0], held[1], (4941, end)])
            .stamp(60, 1100)
    };
    for (eifel, then) in [(true, (9881, 988)), (false, (3953, 988))] {
        let mut script = stamped_flight("prr-rack", eifel);
        // The first, the third and the fifth are missing. Two of them go again as the pipe empties.
        script.inject(sacks(1, 5929));
        script.inject(sacks(1, 6917));
        assert_eq!(script.data(), [(1, 988), (1977, 988)], "{eifel}");
        script.pass(10);
        // The first one was late, and the third may be.
        script.inject(sacks(1977, 6917));
        assert_eq!(script.data(), [then], "{eifel}");
        script.inject(sacks(1977, 7905));
        assert_eq!(script.data().contains(&(3953, 988)), eifel);
    }
}

#[test]
fn a_timeout_is_taken_back_by_the_first_acknowledgement_with_an_old_timestamp() {
    let mut script = stamped_flight("rack-tlp", true);
    while script.tcp.counters().timeouts == 0 {
        script.expire();
        script.data();
    }
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
    script.inject(seg(ACK, 1, 989).stamp(70, 1100));
    assert_eq!(script.tcp.counters().undone, 1);
    assert_eq!(script.tcp.gauges().ssthresh, None);
    assert!(script.tcp.gauges().cwnd >= 10.0);
}

#[test]
fn who_is_not_asked_takes_nothing_back() {
    let still = Config {
        dsack: false,
        frto: false,
        ..config("sack")
    };
    let mut script = open(still);
    script.tcp.write_virtual(1_000_000);
    script.expect(1, 10);
    script.expire();
    script.data();
    script.inject(seg(ACK, 1, 1001));
    assert!(script.data().contains(&(1001, 1000)));
    script.inject(seg(ACK, 1, 10_001).sack(&[(1, 1001)]));
    script.inject(seg(ACK, 1, 10_001).sack(&[(1001, 2001)]));
    assert_eq!(script.tcp.counters().undone, 0);
    assert_eq!(script.tcp.gauges().ssthresh, Some(5));
}
