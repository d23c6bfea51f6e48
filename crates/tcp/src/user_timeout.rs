//! The user timeout (RFC 9293, section 3.8.3, R2 of data; RFC 5482, section 2): how long what was sent may stay without an
//! acknowledgement, or what was written wait before a shut window, until the connection is given up. As `TCP_USER_TIMEOUT` of
//! Linux it takes the place of the count of retransmissions, bounds the wait at a window that stays shut even where its probes are
//! answered, and replaces the number of keep-alive probes. At least one retransmission goes out before. The time counts
//! from the first transmission, in Linux from the first retransmission. It is not told to the
//! peer (the option of RFC 5482), as Linux does not either.

use crate::connection::Connection;
use crate::sender::Sender;
use bentpipe_base::Instant;
use std::time::Duration;

impl Connection {
    /// Gives the connection up when the peer acknowledges nothing for `timeout` in place of what
    /// [`Config::user_timeout`](crate::Config::user_timeout) says; `None`: after
    /// [`Config::max_retries`](crate::Config::max_retries). Whole milliseconds count.
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        self.tx.user_timeout = in_milliseconds(timeout);
    }

    /// Whether what is in flight, or waits before a shut window, has waited for as long as it may; the timer has just expired.
    pub(crate) fn is_given_up(&self, now: Instant) -> bool {
        let tx = &self.tx;
        let late = tx
            .user_timeout()
            .is_some_and(|most| now.since(tx.stalled) >= most);
        // Answers to probes count as no retransmissions.
        let again = tx.retries > 1 || tx.persisting;
        match tx.user_timeout() {
            // A SYN that nobody answers is given up by its count, too.
            Some(_) if tx.una > 0 => again && late,
            _ => tx.retries > self.config.max_retries || again && late,
        }
    }

    /// Whether the peer is taken for dead after so many keep-alive probes, or as many as fit the user timeout.
    pub(crate) fn probes_are_over(&self, most: u32, now: Instant) -> bool {
        match self.tx.user_timeout() {
            Some(most) => self.probes > 0 && now.since(self.heard) >= most,
            None => self.probes >= most,
        }
    }
}

impl Sender {
    /// How long the peer may acknowledge nothing.
    pub(crate) fn user_timeout(&self) -> Option<Duration> {
        (self.user_timeout > 0).then(|| Duration::from_millis(self.user_timeout.into()))
    }

    /// When a timer expires that is due `at`: once something went again, no later than the user timeout (Linux
    /// `tcp_clamp_rto_to_user_timeout`).
    pub(crate) fn within_user_timeout(&self, at: Instant) -> Instant {
        match self.user_timeout() {
            Some(most) if self.retries > 0 => at.min(self.stalled + most),
            _ => at,
        }
    }
}

/// `timeout` in milliseconds, at least one; 0: none.
pub(crate) fn in_milliseconds(timeout: Option<Duration>) -> u32 {
    timeout.map_or(0, |timeout| {
        u32::try_from(timeout.as_millis())
            .unwrap_or(u32::MAX)
            .max(1)
    })
}
