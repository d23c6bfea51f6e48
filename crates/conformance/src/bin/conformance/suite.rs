//! Many scripts: which apply, what each came to, and whether that was expected.

use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Words of a script that mean what only Linux has, and what that is.
const KERNEL_ONLY: [(&str, &str); 7] = [
    (
        "TCP_FASTOPEN_",
        "TCP Fast Open by connect(), with keys of the caller's or without cookies is not offered here",
    ),
    (
        "FOEXP",
        "TCP Fast Open by its experimental option is not spoken here",
    ),
    ("MSG_ZEROCOPY", "zero-copy sends are the kernel's"),
    ("SO_ZEROCOPY", "zero-copy sends are the kernel's"),
    ("psp", "PSP is the kernel's and a network card's"),
    ("sendfile(", "sendfile goes past the interface"),
    ("splice(", "splice works on the kernel's pages"),
];

/// Why a script does not apply to an object; `None`: it does.
pub(crate) fn not_applicable(text: &str) -> Option<&'static str> {
    // Comments may speak of anything.
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .map(|line| line.split('#').next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n");
    let found = KERNEL_ONLY.iter().find(|(word, _)| code.contains(word));
    let cookie = code.lines().find(|line| line.contains("TFO_COOKIE"));
    if cookie.is_some_and(|line| !line.contains("> S")) {
        return Some(
            "the peer has a TCP Fast Open cookie before one was given, by a key that only the kernel is told",
        );
    }
    found.map(|(_, why)| *why)
}

/// `text` without its blocks of code, which ask the kernel about a socket that it does not have. Lines keep their
/// numbers.
pub(crate) fn without_code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find("%{") {
        let before = &rest[..open];
        // The time before it goes with it.
        let line = before.rfind('\n').map_or(0, |at| at + 1);
        let time = before[line..].trim_start();
        let stamp = !time.is_empty()
            && time
                .chars()
                .all(|c| c.is_ascii_digit() || "+.*~ \t".contains(c));
        out.push_str(if stamp { &before[..line] } else { before });
        let Some(close) = rest[open..].find("}%") else {
            // It is not closed: the reader of the script says so.
            out.push_str(&rest[open..]);
            return out;
        };
        let block = &rest[open..open + close + 2];
        out.extend(block.chars().filter(|c| *c == '\n'));
        rest = &rest[open + close + 2..];
    }
    out.push_str(rest);
    out
}

/// All scripts below `folder`, or that one.
pub(crate) fn find(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    if folder.is_file() {
        return Ok(vec![folder.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        // Links could lead round in a circle.
        if entry.file_type()?.is_dir() {
            found.extend(find(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Scripts that are expected to fail, each with the reason: lines of a name, white space and the rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected(BTreeMap<String, String>);

impl Expected {
    /// Reads such a list; `#` begins a comment.
    ///
    /// # Errors
    /// A name without a reason, or twice.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut all = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let number = number + 1;
            let (name, why) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| format!("line {number}: `{line}` has no reason behind its name"))?;
            if all.insert(name.to_owned(), why.trim().to_owned()).is_some() {
                return Err(format!("line {number}: `{name}` is there twice"));
            }
        }
        Ok(Self(all))
    }

    fn reason(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Names of scripts that are not among `there`.
    pub(crate) fn strangers(&self, there: &[Outcome]) -> Vec<&str> {
        let known = |name: &&String| !there.iter().any(|outcome| outcome.script == **name);
        self.0.keys().filter(known).map(String::as_str).collect()
    }
}

/// What a script came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    Passed,
    Failed,
    /// It failed, as the list says.
    FailedAsExpected,
    /// It passed, though the list says that it fails.
    PassedUnexpectedly,
    NotApplicable,
}

/// One script's result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Its path below the folder that was asked for.
    pub(crate) script: String,
    pub(crate) verdict: Verdict,
    /// Why it failed, or does not apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// Why it is expected to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<String>,
}

impl Outcome {
    /// The outcome of `script`, by what its run said.
    pub(crate) fn of(script: String, run: Result<(), String>, expected: &Expected) -> Self {
        let reason = expected.reason(&script).map(str::to_owned);
        let verdict = match (&run, &reason) {
            (Ok(()), None) => Verdict::Passed,
            (Ok(()), Some(_)) => Verdict::PassedUnexpectedly,
            (Err(_), None) => Verdict::Failed,
            (Err(_), Some(_)) => Verdict::FailedAsExpected,
        };
        Self {
            script,
            verdict,
            why: run.err(),
            expected: reason,
        }
    }

    pub(crate) fn not_applicable(script: String, why: &str) -> Self {
        Self {
            script,
            verdict: Verdict::NotApplicable,
            why: Some(why.to_owned()),
            expected: None,
        }
    }
}

/// How many there are of each kind.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) failed_as_expected: usize,
    pub(crate) passed_unexpectedly: usize,
    pub(crate) not_applicable: usize,
}

impl Counts {
    pub(crate) fn of(outcomes: &[Outcome]) -> Self {
        let count = |verdict| outcomes.iter().filter(|one| one.verdict == verdict).count();
        Self {
            passed: count(Verdict::Passed),
            failed: count(Verdict::Failed),
            failed_as_expected: count(Verdict::FailedAsExpected),
            passed_unexpectedly: count(Verdict::PassedUnexpectedly),
            not_applicable: count(Verdict::NotApplicable),
        }
    }

    /// Whether all went as expected.
    pub(crate) const fn agrees(&self) -> bool {
        self.failed == 0 && self.passed_unexpectedly == 0
    }
}
