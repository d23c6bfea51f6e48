use super::Subject;
use bentpipe_os::need::Missing;
use bentpipe_os::netlink::NetlinkError;
use bentpipe_os::netns::{NetnsError, SysctlError};
use bentpipe_os::nft::NftError;
use std::io;
use thiserror::Error;

/// Why Saratoga and iperf3 could not be compared.
#[derive(Debug, Error)]
pub enum SaratogaBenchError {
    /// The machine lacks something.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// Our own program is missing.
    #[error("cannot find our own program ({0}): name it, or build it with `make bench-saratoga`")]
    NoBentpipe(#[source] io::Error),
    /// A namespace could not be made.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// An interface or address could not be made.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A kernel setting could not be made.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// nft refused the rule that drops packets.
    #[error("cannot drop packets: {0}")]
    Nft(#[from] NftError),
    /// The files cannot be put into memory.
    #[error("cannot write the files, twice {size}, to a tmpfs: {source}")]
    Files {
        /// The size of one file.
        size: bentpipe_base::Bytes,
        /// Why not.
        source: io::Error,
    },
    /// A program could not be started or waited for.
    #[error("cannot run {subject}: {source}")]
    Start {
        /// Whose.
        subject: Subject,
        /// Why not.
        source: io::Error,
    },
    /// A program failed.
    #[error("{subject} failed; it said:\n{said}")]
    Failed {
        /// Whose.
        subject: Subject,
        /// Its last words.
        said: String,
    },
    /// The file that arrived is another.
    #[error("the file that arrived is not the one that was sent")]
    Damaged,
    /// The user asked to stop.
    #[error("stopped")]
    Cancelled,
}
