//! Every question has scenarios that the simulator runs, gateways that a gateway reads, and words.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_advisor::{
    Activity, Advice, Alternative, Answers, Evidence, Figure, Losses, Measure, PRESETS, Question,
    RANGES, Sliders, advise, gateway_config, measure, scenario,
};
use bentpipe_gateway_config::Config;
use bentpipe_scenario::Scenario;
use proptest::prelude::*;

const ACTIVITIES: [Activity; 4] = [
    Activity::Pages,
    Activity::Download,
    Activity::Upload,
    Activity::Calls,
];
const LOSSES: [Losses; 3] = [Losses::Random, Losses::Bursts, Losses::Handovers];

fn question(sliders: Sliders) -> Question {
    Question::try_from(sliders).unwrap()
}

fn geo() -> Sliders {
    PRESETS[0].sliders.clone()
}

/// Checks every text of `question`.
fn readable(question: &Question) {
    for alternative in Alternative::ALL {
        for what in Measure::ALL
            .into_iter()
            .filter(|what| what.applies(question))
        {
            let text = scenario(question, alternative, what, 7);
            let parsed = Scenario::parse("advisor.toml", &text);
            let parsed = parsed.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
            assert_eq!(parsed.seed, 7);
            assert_eq!(
                bentpipe_sim::warnings(&parsed).unwrap(),
                Vec::<String>::new()
            );
        }
        let Some(text) = gateway_config(question, alternative) else {
            assert!(!alternative.is_pep());
            continue;
        };
        let config = Config::parse("gateway.toml", &text);
        let config = config.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        assert_eq!(config.snoops_all(), alternative == Alternative::Snoop);
        assert_eq!(config.sat.link.rate, Some(question.rate()));
        assert!(config.warnings().is_empty());
    }
}

#[test]
fn every_preset_and_activity_has_its_texts() {
    for preset in PRESETS {
        for activity in ACTIVITIES {
            for losses in LOSSES {
                readable(&question(Sliders {
                    activity,
                    losses,
                    ..preset.sliders.clone()
                }));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_the_sliders_say_can_be_run(
        places in prop::array::uniform6(0.0..=1.0f64), losses in 0..3usize, activity in 0..4usize,
    ) {
        let at = |slider: usize| {
            let range = RANGES[slider];
            range.least + (range.most - range.least) * places[slider]
        };
        readable(&question(Sliders {
            down_mbps: at(0),
            up_mbps: at(1),
            round_trip_ms: at(2),
            loss_percent: at(3),
            losses: LOSSES[losses],
            users: at(4),
            activity: ACTIVITIES[activity],
            server_ms: at(5),
        }));
    }
}

#[test]
fn what_a_slider_cannot_say_is_refused_with_its_range() {
    for (value, says) in [
        (0.0, "down_mbps is 0: expected a number from 0.128 to 500"),
        (f64::NAN, "down_mbps is NaN"),
        (f64::INFINITY, "down_mbps is inf"),
    ] {
        let refused = Question::try_from(Sliders {
            down_mbps: value,
            ..geo()
        });
        assert!(refused.unwrap_err().to_string().starts_with(says));
    }
    let text = serde_json::to_string(&geo()).unwrap();
    let wrong = text.replace("up_mbps", "upp_mbps");
    let error = serde_json::from_str::<Question>(&wrong).unwrap_err();
    assert!(error.to_string().contains("unknown field `upp_mbps`"));
    let back: Question = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

/// A page over a clean 10 Mbit/s and 600 ms: its parts are known without the simulator.
#[test]
fn a_page_takes_what_its_round_trips_take() {
    let alone = question(Sliders {
        down_mbps: 10.0,
        up_mbps: 10.0,
        round_trip_ms: 600.0,
        loss_percent: 0.0,
        server_ms: 0.0,
        ..geo()
    });
    let page = measure(&alone, Alternative::Cubic, Measure::Page).unwrap();
    let seconds = page.seconds.unwrap();
    // A handshake; of 21 segments two round trips for the first object (10, then 11), two for the second, whose last segment
    // is beyond the window of 20, and one for each of the others. 900 kB of payload need 0.75 s of the link besides.
    let trips = 8.0 * 0.6;
    assert!((trips + 0.5..trips + 0.95).contains(&seconds), "{seconds}");
    assert_eq!((page.runs, page.seed, page.limit_s), (1, 1, 3600.0));
    assert!(page.curve.is_empty());
    // 100 MB at the limit of 9.65 Mbit/s take 83 s, and the first window is paced at the rate at once.
    let long = measure(&alone, Alternative::SplitRate, Measure::Long).unwrap();
    assert!((83.0..87.0).contains(&long.seconds.unwrap()), "{long:?}");
    assert!((9.2..9.65).contains(&long.goodput_mbps));
    assert!(long.evidence.wait_ms < 30.0 && long.evidence.lost == 0);
    let last = long.curve.last().unwrap();
    assert!(
        (last.megabytes - 100.0).abs() < 1e-9
            && long.curve.len() <= 161
            && last.seconds == long.seconds.unwrap()
    );
    let rises = |pair: &[bentpipe_advisor::Point]| pair[0].megabytes <= pair[1].megabytes;
    assert!(long.curve.windows(2).all(rises));
}

/// Twenty users at once: the time is that of one of them, and all have a share.
#[test]
fn users_share_the_link() {
    let crowd = question(Sliders {
        users: 20.0,
        activity: Activity::Download,
        ..geo()
    });
    assert_eq!(Measure::Long.label(&crowd), "5 MB");
    let long = measure(&crowd, Alternative::SplitRate, Measure::Long).unwrap();
    assert!((15.0..19.2).contains(&long.goodput_mbps), "{long:?}");
    // 100 MB in all.
    assert!((40.0..60.0).contains(&long.seconds.unwrap()));
    assert!(long.flow.starts_with("transfer-"));
}

/// Figures of a link by hand, the same for all measures.
fn figures(of: impl Fn(Alternative) -> (f64, Evidence)) -> Vec<Figure> {
    let both = Alternative::ALL
        .into_iter()
        .flat_map(|it| Measure::ALL.map(|what| (it, what)));
    both.map(|(alternative, what)| {
        let (seconds, evidence) = of(alternative);
        Figure {
            alternative,
            measure: what,
            seconds: Some(seconds),
            limit_s: 3600.0,
            seed: 1,
            flow: "transfer".to_owned(),
            runs: 1,
            goodput_mbps: 800.0 / seconds,
            evidence,
            curve: Vec::new(),
        }
    })
    .collect()
}

fn words(activity: Activity, of: impl Fn(Alternative) -> (f64, Evidence)) -> Advice {
    let asked = question(Sliders { activity, ..geo() });
    advise(&asked, Answers(&figures(of))).unwrap()
}

#[test]
fn the_words_follow_from_the_figures() {
    let clean = Evidence {
        limit_mbps: 19.0,
        packets: 70_000,
        ..Evidence::default()
    };
    let lossy = Evidence {
        lost: 700,
        ..clean.clone()
    };
    let split = |alternative| alternative == Alternative::SplitRate;
    let advice = words(Activity::Download, |alternative| {
        (if split(alternative) { 44.0 } else { 400.0 }, lossy.clone())
    });
    assert_eq!(advice.best, Alternative::SplitRate);
    assert!(
        advice.holds.starts_with("Losses: 700 of 70000 packets"),
        "{}",
        advice.holds
    );
    assert!(
        advice
            .holds
            .ends_with("gets 2.0 of the 19 Mbit/s that the link has room for (11%).")
    );
    assert_eq!(
        advice.helps,
        "A gateway that splits, with bentpipe_rate on the satellite leg, brings 100 MB in 44.0 s instead of 400 s."
    );
    // Nothing is better than what is there.
    let advice = words(Activity::Download, |_| (44.0, clean.clone()));
    assert_eq!(advice.best, Alternative::Cubic);
    assert!(advice.holds.starts_with("Little: ") && advice.helps.starts_with("Nothing"));
    let narrow = Evidence {
        wait_back_ms: 900.0,
        ..clean.clone()
    };
    let advice = words(Activity::Download, |_| (90.0, narrow.clone()));
    assert!(advice.holds.starts_with("The way back"), "{}", advice.holds);
    // The queue is what calls suffer from.
    let advice = words(Activity::Calls, |alternative| {
        let wait_ms = if split(alternative) { 4.0 } else { 500.0 };
        (
            44.0,
            Evidence {
                wait_ms,
                ..clean.clone()
            },
        )
    });
    assert_eq!(advice.best, Alternative::SplitRate);
    assert!(
        advice.holds.starts_with("The queue: ")
            && advice.helps.ends_with("4 ms to wait instead of 500.")
    );
    // Without all figures there are no words.
    let asked = question(geo());
    assert_eq!(
        advise(&asked, Answers(&figures(|_| (1.0, clean.clone()))[..5])),
        None
    );
}
