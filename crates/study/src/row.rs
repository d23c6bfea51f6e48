//! One finished point.

use bentpipe_scenario::Scenario;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// What was measured, by name. A measure of the whole run that has no value at this point is missing; one of a single
/// flow, link or proxy is `None` then, so that it is known to have been asked for.
pub type Measures = BTreeMap<String, Option<f64>>;

/// One finished point: a line of `points.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Stands for everything that decides the result.
    pub point: String,
    /// The label of its value on each axis of the study.
    pub labels: Vec<String>,
    /// What was measured.
    pub measures: Measures,
}

impl Row {
    pub(crate) fn new(key: Key, labels: Vec<String>, measures: Measures) -> Self {
        Self {
            point: key.to_string(),
            labels,
            measures,
        }
    }
}

/// Stands for a scenario: the first 64 bits of the SHA-256 of its complete text, the profile of its
/// traffic included. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn of(scenario: &Scenario) -> Self {
        let mut text = scenario.to_toml();
        let traffic = scenario.traffic.as_ref();
        if let Some(profile) = traffic
            .filter(|traffic| traffic.file().is_some())
            .and_then(|traffic| traffic.profile(scenario.seed).ok())
        {
            // Writing to a String cannot fail.
            let _ = write!(text, "{profile}");
        }
        Self::of_text(&text)
    }

    pub(crate) fn of_text(text: &str) -> Self {
        let hash = Sha256::digest(text.as_bytes());
        Self(
            hash.iter()
                .take(8)
                .fold(0, |key, byte| key << 8 | u64::from(*byte)),
        )
    }

    /// The key that `digits` are; `None` if they are not 16 hexadecimal ones.
    pub(crate) fn parse(digits: &str) -> Option<Self> {
        let key = u64::from_str_radix(digits, 16).ok().map(Self)?;
        (key.to_string() == digits).then_some(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
