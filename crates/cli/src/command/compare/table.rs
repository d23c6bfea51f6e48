//! The table on stdout.

use bentpipe_study::{Comparison, Ratio, Summary};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// One line a row.
pub(crate) fn render(rows: &[Comparison]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let timed = rows.iter().any(|row| row.lab.receiver_s.is_some());
    let times: &[&str] = if timed {
        &["at sender s", "at receiver s"]
    } else {
        &[]
    };
    let has_gateways = rows
        .iter()
        .any(|row| row.lab.local.or(row.simulator.local).is_some());
    let gateways: &[&str] = if has_gateways { &["by gateways"] } else { &[] };
    let header = [
        "case",
        "flow",
        "kernel Mb/s",
        "simulator Mb/s",
        "ratio",
        "within 10%",
        "cwnd apart",
        "sent again",
        "timeouts",
        "queue drops",
    ];
    table.set_header(header.iter().chain(times).chain(gateways));
    for row in rows {
        let (lab, simulator) = (&row.lab, &row.simulator);
        let percent =
            |share: Option<f64>| share.map_or("—".into(), |s| format!("{:.1}%", s * 100.0));
        let both = |of: fn(&Summary) -> Option<f64>, digits: usize| {
            let text = |it: Option<f64>| it.map_or("—".into(), |it| format!("{it:.digits$}"));
            format!("{} / {}", text(of(lab)), text(of(simulator)))
        };
        let cells = [
            row.case.clone(),
            row.flow.clone(),
            goodput(lab),
            goodput(simulator),
            row.ratio.map_or("—".into(), |ratio| {
                let half = row.ratios.goodput.and_then(|ratio| ratio.half);
                let half = half.map_or(String::new(), |half| format!(" ±{half:.3}"));
                format!("{ratio:.3}{half}")
            }),
            if row.agrees { "yes" } else { "no" }.into(),
            percent(row.cwnd_apart),
            beside(both(|side| side.sent_again, 1), row.ratios.sent_again),
            both(|side| side.timeouts, 1),
            drops(row),
        ];
        let values = [
            both(|side| side.sender_s, 3),
            both(|side| side.receiver_s, 3),
        ];
        let again = [beside(both(|side| side.local, 1), row.ratios.local)];
        let values = values.into_iter().take(times.len());
        table.add_row(
            cells
                .into_iter()
                .chain(values)
                .chain(again.into_iter().take(gateways.len())),
        );
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// `figures`, and what is known of their ratio.
fn beside(figures: String, ratio: Option<Ratio>) -> String {
    match ratio {
        Some(Ratio {
            mean,
            half: Some(half),
        }) => format!("{figures} ({mean:.2} ±{half:.2})"),
        _ => figures,
    }
}

/// How many packets the queues dropped, in the kernel and in the simulator: a part for each link where either dropped some.
fn drops(row: &Comparison) -> String {
    let of = |side: &Summary, link: &String| side.dropped.get(link).copied().unwrap_or(0.0);
    let links: Vec<String> = row
        .simulator
        .dropped
        .keys()
        .map(|link| (link, of(&row.lab, link), of(&row.simulator, link)))
        .filter(|(_, lab, simulator)| lab + simulator > 0.0)
        .map(|(link, lab, simulator)| format!("{link} {lab:.1} / {simulator:.1}"))
        .collect();
    if links.is_empty() {
        "0 / 0".to_owned()
    } else {
        links.join(", ")
    }
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
