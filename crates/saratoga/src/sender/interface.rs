//! The settings with which a sender starts, and the events and errors that it reports.

use bentpipe_base::{Bytes, Rate};
use bentpipe_wire::saratoga::{Code, Metadata, Request};
use core::time::Duration;

/// What to send, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// What is transferred; its session and the width of its descriptors are those of all frames.
    /// The size counts unless it is a stream. A checksum that is [`Later`](bentpipe_wire::saratoga::Checksum::Later) is told by
    /// [`super::Sender::set_checksum`] when it is known; until then the session does not end well.
    pub metadata: Metadata,
    /// Asked before anything is sent: a put or give. `None`: the peer has asked, or is not asked.
    pub request: Option<Request>,
    /// The rate on the line, with the overhead of every packet; never exceeded.
    pub rate: Rate,
    /// Octets of content in a DATA frame at most; fewer where such packets do not reach the peer.
    pub payload: u32,
    /// What IP and UDP add to a frame.
    pub overhead: Bytes,
    /// Whether the path is shared.
    pub congestion: Congestion,
    /// How long the peer may say nothing before it counts as gone.
    pub silence: Duration,
    /// The peer has asked for a checksum that comes last, whether there is one or not: it is of our kind, and says again
    /// that it has all until it hears that this was heard.
    pub late_checksum: bool,
    /// A secret in the timestamps of DATA, drawn at random for the session: a STATUS that echoes it is of
    /// somebody whom DATA reaches. `None`: DATA has no timestamps, for peers that cannot read them.
    pub nonce: Option<u32>,
    /// The peer was sent no REQUEST, and may be one that echoes no timestamps. Until it has echoed one, its report that
    /// it has everything counts without an echo. The session's Id must then be a new one, because otherwise a late
    /// report on an earlier session of the same Id would count for this session.
    pub blind: bool,
}

/// What a sender does about others on the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Congestion {
    /// Nothing: losses are the channel's. For paths of one's own.
    #[default]
    None,
    /// TCP-friendly rate control, never above the configured rate.
    Tfrc,
}

impl Congestion {
    /// All of them, the default first.
    pub const ALL: [Self; 2] = [Self::None, Self::Tfrc];

    /// As scenarios and options write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tfrc => "tfrc",
        }
    }

    /// The one of this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }
}

/// What a sender tells its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer has everything and has verified it.
    Done,
    /// The session has failed.
    Failed(Failure),
}

/// Why a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer ended it.
    #[error("the peer says: {0}")]
    Peer(Code),
    /// This side ended it, and told the peer so.
    #[error("{0}")]
    Own(Code),
    /// Nothing was heard from the peer.
    #[error("the peer has fallen silent")]
    Silence,
    /// The peer answers, and nothing of the content reaches it.
    #[error(
        "the peer answers, but none of the content reaches it; what was sent last were short packets"
    )]
    Vain,
    /// The peer says that it has all, but what it says may be of an earlier session: it echoes nothing of this one.
    #[error(
        "the peer says that all is there, and does not show that it means this transfer: it echoes no timestamp of it"
    )]
    Unechoed,
}

/// How far a sender has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Every octet below this one was sent at least once.
    pub sent: u64,
    /// Every octet below this one has arrived.
    pub arrived: u64,
    /// Octets of content sent, repairs and copies included.
    pub transmitted: u64,
}
