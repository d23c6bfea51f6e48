//! The rows as a table for the terminal: one block a loss rate.

use crate::plan::{CUTOFF, LOSSES, Measure, Mode};
use crate::results::{Row, Times, paused};
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement, Table, presets};

const HEADER: [&str; 7] = [
    "",
    "control",
    "bulk Mb/s",
    "of limit",
    "sent again",
    "100 kB",
    "2 MB",
];

/// All rows, a block for each loss rate with the limit in its head.
pub fn render(rows: &[Row]) -> String {
    let mut blocks = Vec::new();
    for (loss, share) in LOSSES.into_iter().enumerate() {
        let block: Vec<&Row> = rows.iter().filter(|row| row.loss == loss).collect();
        if let Some(first) = block.first() {
            let percent = share * 100.0;
            let limit = first.limit_mbps();
            blocks.push(format!(
                "{percent}% loss, limit {limit:.2} Mb/s\n{}{}",
                table(&block),
                notes(&block)
            ));
        }
    }
    blocks.join("\n\n")
}

/// What the stars in the table stand for.
fn notes(rows: &[&Row]) -> String {
    let rows = rows.iter();
    let notes = rows.flat_map(|row| {
        let title = row.variant.title();
        row.paused()
            .map(move |(measure, pause)| format!("\n* {title}, {measure}: {}", paused(pause)))
    });
    notes.collect()
}

fn star(pause: Option<f64>) -> &'static str {
    if pause.is_some() { " *" } else { "" }
}

fn table(rows: &[&Row]) -> Table {
    let least = |times: fn(&Row) -> &Times| {
        rows.iter()
            .filter_map(|row| times(row).median)
            .min_by(f64::total_cmp)
    };
    let (small, large) = (least(|row| &row.small), least(|row| &row.large));
    let most = rows
        .iter()
        .filter_map(|row| row.goodput_mbps)
        .max_by(f64::total_cmp);

    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    // Wrapped cells would be harder to read than a line that runs over.
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEADER);
    for row in rows {
        let mode = match row.variant.mode {
            Mode::EndToEnd => "end to end",
            Mode::Split => "split",
        };
        let share = row
            .share()
            .map_or("—".into(), |share| format!("{:.0}%", share * 100.0));
        let again = row
            .most_retransmitted
            .map_or("—".into(), |share| format!("{:.2}%", share * 100.0));
        let goodput = row
            .goodput_mbps
            .map_or(missing(row, Measure::Bulk, true).into(), |mbps| {
                format!("{mbps:.2}{}", star(row.host_paused_ms))
            });
        table.add_row([
            Cell::new(mode),
            Cell::new(row.variant.label),
            marked(
                goodput,
                row.goodput_mbps.is_some() && row.goodput_mbps == most,
            ),
            Cell::new(share),
            Cell::new(again),
            marked(
                time(&row.small, missing(row, Measure::Small, row.small.failed)),
                row.small.median.is_some() && row.small.median == small,
            ),
            marked(
                time(&row.large, missing(row, Measure::Large, row.large.failed)),
                row.large.median.is_some() && row.large.median == large,
            ),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn marked(text: String, best: bool) -> Cell {
    let cell = Cell::new(text);
    if best {
        cell.add_attribute(Attribute::Bold)
    } else {
        cell
    }
}

/// What a cell of `row` says that has no figure; `is_asked` where there should be one.
fn missing(row: &Row, measure: Measure, is_asked: bool) -> &'static str {
    match row.not_run.contains(&measure) {
        true => "not run",
        false if is_asked => "failed",
        false => "—",
    }
}

fn time(times: &Times, missing: &str) -> String {
    let star = star(times.host_paused_ms);
    match times {
        Times { cut: true, .. } => format!(">{} s{star}", CUTOFF.as_secs()),
        Times {
            median: Some(seconds),
            ..
        } => format!("{seconds:.2} s{star}"),
        _ => missing.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::VARIANTS;

    #[test]
    fn every_row_is_one_line_and_says_what_was_cut_off_or_failed() {
        let row = |large: Times| Row {
            variant: &VARIANTS[1],
            loss: 2,
            goodput_mbps: Some(0.104),
            most_retransmitted: Some(0.0512),
            series: Vec::new(),
            small: Times {
                median: Some(2.5),
                all: vec![Some(2.5)],
                ..Times::default()
            },
            large,
            host_paused_ms: Some(92.3),
            failed: Vec::new(),
            not_run: Vec::new(),
        };
        let cut = Times {
            cut: true,
            all: vec![None],
            ..Times::default()
        };
        let failed = Times {
            failed: true,
            ..Times::default()
        };
        let not_run = Row {
            not_run: vec![Measure::Large],
            ..row(failed.clone())
        };
        let rows = [row(cut), row(failed), row(Times::default()), not_run];
        let text = render(&rows);
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("cubic")).collect();
        assert!(text.starts_with("5% loss, limit 9.17 Mb/s\n"), "{text}");
        assert!(
            lines[0].contains("0.10") && lines[0].contains("5.12%"),
            "{text}"
        );
        assert!(
            lines[0].contains(">60 s") && lines[1].contains("failed"),
            "{text}"
        );
        assert!(lines[3].contains("not run"), "{text}");
        assert!(lines[0].contains("0.10 *"), "{text}");
        let note = "* end to end, cubic, bulk: host paused 92 ms";
        assert!(text.lines().any(|line| line == note), "{text}");
        assert!(!text.contains("1% loss"), "{text}");
    }
}
