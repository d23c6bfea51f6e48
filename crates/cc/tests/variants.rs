//! Each variant against what its paper's equations give in closed form.

mod support;

use bentpipe_base::{Instant, Seq};
use bentpipe_cc::{Ack, FirstUnacked, Phase, Signal, SlowStart};
use std::time::Duration;
use support::{Flow, MSS, avoiding, control};

const MS: Duration = Duration::from_millis(1);

/// 1 segment/ms, 100 ms: a product of 100 segments (and the one being sent).
fn flow(name: &str, cwnd: u32) -> Flow {
    Flow::new(name, avoiding(cwnd), MS, 99 * MS)
}

/// A link that never queues.
fn wide(name: &str, cwnd: u32) -> Flow {
    Flow::new(name, avoiding(cwnd), Duration::ZERO, 100 * MS)
}

/// What the tests measure lies within one segment of the closed form.
fn close(measured: u32, expected: f64) {
    let error = f64::from(measured) - expected;
    assert!(error.abs() <= 1.5, "{measured} instead of {expected}");
}

#[test]
fn vegas_settles_with_alpha_to_beta_segments_queued() {
    for start in [10, 60, 99, 140, 300] {
        let mut flow = flow("vegas", 2);
        // The smallest round-trip time is known before the window is put where it starts.
        flow.round();
        flow.window.cwnd = start;
        for _ in 0..500 {
            flow.round();
        }
        let queued = f64::from(flow.window.cwnd) - 100.0;
        assert!((1.0..=4.0).contains(&queued), "{start}: {queued}");
        let base = flow.gauge("base_rtt_ms");
        assert!((base - 100.0).abs() < 0.01, "{start}: {base}");
    }
}

#[test]
fn vegas_doubles_every_other_round_trip_and_leaves_slow_start_before_it_floods() {
    let mut flow = flow("vegas", 2);
    flow.window.ssthresh = u32::MAX;
    let mut windows = Vec::new();
    while flow.window.ssthresh == u32::MAX {
        flow.round();
        windows.push(flow.window.cwnd);
    }
    // A burst of 32 at once queues 31/2 on the mean, which is above gamma: minus an eighth.
    assert_eq!(windows, [2, 4, 4, 8, 8, 16, 16, 32, 32, 28]);
    assert_eq!(flow.window.ssthresh, 2);
}

#[test]
fn vegas_takes_a_quarter_once_a_flight_and_half_for_what_was_sent_twice() {
    let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
    let hole = |sent, now, transmits| FirstUnacked {
        now: at(now),
        sent: at(sent),
        transmits,
    };
    let mut vegas = control("vegas");
    assert_eq!(
        vegas.ssthresh_for(&avoiding(103), &hole(100, 200, 1)),
        103 - 25
    );
    // Sent before that decrease.
    assert_eq!(vegas.ssthresh_for(&avoiding(78), &hole(150, 250, 1)), 78);
    assert_eq!(vegas.ssthresh_for(&avoiding(78), &hole(201, 301, 2)), 39);
    assert_eq!(vegas.ssthresh_for(&avoiding(3), &hole(400, 500, 1)), 2);
    let mut window = avoiding(1);
    vegas.on_signal(&mut window, Signal::Timeout, at(600));
    assert_eq!(window.cwnd, 2);
    assert_eq!(vegas.ssthresh_for(&avoiding(50), &hole(599, 700, 1)), 50);
}

#[test]
fn vegas_waits_two_variations_and_a_sixteenth_then_backs_off() {
    let mut flow = wide("vegas", 4);
    let now = |waited: f64| FirstUnacked {
        now: Instant::ZERO + Duration::from_secs_f64(1.0 + waited),
        sent: Instant::ZERO + Duration::from_secs(1),
        transmits: 1,
    };
    assert!(!flow.control.expired(&now(3000.0)), "no sample yet");
    for _ in 0..100 {
        flow.round();
    }
    // A hundred equal samples: the variation is gone, 17/16 of 100 ms remain.
    assert!(!flow.control.expired(&now(0.106)));
    assert!(flow.control.expired(&now(0.107)));
    flow.control.ssthresh_for(&avoiding(4), &now(0.107));
    // 9/8 of it.
    assert!(!flow.control.expired(&now(0.119)));
    assert!(flow.control.expired(&now(0.120)));
}

/// Linux's `snd_cwnd_cnt`: what was acknowledged before a loss brings no increase after it.
#[test]
fn reno_forgets_at_a_loss_what_it_had_towards_the_next_increase() {
    let mut flow = wide("reno", 20);
    for _ in 0..19 {
        flow.step();
    }
    assert_eq!((flow.window.cwnd, flow.gauge("count_segments")), (20, 19.0));
    flow.lose();
    for acknowledged in 1..=10 {
        assert_eq!(flow.window.cwnd, 10, "{acknowledged}");
        flow.step();
    }
    assert_eq!((flow.window.cwnd, flow.gauge("count_segments")), (11, 0.0));
}

#[test]
fn bic_halves_the_distance_every_round_trip() {
    let mut flow = wide("bic", 400);
    flow.lose();
    assert_eq!(flow.window.cwnd, 350);
    for round in 1..=12 {
        flow.round();
        // dw/dn = (400 - w) / 2.
        close(
            flow.window.cwnd,
            400.0 - 50.0 * (-f64::from(round) / 2.0).exp(),
        );
    }
}

#[test]
fn bic_grows_by_smax_far_from_the_last_window_and_probes_beyond_it() {
    let mut flow = wide("bic", 2000);
    flow.lose();
    assert_eq!(flow.window.cwnd, 1750);
    // What was in flight at the loss.
    flow.round();
    let before = f64::from(flow.window.cwnd);
    flow.round();
    close(flow.window.cwnd, before + 32.0);
    let mut far = wide("bic", 1000);
    far.lose();
    let mut windows = vec![f64::from(far.window.cwnd)];
    for _ in 0..40 {
        far.round();
        windows.push(f64::from(far.window.cwnd));
    }
    let top = windows.iter().position(|&cwnd| cwnd > 1001.0).unwrap();
    let steps: Vec<f64> = windows[top - 1..]
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .collect();
    // A step doubles with each growth by it: 1, 2, 4 ... 32 segments a round trip.
    assert!(
        steps.windows(2).all(|pair| pair[1] >= pair[0] - 1.0),
        "{steps:?}"
    );
    assert_eq!(steps.last(), Some(&32.0), "{steps:?}");
}

#[test]
fn bic_gives_up_its_maximum_to_newcomers_and_is_reno_when_small() {
    let mut flow = wide("bic", 400);
    flow.lose();
    flow.window.cwnd = 360;
    flow.lose();
    // Below the last maximum: (360 + 315) / 2.
    assert_eq!(flow.gauge("w_max_segments"), 337.5);
    let mut small = wide("bic", 10);
    // One segment for a window of acknowledgements.
    for _ in 0..9 {
        small.step();
    }
    assert_eq!(small.window.cwnd, 10);
    small.step();
    small.step();
    assert_eq!(small.window.cwnd, 11);
    assert_eq!(small.control.ssthresh(&avoiding(13)), 6);
}

#[test]
fn cubic_follows_its_curve() {
    for name in ["cubic", "cubic-rfc"] {
        follows_its_curve(name);
    }
}

fn follows_its_curve(name: &str) {
    // Acknowledgements 50 us apart: Linux looks at the curve once a jiffy.
    let mut flow = Flow::new(name, avoiding(1000), MS / 20, 100 * MS);
    flow.lose();
    assert_eq!(flow.window.cwnd, 700);
    flow.step();
    let began = flow.now.as_secs_f64();
    // RFC 9438, figure 1 and 2: K = cbrt(Wmax * (1 - beta) / C).
    let k = (1000.0_f64 * 0.3 / 0.4).cbrt();
    // Linux reckons K in 1024ths of a second, and C is 410/1024.
    let exact = if name == "cubic" { 5.0 / 1024.0 } else { 1e-6 };
    assert!((flow.gauge("k_s") - k).abs() < exact);
    for _ in 0..160 {
        flow.round();
        let t = flow.now.as_secs_f64() - began;
        let expected = 1000.0 + 0.4 * (t - k).powi(3);
        // The window reaches W(t + RTT) one round trip later; up to 27 segments a round trip.
        let slope = 1.2 * (t - k).powi(2) * 0.1 + 2.0;
        let error = f64::from(flow.window.cwnd) - expected;
        assert!(error.abs() < slope, "{t}: {error}");
    }
}

#[test]
fn cubic_is_no_slower_than_reno_on_short_paths() {
    // 2 ms: the cubic curve is flat for seconds.
    let mut flow = Flow::new("cubic-rfc", avoiding(100), Duration::ZERO, 2 * MS);
    flow.lose();
    let mut expected = 70.0_f64;
    for _ in 0..200 {
        flow.round();
        // RFC 9438, equation 4: alpha until the window before the loss, then 1.
        expected += if expected < 100.0 { 0.9 / 1.7 } else { 1.0 };
        let error = f64::from(flow.window.cwnd) - expected;
        assert!(error.abs() < 0.03 * expected + 1.0, "{expected}: {error}");
    }
}

#[test]
fn cubic_remembers_the_last_maximum_and_a_timeout_forgets_it() {
    let mut cubic = control("cubic-rfc");
    assert_eq!(cubic.ssthresh(&avoiding(1000)), 700);
    assert_eq!(cubic.gauges()[0], ("w_max_segments", 1000.0));
    assert_eq!(cubic.ssthresh(&avoiding(800)), 560);
    assert_eq!(cubic.gauges()[0], ("w_max_segments", 800.0 * 0.85));
    cubic.on_phase(&mut avoiding(1), Phase::Loss);
    assert_eq!(cubic.gauges()[0], ("w_max_segments", 0.0));
}

/// 40 ms and small windows: Linux keeps to 8/15 of a segment a round trip, however long ago the loss is.
#[test]
fn cubic_of_linux_follows_its_own_reno() {
    let mut flow = Flow::new("cubic", avoiding(20), MS / 10, 40 * MS);
    flow.lose();
    let mut expected = 14.0_f64;
    for round in 0..80 {
        flow.round();
        expected += 8.0 / 15.0;
        let behind = expected - f64::from(flow.window.cwnd);
        assert!((-1.5..3.5).contains(&behind), "{round}: {behind} behind");
    }
}

#[test]
fn cubic_of_linux_reckons_in_whole_segments() {
    let mut cubic = control("cubic");
    assert_eq!(cubic.ssthresh(&avoiding(1000)), 700);
    assert_eq!(cubic.ssthresh(&avoiding(803)), 562);
    // 803 * 1741 / 2048
    assert_eq!(cubic.gauges()[0], ("w_max_segments", 682.0));
    cubic.on_phase(&mut avoiding(1), Phase::Loss);
    assert_eq!(cubic.gauges()[0], ("w_max_segments", 0.0));
    // Nothing is known: a segment for 20 acknowledged.
    let mut flow = wide("cubic", 100);
    flow.round();
    let before = flow.window.cwnd;
    flow.round();
    assert_eq!(flow.window.cwnd - before, before / 20);
}

#[test]
fn cubic_does_not_grow_for_idle_time() {
    let mut flow = wide("cubic", 100);
    flow.lose();
    for _ in 0..20 {
        flow.round();
    }
    let before = flow.window.cwnd;
    let idle = flow.now + Duration::from_secs(100);
    flow.control
        .on_signal(&mut flow.window, Signal::Start, idle);
    flow.now = idle;
    let ack = Ack {
        now: idle + 100 * MS,
        una: Seq(MSS),
        next: Seq(2 * MSS),
        acked: 1,
        cwnd_limited: true,
        ..Ack::default()
    };
    flow.control.on_ack(&mut flow.window, &ack);
    assert!(flow.window.cwnd <= before + 1);
}

#[test]
fn hystart_ends_slow_start_at_about_the_product() {
    let mut flow = flow("cubic", 10);
    flow.window.ssthresh = u32::MAX;
    while flow.window.ssthresh == u32::MAX {
        flow.round();
    }
    // A queue of an eighth of the round trip is what the delay rule bears, and the train of a
    // window of half the product is as long as half a round trip.
    assert!(
        (50..=160).contains(&flow.window.ssthresh),
        "{}",
        flow.window.ssthresh
    );
    let settings = bentpipe_cc::Settings {
        slow_start: SlowStart::Standard,
        ..Default::default()
    };
    let mut off = self::flow("cubic", 10);
    off.control = (bentpipe_cc::find("cubic").unwrap().new)(&settings);
    off.window.ssthresh = u32::MAX;
    for _ in 0..6 {
        off.round();
    }
    assert_eq!((off.window.cwnd, off.window.ssthresh), (640, u32::MAX));
}

/// RFC 9406: of each control that has it.
#[test]
fn hystart_plus_plus_slows_down_where_a_queue_begins_and_ends_five_round_trips_later() {
    let settings = bentpipe_cc::Settings {
        slow_start: SlowStart::HyStartPlusPlus,
        ..Default::default()
    };
    for name in ["reno", "cubic", "cubic-rfc"] {
        let mut flow = flow(name, 10);
        flow.control = (bentpipe_cc::find(name).unwrap().new)(&settings);
        flow.window.ssthresh = u32::MAX;
        let mut growth = Vec::new();
        while flow.window.ssthresh == u32::MAX {
            let before = f64::from(flow.window.cwnd);
            flow.round();
            growth.push(f64::from(flow.window.cwnd) / before);
        }
        let doubled = growth.iter().take_while(|growth| **growth == 2.0).count();
        // 10, 20, 40, 80, 160 of a product of 100.
        assert!((3..=5).contains(&doubled), "{name}: {growth:?}");
        let slow = &growth[doubled + 1..growth.len() - 1];
        assert_eq!(slow.len(), 4, "{name}: {growth:?}");
        assert!(
            slow.iter().all(|it| (1.24..=1.26).contains(it)),
            "{name}: {growth:?}"
        );
        // What follows is congestion avoidance, and a timeout brings plain slow start.
        let before = flow.window.cwnd;
        flow.round();
        assert!(flow.window.cwnd < before + before / 8, "{name}");
        flow.control.on_phase(&mut flow.window, Phase::Loss);
        flow.window.cwnd = 10;
        while flow.window.cwnd < 100 {
            let before = flow.window.cwnd;
            let flying = flow.window.in_flight;
            for _ in 0..flying.min(before) {
                flow.step();
            }
            assert!(flow.window.cwnd > before, "{name}");
        }
    }
}

#[test]
fn compound_grows_by_an_eighth_of_the_three_quarter_power() {
    let mut flow = wide("compound", 100);
    for round in 1..=40 {
        flow.round();
        // dw/dn = w^(3/4) / 8; the first round trip has no sample before it.
        let expected = (100.0_f64.powf(0.25) + f64::from(round) / 32.0).powi(4);
        let error = f64::from(flow.window.cwnd) / expected - 1.0;
        assert!(error.abs() < 0.06, "{round}: {error}");
    }
    let dwnd = flow.gauge("dwnd_segments");
    flow.lose();
    assert_eq!(flow.gauge("dwnd_segments"), dwnd / 2.0);
}

#[test]
fn compound_keeps_no_more_than_gamma_queued_by_delay() {
    let mut flow = flow("compound", 60);
    let mut most = 0;
    for _ in 0..60 {
        flow.round();
        most = most.max(flow.window.cwnd);
    }
    // dwnd drains while Reno's part grows; once dwnd is empty the window is Reno's.
    assert_eq!(flow.gauge("dwnd_segments"), 0.0);
    assert!((130..=160).contains(&most), "{most}");
    flow.control
        .on_signal(&mut avoiding(1), Signal::Timeout, Instant::ZERO);
    assert_eq!(flow.gauge("dwnd_segments"), 0.0);
}

#[test]
fn westwood_falls_to_the_product_not_to_half() {
    let mut flow = flow("westwood", 180);
    for _ in 0..60 {
        flow.round();
    }
    // 1000 segments/s times 100 ms, measured over spans with up to a whole segment of error.
    let rate = flow.gauge("bandwidth_segments_per_s");
    assert!((rate - 1000.0).abs() < 10.0, "{rate}");
    flow.lose();
    close(flow.window.cwnd, 100.0);
    // A timeout may set the threshold above the window.
    let mut window = avoiding(1);
    flow.control
        .on_signal(&mut window, Signal::Timeout, flow.now);
    close(window.ssthresh, 100.0);
}

#[test]
fn westwood_counts_what_duplicates_stood_for_only_once() {
    let mut flow = flow("westwood", 100);
    for _ in 0..30 {
        flow.round();
    }
    // One segment of a window is lost: 99 duplicates a millisecond apart, then one acknowledgement
    // of all 100.
    let una = Seq(7);
    let mut now = flow.now;
    let mut ack = Ack {
        now,
        una,
        next: una + 100 * MSS,
        rtt: Some(100 * MS),
        phase: Phase::Recovery,
        ..Ack::default()
    };
    let mut fresh = control("westwood");
    fresh.init(&mut avoiding(100), now, None);
    for _ in 0..20 {
        fresh.on_ack(&mut avoiding(100), &ack);
        for _ in 0..99 {
            now += MS;
            ack.now = now;
            fresh.on_ack(&mut avoiding(100), &ack);
        }
        now += MS;
        ack.now = now;
        ack.una = ack.una + 100 * MSS;
        fresh.on_ack(&mut avoiding(100), &ack);
    }
    let rate = fresh.gauges()[0].1;
    assert!((950.0..1060.0).contains(&rate), "{rate}");
}
