//! What there is to begin with: the repository's scenarios, those that the papers' studies vary, and the advisor's links.

use bentpipe_advisor::{Alternative, Measure, PRESETS, Preset, Question, scenario};
use bentpipe_scenario::Scenario;
use bentpipe_study::parse;
use serde::Serialize;

/// Scenarios and studies, by their paths in the repository.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));
/// The seed of the advisor's scenarios.
const SEED: u64 = 1;

/// Something to begin with.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// How it is asked for.
    id: String,
    /// Which kind it is of.
    group: &'static str,
    /// How it is called.
    name: String,
    /// What it is, in a line.
    about: String,
}

/// All of it.
pub(crate) fn list() -> Vec<Entry> {
    let files = FILES.iter().map(|(path, text)| Entry {
        id: (*path).to_owned(),
        group: if path.starts_with("papers/") {
            "Papers"
        } else {
            "Scenarios"
        },
        name: path
            .split_once('/')
            .map_or(*path, |(_, name)| name)
            .to_owned(),
        about: about(text),
    });
    let presets = PRESETS.iter().flat_map(|preset| {
        let question = question(preset);
        let measures = question.into_iter().flat_map(|question| {
            let measures = Measure::ALL.into_iter();
            measures.filter_map(move |measure| {
                let applies = measure.applies(&question);
                applies.then(|| (measure.label(&question), word(&measure)))
            })
        });
        measures.map(|(label, measure)| Entry {
            id: format!("presets/{}/{measure}", preset.name),
            group: "Links",
            name: format!("{}: {label}", preset.name),
            about: preset.about.to_owned(),
        })
    });
    presets.chain(files).collect()
}

/// The sentence that a file begins with.
fn about(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix('#'));
    let all = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    let end = all.find(". ").map_or(all.len(), |end| end + 1);
    all[..end].to_owned()
}

/// The scenario `id`, as text. Of a study it is the scenario before any axis, every default written out.
pub(crate) fn text(id: &str) -> Option<String> {
    if let Some((_, text)) = FILES.iter().find(|(path, _)| *path == id) {
        let study = Scenario::parse(id, text)
            .is_err()
            .then(|| parse(id, text).ok())
            .flatten();
        return Some(study.map_or_else(|| (*text).to_owned(), |study| study.base().to_toml()));
    }
    alternatives(id)?.into_iter().next().map(|row| row.text)
}

/// A row of the advisor's table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// How TCP crosses the link.
    label: &'static str,
    about: &'static str,
    /// The scenario.
    text: String,
}

/// The rows of a link and measure, the first of them without any PEP.
pub(crate) fn alternatives(id: &str) -> Option<Vec<Row>> {
    let (name, measure) = id.strip_prefix("presets/")?.split_once('/')?;
    let preset = PRESETS.iter().find(|preset| preset.name == name)?;
    let question = question(preset)?;
    let mut measures = Measure::ALL.into_iter();
    let measure = measures.find(|it| word(it) == measure && it.applies(&question))?;
    let rows = Alternative::ALL.map(|alternative| Row {
        label: alternative.label(),
        about: alternative.about(),
        text: scenario(&question, alternative, measure, SEED),
    });
    Some(rows.into())
}

fn question(preset: &Preset) -> Option<Question> {
    Question::try_from(preset.sliders.clone()).ok()
}

fn word(measure: &Measure) -> String {
    format!("{measure:?}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_offered_is_a_scenario() {
        let all = list();
        for group in ["Links", "Scenarios", "Papers"] {
            let count = all.iter().filter(|entry| entry.group == group).count();
            assert!(count >= 10, "{group}: {count}");
        }
        for entry in &all {
            let text = text(&entry.id).unwrap();
            if let Err(problems) = Scenario::parse(&entry.id, &text) {
                panic!("{problems}");
            }
            for row in alternatives(&entry.id).unwrap_or_default() {
                Scenario::parse(row.label, &row.text).unwrap();
            }
        }
        for id in [
            "",
            "scenarios/../Cargo.toml",
            "/etc/passwd",
            "presets/GEO",
            "presets/GEO/fast",
            "presets/X/long",
        ] {
            assert!(text(id).is_none(), "{id}");
        }
    }
}
