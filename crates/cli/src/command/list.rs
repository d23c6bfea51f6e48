//! `bentpipe list`: what scenarios may name.

use crate::failure::{Blame, Failure};
use crate::terminal;
use bentpipe_link::{channel, queue};
use serde_json::{Value, json};

/// Options of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object, an array a kind
    #[arg(long)]
    json: bool,
}

/// One kind of thing: its name in JSON, its heading, and name and summary of each.
type Kind = (&'static str, &'static str, Vec<(&'static str, String)>);

/// Does what `args` say.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let kinds = kinds();
    let text = if args.json {
        json(&kinds)
    } else {
        lines(&kinds)
    };
    terminal::print(text.trim_end()).or_run()
}

fn kinds() -> Vec<Kind> {
    let mut kinds = of_tcp();
    kinds.extend(of_links());
    kinds.push((
        "apps",
        "Programs that move files (`app` of flows); the simulator has Saratoga alone",
        entries(bentpipe_lab::APPS, |one| (one.name, one.summary)),
    ));
    kinds.push((
        "measures",
        "Measures of studies (`measure` of tables); those of a flow, link or proxy also of one: goodput(NAME)",
        measures(),
    ));
    kinds
}

fn of_tcp() -> Vec<Kind> {
    let variants = bentpipe_tcp::VARIANTS.iter().map(|pair| {
        let summary = format!("{} over the recovery {}", pair.congestion, pair.recovery);
        (pair.name, summary)
    });
    vec![
        (
            "variants",
            "Variants of TCP (`variant` of flows)",
            variants.collect(),
        ),
        (
            "congestion_controls",
            "Congestion controls (`congestion_control`)",
            entries(bentpipe_cc::REGISTRY, |one| (one.name, one.summary)),
        ),
        (
            "recoveries",
            "Loss recoveries",
            entries(bentpipe_tcp::recovery::REGISTRY, |one| {
                (one.name, one.summary)
            }),
        ),
        (
            "presets",
            "Presets of the simulator's TCP (`preset` of hosts)",
            entries(bentpipe_tcp::PRESETS, |one| (one.name, one.summary)),
        ),
    ]
}

fn of_links() -> Vec<Kind> {
    vec![
        (
            "queues",
            "Queues (`queue` of links)",
            entries(queue::registry::<()>(), |one| {
                (one.spec.name, one.spec.summary)
            }),
        ),
        (
            "channels",
            "Channels: errors of links (keys of links)",
            entries(channel::REGISTRY, |one| (one.key, one.summary)),
        ),
        (
            "peps",
            "Proxies ([peps.NAME])",
            entries(bentpipe_pep::REGISTRY, |one| (one.name, one.summary)),
        ),
    ]
}

/// The table of measures, with units and with what each may be asked of.
fn measures() -> Vec<(&'static str, String)> {
    let measures = bentpipe_outcome::MEASURES.iter();
    measures
        .map(|one| {
            let unit = match one.unit {
                "" => String::new(),
                unit => format!(", in {unit}"),
            };
            let subject = one
                .subject()
                .map_or_else(String::new, |it| format!(" (of a {})", it.name()));
            (one.name, format!("{}{unit}{subject}", one.summary))
        })
        .collect()
}

/// Name and summary of each of a registry.
fn entries<T>(
    registry: &[T],
    of: fn(&T) -> (&'static str, &'static str),
) -> Vec<(&'static str, String)> {
    let pairs = registry.iter().map(of);
    pairs
        .map(|(name, summary)| (name, summary.to_owned()))
        .collect()
}

fn lines(kinds: &[Kind]) -> String {
    let names = kinds.iter().flat_map(|(_, _, entries)| entries);
    let width = names.map(|(name, _)| name.len()).max().unwrap_or(0);
    let blocks = kinds.iter().map(|(_, heading, entries)| {
        let lines: Vec<String> = entries
            .iter()
            .map(|(name, summary)| format!("  {name:width$}  {summary}"))
            .collect();
        format!("{heading}\n{}\n", lines.join("\n"))
    });
    blocks.collect::<Vec<_>>().join("\n")
}

fn json(kinds: &[Kind]) -> String {
    let pairs = kinds.iter().map(|(key, _, entries)| {
        let entries = entries
            .iter()
            .map(|(name, summary)| json!({ "name": name, "summary": summary }));
        ((*key).to_owned(), Value::Array(entries.collect()))
    });
    format!("{:#}", Value::Object(pairs.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Channels have a name in the documentation besides, which no scenario knows.
    #[test]
    fn a_channel_is_listed_by_the_key_that_a_scenario_has_for_it() {
        let kinds = of_links();
        let channels = kinds.iter().find(|(kind, ..)| *kind == "channels");
        let (.., channels) = channels.expect("channels are listed");
        let unknown = |key: &str| {
            let text = format!("[links.space]\n{key} = true\n");
            let problems = bentpipe_scenario::Scenario::parse("geo.toml", &text).unwrap_err();
            problems
                .to_string()
                .contains(&format!("unknown key `{key}`"))
        };
        assert_eq!(channels.len(), channel::REGISTRY.len());
        assert!(unknown("bit-error"));
        for (key, _) in channels {
            assert!(!unknown(key), "{key}");
        }
    }

    #[test]
    fn every_entry_has_a_line_and_an_object() {
        let kinds = kinds();
        let count: usize = kinds.iter().map(|(_, _, entries)| entries.len()).sum();
        let page = lines(&kinds);
        let indented = page.lines().filter(|line| line.starts_with("  "));
        assert_eq!(indented.count(), count);
        let value: Value = serde_json::from_str(&json(&kinds)).unwrap();
        assert_eq!(value["queues"][0]["name"], "drop-tail");
        let summaries = kinds.iter().flat_map(|(_, _, entries)| entries);
        assert!(
            summaries
                .clone()
                .all(|(_, summary)| !summary.is_empty() && !summary.contains('\n'))
        );
    }
}
