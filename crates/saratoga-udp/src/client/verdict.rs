//! What the end of a session means for its job.

use crate::Error;
use bentpipe_base::Instant;
use bentpipe_saratoga::sender::Failure;
use bentpipe_wire::saratoga::Code;
use core::time::Duration;

/// For who wonders what a command waits for.
pub(super) fn say_refused(path: &str, error: &Error) {
    tracing::info!(path, %error, "no room: it is asked for again, for ten minutes at most");
}

/// How often in vain a job begins anew: the server has forgotten the session, as after a start, or either side has heard what the
/// other did not say.
const IN_VAIN: u32 = 20;
/// And where the server has heard nothing for so long that it gave up: it may be so again each time.
const IN_SILENCE: u32 = 1;

/// Whether the session may begin anew, and how often in vain at most.
pub(super) fn forgotten(result: &Result<Vec<u8>, Error>) -> Option<u32> {
    match result {
        Err(Error::Session {
            failure: Failure::Peer(code),
            ..
        }) => match *code {
            Code::UNKNOWN_ID => Some(IN_VAIN),
            Code::TERMINATED | Code::SENDER_SILENT => Some(IN_SILENCE),
            _ => None,
        },
        Err(Error::Misnamed { .. }) => Some(IN_VAIN),
        _ => None,
    }
}

/// Whether nothing was heard.
pub(super) fn is_silence(result: &Result<Vec<u8>, Error>) -> bool {
    matches!(
        result,
        Err(Error::Session {
            failure: Failure::Silence,
            ..
        })
    )
}

/// When the server was last heard, by what it said that ended sessions.
#[derive(Debug)]
pub(super) struct Answers(Instant);

impl Answers {
    pub(super) const fn new(now: Instant) -> Self {
        Self(now)
    }

    /// A session ended so.
    pub(super) fn note(&mut self, result: &Result<Vec<u8>, Error>, now: Instant) {
        if !is_silence(result) {
            self.0 = now;
        }
    }

    /// Whether nothing was heard in a session of a server that answers in others: the line takes no more of them at once. One that
    /// is gone has answered none since, or for less than half of the `silence`.
    pub(super) fn starves(
        &self,
        result: &Result<Vec<u8>, Error>,
        silence: Duration,
        now: Instant,
    ) -> bool {
        is_silence(result) && now.since(self.0) < silence / 2
    }
}
