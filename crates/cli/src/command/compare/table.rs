//! The table on stdout.

use super::figures::{Row, Summary};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// One line a row.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header([
        "case",
        "flow",
        "kernel Mb/s",
        "simulator Mb/s",
        "ratio",
        "within 10%",
        "cwnd apart",
        "sent again",
        "timeouts",
    ]);
    for row in rows {
        let (lab, simulator) = (&row.lab, &row.simulator);
        let percent =
            |share: Option<f64>| share.map_or("—".into(), |s| format!("{:.1}%", s * 100.0));
        table.add_row([
            row.case.clone(),
            row.flow.clone(),
            goodput(lab),
            goodput(simulator),
            row.ratio.map_or("—".into(), |ratio| format!("{ratio:.3}")),
            if row.agrees { "yes" } else { "no" }.into(),
            percent(row.cwnd_apart),
            format!("{:.1} / {:.1}", lab.sent_again, simulator.sent_again),
            format!("{:.1} / {:.1}", lab.timeouts, simulator.timeouts),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// Mean, least and greatest.
fn goodput(summary: &Summary) -> String {
    match summary.n {
        0 => "—".into(),
        _ => format!(
            "{:.3} ({:.3} to {:.3})",
            summary.mean_mbps, summary.min_mbps, summary.max_mbps
        ),
    }
}
