//! How a command ends: its exit code, and the line that says why.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A run failed; exit code 1.
    Run(anyhow::Error),
    /// Wrong use, wrong configuration, or something the machine lacks; exit code 2.
    Usage(anyhow::Error),
    /// Someone asked to stop, and everything is cleaned up; exit code 130.
    Interrupted,
}

impl Failure {
    /// The exit code of the process.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Run(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted => 130,
        })
    }
}

impl fmt::Display for Failure {
    /// `error: ` and the chain of causes in one line; a text of several lines is a list of
    /// problems, each with a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = match self {
            Self::Run(error) | Self::Usage(error) => error,
            Self::Interrupted => return write!(f, "interrupted; everything is cleaned up"),
        };
        let text = joined(error);
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        write!(f, "error: {}", lines.next().unwrap_or("unknown"))?;
        lines.try_for_each(|line| write!(f, "\nerror: {line}"))
    }
}

/// The chain of causes, outermost first. A cause whose words its effect already says is left out.
fn joined(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match text.as_str() {
            "" => cause,
            said if said.contains(cause.trim()) => text,
            said => format!("{said}: {cause}"),
        }
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
    fn a_list_of_problems_keeps_its_lines() {
        let failure = Failure::Usage(anyhow!("a.toml:1:1: this\na.toml:2:1: that"));
        assert_eq!(
            failure.to_string(),
            "error: a.toml:1:1: this\nerror: a.toml:2:1: that"
        );
    }
}
