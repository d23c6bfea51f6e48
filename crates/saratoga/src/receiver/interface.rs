//! The settings with which a receiver starts, and the events that it reports.

use crate::report::HoleEnd;
use crate::sender::Failure;
use bentpipe_base::{Bytes, Ranges};
use bentpipe_wire::saratoga::{Metadata, Request, Width};
use core::time::Duration;

/// What to receive, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The session.
    pub session: u32,
    /// The REQUEST (get, take or list) that is sent until the peer begins; `None` where the peer has asked, or has
    /// begun by itself.
    pub request: Option<Request>,
    /// The width of STATUS until METADATA tells that of the session.
    pub width: Width,
    /// The content that an interrupted earlier session left, if any.
    pub kept: Option<Kept>,
    /// Content that is stored before METADATA tells what it is; none when something is kept.
    pub unannounced: Bytes,
    /// How holes are written.
    pub hole_end: HoleEnd,
    /// Octets of a STATUS frame at most.
    pub room: usize,
    /// How long the peer may say nothing before it counts as gone.
    pub silence: Duration,
    /// How long the last word is repeated to a peer that missed it.
    pub linger: Duration,
}

/// What an earlier session has stored of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The METADATA of that content.
    pub metadata: Metadata,
    /// The stretches that are stored.
    pub have: Ranges,
}

/// What a receiver tells its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This is what comes; refuse it by [`super::Receiver::refuse`]. [`super::Receiver::have`] tells what of it is
    /// stored already.
    Announced {
        /// What comes.
        metadata: Box<Metadata>,
        /// What was kept is of the same content.
        resumed: bool,
    },
    /// The payload of the DATA that was just put in belongs at `offset`.
    Store {
        /// Where in the content.
        offset: u64,
        /// Octets; all of the payload.
        len: u32,
    },
    /// All is stored: verify it, then call [`super::Receiver::verified`] or [`super::Receiver::refuse`].
    Complete,
    /// Verified, and the peer had time to hear of it.
    Done,
    /// It is over without that; after it was verified, the peer says that it did not delete what was taken, or does
    /// not say that it did.
    Failed(Failure),
}
