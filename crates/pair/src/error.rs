//! Why a pair was not run.

use bentpipe_config::Problems;
use thiserror::Error;

/// A scenario with a leg over QUIC cannot be run in virtual time.
#[derive(Debug, Error)]
pub enum PairError {
    /// It has what these ends do not know.
    #[error(
        "{0}: in virtual time a leg over QUIC is one pair of gateways, joined by one link, with plain wires to the hosts, and its flows are \
         opened on the near side; run this scenario with `bentpipe lab run`"
    )]
    Unknown(String),
    /// The far end's keys are none that a proxy knows.
    #[error("the far end: {0}")]
    Far(#[from] Problems),
    /// A congestion control that QUIC cannot have.
    #[error(transparent)]
    Control(#[from] bentpipe_quic::UnusableControl),
    /// An endpoint cannot be made.
    #[error("cannot make an endpoint of the pair ({0}): see its keys in [gateways.NAME.split.sat]")]
    Endpoint(String),
    /// The link cannot be.
    #[error("link `{link}`: {why}")]
    Link {
        /// Its name.
        link: String,
        /// What is wrong with it.
        why: String,
    },
    /// The connection was not made.
    #[error(
        "gateway `{near}` did not reach its far end within {seconds} s ({why}): raise the link's rate, or lower its delay or loss"
    )]
    Unreached {
        /// The near end.
        near: String,
        /// How long it tried.
        seconds: u64,
        /// Why it was lost last.
        why: String,
    },
}
