//! What holds for every congestion control in the table.

use bentpipe_base::{Bytes, Instant, Probability, Rate, Seq};
use bentpipe_cc::vegas::Thresholds;
use bentpipe_cc::{
    Ack, Algorithm, Delivery, LinkParams, LostSegment, Phase, REGISTRY, RateSample, Settings,
    Signal, SlowStart, Window, find, twin,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn names_are_unique_sorted_and_their_own() {
    let names: Vec<_> = REGISTRY.iter().map(|variant| variant.name).collect();
    let sorted: Vec<_> = names
        .iter()
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    assert_eq!(names, sorted);
    for variant in REGISTRY {
        assert_eq!((variant.new)(&Settings::default()).name(), variant.name);
        assert_eq!(find(variant.name).unwrap().summary, variant.summary);
        assert!(!variant.summary.contains('\n') && variant.summary.len() < 100);
    }
    assert!(find("tahoe").is_none());
}

/// Small values, where rules change, and any at all.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        0..4_u32,
        0..2000_u32,
        65_530..65_540_u32,
        any::<u32>(),
        Just(u32::MAX)
    ]
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        any::<u64>().prop_map(Duration::from_nanos),
        (0..2000_u64).prop_map(Duration::from_millis),
    ]
}

fn speed() -> impl Strategy<Value = Option<Rate>> {
    prop::option::of(
        prop_oneof![any::<u64>(), 0..100_000_000_u64].prop_map(Rate::from_bits_per_sec),
    )
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        speed(),
        time(),
        0.0..=1.0_f64,
        prop::option::of(time()),
        number(),
        (
            any::<bool>(),
            any::<bool>(),
            prop::sample::select(&SlowStart::ALL[..]),
        ),
        (number(), number(), number()),
        0..100_000_u64,
    )
        .prop_map(
            |(
                rate,
                rtt0,
                pace,
                guard,
                windows,
                (aggressive, uncapped, slow_start),
                (alpha, beta, gamma),
                overhead,
            )| Settings {
                link: LinkParams {
                    rate,
                    overhead: Bytes(overhead),
                    rtt0,
                    pace: Probability::new(pace).expect("lies in [0, 1]"),
                    guard,
                    windows,
                    aggressive,
                    uncapped,
                },
                vegas: Thresholds { alpha, beta, gamma },
                slow_start,
                window_floor: rtt0,
            },
        )
}

fn window() -> impl Strategy<Value = Window> {
    (number(), number(), number(), number(), number(), speed()).prop_map(
        |(cwnd, ssthresh, in_flight, mss, wire, pacing)| Window {
            cwnd,
            ssthresh,
            in_flight,
            offered: u32::MAX,
            mss: Bytes(mss.into()),
            wire: Bytes(u64::from(wire) << (wire & 7)),
            pacing,
        },
    )
}

fn phase() -> impl Strategy<Value = Phase> {
    prop::sample::select(vec![
        Phase::Open,
        Phase::Disorder,
        Phase::Cwr,
        Phase::Recovery,
        Phase::Loss,
    ])
}

fn rate_sample() -> impl Strategy<Value = RateSample> {
    let interval = prop::option::of(time());
    (any::<u64>(), interval, any::<bool>(), number(), number()).prop_map(
        |(prior_delivered, interval, app_limited, tx_in_flight, lost)| RateSample {
            prior_delivered,
            interval,
            app_limited,
            tx_in_flight,
            lost,
        },
    )
}

fn delivery() -> impl Strategy<Value = Delivery> {
    let total = prop_oneof![any::<u64>(), 0..5000_u64];
    let sample = prop::option::of(rate_sample());
    (total, number(), number(), any::<bool>(), sample).prop_map(
        |(total, newly, prior_in_flight, cwnd_full, sample)| Delivery {
            total,
            newly,
            prior_in_flight,
            cwnd_full,
            sample,
        },
    )
}

fn lost_segment() -> impl Strategy<Value = LostSegment> {
    (
        any::<u64>(),
        any::<u64>(),
        number(),
        number(),
        any::<bool>(),
    )
        .prop_map(
            |(now, delivered, tx_in_flight, lost, app_limited)| LostSegment {
                now: Instant::from_nanos(now),
                delivered,
                tx_in_flight,
                lost,
                app_limited,
            },
        )
}

fn ack() -> impl Strategy<Value = Ack> {
    let now = prop_oneof![any::<u64>(), 0..20_000_000_000_u64].prop_map(Instant::from_nanos);
    let rtt = || prop::option::of(time());
    let sequence = (any::<u32>(), number()).prop_map(|(una, flight)| (Seq(una), Seq(una) + flight));
    (
        (now, sequence),
        rtt(),
        rtt(),
        (number(), number(), number()),
        phase(),
        any::<(bool, bool)>(),
        any::<Option<u32>>(),
        prop::option::weighted(0.9, delivery()),
    )
        .prop_map(
            |(
                (now, (una, next)),
                rtt,
                srtt,
                (acked, lost, sent),
                phase,
                (cwnd_limited, hungry),
                stamp,
                delivery,
            )| Ack {
                now,
                una,
                next,
                rtt,
                srtt,
                acked,
                lost,
                sent,
                phase,
                cwnd_limited,
                hungry,
                stamp,
                delivery,
            },
        )
}

/// Whether the window is set by a model of the path, and neither grows with acknowledgements nor is cut for losses.
fn by_a_model(variant: &Algorithm) -> bool {
    ["bbr", "bbr1", "rate"].contains(&variant.name)
}

#[derive(Clone, Debug)]
enum Step {
    Init(Option<Duration>, u64),
    Ack(Ack),
    Phase(Phase),
    Signal(Signal, u64),
    Lose,
    Lost(LostSegment),
    Undo(u32),
    /// The sender brings another window.
    Window(Window),
}

fn step() -> impl Strategy<Value = Step> {
    let signals = vec![
        Signal::Start,
        Signal::Restart,
        Signal::Reduced,
        Signal::Timeout,
    ];
    prop_oneof![
        1 => (prop::option::of(time()), any::<u64>()).prop_map(|(rtt, now)| Step::Init(rtt, now)),
        8 => ack().prop_map(Step::Ack),
        1 => phase().prop_map(Step::Phase),
        1 => (prop::sample::select(signals), any::<u64>()).prop_map(|(s, now)| Step::Signal(s, now)),
        1 => Just(Step::Lose),
        1 => lost_segment().prop_map(Step::Lost),
        1 => number().prop_map(Step::Undo),
        2 => window().prop_map(Step::Window),
    ]
}

proptest! {
    #[test]
    fn no_input_panics_or_closes_the_window(
        settings in settings(),
        steps in prop::collection::vec(step(), 1..40),
        first in window(),
    ) {
        for variant in REGISTRY {
            let mut control = (variant.new)(&settings);
            let mut window = first;
            for step in &steps {
                match step.clone() {
                    Step::Init(rtt, now) => control.init(&mut window, Instant::from_nanos(now), rtt),
                    Step::Ack(ack) => {
                        control.on_ack(&mut window, &ack);
                        prop_assert!(window.cwnd >= 1, "{}: cwnd 0", variant.name);
                        if control.governs_recovery() {
                            let stopped = window.pacing.is_some_and(|rate| rate.bytes_per_sec() == 0);
                            prop_assert!(!stopped, "{}: paced at nothing", variant.name);
                        }
                    }
                    Step::Phase(phase) => control.on_phase(&mut window, phase),
                    Step::Signal(signal, now) => {
                        control.on_signal(&mut window, signal, Instant::from_nanos(now));
                    }
                    Step::Lose => window.ssthresh = control.ssthresh(&window),
                    Step::Lost(lost) => control.on_lost(&window, &lost),
                    Step::Undo(prior) => window.cwnd = control.undo(&window, prior).max(prior),
                    Step::Window(next) => window = next,
                }
                for (name, value) in control.gauges() {
                    prop_assert!(value.is_finite(), "{}: {name} is {value}", variant.name);
                }
            }
        }
    }

    #[test]
    fn recovery_is_the_senders_unless_the_control_governs_it(
        acks in prop::collection::vec(ack(), 1..40),
        first in window(),
        cwr in any::<bool>(),
    ) {
        for variant in REGISTRY {
            let mut control = (variant.new)(&Settings::default());
            if control.governs_recovery() {
                continue;
            }
            let mut window = Window { cwnd: first.cwnd.max(1), ..first };
            for ack in &acks {
                let phase = if cwr { Phase::Cwr } else { Phase::Recovery };
                let before = window.cwnd;
                control.on_ack(&mut window, &Ack { phase, ..*ack });
                prop_assert_eq!(window.cwnd, before, "{}", variant.name);
            }
        }
    }

    #[test]
    fn a_first_loss_leaves_two_segments_and_never_raises_the_window(
        acks in prop::collection::vec(ack(), 0..40),
        first in window(),
    ) {
        // The rate control takes no loss for congestion, and BBR's window follows its model.
        for variant in REGISTRY.iter().filter(|variant| !by_a_model(variant)) {
            let mut control = (variant.new)(&Settings::default());
            let mut window = first;
            for ack in &acks {
                control.on_ack(&mut window, &Ack { phase: Phase::Open, ..*ack });
            }
            let ssthresh = control.ssthresh(&window);
            let most = window.cwnd.max(2);
            prop_assert!((2..=most).contains(&ssthresh), "{}: {ssthresh}", variant.name);
        }
    }

    #[test]
    fn a_window_not_in_use_does_not_grow(acks in prop::collection::vec(ack(), 1..40)) {
        for variant in REGISTRY.iter().filter(|variant| variant.name != "vegas" && !by_a_model(variant)) {
            let mut control = (variant.new)(&Settings::default());
            let mut window = Window {
                cwnd: 10,
                ssthresh: u32::MAX,
                in_flight: 1,
                offered: u32::MAX,
                mss: Bytes(1448),
                wire: Bytes(1500),
                pacing: None,
            };
            for ack in &acks {
                let ack = Ack { phase: Phase::Open, cwnd_limited: false, ..*ack };
                control.on_ack(&mut window, &ack);
            }
            prop_assert_eq!(window.cwnd, 10, "{}", variant.name);
        }
    }
}

#[test]
fn a_control_is_found_by_the_name_of_its_bpf_program_too() {
    for variant in REGISTRY {
        assert!(find(variant.name).is_some_and(|found| found.name == variant.name));
        let Some(kernel) = variant.kernel else {
            continue;
        };
        assert!(find(kernel).is_some_and(|found| found.name == variant.name));
        assert!(twin(kernel).is_some_and(|found| found.name == variant.name));
        assert!(twin(variant.name).is_none());
    }
    assert!(twin("bentpipe_reno").is_none());
}
