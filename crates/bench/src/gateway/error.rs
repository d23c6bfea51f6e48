//! Why a comparison could not be made.

use super::stage::Stage;
use super::traffic::TrafficError;
use bentpipe_os::need::Missing;
use bentpipe_os::netlink::NetlinkError;
use bentpipe_os::netns::{NetnsError, SysctlError};
use std::io;
use thiserror::Error;

/// Why a comparison could not be made.
#[derive(Debug, Error)]
pub enum BenchError {
    /// Asked for a figure that does not exist.
    #[error("there is no figure `{name}`: give names, or beginnings of names, of {known}")]
    NoSuchFigure {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The machine lacks something.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// HAProxy is missing.
    #[error(
        "cannot run HAProxy, the rival (`{program} -v`: {source}): install it with `apt install haproxy`"
    )]
    NoHaproxy {
        /// The program that was tried.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// Our own program is missing.
    #[error(
        "cannot find our own program ({source}): name it, or build it with `make bench-gateway`"
    )]
    NoBentpipe {
        /// Why not.
        source: io::Error,
    },
    /// Too few descriptors allowed.
    #[error(
        "a process may open {limit} files here and the comparison needs {needed}: raise the hard limit (`ulimit -Hn {needed}`)"
    )]
    Descriptors {
        /// The hard limit.
        limit: u64,
        /// What is needed.
        needed: u64,
    },
    /// A namespace could not be made.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// An interface, address or route could not be made.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A kernel setting could not be made.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// nft refused the rules that lead traffic to HAProxy.
    #[error("cannot intercept traffic for HAProxy: {said}")]
    Nft {
        /// What nft wrote, or why it could not run.
        said: String,
    },
    /// A proxy could not be started.
    #[error("cannot start {subject}: {source}")]
    Start {
        /// Whom.
        subject: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A proxy started and did not get as far as listening.
    #[error("{subject} started but does not listen; it said:\n{said}")]
    NotListening {
        /// Who.
        subject: &'static str,
        /// Its last words.
        said: String,
    },
    /// A proxy ended by itself.
    #[error("{subject} ended right after its start; it said:\n{said}")]
    Ended {
        /// Who.
        subject: &'static str,
        /// Its last words.
        said: String,
    },
    /// A proxy listens, but connections do not go through it.
    #[error("connections pass {subject} by; it said:\n{said}")]
    NotIntercepting {
        /// Who.
        subject: &'static str,
        /// Its last words.
        said: String,
    },
    /// A measurement failed.
    #[error("{subject} failed at `{figure}` in pair {pair}: {source}{said}")]
    Measurement {
        /// Who.
        subject: &'static str,
        /// At what.
        figure: &'static str,
        /// When.
        pair: usize,
        /// What happened.
        source: TrafficError,
        /// The proxy's last words, on lines of their own.
        said: String,
    },
    /// The load of the machine could not be read.
    #[error("cannot read the machine's processor time: {0}")]
    Load(#[source] io::Error),
    /// The user asked to stop, or the traffic could not be set up.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
}

impl BenchError {
    /// Whether the user asked to stop.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Traffic(TrafficError::Cancelled))
    }

    /// Says who failed at what; a wish to stop stays what it is.
    pub(super) fn measurement(
        stage: &Stage,
        figure: &'static str,
        pair: usize,
        error: Self,
    ) -> Self {
        match error {
            Self::Traffic(TrafficError::Cancelled) => error,
            Self::Traffic(source) => Self::Measurement {
                subject: stage.subject().name(),
                figure,
                pair,
                source,
                said: stage
                    .last_words()
                    .map(|words| format!("\n{words}"))
                    .unwrap_or_default(),
            },
            other => other,
        }
    }
}
