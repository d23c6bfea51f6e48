//! Every figure of `bentpipe trace --long` beside tcptrace's.

use crate::support::PROGRAM;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// What tcptrace gets wrong, or has no figure for (docs/trace.md), by the beginning of its labels.
const NOT_COMPARED: [&str; 3] = ["RTT full_sz", "sacks sent", "avg segm size"];

/// The figures of each connection in the layout of `tcptrace -l`: by label and direction.
fn figures(text: &str) -> Vec<BTreeMap<(String, usize), String>> {
    let mut connections = Vec::new();
    for line in text.lines() {
        if line.starts_with("TCP connection ") && line.ends_with(':') && !line.contains("info") {
            connections.push(BTreeMap::new());
        }
        let (Some(cells), Some(last)) = (line.strip_prefix("     "), connections.last_mut()) else {
            continue;
        };
        // Two labels of 18 columns, each with a figure and perhaps a unit; `initial window` is there twice.
        for (side, cell) in [cells.get(..38), cells.get(38..)]
            .into_iter()
            .flatten()
            .enumerate()
        {
            let Some((label, value)) = cell.trim().split_once(':') else {
                continue;
            };
            let mut words = value.split_whitespace();
            let value = words.next().unwrap_or("").to_owned();
            let label = match label {
                "initial window" => format!("{label} {}", words.next().unwrap_or("")),
                label => label.to_owned(),
            };
            last.insert((label, side), value);
        }
    }
    connections
}

/// Whether two figures are one: counts exactly, times by the last decimal that is printed, and a throughput as far as it
/// follows from a time in microseconds.
fn equal(label: &str, a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        _ if a == b => true,
        // tcptrace takes some answers to a SYN or FIN that was sent again for duplicates too.
        (Ok(own), Ok(other)) if label == "duplicate acks" => (0.0..=2.0).contains(&(other - own)),
        // Its minimum knows no round trip of no time.
        (Ok(own), Ok(_)) if label == "RTT min" && own == 0.0 => true,
        (Ok(own), Ok(other)) if label == "throughput" => (own - other).abs() <= 1.0 + other / 1e3,
        (Ok(own), Ok(other)) if a.contains('.') => (own - other).abs() <= 0.11,
        _ => false,
    }
}

/// Compares all figures that tcptrace has of `capture`; returns how many connections it has.
pub(crate) fn compare(capture: &Path) -> usize {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .arg(capture)
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let theirs = figures(&run("tcptrace", &["-n", "-l", "-r"]));
    let ours = figures(&run(PROGRAM, &["trace", "-l"]));
    assert_eq!(ours.len(), theirs.len(), "{}", capture.display());
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(theirs.len() > 80, "tcptrace prints {theirs:?}");
        for (key, expected) in theirs {
            if NOT_COMPARED.iter().any(|label| key.0.starts_with(label)) {
                continue;
            }
            let own = ours
                .get(key)
                .unwrap_or_else(|| panic!("{key:?} is not printed"));
            let place = format!(
                "{} of connection {}: {key:?}",
                capture.display(),
                number + 1
            );
            assert!(
                equal(&key.0, own, expected),
                "{place}: {own}, tcptrace has {expected}"
            );
        }
    }
    theirs.len()
}
