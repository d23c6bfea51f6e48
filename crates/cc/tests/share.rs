//! How flows share a link of known rate, and how its guard yields.

use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_cc::fixed_point::{HUNGRY, Params, RawAck};
use bentpipe_cc::rate_control::{Link, RateControl};
use bentpipe_cc::share::{EPOCH_SHIFT, Member, Share, budget, join, share_ack};
use bentpipe_cc::{Ack, Congestion, LinkParams, Phase, Settings, Signal, Window};
use std::time::Duration;

const EPOCH: u64 = 1 << EPOCH_SHIFT;
const WIRE: u32 = 1500;

/// 10 Mbit/s, paced at all of it, with a guard of 60 ms.
fn link() -> Params {
    Params {
        rate: 1_250_000,
        rtt0_us: 25_000,
        pace_q16: 65_536,
        guard_us: 60_000,
        windows: 3,
        ..Params::default()
    }
}

/// Sixteen acknowledgements of a flow, spread over the epoch; returns the last budget.
fn epoch(s: &mut Share, m: &mut Member, at: u64, each: u32, rtt_ms: u32, flags: u32) -> u64 {
    (0..16)
        .map(|step| {
            let ack = RawAck {
                now_ns: at * EPOCH + step * EPOCH / 16,
                rtt_us: rtt_ms * 1000,
                acked: each,
                flags,
                ..RawAck::default()
            };
            share_ack(s, m, &link(), &ack, WIRE)
        })
        .last()
        .expect("sixteen")
}

#[test]
fn hungry_flows_get_equal_shares() {
    for n in 1..=7 {
        let mut share = Share::default();
        let mut flows = vec![Member::default(); n];
        for at in 1..6 {
            for flow in &mut flows {
                epoch(&mut share, flow, at, 3, 600, HUNGRY);
            }
        }
        assert_eq!(
            budget(&share, &link(), 0),
            1_250_000 / n as u64,
            "{n} flows"
        );
        assert_eq!(
            budget(&share, &link(), 1),
            1_250_000 / (n as u64 + 1),
            "one joins"
        );
    }
}

#[test]
fn what_a_modest_flow_leaves_goes_to_the_hungry() {
    let mut share = Share::default();
    let mut flows = [Member::default(); 3];
    for at in 1..6 {
        epoch(&mut share, &mut flows[0], at, 2, 600, 0);
        epoch(&mut share, &mut flows[1], at, 10, 600, HUNGRY);
        epoch(&mut share, &mut flows[2], at, 10, 600, HUNGRY);
    }
    // The modest one used 16 * 2 * 1500 bytes in an epoch.
    let used = 48_000.0 * 1e9 / EPOCH as f64;
    let expected = (1_250_000.0 - used) / 2.0;
    let got = budget(&share, &link(), 0) as f64;
    assert!((got - expected).abs() <= 1.0, "{got} of {expected}");
}

#[test]
fn a_silent_flow_is_forgotten_and_counts_again_at_once() {
    let mut share = Share::default();
    let (mut one, mut two) = (Member::default(), Member::default());
    for at in 1..4 {
        epoch(&mut share, &mut one, at, 3, 600, HUNGRY);
        epoch(&mut share, &mut two, at, 3, 600, HUNGRY);
    }
    epoch(&mut share, &mut one, 4, 3, 600, HUNGRY);
    assert_eq!(epoch(&mut share, &mut one, 5, 3, 600, HUNGRY), 1_250_000);
    let rejoined = join(&mut share, &mut two, &link(), 5 * EPOCH + EPOCH / 2);
    assert_eq!(rejoined, 625_000);
    assert_eq!(epoch(&mut share, &mut one, 6, 3, 600, HUNGRY), 625_000);
}

fn window() -> Window {
    Window {
        cwnd: 10,
        ssthresh: u32::MAX,
        in_flight: 10,
        offered: u32::MAX,
        mss: Bytes(1448),
        wire: Bytes(1500),
        pacing: None,
    }
}

fn ack(now: u64, phase: Phase) -> Ack {
    Ack {
        now: Instant::from_nanos(now),
        rtt: Some(Duration::from_millis(600)),
        srtt: Some(Duration::from_millis(600)),
        acked: 1,
        phase,
        cwnd_limited: true,
        hungry: true,
        ..Ack::default()
    }
}

fn paced(bits: u64) -> Settings {
    Settings {
        link: LinkParams {
            pace: bentpipe_base::Probability::new(1.0).expect("lies in [0, 1]"),
            ..LinkParams::of_rate(Rate::from_bits_per_sec(bits))
        },
        ..Settings::default()
    }
}

#[test]
fn the_window_is_one_product_and_then_three_and_loss_leaves_it() {
    let mut rate = RateControl::new(&paced(10_000_000));
    let mut window = window();
    rate.init(
        &mut window,
        Instant::from_nanos(EPOCH),
        Some(Duration::from_millis(600)),
    );
    assert_eq!(window.cwnd, 500, "750,000 bytes of 1,500");
    assert_eq!(
        window.pacing,
        Some(Rate::from_bits_per_sec(1_250_000 * 1448 / 1500 * 8))
    );
    rate.on_ack(&mut window, &ack(EPOCH + 1, Phase::Open));
    assert_eq!(window.cwnd, 1500);
    window.ssthresh = rate.ssthresh(&window);
    rate.on_ack(&mut window, &ack(EPOCH + 2, Phase::Recovery));
    assert_eq!((window.cwnd, window.ssthresh), (1500, u32::MAX));
}

#[test]
fn two_flows_on_a_link_take_half_each() {
    let link = Link::default();
    let settings = paced(10_000_000);
    let mut flows = [(); 2].map(|()| (RateControl::on(link.clone(), &settings), window()));
    for (flow, window) in &mut flows {
        flow.init(
            window,
            Instant::from_nanos(EPOCH),
            Some(Duration::from_millis(600)),
        );
        flow.on_signal(window, Signal::Start, Instant::from_nanos(EPOCH));
    }
    for (flow, window) in &mut flows {
        flow.on_ack(window, &ack(EPOCH + 1, Phase::Open));
        assert_eq!(window.cwnd, 750);
    }
}
