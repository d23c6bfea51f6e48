//! How flows share a link of known rate, and how its guard yields.

use bentpipe_base::{Bytes, Instant, Rate};
use bentpipe_cc::fixed_point::{HUNGRY, Params, RawAck};
use bentpipe_cc::rate_control::{Link, RateControl};
use bentpipe_cc::share::{EPOCH_SHIFT, Member, Receiver, Share, begin, budget, join, share_ack};
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

/// A flow that is alone with its receiver.
#[derive(Clone, Copy, Default)]
struct Flow {
    receiver: Receiver,
    member: Member,
}

/// Sixteen acknowledgements of a flow, spread over the epoch; returns the last budget.
fn epoch(s: &mut Share, flow: &mut Flow, at: u64, each: u32, rtt_ms: u32, flags: u32) -> u64 {
    (0..16)
        .map(|step| {
            let ack = RawAck {
                now_ns: at * EPOCH + step * EPOCH / 16,
                rtt_us: rtt_ms * 1000,
                acked: each,
                flags,
                ..RawAck::default()
            };
            share_ack(s, &mut flow.receiver, &mut flow.member, &link(), &ack, WIRE)
        })
        .last()
        .expect("sixteen")
}

#[test]
fn hungry_flows_get_equal_shares() {
    for n in 1..=7 {
        let mut share = Share::default();
        let mut flows = vec![Flow::default(); n];
        for at in 1..6 {
            for flow in &mut flows {
                epoch(&mut share, flow, at, 3, 600, HUNGRY);
            }
        }
        assert_eq!(
            budget(&share, &flows[0].receiver, &flows[0].member, &link(), 0),
            1_250_000 / n as u64,
            "{n} flows"
        );
        assert_eq!(
            budget(&share, &Receiver::default(), &Member::default(), &link(), 1),
            1_250_000 / (n as u64 + 1),
            "one joins"
        );
    }
}

#[test]
fn what_a_modest_flow_leaves_goes_to_the_hungry() {
    let mut share = Share::default();
    let mut flows = [Flow::default(); 3];
    for at in 1..6 {
        epoch(&mut share, &mut flows[0], at, 2, 600, 0);
        epoch(&mut share, &mut flows[1], at, 10, 600, HUNGRY);
        epoch(&mut share, &mut flows[2], at, 10, 600, HUNGRY);
    }
    // The modest one used 16 * 2 * 1500 bytes in an epoch.
    let used = 48_000.0 * 1e9 / EPOCH as f64;
    let expected = (1_250_000.0 - used) / 2.0;
    let got = budget(&share, &flows[1].receiver, &flows[1].member, &link(), 0) as f64;
    assert!((got - expected).abs() <= 1.0, "{got} of {expected}");
}

#[test]
fn a_silent_flow_is_forgotten_and_counts_again_at_once() {
    let mut share = Share::default();
    let (mut one, mut two) = (Flow::default(), Flow::default());
    for at in 1..4 {
        epoch(&mut share, &mut one, at, 3, 600, HUNGRY);
        epoch(&mut share, &mut two, at, 3, 600, HUNGRY);
    }
    epoch(&mut share, &mut one, 4, 3, 600, HUNGRY);
    assert_eq!(epoch(&mut share, &mut one, 5, 3, 600, HUNGRY), 1_250_000);
    let rejoined = join(
        &mut share,
        &mut two.receiver,
        &mut two.member,
        &link(),
        5 * EPOCH + EPOCH / 2,
    );
    assert_eq!(rejoined, 625_000);
    assert_eq!(epoch(&mut share, &mut one, 6, 3, 600, HUNGRY), 625_000);
}

/// A receiver with many flows gets no more than one with a single flow, and its own flows share alike.
#[test]
fn receivers_share_the_link_and_flows_their_receivers_part() {
    let mut share = Share::default();
    let mut one = Flow::default();
    let mut crowd = Receiver::default();
    let mut members = [Member::default(); 4];
    for at in 1..6 {
        epoch(&mut share, &mut one, at, 3, 600, HUNGRY);
        for member in &mut members {
            let mut flow = Flow {
                receiver: crowd,
                member: *member,
            };
            epoch(&mut share, &mut flow, at, 3, 600, HUNGRY);
            (crowd, *member) = (flow.receiver, flow.member);
        }
    }
    let got = budget(&share, &one.receiver, &one.member, &link(), 0);
    assert_eq!(got, 1_250_000 / 2);
    let got = budget(&share, &crowd, &members[0], &link(), 0);
    assert_eq!(got, 1_250_000 / 8);
}

/// Flows of which nothing is ever acknowledged take half of their receiver's part at first, and nothing of it soon,
/// though they are many and always new.
#[test]
fn flows_that_are_never_acknowledged_leave_half_to_the_rest() {
    let mut share = Share::default();
    let mut receiver = Receiver::default();
    let mut member = Member::default();
    for at in 1..6 {
        for silent in 0..40 {
            let mut silent_member = Member {
                joining: 1,
                ..Member::default()
            };
            let (s, c, m) = (&mut share, &mut receiver, &mut silent_member);
            begin(s, c, m, &link(), at * EPOCH + silent);
            join(s, c, m, &link(), at * EPOCH + silent);
        }
        let mut flow = Flow { receiver, member };
        let got = epoch(&mut share, &mut flow, at, 3, 600, HUNGRY);
        (receiver, member) = (flow.receiver, flow.member);
        let least = if at < 3 { 1_250_000 / 2 } else { 1_250_000 };
        assert!(got >= least, "epoch {at}: {got}");
    }
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
    let mut flows = [1, 2].map(|host| (RateControl::on(link.clone(), host, &settings), window()));
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
