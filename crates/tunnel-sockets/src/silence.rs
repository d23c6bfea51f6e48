//! Whether QUIC answers, and where it does not, whether TCP does to the same peer.
//!
//! Who is silent is asked three times, a round trip each, and TCP beside it. TCP answers and QUIC does not: UDP is blocked. Neither answers:
//! the link is out.

use bentpipe_base::Instant;
use core::time::Duration;

/// What an answer may take beyond its round trip.
const SLACK: Duration = Duration::from_millis(200);
/// How often QUIC is asked.
const ROUNDS: u8 = 3;

/// What is known of the two connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// What has come by QUIC, and what has left, in datagrams.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Its smoothed round-trip time.
    pub(crate) srtt: Duration,
    /// What has come by TCP.
    pub(crate) by_tcp: u64,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// QUIC is to be asked for a sign of life.
    AskQuic,
    /// Both are.
    AskBoth,
    /// UDP is blocked.
    Blocked,
}

/// Whether QUIC answers.
#[derive(Debug)]
pub(crate) struct Silence {
    /// QUIC is asked after so long.
    after: Duration,
    /// What had come of it at the last look, and since when it is silent.
    received: u64,
    since: Instant,
    /// How often it was asked since; what had been sent when it was asked last, and when that was seen to have left.
    rounds: u8,
    sent: u64,
    left: Option<Instant>,
    /// What had come by TCP when that was asked.
    by_tcp: Option<u64>,
    /// Neither answered: the link was out.
    outage: bool,
}

impl Silence {
    /// QUIC is asked after so long a silence.
    pub(crate) const fn new(after: Duration) -> Self {
        Self {
            after,
            received: 0,
            since: Instant::ZERO,
            rounds: 0,
            sent: 0,
            left: None,
            by_tcp: None,
            outage: false,
        }
    }

    /// An answer is waited for.
    pub(crate) const fn asks(&self) -> bool {
        self.rounds > 0 && !self.outage
    }

    /// Whether new flows had better not take QUIC: it has not answered twice.
    pub(crate) const fn suspects(&self) -> bool {
        self.rounds >= 2 && !self.outage
    }

    /// Looks at both.
    pub(crate) fn look(&mut self, heard: Heard, now: Instant) -> Option<Step> {
        if heard.received != self.received {
            if self.suspects() {
                tracing::debug!("QUIC answers again");
            }
            *self = Self {
                received: heard.received,
                since: now,
                ..Self::new(self.after)
            };
            return None;
        }
        if self.left.is_none() && heard.sent > self.sent {
            self.left = Some(now);
        }
        let patience = heard.srtt + heard.srtt / 10 + SLACK;
        let unanswered = self.left.is_some_and(|at| now.since(at) >= patience);
        let tcp_answers = self.by_tcp.is_some_and(|asked| heard.by_tcp > asked);
        match self.rounds {
            0 if now.since(self.since) < self.after => return None,
            0 => {}
            1..ROUNDS if !unanswered => return None,
            1..ROUNDS => {}
            _ if self.outage && tcp_answers => {
                // The link is back, and QUIC has its chance.
                (self.outage, self.rounds, self.by_tcp) = (false, 0, None);
            }
            _ if unanswered && tcp_answers => {
                *self = Self::new(self.after);
                return Some(Step::Blocked);
            }
            _ => {
                self.outage |= unanswered;
                return None;
            }
        }
        self.rounds += 1;
        (self.sent, self.left) = (heard.sent, None);
        if self.rounds == 2 {
            self.by_tcp = Some(heard.by_tcp);
            return Some(Step::AskBoth);
        }
        Some(Step::AskQuic)
    }
}
