//! The jobs that a client is given, their reports, and their progress.

use crate::Error;
use bentpipe_saratoga_files::{LocalFile, Tree};
use bentpipe_wire::saratoga::RequestKind;

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Job {
    /// Fetches the file at `remote`; with `take` it is deleted there afterwards.
    Get {
        /// The path at the server.
        remote: String,
        /// Where it goes.
        target: Target,
        /// Whether to delete it.
        take: bool,
        /// Its octets, where they are known: many short ones go at once.
        size: Option<u64>,
    },
    /// Sends a file to `remote`; with `give` it is deleted here afterwards.
    Put {
        /// What; `None`: standard input, as a stream.
        local: Option<LocalFile>,
        /// The path at the server.
        remote: String,
        /// Whether to delete it.
        give: bool,
        /// Its octets, where they are known: many short ones go at once.
        size: Option<u64>,
    },
    /// Fetches the list of a directory.
    List {
        /// The path at the server.
        remote: String,
    },
    /// Deletes a file.
    Delete {
        /// The path at the server.
        remote: String,
    },
}

/// Where what is fetched goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// A path in a tree.
    File(Tree, String),
    /// Standard output.
    Stdout,
}

/// The report on a job that has ended.
#[derive(Debug)]
pub struct Report {
    /// Which job, in the order in which they were given, from 0.
    pub number: usize,
    /// The path at the server.
    pub path: String,
    /// The content of a list; nothing for other jobs.
    pub result: Result<Vec<u8>, Error>,
}

/// How far all jobs have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Octets that have arrived.
    pub done: u64,
    /// Octets of all files, as far as that is known.
    pub known: u64,
    /// Files that are over.
    pub over: usize,
    /// Files; lists are not counted.
    pub jobs: usize,
    /// Nothing is under way, for want of room there or here: it is asked again now and then.
    pub waits: bool,
}

impl Job {
    /// The path at the server.
    pub fn remote(&self) -> &str {
        match self {
            Self::Get { remote, .. }
            | Self::Put { remote, .. }
            | Self::List { remote }
            | Self::Delete { remote } => remote,
        }
    }

    pub(crate) const fn kind(&self) -> RequestKind {
        match self {
            Self::Get { take: false, .. } => RequestKind::Get,
            Self::Get { take: true, .. } => RequestKind::Take,
            Self::Put { give: false, .. } => RequestKind::Put,
            Self::Put { give: true, .. } => RequestKind::Give,
            Self::List { .. } => RequestKind::List,
            Self::Delete { .. } => RequestKind::Delete,
        }
    }

    /// Its octets, as far as they are known.
    pub(crate) const fn size(&self) -> Option<u64> {
        match self {
            Self::Get { size, .. } | Self::Put { size, .. } => *size,
            Self::List { .. } | Self::Delete { .. } => None,
        }
    }

    /// Whether it reads standard input, which cannot be read again.
    pub(crate) const fn is_stream(&self) -> bool {
        matches!(self, Self::Put { local: None, .. })
    }

    /// Whether what has come of it is passed on, and cannot be taken back.
    pub(crate) const fn is_passed_on(&self) -> bool {
        matches!(
            self,
            Self::Get {
                target: Target::Stdout,
                ..
            }
        )
    }

    pub(crate) const fn is_list(&self) -> bool {
        matches!(self, Self::List { .. })
    }
}
