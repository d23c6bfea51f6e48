//! `[[tables]]`, and what is read alike in them, in `[[figures]]` and in `[[statements]]`.

use super::figure::Figure;
use super::measure::{self, Parts};
use super::statement::Statement;
use super::time_sequence::TimeSequence;
use super::{Axis, SEED};
use crate::parse::Known;
use bentpipe_config::{Table, Wrong, brief, nearest};
use std::collections::{BTreeMap, BTreeSet};
use toml::de::DeValue;

/// Which points count: of each axis named here, by its number, only the values of these labels.
pub type Filter = BTreeMap<usize, Vec<String>>;

/// A table: one axis down, one across, a measure in each cell.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// Its name, as in the files of expected and reference values.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What is measured.
    pub measure: String,
    /// What is shown where nothing was; only of plain values.
    pub otherwise: Option<String>,
    /// What the measure must not exceed; only of plain values.
    pub within: Option<String>,
    /// Number of the axis of the rows.
    pub rows: usize,
    /// Number of the axis of the columns.
    pub columns: usize,
    /// What a cell shows.
    pub kind: TableKind,
    /// Which points count.
    pub filter: Filter,
}

/// What a cell shows, over all seeds.
#[derive(Clone, Debug, PartialEq)]
pub enum TableKind {
    /// The measure.
    Value,
    /// How much more it is at one value of an axis than at another.
    Difference(Contrast),
    /// The same in percent of the other.
    Percent(Contrast),
}

impl TableKind {
    /// The two values that are compared, if there are two.
    pub const fn contrast(&self) -> Option<&Contrast> {
        match self {
            Self::Value => None,
            Self::Difference(contrast) | Self::Percent(contrast) => Some(contrast),
        }
    }
}

/// Two values of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// Number of the axis.
    pub axis: usize,
    /// Label of the value that is subtracted.
    pub from: String,
    /// Label of the value that it is subtracted from.
    pub to: String,
}

/// What a study makes of its points.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) tables: Vec<TableSpec>,
    pub(super) figures: Vec<Figure>,
    pub(super) statements: Vec<Statement>,
    pub(super) time_sequences: Vec<TimeSequence>,
    /// The filters of `[[points]]`: the study is the union of what they admit; all points if there are none.
    pub(super) points: Vec<Filter>,
}

/// The keys of a study's document that are no part of its scenario.
pub(super) const KEYS: [&str; 5] = [
    "tables",
    "figures",
    "statements",
    "time_sequences",
    "points",
];

/// `None` where one of them could not be read. `captured` is whether points are captured.
pub(super) fn layout(
    root: &mut Table<'_, '_>,
    axes: &[Axis],
    known: Known<'_>,
    captured: bool,
) -> Option<Layout> {
    let parts = &Parts::new(root);
    let lists = KEYS.map(|key| root.list(key));
    let count: usize = lists.iter().map(Vec::len).sum();
    let [tables, figures, statements, time_sequences, points] = lists;
    let read = |table| Reader {
        table,
        axes,
        known,
        parts,
    };
    let layout = Layout {
        tables: tables.into_iter().filter_map(|t| read(t).table()).collect(),
        figures: figures
            .into_iter()
            .filter_map(|t| read(t).figure())
            .collect(),
        statements: statements
            .into_iter()
            .filter_map(|t| read(t).statement())
            .collect(),
        time_sequences: time_sequences
            .into_iter()
            .filter_map(|t| read(t).time_sequence(captured))
            .collect(),
        points: points
            .into_iter()
            .filter_map(|t| read(t).points())
            .collect(),
    };
    let Layout {
        tables,
        figures,
        statements,
        time_sequences,
        points,
    } = &layout;
    unique(
        root,
        KEYS[0],
        tables.iter().map(|table| table.name.as_str()),
    );
    unique(
        root,
        KEYS[1],
        { figures.iter().map(|figure| figure.name.as_str()) }
            .chain(time_sequences.iter().map(|graph| graph.name.as_str())),
    );
    unique(root, KEYS[2], statements.iter().map(|one| one.id.as_str()));
    let read = [
        tables.len(),
        figures.len(),
        statements.len(),
        time_sequences.len(),
        points.len(),
    ];
    let whole = read.iter().sum::<usize>() == count;
    whole.then_some(layout)
}

fn unique<'n>(root: &Table<'_, '_>, key: &str, names: impl Iterator<Item = &'n str>) {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            let what = format!("two [[{key}]] named `{name}`");
            root.problem(key, Wrong::new(what, "names that differ"));
        }
    }
}

/// Reads one table of a list.
pub(super) struct Reader<'d, 't, 'a> {
    pub(super) table: Table<'d, 't>,
    pub(super) axes: &'a [Axis],
    pub(super) known: Known<'a>,
    pub(super) parts: &'a Parts,
}

impl Reader<'_, '_, '_> {
    fn table(mut self) -> Option<TableSpec> {
        let (name, title) = self.heading();
        let measure = self.measure();
        let rows = self.axis("rows");
        let columns = self.axis("columns");
        let kind = self.kind("kind");
        let [otherwise, within] =
            ["otherwise", "within"].map(|key| self.beside(key, kind.as_ref()));
        let filter = self.filter();
        let (rows, columns, kind, filter) = (rows?, columns?, kind?, filter?);
        let contrast = kind.contrast().map(|contrast| contrast.axis);
        if rows == columns || [Some(rows), Some(columns)].contains(&contrast) {
            let what = "an axis that is used twice";
            let expected = "`rows`, `columns` and `over` of three axes";
            self.table.problem("columns", Wrong::new(what, expected));
        }
        let used = [Some(rows), Some(columns), contrast];
        self.all_fixed(used.into_iter().flatten().collect(), &filter);
        self.table.finish();
        Some(TableSpec {
            name: name?,
            title: title?,
            measure: measure?,
            otherwise,
            within,
            rows,
            columns,
            kind,
            filter,
        })
    }

    /// A second measure, which a table of plain values may have.
    fn beside(&mut self, key: &'static str, kind: Option<&TableKind>) -> Option<String> {
        let measure = self.table.optional::<String>(key)?;
        if kind.is_some_and(|kind| *kind != TableKind::Value) {
            let what = format!("`{key}` of a change");
            let wrong = Wrong::new(what, "it only where `kind` is \"value\"");
            self.table.problem(key, wrong);
        }
        self.is_measure(key, &measure).then_some(measure)
    }

    /// `[[points]]`: which combinations of values are run.
    fn points(mut self) -> Option<Filter> {
        let filter = self.filter();
        self.table.finish();
        filter
    }

    pub(super) fn heading(&mut self) -> (Option<String>, Option<String>) {
        let name = self.table.required::<String>("name", "\"1\"");
        let title = self.table.required::<String>("title", "\"Goodput\"");
        (name, title)
    }

    pub(super) fn measure(&mut self) -> Option<String> {
        let measure = self.table.required::<String>("measure", "\"goodput\"")?;
        self.is_measure("measure", &measure).then_some(measure)
    }

    pub(super) fn is_measure(&self, key: &str, measure: &str) -> bool {
        let Known {
            measures, renamed, ..
        } = self.known;
        let wrong = measure::wrong(measure, measures, renamed, self.parts);
        let right = wrong.is_none();
        if let Some(wrong) = wrong {
            self.table.problem(key, wrong);
        }
        right
    }

    /// The number of the axis that `key` names.
    pub(super) fn axis(&mut self, key: &'static str) -> Option<usize> {
        let name = self.table.required::<String>(key, "\"rate\"")?;
        self.axis_named(key, &name)
    }

    pub(super) fn axis_named(&self, key: &str, name: &str) -> Option<usize> {
        let found = self.axes.iter().position(|axis| axis.name == name);
        if found.is_none() {
            let names: Vec<&str> = self.axes.iter().map(Axis::name).collect();
            let what = format!("`{}` is no axis", brief(name));
            self.table.problem(key, Wrong::name(what, name, &names));
        }
        found
    }

    /// What is shown of a measure, by the word of `key`.
    pub(super) fn kind(&mut self, key: &'static str) -> Option<TableKind> {
        let kind = self.table.or(key, "value".to_owned());
        match kind.as_str() {
            "value" => Some(TableKind::Value),
            "difference" => self.contrast().map(TableKind::Difference),
            "percent" => self.contrast().map(TableKind::Percent),
            _ => {
                let what = format!("unknown kind `{}`", brief(&kind));
                let names = ["value", "difference", "percent"];
                self.table.problem(key, Wrong::name(what, &kind, &names));
                None
            }
        }
    }

    fn contrast(&mut self) -> Option<Contrast> {
        let axis = self.axis("over");
        let mut label = |key| {
            let label = self.table.required::<String>(key, "\"off\"")?;
            self.is_label(key, axis?, &label).then_some(label)
        };
        let (from, to) = (label("from"), label("to"));
        Some(Contrast {
            axis: axis?,
            from: from?,
            to: to?,
        })
    }

    fn is_label(&self, key: &str, axis: usize, label: &str) -> bool {
        let axis = &self.axes[axis];
        let known = axis.labels().any(|known| known == label);
        if !known {
            let labels: Vec<String> = axis.labels().take(50).collect();
            let near = nearest(label, labels.iter().map(String::as_str)).map(str::to_owned);
            let what = format!("`{}` is no value of axis `{}`", brief(label), axis.name);
            let expected = format!("one of its {} labels", axis.len());
            let wrong = Wrong {
                suggestion: near,
                ..Wrong::new(what, expected)
            };
            self.table.problem(key, wrong);
        }
        known
    }

    /// The labels of `axis` that are numbers within `text`, such as "1..10", "15.." or "..40", both
    /// ends included; none if `text` is no range.
    fn between(&self, axis: usize, text: &str) -> Vec<String> {
        let Some((low, high)) = text.split_once("..") else {
            return Vec::new();
        };
        let end = |text: &str, open: f64| match text.trim() {
            "" => Some(open),
            number => number.parse().ok(),
        };
        let ends = end(low, f64::NEG_INFINITY).zip(end(high, f64::INFINITY));
        let Some((low, high)) = ends else {
            return Vec::new();
        };
        let labels = self.axes[axis].labels();
        let inside = |label: &String| {
            let number: Option<f64> = label.parse().ok();
            number.is_some_and(|number| (low..=high).contains(&number))
        };
        labels.filter(inside).collect()
    }

    /// `where`: of each axis one label or several, or ranges of numbers.
    pub(super) fn filter(&mut self) -> Option<Filter> {
        let Some(table) = self.table.table("where") else {
            return (!self.table.has("where")).then(Filter::new);
        };
        let mut filter = Filter::new();
        for (name, value) in table.entries() {
            let axis = self.axis_named("where", name.get_ref())?;
            let items = match value.get_ref() {
                DeValue::Array(items) => items.iter().collect(),
                _ => vec![value],
            };
            let mut labels = Vec::new();
            for item in items {
                let label: String = table.read(item)?;
                let many = self.between(axis, &label);
                if many.is_empty() && !self.is_label("where", axis, &label) {
                    return None;
                }
                labels.extend(if many.is_empty() { vec![label] } else { many });
            }
            filter.insert(axis, labels);
        }
        Some(filter)
    }

    /// Every axis that is neither used nor the seeds has one value only: a mean over anything else
    /// than seeds means nothing.
    pub(super) fn all_fixed(&self, used: Vec<usize>, filter: &Filter) {
        for (number, axis) in self.axes.iter().enumerate() {
            let chosen = filter
                .get(&number)
                .map_or(axis.len(), |labels| labels.len() as u64);
            if axis.name != SEED && chosen != 1 && !used.contains(&number) {
                let what = format!("{chosen} values of axis `{}` in one place", axis.name);
                let expected = format!("one: `where = {{ {} = \"...\" }}`", axis.name);
                let wrong = Wrong::new(what, expected);
                self.table.document().problem(self.table.place(), wrong);
            }
        }
    }
}
