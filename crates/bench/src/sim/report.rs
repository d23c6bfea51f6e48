//! What a comparison of simulators found, as a table and as JSON.

use super::Sample;
use super::run::Run;
use super::stats::{self, Ratio};
use super::subject::Subject;
use crate::Line;
use serde::Serialize;
use std::collections::HashMap;

/// How many times as fast ours is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Their wall time per delivered segment over ours (Hodges–Lehmann on the logarithms of the
    /// pairs).
    pub ours_faster: f64,
    /// Lower end of its 95% interval; `None` under six pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours_faster_low: Option<f64>,
    /// Upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours_faster_high: Option<f64>,
    /// The same of processor time.
    pub ours_faster_cpu: Option<f64>,
    /// The same of processor time without set-up ([`Entry::started_s`]), per delivered segment, or per
    /// simulated second where the run ends with its transfer; `None` where the set-up is all there is.
    pub ours_faster_started: Option<f64>,
    /// Lower end of its 95% interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours_faster_started_low: Option<f64>,
    /// Upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ours_faster_started_high: Option<f64>,
}

/// One run of one subject: medians over the pairs.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Who: `ns2`, `ns3` or `bentpipe`.
    pub subject: &'static str,
    /// What: `loss-free`, `1e-7`, the same with `-snoop`, `spoofing-200`, or what it takes to start:
    /// `start-up`, `spoofing-200-set-up`.
    pub run: &'static str,
    /// From the start of the process to its end, in seconds.
    pub wall_s: f64,
    /// Processor time, in seconds.
    pub cpu_s: f64,
    /// Most memory resident at once, in MB (10^6 bytes).
    pub rss_mb: f64,
    /// Processor time without set-up, in seconds: what the subject clocks itself, or all less the median of
    /// what it takes to start and do nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_s: Option<f64>,
    /// Simulated time in seconds, where the run ends with its transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated_s: Option<f64>,
    /// Segments delivered.
    pub segments: f64,
    /// Wall time for each of them, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_segment: Option<f64>,
    /// How many values the medians are of.
    pub pairs: usize,
    /// On a rival's line: the comparison with ours.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// The outcome: a line for every run of every subject.
pub type Report = crate::LineReport<Entry>;

/// What was measured: one sample a pair.
#[derive(Debug, Default)]
pub(super) struct Samples(HashMap<(Subject, &'static str), Vec<Sample>>);

impl Samples {
    pub(super) fn push(&mut self, subject: Subject, run: &Run, sample: Sample) {
        self.0.entry((subject, run.name)).or_default().push(sample);
    }

    fn of<T>(&self, subject: Subject, run: &'static str, value: impl Fn(&Sample) -> T) -> Vec<T> {
        let samples = self.0.get(&(subject, run)).map_or(&[][..], Vec::as_slice);
        samples.iter().map(value).collect()
    }

    /// Seconds of processor time without set-up, of each sample.
    fn started(&self, subject: Subject, run: &Run) -> Vec<f64> {
        let starts = self.of(subject, run.start_up().name, |sample| sample.cpu);
        let start_up = stats::median(&starts).unwrap_or(0.0);
        let apart = |sample: &Sample| sample.reported.clocked.unwrap_or(sample.cpu - start_up);
        self.of(subject, run.name, apart)
    }

    /// The same for each segment, or simulated second.
    fn started_rate(&self, subject: Subject, run: &Run) -> Vec<f64> {
        let work_of = |sample: &Sample| {
            sample
                .reported
                .simulated
                .unwrap_or(sample.reported.segments)
        };
        let work = self.of(subject, run.name, work_of);
        let started = self.started(subject, run).into_iter();
        started.zip(work).map(|(time, work)| time / work).collect()
    }

    /// Ours against `rival`, of the figure per segment that `value` makes of a sample.
    fn ratio(
        &self,
        rival: Subject,
        run: &'static str,
        value: impl Fn(&Sample) -> f64,
    ) -> Option<Ratio> {
        let of = |subject| {
            self.of(subject, run, |sample| {
                value(sample) / sample.reported.segments
            })
        };
        stats::ratio(&of(rival), &of(Subject::Bentpipe))
    }
}

/// A line for each of `runs` that one of `subjects` did.
pub(super) fn entries(samples: &Samples, runs: &[Run], subjects: &[Subject]) -> Vec<Entry> {
    runs.iter()
        .flat_map(|run| subjects.iter().map(move |subject| (run, *subject)))
        .filter_map(|(run, subject)| Entry::new(samples, run, subject))
        .collect()
}

impl Line for Entry {
    const HEADER: &'static [&'static str] = &[
        "run",
        "subject",
        "segments",
        "wall ms",
        "MB",
        "ns/segment",
        "ours is faster",
        "95%",
        "CPU only",
        "start-up apart",
        "95% of that",
    ];

    fn row(&self) -> Vec<String> {
        let times = |ratio: f64| format!("{ratio:.1}×");
        let maybe = |ratio: Option<f64>| ratio.map_or_else(String::new, times);
        let mut row = vec![
            self.run.to_owned(),
            self.subject.to_owned(),
            format!("{:.0}", self.segments),
            format!("{:.1}", self.wall_s * 1e3),
            format!("{:.1}", self.rss_mb),
            self.ns_per_segment
                .map_or_else(String::new, |ns| format!("{ns:.0}")),
        ];
        row.extend(match &self.comparison {
            None => [const { String::new() }; 5],
            Some(comparison) => [
                times(comparison.ours_faster),
                interval(comparison.ours_faster_low, comparison.ours_faster_high),
                maybe(comparison.ours_faster_cpu),
                maybe(comparison.ours_faster_started),
                interval(
                    comparison.ours_faster_started_low,
                    comparison.ours_faster_started_high,
                ),
            ],
        });
        row
    }
}

impl Entry {
    fn new(samples: &Samples, run: &Run, subject: Subject) -> Option<Self> {
        let name = run.name;
        let median = |value: fn(&Sample) -> f64| stats::median(&samples.of(subject, name, value));
        let segments = median(|sample| sample.reported.segments)?;
        let starts_only = run.starts_only();
        let per_segment = median(|sample| sample.wall / sample.reported.segments * 1e9);
        let compared = subject != Subject::Bentpipe && !starts_only;
        let simulated: Vec<f64> = samples
            .of(subject, name, |sample| sample.reported.simulated)
            .into_iter()
            .flatten()
            .collect();
        let started = stats::median(&samples.started(subject, run));
        Some(Self {
            subject: subject.name(),
            run: name,
            wall_s: median(|sample| sample.wall)?,
            cpu_s: median(|sample| sample.cpu)?,
            rss_mb: median(|sample| sample.memory)? / 1e6,
            started_s: started.filter(|_| !starts_only),
            simulated_s: stats::median(&simulated).filter(|_| !starts_only),
            segments,
            ns_per_segment: per_segment.filter(|_| !starts_only),
            pairs: samples.of(subject, name, |sample| sample.wall).len(),
            comparison: compared
                .then(|| Comparison::new(samples, run, subject))
                .flatten(),
        })
    }
}

impl Comparison {
    fn new(samples: &Samples, run: &Run, rival: Subject) -> Option<Self> {
        let wall = samples.ratio(rival, run.name, |sample| sample.wall)?;
        let cpu = samples.ratio(rival, run.name, |sample| sample.cpu);
        let of = |subject| samples.started_rate(subject, run);
        let started = stats::ratio(&of(rival), &of(Subject::Bentpipe));
        let apart = started.and_then(|ratio| ratio.interval);
        Some(Self {
            ours_faster: wall.estimate,
            ours_faster_low: wall.interval.map(|(low, _)| low),
            ours_faster_high: wall.interval.map(|(_, high)| high),
            ours_faster_cpu: cpu.map(|ratio| ratio.estimate),
            ours_faster_started: started.map(|ratio| ratio.estimate),
            ours_faster_started_low: apart.map(|(low, _)| low),
            ours_faster_started_high: apart.map(|(_, high)| high),
        })
    }
}

fn interval(low: Option<f64>, high: Option<f64>) -> String {
    let ends = low.zip(high);
    ends.map_or_else(String::new, |(low, high)| format!("{low:.1}–{high:.1}"))
}

#[cfg(test)]
mod tests {
    use super::super::Reported;
    use super::super::run::wanted;
    use super::*;

    fn sample(wall: f64, segments: f64) -> Sample {
        Sample {
            wall,
            cpu: wall / 2.0,
            memory: 5e6,
            reported: Reported {
                segments,
                ..Reported::default()
            },
        }
    }

    /// Ours starts in 1 ms and takes 1 µs a segment, ns-2 in 10 ms and 8 µs; ns-2 delivered half.
    fn report() -> Report {
        let runs = wanted(&["loss-free".to_owned()], false).unwrap();
        let mut samples = Samples::default();
        for _ in 0..7 {
            samples.push(Subject::Bentpipe, &runs[0], sample(0.001, 1.0));
            samples.push(Subject::Ns2, &runs[0], sample(0.010, 1.0));
            samples.push(Subject::Bentpipe, &runs[1], sample(0.101, 100_000.0));
            samples.push(Subject::Ns2, &runs[1], sample(0.410, 50_000.0));
        }
        let subjects = [Subject::Ns2, Subject::Bentpipe];
        Report::new(entries(&samples, &runs, &subjects), Vec::new())
    }

    #[test]
    fn the_ratio_is_of_wall_time_per_segment_with_and_without_the_start() {
        let report = report();
        let entry = &report.entries()[2];
        let comparison = entry.comparison.unwrap();
        let near = |seen: f64, expected: f64| assert!((seen - expected).abs() < 1e-9, "{seen}");
        assert_eq!(
            (entry.subject, entry.run, entry.pairs),
            ("ns2", "loss-free", 7)
        );
        near(entry.ns_per_segment.unwrap(), 8200.0);
        near(comparison.ours_faster, 8.2 / 1.01);
        near(comparison.ours_faster_low.unwrap(), 8.2 / 1.01);
        near(comparison.ours_faster_cpu.unwrap(), 8.2 / 1.01);
        near(comparison.ours_faster_started.unwrap(), 8.0);
        assert!(report.entries()[3].comparison.is_none());
    }

    /// ns-2 clocks 60 ms for 60 simulated seconds however long it sets up; ours takes 5 ms to start and 4 ms
    /// for 20 s, as the processor's clock has it.
    #[test]
    fn the_spoofed_transfer_is_compared_by_the_simulated_second() {
        let runs = wanted(&["spoofing-200".to_owned()], false).unwrap();
        let spoofing = |wall, simulated, clocked| {
            let reported = Reported {
                segments: 400.0,
                simulated: Some(simulated),
                clocked,
            };
            Sample {
                reported,
                ..sample(wall, 400.0)
            }
        };
        let mut samples = Samples::default();
        for set_up in [0.5, 0.6, 0.7, 0.8, 0.9, 1.0] {
            samples.push(Subject::Bentpipe, &runs[0], sample(0.010, 0.0));
            let ns2 = spoofing(set_up + 0.060, 60.0, Some(0.060));
            samples.push(Subject::Ns2, &runs[1], ns2);
            samples.push(Subject::Bentpipe, &runs[1], spoofing(0.018, 20.0, None));
        }
        let subjects = [Subject::Ns2, Subject::Bentpipe];
        let report = Report::new(entries(&samples, &runs, &subjects), Vec::new());
        let [start, ns2, ours] = report.entries() else {
            panic!("{:?}", report.entries())
        };
        assert_eq!((start.started_s, start.simulated_s), (None, None));
        assert_eq!((ns2.started_s, ns2.simulated_s), (Some(0.060), Some(60.0)));
        assert!((ours.started_s.unwrap() - 0.004).abs() < 1e-12);
        let comparison = ns2.comparison.unwrap();
        let apart = [
            comparison.ours_faster_started,
            comparison.ours_faster_started_low,
            comparison.ours_faster_started_high,
        ];
        let near = |ratio: Option<f64>| (ratio.unwrap() - 5.0).abs() < 1e-9;
        assert!(apart.into_iter().all(near), "{apart:?}");
    }

    #[test]
    fn json_has_one_flat_object_a_run_and_subject() {
        let read: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        let entry = &read[2];
        assert_eq!(
            (&entry["subject"], &entry["run"]),
            (&"ns2".into(), &"loss-free".into())
        );
        assert_eq!(entry["wall_s"], 0.41);
        assert_eq!(entry["rss_mb"], 5.0);
        assert_eq!(entry["segments"], 50_000.0);
        assert!(entry["ours_faster"].is_number());
        assert!(read[0].get("ns_per_segment").is_none());
    }

    #[test]
    fn a_row_holds_what_the_header_names() {
        let report = report();
        for row in report.table() {
            assert_eq!(row.len(), report.header().len());
        }
        assert_eq!(report.table()[2][6..8], ["8.1×", "8.1–8.1"]);
    }
}
