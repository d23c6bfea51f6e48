//! The cells of a study as tables, JSON and CSV.

use bentpipe_report::wrapped;
use bentpipe_scenario::Study;
use bentpipe_scenario::study::{TableKind, TableSpec};
use bentpipe_study::{Cell, Gap, Judged};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::fmt::Write as _;

/// One table as the paper lays it out; each cell has three lines: the mean and its interval, least and
/// greatest, and what stands beside it.
pub(super) fn table(study: &Study, spec: &TableSpec, cells: &[Cell]) -> String {
    let own: Vec<&Cell> = cells
        .iter()
        .filter(|cell| cell.table == spec.name)
        .collect();
    let mut columns: Vec<&str> = Vec::new();
    let mut rows: Vec<&str> = Vec::new();
    for cell in &own {
        if !columns.contains(&cell.column.as_str()) {
            columns.push(&cell.column);
        }
        if !rows.contains(&cell.row.as_str()) {
            rows.push(&cell.row);
        }
    }
    let axis = |number: usize| study.axes()[number].name();
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let corner = format!("{} \\ {}", axis(spec.rows), axis(spec.columns));
    table.set_header(std::iter::once(corner.as_str()).chain(columns.iter().copied()));
    let percent = matches!(spec.kind, TableKind::Percent(_));
    for (number, row) in rows.iter().enumerate() {
        if number > 0 {
            // A line between the rows, as each has several lines.
            table.add_row(vec![""; columns.len() + 1]);
        }
        let texts = columns.iter().map(|column| {
            let cell = own.iter().find(|c| c.row == *row && c.column == *column);
            cell.map_or_else(String::new, |cell| text(cell, percent))
        });
        table.add_row(std::iter::once((*row).to_owned()).chain(texts));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let seeds = own.iter().map(|cell| cell.runs).max().unwrap_or(0);
    let mut text = format!(
        "Table {}. {} ({seeds} seeds)\n{table}\n",
        spec.name, spec.title
    );
    text.push_str("mean ±95% confidence interval | min–max, where they differ");
    if let Some(otherwise) = &spec.otherwise {
        let _ = write!(text, " | — ({otherwise}) where there is none");
    }
    if let Some(within) = &spec.within {
        let _ = write!(text, " | ≤ {within}, ✓ met, ✗ not");
    }
    if own.iter().any(|cell| cell.paper.is_some()) {
        text.push_str(" | [paper], * outside min–max");
    }
    if own.iter().any(|cell| cell.reference.is_some()) {
        text.push_str(" | reference, ✓ agrees, ✗ does not");
    }
    text.push('\n');
    text
}

fn text(cell: &Cell, percent: bool) -> String {
    let number = |value: f64| number(value, percent);
    let bound = |met: bool| {
        let mark = if met { '✓' } else { '✗' };
        let within = cell
            .within
            .map(|within| format!("\n≤ {} {mark}", number(within)));
        within.unwrap_or_default()
    };
    let Some((mean, (min, max))) = cell.mean.zip(cell.min.zip(cell.max)) else {
        let otherwise = cell.otherwise.map(|other| format!(" ({})", number(other)));
        return format!("—{}{}", otherwise.unwrap_or_default(), bound(false));
    };
    let mut text = number(mean);
    if let Some(half) = cell.half.filter(|half| *half > 0.0) {
        let _ = write!(text, " ±{}", number(half));
    }
    if min < max {
        let _ = write!(text, "\n{}–{}", number(min), number(max));
    }
    text.push_str(&bound(cell.within.is_none_or(|within| mean <= within)));
    if cell.n < cell.runs {
        let _ = write!(text, "\n({} of {} runs)", cell.n, cell.runs);
    }
    if let Some(paper) = cell.paper {
        let mark = if (min..=max).contains(&paper) {
            ""
        } else {
            "*"
        };
        let _ = write!(text, "\n[{}{mark}]", number(paper));
    }
    if let Some(reference) = cell.reference {
        let mark = match cell.agrees {
            Some(true) => " ✓",
            Some(false) => " ✗",
            None => "",
        };
        let _ = write!(text, "\n{}{mark}", number(reference));
    }
    text
}

/// Whole where numbers are whole or large, with three digits where they are small.
pub(super) fn number(value: f64, percent: bool) -> String {
    let unit = if percent { "%" } else { "" };
    match value.abs() {
        whole if whole.fract() == 0.0 => format!("{:.0}{unit}", value + 0.0),
        // Adding 0 makes 0 of -0.
        large if large >= 100.0 || percent => format!("{:.0}{unit}", value.round() + 0.0),
        large if large >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// How many cells of plain values agree with the reference, and the paper's values with our spread.
pub(super) fn summary(cells: &[Cell]) -> String {
    let mut tables: Vec<(&str, u32, u32)> = Vec::new();
    for cell in cells {
        let Some(agrees) = cell.agrees else {
            continue;
        };
        if tables.last().is_none_or(|(name, ..)| *name != cell.table) {
            tables.push((&cell.table, 0, 0));
        }
        if let Some((_, agree, all)) = tables.last_mut() {
            *agree += u32::from(agrees);
            *all += 1;
        }
    }
    let (agree, all) = tables
        .iter()
        .fold((0, 0), |sum, table| (sum.0 + table.1, sum.1 + table.2));
    let short: Vec<String> = tables
        .iter()
        .filter(|(_, agree, all)| agree < all)
        .map(|(name, agree, all)| format!("{agree} of {all} of table {name}"))
        .collect();
    match (all, short.is_empty()) {
        (0, _) => String::new(),
        (_, true) => format!("{agree} of {all} judged cells agree with the reference."),
        (_, false) => format!(
            "{agree} of {all} judged cells agree with the reference; {}.",
            short.join(", ")
        ),
    }
}

/// An array of one object a cell, then one a statement.
pub(super) fn json(cells: &[Cell], statements: &[Judged]) -> serde_json::Result<String> {
    let cells = cells.iter().map(serde_json::to_string);
    let statements = statements.iter().map(serde_json::to_string);
    let lines: Vec<String> = cells.chain(statements).collect::<Result<_, _>>()?;
    Ok(format!("[\n{}\n]\n", lines.join(",\n")))
}

/// The statements of the paper, one a row, each with its check under it.
pub(super) fn statements(statements: &[Judged]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["statement", "model", "ours", "holds", "reference", "holds"]);
    let mut last = "";
    for one in statements {
        let words = if last == one.statement {
            String::new()
        } else {
            let why = one.why.iter().map(|why| format!("\n→ {why}"));
            let text = [format!("{}: {} ({})", one.statement, one.text, one.place)];
            let check = [format!("\ncheck: {}", one.check)];
            let all: String = text.into_iter().chain(check).chain(why).collect();
            wrapped(&all, 78)
        };
        last = &one.statement;
        let figure = |figure: Option<f64>, points: usize| match figure {
            Some(figure) => format!("{} ({points})", number(figure, false)),
            None => "—".to_owned(),
        };
        let range = one.range.filter(|[low, high]| low < high);
        let range = range.map_or_else(String::new, |ends| {
            // Where something may be nowhere at all.
            let [low, high] = ends.map(|end| {
                if end.is_finite() {
                    number(end, false)
                } else {
                    "∞".to_owned()
                }
            });
            format!("\n{low} to {high}")
        });
        table.add_row([
            words,
            one.model.clone().unwrap_or_default(),
            figure(one.ours, one.points) + &range,
            verdict(one.ours, one.holds).to_owned(),
            figure(one.reference, one.reference_points),
            verdict(one.reference, one.reference_holds).to_owned(),
        ]);
    }
    format!(
        "The paper's statements (in brackets: points that a figure is taken of; below it: what it lies \
         between by 95% confidence intervals)\n{table}\n"
    )
}

const fn verdict(figure: Option<f64>, holds: Option<bool>) -> &'static str {
    match (figure, holds) {
        (None, _) => "—",
        (_, Some(true)) => "yes",
        (_, Some(false)) => "no",
        (_, None) => "not resolved",
    }
}

/// What to say of measures that some runs lack; empty where none does.
pub(super) fn gaps(study: &Study, gaps: &[Gap]) -> String {
    let Some(first) = gaps.first() else {
        return String::new();
    };
    let axes = study.axes().iter().zip(&first.labels);
    let labels: Vec<String> = axes
        .filter(|(_, label)| !label.is_empty())
        .map(|(axis, label)| format!("{} {label}", axis.name()))
        .collect();
    format!(
        "warning: at {} points a measure is missing in some runs and its mean is that of the rest, such as \
         {} in {} of {} runs at {}",
        gaps.len(),
        first.measure,
        first.runs - first.n,
        first.runs,
        labels.join(", ")
    )
}

/// A header, and one line a cell; what is missing is empty.
pub(super) fn csv(cells: &[Cell]) -> String {
    let mut text = String::from(
        "table,row,column,mean,half,min,max,n,runs,paper,reference,agrees,otherwise,within\n",
    );
    let field = |value: &str| {
        if value.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", value.replace('"', "\"\""))
        } else {
            value.to_owned()
        }
    };
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for cell in cells {
        let fields = [
            field(&cell.table),
            field(&cell.row),
            field(&cell.column),
            number(cell.mean),
            number(cell.half),
            number(cell.min),
            number(cell.max),
            cell.n.to_string(),
            cell.runs.to_string(),
            number(cell.paper),
            number(cell.reference),
            cell.agrees
                .map_or_else(String::new, |agrees| agrees.to_string()),
            number(cell.otherwise),
            number(cell.within),
        ];
        text.push_str(&fields.join(","));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell {
            table: "1".into(),
            row: "re,no".into(),
            column: "1e-5".into(),
            mean: Some(1953.6),
            half: Some(62.5),
            min: Some(1700.0),
            max: Some(2200.0),
            otherwise: None,
            within: None,
            n: 20,
            runs: 20,
            paper: Some(1553.0),
            reference: Some(1954.5),
            agrees: Some(true),
        }
    }

    #[test]
    fn a_cell_shows_all_it_has() {
        assert_eq!(
            text(&cell(), false),
            "1954 ±62.5\n1700–2200\n[1553*]\n1955 ✓"
        );
        let empty = Cell {
            mean: None,
            ..cell()
        };
        assert_eq!(text(&empty, false), "—");
        let cut = Cell {
            otherwise: Some(0.25),
            within: Some(24.5),
            ..empty
        };
        assert_eq!(text(&cut, false), "— (0.250)\n≤ 24.5 ✗");
        let met = Cell {
            mean: Some(21.0),
            half: None,
            min: Some(21.0),
            max: Some(21.0),
            paper: None,
            reference: None,
            ..cut
        };
        assert_eq!(text(&met, false), "21\n≤ 24.5 ✓");
        assert_eq!(number(-0.87654, false), "-0.877");
        assert_eq!(number(142.4, true), "142%");
        assert_eq!(number(-0.3, true), "0%");
    }

    #[test]
    fn csv_and_json_have_one_line_a_cell() {
        let text = csv(&[cell()]);
        assert_eq!(
            text.lines().nth(1),
            Some("1,\"re,no\",1e-5,1953.6,62.5,1700,2200,20,20,1553,1954.5,true,,")
        );
        let value: serde_json::Value =
            serde_json::from_str(&json(&[cell()], &[]).unwrap()).unwrap();
        let names: Vec<&str> = value[0]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let mut wanted = [
            "table",
            "row",
            "column",
            "mean",
            "half",
            "min",
            "max",
            "n",
            "runs",
            "paper",
            "reference",
            "agrees",
            "otherwise",
            "within",
        ];
        wanted.sort_unstable();
        assert_eq!(names, wanted);
    }
}
