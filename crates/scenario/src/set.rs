//! Keys of a scenario that are set from outside its text.

use crate::model::Scenario;
use crate::parse::{self, Known};
use crate::study::{Setting, change, set};
use bentpipe_config::{Document, Problem, Problems};
use std::borrow::Cow;
use std::collections::BTreeSet;
use toml::de::DeTable;

impl Scenario {
    /// Reads a scenario with keys set to other values than in the text: each a dotted key, as of a study's axis, and a value
    /// in TOML, in one line; an empty value takes the key out of the text, where it is there. Of equal keys the last counts. A
    /// problem of such a value has `set KEY` for its file.
    ///
    /// Errors are those of [`Scenario::parse_knowing`], and keys that lead nowhere.
    pub fn parse_setting(
        file: &str,
        text: &str,
        settings: &[(&str, &str)],
        known: Known<'_>,
    ) -> Result<Self, Problems> {
        let settings = last_of_each(settings);
        let broken = settings
            .iter()
            .filter(|(key, value)| format!("{key}{value}").contains(['\n', '\r']))
            .map(|(key, _)| problem(key, "a line break", "a key and a value in one line"));
        if let Some(problems) = Problems::found(broken.collect()) {
            return Err(problems);
        }
        let lines: String = { settings.iter() }
            .map(|(key, value)| {
                // A key that is taken out has a line as well, so that every setting has one.
                let value = if value.is_empty() { "0" } else { value };
                format!("{} = {value}\n", quoted(key))
            })
            .collect();
        // The settings stand behind the text, so that every value has a place. Where nothing but blanks stands before them,
        // they are a document of their own, whose values have the same places.
        let whole = format!("{text}\n{lines}");
        let alone = format!("{}{lines}", " ".repeat(text.len() + 1));
        Document::new("", &alone)
            .finish(Some(()))
            .map_err(|found| named(found, &settings, 1))?;
        let document = Document::new(file, text);
        if document.is_broken() {
            return document.finish(None);
        }
        let mut root = DeTable::parse_recoverable(&whole[..text.len()])
            .0
            .into_inner();
        let mut values = DeTable::parse_recoverable(&alone).0.into_inner();
        let mut wrongs = Vec::new();
        for (key, text) in &settings {
            let Some((name, value)) = values.remove_entry(*key) else {
                continue;
            };
            let done = if text.is_empty() {
                change(&mut root, key, key, &|table, name| {
                    table.remove(name);
                })
            } else {
                let setting = Setting {
                    key: Cow::Borrowed(*key),
                    place: name.span(),
                    value,
                };
                set(&mut root, key, &setting)
            };
            if let Err(wrong) = done {
                wrongs.push((name.span(), wrong));
            }
        }
        let document = Document::with_root(file, &whole, root);
        let right = wrongs.is_empty();
        for (place, wrong) in wrongs {
            document.problem(place, wrong);
        }
        let scenario = right.then(|| parse::single(&document, known)).flatten();
        let first = text.matches('\n').count() + 2;
        let read = document.finish(scenario);
        read.map_err(|found| named(found, &settings, first))
    }
}

/// Without those that a later one of the same key replaces.
fn last_of_each<'t>(settings: &[(&'t str, &'t str)]) -> Vec<(&'t str, &'t str)> {
    let mut seen = BTreeSet::new();
    let last = settings.iter().rev().filter(|(key, _)| seen.insert(*key));
    let mut last: Vec<(&str, &str)> = last.copied().collect();
    last.reverse();
    last
}

/// `key` as TOML writes one that has dots.
fn quoted(key: &str) -> String {
    let escaped = key.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// `problems`, those in the lines from `first` on by the key of the setting that such a line is.
fn named(problems: Problems, settings: &[(&str, &str)], first: usize) -> Problems {
    let named = problems.into_iter().map(|found| {
        let line = found.line.checked_sub(first);
        match line.and_then(|line| settings.get(line)) {
            Some((key, _)) => Problem {
                suggestion: found.suggestion,
                ..problem(key, &found.what, &found.expected)
            },
            None => found,
        }
    });
    Problems::found(named.collect()).expect("there was one")
}

fn problem(key: &str, what: &str, expected: &str) -> Problem {
    Problem {
        file: format!("set {}", key.escape_default()),
        line: 1,
        column: 1,
        what: what.to_owned(),
        expected: expected.to_owned(),
        suggestion: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"t\"\n[hosts.a]\n[hosts.b]\n[links.l]\nends = [\"a\", \"b\"]\nrate = \"1Mbit/s\"\n\
                        [[flows]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nbytes = \"1MB\"\n";

    fn read(settings: &[(&str, &str)]) -> Result<Scenario, String> {
        Scenario::parse_setting("t.toml", TEXT, settings, Known::default())
            .map_err(|problems| problems.to_string())
    }

    #[test]
    fn the_last_setting_of_a_key_is_that_of_the_scenario() {
        let settings = [
            ("links.l.rate", "\"2Mbit/s\""),
            ("flows.f.bytes", "\"2MB\""),
            ("links.l.delay", "\"300ms\""),
            ("links.l.rate", "\"3Mbit/s\""),
            ("seed", "7"),
        ];
        let text = TEXT
            .replace("1Mbit/s\"", "3Mbit/s\"\ndelay = \"300ms\"")
            .replace("1MB", "2MB")
            .replace("[hosts.a]", "seed = 7\n[hosts.a]");
        assert_eq!(
            read(&settings).unwrap(),
            Scenario::parse("t.toml", &text).unwrap()
        );
        assert_eq!(read(&[]).unwrap(), Scenario::parse("t.toml", TEXT).unwrap());
    }

    #[test]
    fn an_empty_value_takes_the_key_out() {
        let settings = [
            ("flows.f.bytes", ""),
            ("flows.f.segments", ""),
            ("flows.f.duration", "\"5s\""),
            ("links.l.rate", ""),
        ];
        let text = TEXT
            .replace("bytes = \"1MB\"", "duration = \"5s\"")
            .replace("rate = \"1Mbit/s\"\n", "");
        assert_eq!(
            read(&settings).unwrap(),
            Scenario::parse("t.toml", &text).unwrap()
        );
        let error = read(&[("links.m.rate", "")]).unwrap_err();
        assert!(error.contains("leads nowhere"), "{error}");
        let error = read(&[("links.l.ends", "")]).unwrap_err();
        assert!(error.contains("`ends`"), "{error}");
    }

    #[test]
    fn the_way_back_of_a_link_is_set_where_the_text_has_none() {
        let text = TEXT.replace(
            "[[flows]]",
            "[links.l.reverse]\nrate = \"64kbit/s\"\n[[flows]]",
        );
        let written = Scenario::parse("t.toml", &text).unwrap();
        let set = [("links.l.reverse.rate", "\"64kbit/s\"")];
        assert_eq!(read(&set).unwrap(), written);
        let taken = [("links.l.reverse.delay", "")];
        assert_eq!(read(&taken).unwrap(), read(&[]).unwrap());
        let error = read(&[("hosts.a.reverse.rate", "1")]).unwrap_err();
        assert!(error.contains("leads nowhere"), "{error}");
    }

    #[test]
    fn a_flow_that_says_no_name_is_set_by_the_one_that_it_has() {
        let text = format!(
            "{}[[flows]]\nfrom = \"b\"\nto = \"a\"\nbytes = \"2MB\"\n",
            TEXT
        );
        let settings = [("flows.flow2.bytes", "\"3MB\"")];
        let set = Scenario::parse_setting("t.toml", &text, &settings, Known::default());
        let written = Scenario::parse("t.toml", &text.replace("2MB", "3MB"));
        assert_eq!(set.unwrap(), written.unwrap());
        let settings = [("flows.flow1.bytes", "\"3MB\"")];
        let error = Scenario::parse_setting("t.toml", &text, &settings, Known::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no [[flows]] is named `flow1`"), "{error}");
    }

    #[test]
    fn a_setting_that_is_wrong_is_named_by_its_key() {
        for (key, value, said) in [
            (
                "links.l.raet",
                "1",
                "set links.l.raet:1:1: unknown key `raet` in [links.l]",
            ),
            ("links.m.rate", "1", "`links.m.rate` leads nowhere"),
            ("links.l.rate", "\"1MB\"", "set links.l.rate:1:1: "),
            ("links.l.rate", "1 2", "set links.l.rate:1:1: not TOML"),
            ("links.l.rate", "1\nseed = 2", "a line break"),
            ("links.l.\"rate", "1", "unknown key"),
            ("", "1", "unknown key"),
            ("sweep", "[]", "makes a study"),
        ] {
            let error = read(&[("seed", "3"), (key, value)]).unwrap_err();
            assert!(error.contains(said), "{key} = {value}: {error}");
        }
        // What is wrong in the text keeps its place there.
        let text = TEXT.replace("rate", "raet");
        let settings = [("seed", "3")];
        let error = Scenario::parse_setting("t.toml", &text, &settings, Known::default());
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("t.toml:6:1: unknown key `raet`"),
            "{error}"
        );
    }
}
