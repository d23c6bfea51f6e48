//! What is wrong with a text, where, and what would have been right.

use core::fmt;

/// One thing wrong with a text.
///
/// Shown as `file:line:column: what: expected …; did you mean …?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The name of the file as the caller gave it.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// What was found.
    pub what: String,
    /// What would have been right.
    pub expected: String,
    /// The nearest valid name, if one is near.
    pub suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            line,
            column,
            what,
            expected,
            ..
        } = self;
        write!(f, "{file}:{line}:{column}: {what}: expected {expected}")?;
        match &self.suggestion {
            Some(name) => write!(f, "; did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}

/// Everything wrong with a text, in the order of its lines; never empty. One line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.lines())]
pub struct Problems(pub(crate) Vec<Problem>);

impl Problems {
    /// What was found, if anything was.
    pub fn found(problems: Vec<Problem>) -> Option<Self> {
        (!problems.is_empty()).then_some(Self(problems))
    }

    /// The problems, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    fn lines(&self) -> String {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        lines.join("\n")
    }
}

impl IntoIterator for Problems {
    type Item = Problem;
    type IntoIter = std::vec::IntoIter<Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The one of `names` that a writer of `name` most likely meant, if any is near enough: at most one
/// edit in three letters, the case of letters aside, or a common beginning.
pub fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let lower = name.to_lowercase();
    let (candidate, edits) = names
        .into_iter()
        .map(|candidate| {
            let edits = strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
            (candidate, edits)
        })
        .min_by_key(|(_, edits)| *edits)?;
    let near = edits <= (lower.chars().count() / 3).max(1);
    let alike = strsim::jaro_winkler(&lower, &candidate.to_lowercase()) > 0.86;
    (near || alike).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let names = ["rate", "delay", "queue", "packet_error_rate"];
        assert_eq!(nearest("raet", names), Some("rate"));
        assert_eq!(nearest("Delay", names), Some("delay"));
        assert_eq!(nearest("packet_error", names), Some("packet_error_rate"));
        assert_eq!(nearest("colour", names), None);
        assert_eq!(nearest("", []), None);
    }
}
