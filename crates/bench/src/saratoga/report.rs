//! What a comparison with iperf3 found, as a table and as JSON.

use super::stats::{self, Ratio};
use super::subject::Subject;
use super::{Sample, digits};
use crate::Line;
use serde::Serialize;
use std::collections::HashMap;

/// Whether ours reaches its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies wholly at or above it.
    Met,
    /// The interval holds it.
    Open,
    /// The interval lies wholly below it.
    Missed,
    /// Too few pairs for an interval.
    Undecided,
}

impl Verdict {
    fn of(ratio: &Ratio, target: f64) -> Self {
        match ratio.interval {
            None => Self::Undecided,
            Some((low, _)) if low >= target => Self::Met,
            Some((_, high)) if high < target => Self::Missed,
            Some(_) => Self::Open,
        }
    }

    /// How the table writes it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Open => "open",
            Self::Missed => "MISSED",
            Self::Undecided => "too few pairs",
        }
    }
}

/// Ours against one rival.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Our goodput over theirs (Hodges–Lehmann on the logarithms of the pairs).
    pub ratio: f64,
    /// Lower end of its 95% interval; `None` under six pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_low: Option<f64>,
    /// Upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_high: Option<f64>,
    /// Our processor time for each GB over theirs.
    pub ratio_cpu: Option<f64>,
    /// What the ratio is to reach.
    pub target: f64,
    /// Whether it does.
    pub verdict: Verdict,
}

/// One subject: medians over the pairs.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Who: `bentpipe`, `iperf3-udp` or `iperf3-tcp`.
    pub subject: &'static str,
    /// Content at the receiver, in Gbit/s.
    pub goodput_gbit_s: f64,
    /// Processor seconds of both sides for each GB (10^9 octets) that arrived.
    pub cpu_s_per_gb: f64,
    /// Most memory resident at once at the sender, in MB (10^6 bytes).
    pub sender_mb: f64,
    /// The same at the receiver.
    pub receiver_mb: f64,
    /// How many values the medians are of.
    pub pairs: usize,
    /// On a rival's line: the comparison with ours.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// The outcome: a line for every subject.
pub type Report = crate::LineReport<Entry>;

/// What was measured: one sample a pair.
#[derive(Debug, Default)]
pub(super) struct Samples(HashMap<Subject, Vec<Sample>>);

impl Samples {
    pub(super) fn push(&mut self, subject: Subject, sample: Sample) {
        self.0.entry(subject).or_default().push(sample);
    }

    fn of(&self, subject: Subject, value: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let samples = self.0.get(&subject).map_or(&[][..], Vec::as_slice);
        samples.iter().map(value).collect()
    }

    fn ratio(&self, rival: Subject, value: impl Fn(&Sample) -> f64) -> Option<Ratio> {
        stats::ratio(&self.of(Subject::Bentpipe, &value), &self.of(rival, &value))
    }
}

/// A line for each of `subjects` that was measured.
pub(super) fn entries(samples: &Samples, subjects: &[Subject]) -> Vec<Entry> {
    let entry = |subject: &Subject| Entry::new(samples, *subject);
    subjects.iter().filter_map(entry).collect()
}

impl Report {
    /// Rivals against whom ours is wholly below its target.
    pub fn missed(&self) -> impl Iterator<Item = &Entry> {
        let missed = |of: Comparison| of.verdict == Verdict::Missed;
        self.entries()
            .iter()
            .filter(move |entry| entry.comparison.is_some_and(missed))
    }
}

impl Line for Entry {
    const HEADER: &'static [&'static str] = &[
        "subject",
        "Gbit/s",
        "CPU s/GB",
        "MB sender",
        "MB receiver",
        "ours/theirs",
        "95%",
        "CPU",
        "target",
        "verdict",
    ];

    fn row(&self) -> Vec<String> {
        let mut row = vec![self.subject.to_owned()];
        let figures = [
            self.goodput_gbit_s,
            self.cpu_s_per_gb,
            self.sender_mb,
            self.receiver_mb,
        ];
        row.extend(figures.map(digits));
        row.extend(match &self.comparison {
            None => [const { String::new() }; 5],
            Some(of) => [
                format!("{:.2}", of.ratio),
                of.ratio_low
                    .zip(of.ratio_high)
                    .map_or_else(String::new, |(low, high)| format!("{low:.2}–{high:.2}")),
                of.ratio_cpu.map_or_else(String::new, digits),
                format!("{:.1}", of.target),
                of.verdict.text().to_owned(),
            ],
        });
        row
    }
}

impl Entry {
    fn new(samples: &Samples, subject: Subject) -> Option<Self> {
        let median = |value: fn(&Sample) -> f64| stats::median(&samples.of(subject, value));
        Some(Self {
            subject: subject.name(),
            goodput_gbit_s: median(|sample| sample.goodput)?,
            cpu_s_per_gb: median(|sample| sample.cpu)?,
            sender_mb: median(|sample| sample.memory[0])?,
            receiver_mb: median(|sample| sample.memory[1])?,
            pairs: samples.of(subject, |sample| sample.goodput).len(),
            comparison: Comparison::new(samples, subject),
        })
    }
}

impl Comparison {
    fn new(samples: &Samples, rival: Subject) -> Option<Self> {
        let target = rival.target()?;
        let goodput = samples.ratio(rival, |sample| sample.goodput)?;
        let cpu = samples.ratio(rival, |sample| sample.cpu);
        Some(Self {
            ratio: goodput.estimate,
            ratio_low: goodput.interval.map(|(low, _)| low),
            ratio_high: goodput.interval.map(|(_, high)| high),
            ratio_cpu: cpu.map(|ratio| ratio.estimate),
            target,
            verdict: Verdict::of(&goodput, target),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(ours: f64, pairs: usize) -> Report {
        let mut samples = Samples::default();
        let sample = |goodput| Sample {
            goodput,
            cpu: 1.0 / goodput,
            memory: [9.0, 8.0],
        };
        for _ in 0..pairs {
            samples.push(Subject::Bentpipe, sample(ours));
            samples.push(Subject::IperfUdp, sample(1.0));
            samples.push(Subject::IperfTcp, sample(10.0));
        }
        let subjects = [Subject::Bentpipe, Subject::IperfUdp, Subject::IperfTcp];
        Report::new(entries(&samples, &subjects), Vec::new())
    }

    #[test]
    fn each_rival_has_its_target() {
        let verdicts = |report: Report| {
            let of = report.entries().iter().filter_map(|entry| entry.comparison);
            of.map(|of| of.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(report(6.0, 7)), [Verdict::Met, Verdict::Met]);
        assert_eq!(verdicts(report(4.0, 7)), [Verdict::Met, Verdict::Missed]);
        assert_eq!(verdicts(report(0.5, 7)), [Verdict::Missed; 2]);
        assert_eq!(verdicts(report(6.0, 2)), [Verdict::Undecided; 2]);
        assert_eq!(report(4.0, 7).missed().count(), 1);
    }

    #[test]
    fn an_interval_that_holds_the_target_leaves_it_open() {
        let ratio = |low, high| Ratio {
            estimate: 0.5,
            interval: Some((low, high)),
        };
        assert_eq!(Verdict::of(&ratio(0.4, 0.6), 0.5), Verdict::Open);
        assert_eq!(Verdict::of(&ratio(0.5, 0.6), 0.5), Verdict::Met);
    }

    #[test]
    fn rows_and_json_have_what_was_measured() {
        let report = report(6.0, 7);
        for row in report.table() {
            assert_eq!(row.len(), report.header().len());
        }
        assert_eq!(report.table()[2][5..7], ["0.60", "0.60–0.60"]);
        let read: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(read[0]["subject"], "bentpipe");
        assert!(read[0].get("ratio").is_none());
        assert_eq!(read[2]["goodput_gbit_s"], 10.0);
        assert_eq!(
            (&read[2]["target"], &read[2]["verdict"]),
            (&0.5.into(), &"met".into())
        );
    }
}
