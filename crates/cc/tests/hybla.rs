//! Hybla against the numbers of its paper and closed forms reckoned in floating point.

use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_cc::fixed_point::{OPEN, Params, RECOVERY, RawAck, RawWindow, SEGMENTS_MAX};
use bentpipe_cc::hybla::{
    Hybla, REDUCING, State, avoidance, hybla_ack, hybla_init, hybla_ssthresh, rho, slow_start,
};
use bentpipe_cc::{Ack, Congestion, LinkParams, Phase, Settings, Window};
use proptest::prelude::*;
use std::time::Duration;

const RTT0_US: u32 = 25_000;

fn window(cwnd: u32, ssthresh: u32) -> Window {
    Window {
        cwnd,
        ssthresh,
        in_flight: cwnd,
        offered: u32::MAX,
        mss: Bytes(1448),
        wire: Bytes(1500),
        pacing: None,
    }
}

fn ack(acked: u32, phase: Phase) -> Ack {
    Ack {
        acked,
        phase,
        cwnd_limited: true,
        hungry: true,
        ..Ack::default()
    }
}

/// Congestion avoidance for `acked` segments from a clean state.
fn avoided(rho: u32, cwnd: u32, acked: u32) -> u64 {
    avoidance(&mut State::default(), rho, cwnd, acked, true)
}

#[test]
fn rho_and_slow_start_follow_the_vectors() {
    for (rtt_us, eighths, growth) in [
        (10_000, 8, 128),
        (25_000, 8, 128),
        (37_500, 12, 234),
        (50_000, 16, 3 * 128),
        (250_000, 80, 1023 * 128),
        (550_000, 176, 65_535 * 128),
    ] {
        assert_eq!(rho(rtt_us, RTT0_US), eighths, "rho at {rtt_us} us");
        assert_eq!(slow_start(eighths, 1, false), growth, "at {rtt_us} us");
        assert_eq!(
            slow_start(eighths, 3, false),
            3 * growth,
            "segments, not ACKs"
        );
    }
}

#[test]
fn a_segment_acknowledged_adds_at_most_rho() {
    assert_eq!(slow_start(8, 1, true), 128);
    assert_eq!(slow_start(16, 1, true), 2 * 128);
    assert_eq!(slow_start(80, 1, true), 10 * 128);
}

#[test]
fn avoidance_follows_the_vectors() {
    for (rho, squared) in [(8, 1), (16, 4), (80, 100), (176, 484)] {
        assert_eq!(
            avoided(rho, squared, 1),
            1,
            "rho^2 / cwnd = 1 at rho {rho}/8"
        );
        assert_eq!(avoided(rho, 2 * squared, 1), 0);
        assert_eq!(avoided(rho, 2 * squared, 2), 1);
        assert_eq!(avoided(rho, 2 * squared, 7), 3);
    }
}

#[test]
fn slow_start_is_the_closed_form_cut_to_an_eighth_of_rho() {
    for rtt_ms in 1..=400_u32 {
        let exact = f64::from(rtt_ms) / 25.0;
        let cut = (exact.max(1.0) * 8.0).floor() / 8.0;
        let closed = cut.exp2() - 1.0;
        let got = slow_start(rho(rtt_ms * 1000, RTT0_US), 1, false) as f64 / 128.0;
        let tolerance = cut.floor().exp2() / 128.0;
        assert!(
            (0.0..tolerance).contains(&(closed - got)),
            "{rtt_ms} ms: {got} of {closed}"
        );
    }
}

#[test]
fn avoidance_loses_no_fraction() {
    for (rho, cwnd) in [(8, 7), (12, 100), (83, 777), (176, 9_000)] {
        let mut state = State::default();
        let mut total = 0;
        for acked in 1..=5_000 {
            total += avoidance(&mut state, rho, cwnd, 1, true);
            let closed = f64::from(acked) * (f64::from(rho) / 8.0).powi(2) / f64::from(cwnd);
            assert!(
                (0.0..1.0).contains(&(closed - total as f64)),
                "{total} of {closed}"
            );
        }
    }
}

/// The window after `seconds` of congestion avoidance at a round-trip time, from 10 segments.
fn after(seconds: f64, rtt_ms: u32) -> f64 {
    let rtt = Duration::from_millis(rtt_ms.into());
    let mut hybla = Hybla::new(&Settings::default());
    let mut window = window(10, 10);
    hybla.init(&mut window, Instant::ZERO, Some(rtt));
    for _ in 0..(seconds / rtt.as_secs_f64()).round() as u32 {
        let round = window.cwnd;
        for _ in 0..round {
            hybla.on_ack(&mut window, &ack(1, Phase::Open));
        }
    }
    f64::from(window.cwnd)
}

#[test]
fn the_rate_grows_alike_at_any_round_trip_time() {
    // Reno at RTT0 adds one segment a round trip: 1600 in 40 s, at 25 ms.
    let reference = 1600.0 / 0.025;
    for rtt_ms in [25, 100, 250, 500] {
        let rate = after(40.0, rtt_ms) / (f64::from(rtt_ms) / 1000.0);
        assert!(
            (0.95..1.05).contains(&(rate / reference)),
            "{rtt_ms} ms: {rate} of {reference}"
        );
    }
}

#[test]
fn the_first_window_is_rho_paced_over_a_round_trip() {
    let mut hybla = Hybla::new(&Settings::default());
    let mut window = window(10, u32::MAX);
    hybla.init(&mut window, Instant::ZERO, Some(Duration::from_millis(550)));
    assert_eq!(window.cwnd, 22);
    let bytes = window.pacing.unwrap().over(Duration::from_millis(550));
    assert!(bytes.0.abs_diff(22 * 1448) <= 1, "{bytes}");
}

#[test]
fn the_threshold_starts_at_the_link_rate() {
    let settings = Settings {
        link: LinkParams::of_rate(Rate::from_bits_per_sec(10_000_000)),
        ..Settings::default()
    };
    let mut window = window(10, u32::MAX);
    Hybla::new(&settings).init(&mut window, Instant::ZERO, Some(Duration::from_millis(600)));
    assert_eq!(window.ssthresh, 500, "750,000 bytes of 1,500");
}

#[test]
fn a_loss_halves_but_leaves_two() {
    let mut hybla = Hybla::new(&Settings::default());
    for (cwnd, threshold) in [
        (0, 2),
        (3, 2),
        (4, 2),
        (100, 50),
        (101, 50),
        (u32::MAX, 0x7fff_ffff),
    ] {
        assert_eq!(hybla.ssthresh(&window(cwnd, 9)), threshold);
    }
}

#[test]
fn a_recovery_sends_one_for_two_and_ends_at_the_threshold() {
    let mut hybla = Hybla::new(&Settings::default());
    let mut window = window(100, u32::MAX);
    hybla.init(&mut window, Instant::ZERO, None);
    window.ssthresh = hybla.ssthresh(&window);
    window.in_flight = 99;
    let mut sent = 0;
    for acked in 1..=110 {
        window.in_flight -= 1;
        let mut ack = ack(1, Phase::Recovery);
        ack.sent = sent;
        hybla.on_ack(&mut window, &ack);
        assert!(window.cwnd >= 50);
        if window.in_flight < window.cwnd {
            sent += window.cwnd - window.in_flight;
            window.in_flight = window.cwnd;
        }
        assert!(
            sent >= acked / 2 || window.in_flight == 50,
            "{sent} sent for {acked}: the retransmissions stall"
        );
    }
    assert_eq!(window.cwnd, 50);
    let mut end = ack(1, Phase::Open);
    end.cwnd_limited = false;
    hybla.on_ack(&mut window, &end);
    assert_eq!(window.cwnd, 50);
}

#[test]
fn aggressive_ends_a_recovery_higher() {
    let end = |aggressive| {
        let settings = Settings {
            link: LinkParams {
                aggressive,
                ..LinkParams::default()
            },
            ..Settings::default()
        };
        let mut hybla = Hybla::new(&settings);
        let mut window = window(400, 400);
        hybla.init(&mut window, Instant::ZERO, Some(Duration::from_millis(600)));
        window.ssthresh = hybla.ssthresh(&window);
        for _ in 0..300 {
            window.in_flight = window.cwnd.saturating_sub(1);
            hybla.on_ack(&mut window, &ack(1, Phase::Recovery));
        }
        let mut last = ack(0, Phase::Open);
        last.cwnd_limited = false;
        hybla.on_ack(&mut window, &last);
        window.cwnd
    };
    assert_eq!(end(false), 200);
    assert!(end(true) > 400, "{}", end(true));
}

/// A window at the start of a recovery, and the state that recovery starts from.
fn recovering(cwnd: u32) -> (State, RawWindow) {
    let window = RawWindow {
        cwnd,
        ssthresh: (cwnd / 2).max(2),
        ..RawWindow::default()
    };
    (State::default(), window)
}

#[test]
fn a_recovery_that_runs_into_the_next_halves_once_unless_much_is_lost() {
    for (lost, threshold) in [(0, 50), (1, 50), (3, 50), (4, 25)] {
        let (mut state, mut window) = recovering(100);
        window.in_flight = 50;
        let ack = RawAck {
            acked: 100,
            lost,
            phase: RECOVERY,
            ..RawAck::default()
        };
        hybla_ack(&mut state, &mut window, &ack, &Params::default());
        window.cwnd = 50;
        assert_eq!(
            hybla_ssthresh(&mut state, &window),
            threshold,
            "{lost} of 100 lost"
        );
    }
}

#[test]
fn after_a_mass_loss_the_pipe_fills_by_one_an_ack_once_losses_end() {
    let (mut state, mut window) = recovering(100);
    window.in_flight = 8;
    let mut sent = 0;
    let mut round = |lost: u32, acks: u32| {
        for _ in 0..acks {
            window.in_flight -= 1;
            let ack = RawAck {
                acked: 1,
                lost,
                sent,
                phase: RECOVERY,
                ..RawAck::default()
            };
            hybla_ack(&mut state, &mut window, &ack, &Params::default());
            sent += window.cwnd - window.in_flight;
            window.in_flight = window.cwnd;
        }
        window.in_flight
    };
    assert_eq!(round(5, 10), 8, "while losses go on, one for one");
    assert_eq!(round(0, 10), 18, "two for one");
    assert_eq!(round(0, 90), 50, "up to the threshold");
}

/// Acknowledgements of a first window, `spacing_us` apart, two segments each.
fn first_window(spacing_us: u64, acks: u64) -> RawWindow {
    let params = Params {
        rtt0_us: RTT0_US,
        ..Params::default()
    };
    let mut state = State::default();
    let mut window = RawWindow {
        cwnd: 10,
        ssthresh: u32::MAX,
        mss: 1448,
        wire: 1500,
        ..RawWindow::default()
    };
    hybla_init(&mut state, &mut window, &params, 600_000);
    for at in 0..acks {
        let ack = RawAck {
            now_ns: 1_000_000_000 + at * spacing_us * 1000,
            rtt_us: 600_000,
            srtt_us: 600_000,
            acked: 2,
            ..RawAck::default()
        };
        hybla_ack(&mut state, &mut window, &ack, &params);
    }
    window
}

#[test]
fn without_a_configured_rate_slow_start_ends_at_hoes_estimate() {
    // 10 Mbit/s: two segments each 2.4 ms; 500 segments fill 600 ms.
    assert_eq!(first_window(2400, 4).ssthresh, u32::MAX, "too few to tell");
    assert_eq!(first_window(2400, 5).ssthresh, 500);
    assert_eq!(first_window(24_000, 5).ssthresh, 50);
    // The estimate does not take back what is in use already.
    assert_eq!(first_window(100_000, 5).ssthresh, 24);
    // Replies of an application with pauses say nothing of the link.
    assert_eq!(first_window(700_000, 50).ssthresh, u32::MAX);
}

#[test]
fn after_a_recovery_slow_start_ends_at_the_link_rate_again() {
    let params = Params {
        rate: 1_250_000,
        rtt0_us: RTT0_US,
        pace_q16: 65_536,
        ..Params::default()
    };
    let (mut state, mut window) = recovering(600);
    (window.wire, state.min_rtt_us) = (1500, 600_000);
    let mut ack = RawAck {
        acked: 1,
        phase: RECOVERY,
        ..RawAck::default()
    };
    hybla_ack(&mut state, &mut window, &ack, &params);
    assert_eq!(window.ssthresh, 300);
    ack.phase = OPEN;
    hybla_ack(&mut state, &mut window, &ack, &params);
    assert_eq!((window.cwnd, window.ssthresh), (300, 500));
}

proptest! {
    #[test]
    fn a_reduction_neither_takes_back_nor_floods(
        cwnd in 2..=SEGMENTS_MAX,
        acks in prop::collection::vec((0_u32..100, 0..70_000_u32, 0..3_u32, 0..200_u32), 1..50),
    ) {
        let (mut state, mut window) = recovering(cwnd);
        let goal = window.ssthresh;
        for (acked, in_flight, lost, sent) in acks {
            let entering = u32::from(state.flags & REDUCING == 0);
            window.in_flight = in_flight;
            let ack = RawAck { acked, lost, sent, phase: RECOVERY, ..RawAck::default() };
            hybla_ack(&mut state, &mut window, &ack, &Params::default());
            let room = window.cwnd.saturating_sub(in_flight);
            prop_assert!(window.cwnd >= in_flight.min(SEGMENTS_MAX), "takes back what is sent");
            if in_flight > goal {
                prop_assert!(room <= (state.delivered / 2).max(entering), "more than one for two");
            } else {
                prop_assert!(window.cwnd <= goal.max(in_flight + entering), "above the threshold");
            }
        }
    }
}
