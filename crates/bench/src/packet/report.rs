//! What was found, as a table and as JSON.

use super::{Figure, Subject, digits, gateway, stats};
use crate::Line;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a figure of ours is to reach: at least, or at most where less is better.
#[derive(Clone, Copy, Debug)]
pub(super) enum Aim {
    /// A value.
    Value(f64),
    /// A ratio to that rival.
    Ratio(Subject, f64),
}

/// Ours against one rival.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whom.
    pub rival: &'static str,
    /// Ours over theirs (Hodges–Lehmann on the logarithms of the pairs).
    pub ratio: f64,
    /// Lower end of its 95% interval; `None` under six pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_low: Option<f64>,
    /// Upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_high: Option<f64>,
}

/// What is to be reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// In words.
    pub goal: String,
    /// Whether the median reaches it.
    pub met: bool,
}

/// One figure of one subject.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// What was measured.
    pub figure: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Who was measured.
    pub subject: &'static str,
    /// Median over the pairs.
    pub value: f64,
    /// How many values the median is of.
    pub pairs: usize,
    /// On our own lines: against each rival.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<Comparison>,
    /// What is to be reached, where anything is.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// The outcome: a line for every figure and subject.
pub type Report = crate::LineReport<Entry>;

impl Report {
    /// What misses its goal.
    pub fn missed(&self) -> impl Iterator<Item = &Entry> {
        let missed = |entry: &&Entry| entry.goal.as_ref().is_some_and(|goal| !goal.met);
        self.entries().iter().filter(missed)
    }
}

/// What was measured: one sample a pair, in the order of figures and subjects.
#[derive(Debug, Default)]
pub(super) struct Samples(BTreeMap<(Figure, Subject), Vec<f64>>);

impl Samples {
    pub(super) fn push(&mut self, subject: Subject, figure: Figure, value: f64) {
        self.0.entry((figure, subject)).or_default().push(value);
    }
}

/// A line for each figure and subject.
pub(super) fn entries(samples: &Samples) -> Vec<Entry> {
    let entry = |(&(figure, subject), values): (&(Figure, Subject), &Vec<f64>)| {
        let comparisons = subject.rivals().iter().filter_map(|rival| {
            let theirs = samples.0.get(&(figure, *rival))?;
            let ratio = stats::ratio(values, theirs)?;
            Some(Comparison {
                rival: rival.name(),
                ratio: ratio.estimate,
                ratio_low: ratio.interval.map(|(low, _)| low),
                ratio_high: ratio.interval.map(|(_, high)| high),
            })
        });
        let comparisons: Vec<_> = comparisons.collect();
        let value = stats::median(values)?;
        let goal = subject.aim(figure).and_then(|aim| {
            let (has, wanted, of) = match aim {
                Aim::Value(wanted) => (value, wanted, String::new()),
                Aim::Ratio(rival, wanted) => {
                    let against = comparisons.iter().find(|one| one.rival == rival.name())?;
                    (against.ratio, wanted, format!(" of {}", rival.name()))
                }
            };
            Some(goal(has, wanted, figure.lower_is_better(), &of))
        });
        Some(Entry {
            figure: figure.name(),
            unit: figure.unit(),
            subject: subject.name(),
            value,
            pairs: values.len(),
            comparisons,
            goal,
        })
    };
    samples.0.iter().filter_map(entry).collect()
}

/// What `bench gateway` measures for this benchmark: one subject of ours, beside plain forwarding.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfGateways {
    pub(super) subject: gateway::Subject,
    /// Whether packets may stand for several segments on their way.
    pub(super) offloads: bool,
    /// The figure there and its name here, and what ours is to reach.
    figures: &'static [(&'static str, &'static str, Option<Wanted>)],
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    AtLeast(f64),
    /// More than plain forwarding has.
    AtMostMore(f64, &'static str),
}

pub(super) const SNOOP: OfGateways = OfGateways {
    subject: gateway::Subject::BentpipeSnoop,
    offloads: false,
    figures: &[
        ("goodput_up_1", "snoop_up", Some(Wanted::AtLeast(2.0))),
        ("goodput_down_1", "snoop_down", Some(Wanted::AtLeast(2.0))),
        (
            "round_trip",
            "snoop_round_trip",
            Some(Wanted::AtMostMore(100.0, "µs")),
        ),
    ],
};

pub(super) const SCPS: OfGateways = OfGateways {
    subject: gateway::Subject::BentpipeScps,
    offloads: true,
    figures: &[
        ("goodput_up_1", "scps_up", Some(Wanted::AtLeast(1.0))),
        ("cpu_up_1", "scps_cpu_up", None),
        ("proxy_cpu_up_1", "scps_proxy_cpu_up", None),
        ("goodput_down_1", "scps_down", Some(Wanted::AtLeast(1.0))),
        ("cpu_down_1", "scps_cpu_down", None),
        ("proxy_cpu_down_1", "scps_proxy_cpu_down", None),
        ("round_trip", "scps_round_trip", None),
    ],
};

impl OfGateways {
    /// The names of the figures that `bench gateway` is to measure.
    pub(super) fn figures(&self) -> impl Iterator<Item = &'static str> {
        self.figures.iter().map(|(there, ..)| *there)
    }

    /// The lines of ours and of plain forwarding, from those of `bench gateway`.
    pub(super) fn entries(&self, measured: &[gateway::Entry]) -> Vec<Entry> {
        let entry = |one: &gateway::Entry| {
            let (_, figure, wanted) = self
                .figures
                .iter()
                .find(|(there, ..)| *there == one.figure)?;
            let ours = one.subject == self.subject.name();
            let forwarded = measured
                .iter()
                .find(|other| other.figure == one.figure && other.subject != one.subject);
            let goal = match wanted.filter(|_| ours) {
                None => None,
                Some(Wanted::AtLeast(wanted)) => Some(goal(one.value, wanted, false, "")),
                Some(Wanted::AtMostMore(wanted, unit)) => forwarded.map(|plain| {
                    let of = format!(" {unit} more than kernel");
                    goal(one.value - plain.value, wanted, true, &of)
                }),
            };
            Some(Entry {
                figure,
                unit: one.unit,
                subject: if ours { one.subject } else { "forwarding" },
                value: one.value,
                pairs: one.pairs,
                comparisons: Vec::from_iter(one.comparison.map(|compared| Comparison {
                    rival: "forwarding",
                    ratio: compared.ratio,
                    ratio_low: compared.ratio_low,
                    ratio_high: compared.ratio_high,
                })),
                goal,
            })
        };
        measured.iter().filter_map(entry).collect()
    }
}

fn goal(has: f64, wanted: f64, lower_is_better: bool, of: &str) -> Goal {
    let (word, met) = if lower_is_better {
        ("at most", has <= wanted)
    } else {
        ("at least", has >= wanted)
    };
    Goal {
        goal: format!("{word} {wanted}{of}"),
        met,
    }
}

impl Line for Entry {
    const HEADER: &'static [&'static str] = &[
        "figure",
        "unit",
        "subject",
        "value",
        "ours/theirs",
        "goal",
        "verdict",
    ];

    fn row(&self) -> Vec<String> {
        let compared = |one: &Comparison| {
            let interval = one
                .ratio_low
                .zip(one.ratio_high)
                .map_or(String::new(), |(low, high)| {
                    format!(" ({}–{})", digits(low), digits(high))
                });
            format!("{} {}{interval}", one.rival, digits(one.ratio))
        };
        let compared: Vec<_> = self.comparisons.iter().map(compared).collect();
        let (goal, verdict) = self.goal.as_ref().map_or((String::new(), ""), |goal| {
            (goal.goal.clone(), if goal.met { "met" } else { "MISSED" })
        });
        vec![
            self.figure.to_owned(),
            self.unit.to_owned(),
            self.subject.to_owned(),
            digits(self.value),
            compared.join("\n"),
            goal,
            verdict.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_judged_by_value_and_by_ratio() {
        let mut samples = Samples::default();
        for _ in 0..7 {
            samples.push(Subject::Bentpipe, Figure::ToKernel, 1.4);
            samples.push(Subject::Bentpipe, Figure::RoundTrip, 20.0);
            samples.push(Subject::Kernel, Figure::RoundTrip, 16.0);
        }
        let entries = entries(&samples);
        let judged: Vec<_> = entries
            .iter()
            .filter_map(|entry| Some((entry.figure, entry.goal.as_ref()?.met)))
            .collect();
        assert_eq!(judged, [("to_kernel", false), ("round_trip", true)]);
        assert_eq!(entries[1].comparisons.len(), 1);
        assert!((entries[1].comparisons[0].ratio - 1.25).abs() < 1e-9);
        let report = Report::new(entries, Vec::new());
        let missed: Vec<_> = report.missed().map(|entry| entry.figure).collect();
        assert_eq!(missed, ["to_kernel"]);
    }
}
