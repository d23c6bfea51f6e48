//! What a comparison found, as a table and as JSON.

use super::contest::{CONTESTS, Contest};
use super::figure::Figure;
use super::stats::{self, Ratio};
use super::subject::Subject;
use super::{digits, write_json};
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::path::Path;

/// What the pairs say about ours against a rival in one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The interval lies wholly on the good side of what is asked.
    Better,
    /// The interval holds what is asked.
    Level,
    /// The interval lies wholly on the wrong side of what is asked.
    WrongSide,
    /// Too few pairs for an interval.
    Undecided,
    /// The figure is for information and decides nothing.
    Information,
}

impl Verdict {
    fn of(figure: &Figure, ratio: &Ratio, asked: Option<f64>) -> Self {
        let Some(asked) = asked.filter(|_| figure.decides) else {
            return Self::Information;
        };
        let Some((low, high)) = ratio.interval else {
            return Self::Undecided;
        };
        let (better, worse) = if figure.lower_is_better {
            (high < asked, low > asked)
        } else {
            (low > asked, high < asked)
        };
        match (better, worse) {
            (true, _) => Self::Better,
            (_, true) => Self::WrongSide,
            _ => Self::Level,
        }
    }

    /// How the table writes it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Level => "level",
            Self::WrongSide => "WRONG SIDE",
            Self::Undecided => "too few pairs",
            Self::Information => "",
        }
    }
}

/// Ours against a rival in one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Which of ours.
    #[serde(skip)]
    pub ours: &'static str,
    /// Whom it is compared with.
    pub rival: &'static str,
    /// What the ratio has to reach: at least, or at most where less is better; `None`: for information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<f64>,
    /// What it is to reach one day, where that is more; it decides nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aim: Option<f64>,
    /// Estimate of ours/rival (Hodges–Lehmann on the logarithms of the pairs).
    pub ratio: f64,
    /// Lower end of its 95% interval; `None` under six pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_low: Option<f64>,
    /// Upper end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio_high: Option<f64>,
    /// What that means.
    pub verdict: Verdict,
}

/// One figure of one subject.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Who was measured: a [`Subject`]'s name.
    pub subject: &'static str,
    /// What was measured.
    pub figure: &'static str,
    /// Median over the pairs.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Whether less is better.
    pub lower_is_better: bool,
    /// How many values the median is of.
    pub pairs: usize,
    /// On our own lines, and on those of `haproxy-splice-auto`: ours against the rival.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Report {
    entries: Vec<Entry>,
    figures: Vec<Figure>,
    subjects: Vec<Subject>,
    notes: Vec<String>,
}

/// Values as they were measured: one a pair.
#[derive(Debug, Default)]
pub(super) struct Values(HashMap<(Subject, &'static str), Vec<f64>>);

impl Values {
    pub(super) fn push(&mut self, subject: Subject, figure: &Figure, value: f64) {
        self.0
            .entry((subject, figure.name))
            .or_default()
            .push(value);
    }

    fn of(&self, subject: Subject, figure: &Figure) -> &[f64] {
        self.0.get(&(subject, figure.name)).map_or(&[], |v| v)
    }
}

impl Report {
    pub(super) fn new(
        values: &Values,
        mut figures: Vec<Figure>,
        subjects: Vec<Subject>,
        notes: Vec<String>,
    ) -> Self {
        let entries: Vec<_> = figures
            .iter()
            .flat_map(|figure| subjects.iter().map(move |subject| (figure, *subject)))
            .filter_map(|(figure, subject)| Entry::new(values, figure, subject))
            .collect();
        figures.retain(|figure| entries.iter().any(|entry| entry.figure == figure.name));
        Self {
            entries,
            figures,
            subjects,
            notes,
        }
    }

    /// Every figure of every subject.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Under what conditions the figures were taken: a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Figures in which ours lies wholly on the wrong side of what is asked.
    pub fn wrong_side(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| {
            entry
                .comparison
                .is_some_and(|c| c.verdict == Verdict::WrongSide)
        })
    }

    /// The head of [`Report::table`].
    pub fn header(&self) -> Vec<String> {
        let subjects = self.subjects.iter().map(|subject| subject.name());
        ["figure", "unit", "better"]
            .into_iter()
            .chain(subjects)
            .map(str::to_owned)
            .collect()
    }

    /// One row a figure: its medians.
    pub fn table(&self) -> Vec<Vec<String>> {
        self.figures.iter().map(|figure| self.row(figure)).collect()
    }

    /// The head of [`Report::comparisons`].
    pub const COMPARISON_HEADER: [&str; 7] = [
        "figure",
        "ours",
        "rival",
        "asked",
        "ours/rival",
        "95%",
        "verdict",
    ];

    /// One row a comparison.
    pub fn comparisons(&self) -> Vec<Vec<String>> {
        self.entries
            .iter()
            .filter_map(|entry| Some((entry, entry.comparison?)))
            .map(|(entry, compared)| {
                let bound = if entry.lower_is_better { "≤" } else { "≥" };
                let interval = compared.ratio_low.zip(compared.ratio_high);
                vec![
                    entry.figure.to_owned(),
                    compared.ours.to_owned(),
                    compared.rival.to_owned(),
                    compared.wanted(bound),
                    format!("{:.2}", compared.ratio),
                    interval.map_or_else(String::new, |(low, high)| format!("{low:.2}–{high:.2}")),
                    compared.judged(),
                ]
            })
            .collect()
    }

    fn row(&self, figure: &Figure) -> Vec<String> {
        let better = if figure.lower_is_better {
            "less"
        } else {
            "more"
        };
        let mut row = vec![figure.name.into(), figure.unit.into(), better.into()];
        let of = |subject: &Subject| {
            self.entries
                .iter()
                .find(|e| e.figure == figure.name && e.subject == subject.name())
        };
        for subject in &self.subjects {
            row.push(of(subject).map_or("–".to_owned(), |entry| digits(entry.value)));
        }
        row
    }

    /// The entries as a JSON array.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&self.entries)
    }

    /// Writes [`Report::json`] to `path`, making its folder where there is none.
    ///
    /// # Errors
    /// A place that cannot be written.
    pub fn write_json(&self, path: &Path) -> io::Result<()> {
        write_json(path, self.json()?)
    }
}

impl Comparison {
    /// The verdict, and whether the aim, which only figures have of which more is better, is missed.
    fn judged(&self) -> String {
        let missed = self.aim.is_some_and(|aim| self.ratio < aim);
        let words = [self.verdict.text(), if missed { "aim missed" } else { "" }];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        words.join(", ")
    }

    /// What is asked of the ratio, and what is aimed at.
    fn wanted(&self, bound: &str) -> String {
        let asked = self.asked.map(|asked| format!("{bound} {asked}"));
        let aim = self.aim.map(|aim| format!("aim {bound} {aim:.1}"));
        let both: Vec<String> = asked.into_iter().chain(aim).collect();
        both.join(", ")
    }

    fn new(values: &Values, figure: &Figure, contest: &Contest) -> Option<Self> {
        let of = |subject| values.of(subject, figure);
        let ratio = stats::ratio(of(contest.ours), of(contest.rival))?;
        Some(Self {
            ours: contest.ours.name(),
            rival: contest.rival.name(),
            asked: contest.asked.filter(|_| figure.decides),
            aim: contest.aim,
            ratio: ratio.estimate,
            ratio_low: ratio.interval.map(|(low, _)| low),
            ratio_high: ratio.interval.map(|(_, high)| high),
            verdict: Verdict::of(figure, &ratio, contest.asked),
        })
    }
}

impl Entry {
    fn new(values: &Values, figure: &Figure, subject: Subject) -> Option<Self> {
        let own = values.of(subject, figure);
        let comparison = CONTESTS
            .iter()
            .find(|contest| contest.stands_at(subject) && contest.is_about(figure))
            .and_then(|contest| Comparison::new(values, figure, contest));
        Some(Self {
            subject: subject.name(),
            figure: figure.name,
            value: stats::median(own)?,
            unit: figure.unit,
            lower_is_better: figure.lower_is_better,
            pairs: own.len(),
            comparison,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::figures;
    use super::*;

    fn figure(name: &str) -> Figure {
        *figures().find(|figure| figure.name == name).unwrap()
    }

    fn report(name: &str, ours: &[f64], theirs: &[f64]) -> Report {
        let figure = figure(name);
        let mut values = Values::default();
        for (a, b) in ours.iter().zip(theirs) {
            values.push(Subject::Bentpipe, &figure, *a);
            values.push(Subject::Haproxy, &figure, *b);
        }
        let subjects = vec![Subject::Haproxy, Subject::Bentpipe];
        Report::new(&values, vec![figure], subjects, Vec::new())
    }

    #[test]
    fn the_wrong_side_depends_on_what_is_better() {
        let (low, high) = ([1.0, 1.1, 1.0, 0.9, 1.0, 1.0, 1.1], [2.0; 7]);
        let verdict = |name, ours: &[f64], theirs: &[f64]| {
            report(name, ours, theirs).entries()[1]
                .comparison
                .unwrap()
                .verdict
        };
        assert_eq!(verdict("goodput_up_1", &low, &high), Verdict::WrongSide);
        assert_eq!(verdict("goodput_up_1", &high, &low), Verdict::Better);
        assert_eq!(
            verdict("connects_1", &[0.97; 7], &[1.0; 7]),
            Verdict::Better
        );
        assert_eq!(verdict("cpu_up_1", &low, &high), Verdict::Better);
        assert_eq!(verdict("cpu_up_1", &high, &low), Verdict::WrongSide);
        assert_eq!(verdict("cpu_up_1", &high, &high), Verdict::Level);
        assert_eq!(
            verdict("cpu_up_1", &high[..3], &low[..3]),
            Verdict::Undecided
        );
        assert_eq!(verdict("proxy_cpu_up_1", &high, &low), Verdict::Information);
        let told = |name, ours: &[f64]| {
            let rows = report(name, ours, &[1.0; 7]).comparisons();
            [rows[0][3].clone(), rows[0][6].clone()]
        };
        assert_eq!(
            told("connects_1", &[0.97; 7]),
            ["≥ 0.95, aim ≥ 1.0", "better, aim missed"]
        );
        assert_eq!(told("connects_50", &[0.5; 7]), ["aim ≥ 1.0", "aim missed"]);
        assert_eq!(told("connects_50", &[1.5; 7]), ["aim ≥ 1.0", ""]);
        let wrong = report("connects_1", &low, &high);
        assert_eq!(wrong.wrong_side().count(), 1);
    }

    #[test]
    fn json_has_one_flat_object_a_figure_and_subject() {
        let json = report("connects_1", &[10.0; 7], &[8.0; 7]).json().unwrap();
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        let (theirs, ours) = (&read[0], &read[1]);
        assert_eq!(theirs["subject"], "haproxy");
        assert!(theirs.get("ratio_low").is_none());
        assert_eq!(ours["subject"], "bentpipe");
        assert_eq!(ours["figure"], "connects_1");
        assert_eq!(ours["value"], 10.0);
        assert_eq!(ours["unit"], "1/s");
        assert_eq!(ours["lower_is_better"], false);
        assert_eq!(ours["verdict"], "better");
        assert_eq!(
            (&ours["rival"], &ours["asked"]),
            (&"haproxy".into(), &0.95.into())
        );
        assert!((ours["ratio_low"].as_f64().unwrap() - 1.25).abs() < 1e-9);
    }

    #[test]
    fn what_was_measured_of_nobody_is_no_row() {
        let mut values = Values::default();
        let (measured, not) = (figure("round_trip"), figure("idle_memory"));
        values.push(Subject::BentpipeQuic, &measured, 150.0);
        let subjects = vec![Subject::BentpipeTwice, Subject::BentpipeQuic];
        let report = Report::new(&values, vec![measured, not], subjects, Vec::new());
        let rows = report.table();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0][3..], ["–", "150"]);
    }

    #[test]
    fn a_row_holds_what_the_header_names() {
        let report = report("idle_descriptors", &[2.0; 7], &[2.0; 7]);
        let (header, rows) = (report.header(), report.table());
        assert_eq!(header.len(), rows[0].len());
        assert_eq!(rows[0][3..], ["2.00", "2.00"]);
        let compared = &report.comparisons()[0];
        assert_eq!(compared.len(), Report::COMPARISON_HEADER.len());
        assert_eq!(compared[3..], ["≤ 1", "1.00", "1.00–1.00", "level"]);
    }
}
