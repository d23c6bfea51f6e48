//! What the figures come to, in words.

use crate::alternative::{Alternative, Measure};
use crate::question::{Activity, Losses, Question};
use crate::simulated_figure::Figure;
use bentpipe_base::{Bytes, Rate};
use core::time::Duration;
use serde::Serialize;

/// The figures of a question, as far as they are there.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'f>(pub &'f [Figure]);

impl<'f> Answers<'f> {
    /// One of them.
    pub fn get(self, alternative: Alternative, measure: Measure) -> Option<&'f Figure> {
        let mut figures = self.0.iter();
        figures.find(|figure| figure.alternative == alternative && figure.measure == measure)
    }
}

/// What the figures come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What holds the link back as it is, end to end by CUBIC.
    pub holds: String,
    /// What helps, and how much.
    pub helps: String,
    /// What helps most.
    pub best: Alternative,
}

/// The payload that a stock Linux receiver has room for: half of the 6 MiB of `tcp_rmem`.
const WINDOW: Bytes = Bytes(6_291_456 / 2);
/// Less gain than this is none: another seed would make as much of a difference.
const GAIN: f64 = 1.1;

/// Puts `answers` into words: those of the [headline](Measure::headline) and the long transfer by CUBIC; `None` while one of them is missing.
pub fn advise(question: &Question, answers: Answers<'_>) -> Option<Advice> {
    let headline = Measure::headline(question);
    let now = answers.get(Alternative::Cubic, headline)?;
    let long = answers.get(Alternative::Cubic, Measure::Long)?;
    let all: Option<Vec<&Figure>> = { Alternative::ALL.into_iter() }
        .map(|alternative| answers.get(alternative, headline))
        .collect();
    let wins = |figure: &&Figure| cost(question, now) / cost(question, figure);
    // Of equals the first: that with less to install.
    let best = all?.into_iter().fold(now, |best, figure| {
        if wins(&figure) > wins(&best) * 1.02 {
            figure
        } else {
            best
        }
    });
    Some(Advice {
        holds: holds(question, now, long),
        helps: helps(question, now, best, wins(&best)),
        best: best.alternative,
    })
}

/// What is to be small: the time, or what a call's packets wait for.
fn cost(question: &Question, figure: &Figure) -> f64 {
    match question.activity {
        // Below a few milliseconds nobody hears a difference.
        Activity::Calls => figure.evidence.wait_ms.max(5.0),
        _ => figure.seconds.unwrap_or(figure.limit_s),
    }
}

fn holds(question: &Question, now: &Figure, long: &Figure) -> String {
    let found = &long.evidence;
    let share = long.goodput_mbps / found.limit_mbps;
    let percent = (share * 100.0).round();
    let path = ms(question.path());
    let carried = format!(
        "a long transfer gets {} of the {} Mbit/s that the link has room for ({percent}%)",
        rate(long.goodput_mbps),
        rate(found.limit_mbps)
    );
    let window =
        Rate::from_bits_per_sec((WINDOW.bits() as f64 / question.path().as_secs_f64()) as u64)
            .mbps()
            * f64::from(question.users);
    if question.activity == Activity::Calls && found.wait_ms > 20.0 {
        return format!(
            "The queue: while files are fetched a call's packets wait {} ms in front of the link, in the mean, beside the {path} ms of the way itself.",
            found.wait_ms.round()
        );
    }
    if share < 0.85 {
        if found.refused_back > found.packets / 50 || found.wait_back_ms > 200.0 {
            return format!(
                "The way back: acknowledgements wait {} ms for it in the mean, and {carried}.",
                found.wait_back_ms.round()
            );
        }
        if window < found.limit_mbps * 0.9 && found.lost == 0 {
            return format!(
                "The window: a stock Linux receiver lets {} MB be under way, which over {path} ms is {} Mbit/s; {carried}.",
                rate(WINDOW.0 as f64 / 1e6),
                rate(window)
            );
        }
        if found.lost > 0 {
            let how = match question.losses {
                Losses::Random | Losses::Bursts => format!(
                    "{} of {} packets were lost on the way",
                    found.lost, found.packets
                ),
                Losses::Handovers => format!("handovers took {} packets", found.lost),
            };
            return format!(
                "Losses: {how}, and TCP takes each for congestion and slows down, to recover over round trips of {path} ms; {carried}."
            );
        }
    }
    let seconds = now.seconds.unwrap_or(now.limit_s);
    let wire = f64::from(question.users)
        * now.measure.bytes(question).bits() as f64
        * f64::from(now.measure.connections())
        / (found.limit_mbps * 1e6);
    if question.activity != Activity::Calls && seconds > 1.5 * wire {
        let what = now.measure.label(question);
        let trips = seconds / question.path().as_secs_f64();
        return format!(
            "The round trip: {what} takes {} s, which is {} round trips of {path} ms; the link's rate alone would need {} s.",
            time(seconds),
            rate(trips),
            time(wire)
        );
    }
    format!("Little: {carried}.")
}

fn helps(question: &Question, now: &Figure, best: &Figure, gain: f64) -> String {
    if gain < GAIN {
        return "Nothing here is a tenth better than what most hosts do already: leave the link as it is.".to_owned();
    }
    let name = match best.alternative {
        Alternative::Cubic => "What most hosts do",
        Alternative::Bbr => "BBR at the senders, without any gateway,",
        Alternative::SplitCubic => "A gateway that splits, even with CUBIC on the satellite leg,",
        Alternative::SplitHybla => "A gateway that splits, with Hybla on the satellite leg,",
        Alternative::SplitRate => "A gateway that splits, with bentpipe_rate on the satellite leg,",
        Alternative::Snoop => "A gateway with Snoop, which splits nothing,",
        Alternative::Scps => "A pair of gateways with SCPS-TP between them",
    };
    if question.activity == Activity::Calls {
        return format!(
            "{name} leaves a call's packets {} ms to wait instead of {}.",
            best.evidence.wait_ms.round(),
            now.evidence.wait_ms.round()
        );
    }
    let seconds = |figure: &Figure| {
        figure
            .seconds
            .map_or_else(|| format!("more than {}", time(figure.limit_s)), time)
    };
    let what = now.measure.label(question);
    let each = if question.users > 1 {
        " for each user"
    } else {
        ""
    };
    format!(
        "{name} brings {what}{each} in {} s instead of {} s.",
        seconds(best),
        seconds(now)
    )
}

fn ms(time: Duration) -> String {
    rate(time.as_secs_f64() * 1e3)
}

/// With as many digits as help: 0.43, 8.6, 43.
fn rate(value: f64) -> String {
    match value {
        large if large >= 10.0 => format!("{large:.0}"),
        middle if middle >= 1.0 => format!("{middle:.1}"),
        small => format!("{small:.2}"),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        long if long >= 100.0 => format!("{long:.0}"),
        middle if middle >= 10.0 => format!("{middle:.1}"),
        short => format!("{short:.2}"),
    }
}
