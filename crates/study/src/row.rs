//! One finished point.

use bentpipe_scenario::Scenario;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What was measured, by name; what has no value at this point is missing.
pub type Measures = BTreeMap<String, f64>;

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

/// The key of a scenario: 16 hexadecimal digits of the SHA-256 of its complete text, the profile of
/// its traffic included.
pub(crate) fn key(scenario: &Scenario) -> String {
    let mut text = scenario.to_toml();
    let traffic = scenario.traffic.as_ref();
    if let Some(profile) = traffic
        .filter(|traffic| traffic.file().is_some())
        .and_then(|traffic| traffic.profile(scenario.seed))
    {
        // Writing to a String cannot fail.
        let _ = write!(text, "{profile}");
    }
    digest(&text)
}

pub(crate) fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(8).fold(String::new(), |mut digits, byte| {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}
