use super::Subject;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why the simulators could not be compared.
#[derive(Debug, Error)]
pub enum SimBenchError {
    /// Asked for a run that does not exist.
    #[error("there is no run `{name}`: give names of {known}")]
    NoSuchRun {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Our own program is missing.
    #[error("cannot find our own program ({0}): name it, or build it with `make bench-sim`")]
    NoBentpipe(#[source] io::Error),
    /// The folder for what the subjects read cannot be made.
    #[error("cannot write `{}`: {source}; give a folder that can be written by TMPDIR", path.display())]
    Scratch {
        /// The folder or file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A simulator could not be started, or not be waited for.
    #[error("cannot run {subject} for `{run}`: {source}")]
    Start {
        /// Whom.
        subject: Subject,
        /// For what.
        run: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A simulator failed.
    #[error("{subject} failed at `{run}` ({status}); it said:\n{said}")]
    Failed {
        /// Who.
        subject: Subject,
        /// At what.
        run: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
        /// Its last words.
        said: String,
    },
    /// A simulator printed something else than its figures.
    #[error("{subject} delivered nothing that can be counted at `{run}`; it said:\n{said}")]
    Output {
        /// Who.
        subject: Subject,
        /// At what.
        run: &'static str,
        /// What it printed.
        said: String,
    },
    /// The user asked to stop.
    #[error("stopped")]
    Cancelled,
}
