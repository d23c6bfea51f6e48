//! How a command ends: its exit code, and the line that says why.

use bentpipe_config::Problems;
use std::fmt;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A run failed; exit code 1.
    Run(anyhow::Error),
    /// Wrong use, wrong configuration, or something the machine lacks; exit code 2.
    Usage(anyhow::Error),
    /// Mistakes in a file, each with its place; exit code 2.
    Mistakes(Problems),
    /// Someone asked to stop, and everything is cleaned up; exit code 130.
    Interrupted,
}

impl Failure {
    /// What went wrong, without `error: `; a line for each mistake.
    pub(crate) fn words(&self) -> String {
        let said = self.to_string();
        let lines = said
            .lines()
            .map(|line| line.strip_prefix("error: ").unwrap_or(line));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The exit code of the process.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Run(_) => 1,
            Self::Usage(_) | Self::Mistakes(_) => 2,
            Self::Interrupted => 130,
        })
    }
}

impl fmt::Display for Failure {
    /// One line: `error: ` and the chain of causes. Mistakes in a file have a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(error) | Self::Usage(error) => write!(f, "error: {}", joined(error)),
            Self::Mistakes(problems) => {
                let lines: Vec<String> = problems
                    .iter()
                    .map(|problem| format!("error: {problem}"))
                    .collect();
                f.write_str(&lines.join("\n"))
            }
            Self::Interrupted => write!(f, "interrupted; everything is cleaned up"),
        }
    }
}

impl From<bentpipe_proxy::Failure> for Failure {
    fn from(failure: bentpipe_proxy::Failure) -> Self {
        match failure {
            bentpipe_proxy::Failure::Run(error) => Self::Run(error),
            bentpipe_proxy::Failure::Usage(error) => Self::Usage(error),
            bentpipe_proxy::Failure::Mistakes(problems) => Self::Mistakes(problems),
        }
    }
}

/// The chain of causes in one line, outermost first. A cause whose words its effect already says is
/// left out.
fn joined(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = one_line(&cause.to_string());
        match text.as_str() {
            "" => cause,
            said if said.contains(&cause) => text,
            said => format!("{said}: {cause}"),
        }
    })
}

/// `text` in one line: the last words of a program, for one, have several.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.fold(String::new(), |joined, line| match joined.as_str() {
        "" => line.to_owned(),
        before if before.ends_with([':', ';', ',']) => format!("{before} {line}"),
        before => format!("{before}; {line}"),
    })
}

/// Says what kind of failure an error is.
pub(crate) trait Blame<T> {
    /// The run.
    fn or_run(self) -> Result<T, Failure>;
    /// Whoever called us, or their machine.
    fn or_usage(self) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Blame<T> for Result<T, E> {
    fn or_run(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Run(error.into()))
    }

    fn or_usage(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::Usage(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn the_chain_is_one_line_without_repetition() {
        let error = anyhow!("permission denied").context("cannot open `a.toml`: permission denied");
        let failure = Failure::Usage(error.context("cannot start"));
        assert_eq!(
            failure.to_string(),
            "error: cannot start: cannot open `a.toml`: permission denied"
        );
    }

    #[test]
    fn the_words_of_others_are_joined() {
        let failure = Failure::Run(anyhow!(
            "the gateway ended; it said:\n\nno room\n  for it\n"
        ));
        assert_eq!(
            failure.to_string(),
            "error: the gateway ended; it said: no room; for it"
        );
    }

    #[test]
    fn mistakes_have_a_line_each() {
        let text = "name = 1\nseed = \"x\"\n";
        let problems = bentpipe_scenario::Scenario::parse("a.toml", text).unwrap_err();
        let count = problems.iter().count();
        let said = Failure::Mistakes(problems).to_string();
        assert!(count > 1 && said.lines().count() == count, "{said}");
        assert!(
            said.lines().all(|line| line.starts_with("error: a.toml:")),
            "{said}"
        );
    }
}
