//! `[[tables]]` and `[[figures]]`.

use super::{Axis, SEED};
use crate::parse::Known;
use crate::problem::nearest;
use crate::read::{Table, Wrong};
use crate::values::brief;
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

/// A figure: a line for each value of an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// Number of the axis whose values are the lines.
    pub series: usize,
    /// What is drawn.
    pub kind: FigureKind,
    /// Which points count.
    pub filter: Filter,
}

/// What a figure draws.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureKind {
    /// Segments received in order against time, of single runs.
    TimeSequence,
    /// The mean of a measure against the values of an axis.
    Lines {
        /// Number of the axis.
        x: usize,
        /// What is measured.
        measure: String,
    },
}

/// `None` where a table or a figure could not be read.
pub(super) fn layout(
    root: &mut Table<'_, '_>,
    axes: &[Axis],
    known: Known<'_>,
) -> Option<(Vec<TableSpec>, Vec<Figure>)> {
    let tables = root.list("tables");
    let figures = root.list("figures");
    let counts = (tables.len(), figures.len());
    let read = |table| Reader { table, axes, known };
    let tables: Vec<TableSpec> = tables.into_iter().filter_map(|t| read(t).table()).collect();
    let figures: Vec<Figure> = figures
        .into_iter()
        .filter_map(|t| read(t).figure())
        .collect();
    unique(
        root,
        "tables",
        tables.iter().map(|table| table.name.as_str()),
    );
    unique(
        root,
        "figures",
        figures.iter().map(|figure| figure.name.as_str()),
    );
    (counts == (tables.len(), figures.len())).then_some((tables, figures))
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

struct Reader<'d, 't, 'a> {
    table: Table<'d, 't>,
    axes: &'a [Axis],
    known: Known<'a>,
}

impl Reader<'_, '_, '_> {
    fn table(mut self) -> Option<TableSpec> {
        let (name, title) = self.heading();
        let measure = self.measure();
        let rows = self.axis("rows");
        let columns = self.axis("columns");
        let kind = self.kind();
        let filter = self.filter();
        let (rows, columns, kind, filter) = (rows?, columns?, kind?, filter?);
        let contrast = match &kind {
            TableKind::Value => None,
            TableKind::Difference(contrast) | TableKind::Percent(contrast) => Some(contrast.axis),
        };
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
            rows,
            columns,
            kind,
            filter,
        })
    }

    fn figure(mut self) -> Option<Figure> {
        let (name, title) = self.heading();
        let series = self.axis("series");
        let kind = self.table.required::<String>("kind", "\"time-sequence\"")?;
        let kind = match kind.as_str() {
            "time-sequence" => Some(FigureKind::TimeSequence),
            "lines" => {
                let measure = self.measure();
                self.axis("x")
                    .zip(measure)
                    .map(|(x, measure)| FigureKind::Lines { x, measure })
            }
            _ => {
                let what = format!("unknown kind of figure `{}`", brief(&kind));
                let names = ["time-sequence", "lines"];
                self.table.problem("kind", Wrong::name(what, &kind, &names));
                return None;
            }
        };
        let filter = self.filter();
        let (series, kind, filter) = (series?, kind?, filter?);
        let mut used = vec![series];
        match kind {
            FigureKind::Lines { x, .. } => used.push(x),
            FigureKind::TimeSequence => {}
        }
        self.all_fixed(used, &filter);
        self.table.finish();
        Some(Figure {
            name: name?,
            title: title?,
            series,
            kind,
            filter,
        })
    }

    fn heading(&mut self) -> (Option<String>, Option<String>) {
        let name = self.table.required::<String>("name", "\"1\"");
        let title = self.table.required::<String>("title", "\"Goodput\"");
        (name, title)
    }

    fn measure(&mut self) -> Option<String> {
        let measure = self.table.required::<String>("measure", "\"goodput\"")?;
        let known = self.known.measures;
        if !known.is_empty() && !known.contains(&measure.as_str()) {
            let what = format!("unknown measure `{}`", brief(&measure));
            let wrong = Wrong::name(what, &measure, known);
            self.table.problem("measure", wrong);
            return None;
        }
        Some(measure)
    }

    /// The number of the axis that `key` names.
    fn axis(&mut self, key: &'static str) -> Option<usize> {
        let name = self.table.required::<String>(key, "\"rate\"")?;
        self.axis_named(key, &name)
    }

    fn axis_named(&self, key: &str, name: &str) -> Option<usize> {
        let found = self.axes.iter().position(|axis| axis.name == name);
        if found.is_none() {
            let names: Vec<&str> = self.axes.iter().map(Axis::name).collect();
            let what = format!("`{}` is no axis", brief(name));
            self.table.problem(key, Wrong::name(what, name, &names));
        }
        found
    }

    fn kind(&mut self) -> Option<TableKind> {
        let kind = self.table.or("kind", "value".to_owned());
        match kind.as_str() {
            "value" => Some(TableKind::Value),
            "difference" => self.contrast().map(TableKind::Difference),
            "percent" => self.contrast().map(TableKind::Percent),
            _ => {
                let what = format!("unknown kind of table `{}`", brief(&kind));
                let names = ["value", "difference", "percent"];
                self.table.problem("kind", Wrong::name(what, &kind, &names));
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

    /// `where`: of each axis one label or several.
    fn filter(&mut self) -> Option<Filter> {
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
            let labels: Option<Vec<String>> = items.iter().map(|item| table.read(item)).collect();
            let labels = labels?;
            if labels
                .iter()
                .any(|label| !self.is_label("where", axis, label))
            {
                return None;
            }
            filter.insert(axis, labels);
        }
        Some(filter)
    }

    /// Every axis that is neither used nor the seeds has one value only: a mean over anything else
    /// than seeds means nothing.
    fn all_fixed(&self, used: Vec<usize>, filter: &Filter) {
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
