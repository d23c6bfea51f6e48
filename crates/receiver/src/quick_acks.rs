//! When an acknowledgement may wait, as Linux decides it: the first segments of a connection, those behind one that
//! arrived twice, and those after a silence longer than the retransmission timeout are acknowledged one by one (quick ACKs), so that a peer in slow start opens its window soon; on a
//! connection that answers what it gets, an acknowledgement waits for the answer (Linux `tcp_in_quickack_mode`,
//! `inet_csk_in_pingpong_mode`).
//!
//! Deviation from Linux: the delay is constant, where Linux adapts it to the time between segments.

use bentpipe_base::Instant;
use std::time::Duration;

/// So many follow a copy or a silence (Linux `TCP_MAX_QUICKACKS`).
const AFTERWARDS: u32 = 16;

/// The quick acknowledgements of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuickAcks {
    /// So many at the start, and no more later; 0: there are none.
    most: u32,
    left: u32,
    /// The latest data was answered with data.
    interactive: bool,
    /// When data arrived last.
    received: Option<Instant>,
    /// The peer has run into a timeout where it was silent for longer.
    patience: Duration,
}

impl QuickAcks {
    pub(super) const fn new(most: u32) -> Self {
        Self {
            most,
            left: most,
            interactive: false,
            received: None,
            patience: Duration::MAX,
        }
    }

    /// The retransmission timeout is `timeout`, as far as is known.
    pub(super) const fn set_patience(&mut self, timeout: Duration) {
        self.patience = timeout;
    }

    /// Data arrived. Returns whether its acknowledgement is due at once.
    pub(super) fn on_data(&mut self, now: Instant) -> bool {
        if self
            .received
            .is_some_and(|at| now.since(at) > self.patience)
        {
            self.begin_again();
        }
        self.received = Some(now);
        self.left > 0 && !self.interactive
    }

    /// Data is sent. What follows data within `delay` answers it.
    pub(super) fn on_sent(&mut self, delay: Duration, now: Instant) {
        if self.most > 0 && self.received.is_some_and(|at| now.since(at) < delay) {
            self.interactive = true;
        }
    }

    /// An acknowledgement of `segments` segments goes out.
    pub(super) const fn on_acknowledged(&mut self, segments: u32) {
        if segments > 0 {
            self.left = self.left.saturating_sub(1);
        }
    }

    /// No answer came while an acknowledgement waited.
    pub(super) const fn on_unanswered(&mut self) {
        self.interactive = false;
    }

    /// Data arrived twice: the peer has lost acknowledgements, or recovers.
    pub(super) const fn on_duplicate(&mut self) {
        self.interactive = false;
        self.begin_again();
    }

    const fn begin_again(&mut self) {
        let most = if self.most < AFTERWARDS {
            self.most
        } else {
            AFTERWARDS
        };
        if self.left < most {
            self.left = most;
        }
    }
}
