//! The expiry of timers (RFC 9293, sections 3.8 and 3.10.8): retransmission, persist, delayed acknowledgement, keep-alive,
//! pacing, TIME-WAIT.

use crate::connection::Connection;
use crate::{Cause, Event};
use bentpipe_base::Instant;
use std::time::Duration;

/// Keep-alive probes without an answer after which the peer is taken for dead.
const PROBES: u32 = 9;
/// The time between keep-alive probes, or the idle time where that is shorter.
const PROBE_INTERVAL: Duration = Duration::from_secs(75);

/// How long after data a peer that speaks SCPS-TP is silent before it is probed first, where it is probed at all; then twice as
/// long each time, up to the idle time.
const FIRST_SILENCE: Duration = Duration::from_secs(10);

impl Connection {
    /// The time is `now`: act on every deadline up to it.
    pub fn timeout(&mut self, now: Instant) {
        if self.rx.delack <= now {
            self.rx.delay_expired();
        }
        if self.tx.reorder <= now {
            self.tx.reorder = Instant::MAX;
            self.recovery.on_timer(&mut self.tx.recovery_context(), now);
        }
        if self.tx.timer <= now {
            self.expire(now);
        }
        if self.expiry <= now {
            self.finish(Event::Closed);
        }
        if self.keep <= now {
            self.keep_alive(now);
        }
        if self.paced <= now {
            self.tx.pacer_due(self.paced, now);
            self.paced = Instant::MAX;
        }
    }

    /// The retransmission or the persist timer expired.
    fn expire(&mut self, now: Instant) {
        if self.frozen.is_some() {
            return self.probe_link(now);
        }
        self.tx.retries = self.tx.retries.saturating_add(1);
        if self.loses_the_link() {
            return self.freeze(now);
        }
        if self.is_given_up(now) {
            return self.time_out(now);
        }
        if self.tx.persisting {
            self.tx.rto.back_off();
            self.tx.timer = self.tx.within_user_timeout(self.tx.rto.expiry(now));
            if self.tx.limit > self.tx.next {
                self.tx.forced = true;
            } else {
                self.probe = true;
                self.tx.counters.window_probes += 1;
            }
            return;
        }
        self.tx.counters.timeouts += 1;
        if self.tx.una == 0 {
            self.tx.rto.back_off();
            self.tx.next = 0;
            self.tx.timer = Instant::MAX;
        } else {
            self.recovery.on_rto(&mut self.tx.recovery_context(), now);
        }
    }

    /// The peer does not answer any more.
    pub(crate) fn time_out(&mut self, now: Instant) {
        let answers = self.tx.una > 0;
        self.finish(Event::Aborted(Cause::TimedOut));
        if answers {
            self.reply = Some(self.reset(now));
        }
    }

    /// The peer has sent data. When a gateway dies in the midst of what it has to send, nobody tells those who wait for the rest: over
    /// SCPS-TP they ask soon, and who gets the question, another gateway or the host behind, answers by a reset.
    pub(crate) fn expect_more(&mut self, now: Instant) {
        if self.config.scps.is_some() && self.keep < Instant::MAX {
            self.silence = FIRST_SILENCE;
            self.keep = self.keep.min(now + FIRST_SILENCE);
        }
    }

    /// The peer may be dead (RFC 9293, section 3.8.4).
    fn keep_alive(&mut self, now: Instant) {
        let Some(idle) = self.config.keep_alive else {
            return;
        };
        let interval = idle.min(PROBE_INTERVAL).max(Duration::from_millis(1));
        let asks_early = self.silence < idle && now < self.heard + idle;
        let silent = self.heard + self.silence.min(idle);
        if self.tx.una < self.tx.max || silent > now {
            // No probe is needed while retransmissions probe the peer, or where it was heard since.
            self.keep = if asks_early && silent > now {
                silent
            } else {
                silent.max(now + interval)
            };
            return;
        }
        if asks_early {
            self.silence *= 2;
            self.probe = true;
            self.tx.counters.keep_alives += 1;
            self.keep = (now + self.silence).min(self.heard + idle);
            return;
        }
        if self.probes_are_over(PROBES, now) {
            self.finish(Event::Aborted(Cause::TimedOut));
            self.reply = Some(self.reset(now));
            return;
        }
        self.probes += 1;
        self.probe = true;
        self.tx.counters.keep_alives += 1;
        self.keep = now + interval;
    }
}
