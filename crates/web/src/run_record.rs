//! What the server records of a run, in `run.json` of its folder: all that outlives the server.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Work {
    /// A scenario in the simulator.
    Simulator,
    /// A scenario on the kernel's TCP.
    Lab,
    /// All points of a study.
    Study {
        /// Its file.
        path: PathBuf,
        /// Where its results are, which are kept from one run of it to the next.
        out: PathBuf,
        /// Fewer values, where the study names some.
        quick: bool,
    },
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It waits for its turn.
    Queued,
    /// It runs.
    Running,
    /// It ended with a result.
    Done,
    /// It ended without one.
    Failed,
    /// Somebody stopped it.
    Stopped,
    /// The server ended in the middle of it.
    Interrupted,
}

/// What the server knows of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// The name of its folder.
    pub(crate) id: String,
    /// What it is called, and what is different in it from those that were asked for together with it.
    pub(crate) label: String,
    #[serde(flatten)]
    pub(crate) work: Work,
    pub(crate) state: State,
    /// Whether each end of each link is captured.
    pub(crate) captured: bool,
    /// When it was asked for, began and ended: seconds since 1970, UTC.
    pub(crate) asked: f64,
    pub(crate) began: Option<f64>,
    pub(crate) ended: Option<f64>,
    /// Why there is no result.
    pub(crate) why: Option<String>,
}

impl RunRecord {
    /// Of something that is asked for now.
    pub(crate) fn new(id: String, label: String, work: Work, captured: bool) -> Self {
        Self {
            id,
            label,
            work,
            state: State::Queued,
            captured,
            asked: now(),
            began: None,
            ended: None,
            why: None,
        }
    }

    /// The command that does the same, in the folder where its scenario is.
    pub(crate) fn command(&self) -> String {
        let captures = if self.captured {
            " --pcap captures"
        } else {
            ""
        };
        match &self.work {
            Work::Simulator => format!("bentpipe sim run {ASKED}{captures}"),
            Work::Lab => format!("sudo bentpipe lab run {ASKED}{captures}"),
            Work::Study { path, quick, .. } => {
                let quick = if *quick { " --quick" } else { "" };
                format!("bentpipe study run {}{quick}", path.display())
            }
        }
    }
}

/// The scenario that was asked for, in the folder of a run.
pub(crate) const ASKED: &str = "asked.toml";

/// Seconds since 1970, UTC.
pub(crate) fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64()
}
