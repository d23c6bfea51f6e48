//! One flow: what its two hosts have said, and what is left.

use bentpipe_base::Instant;
use bentpipe_scenario::{Amount, Flow};
use bentpipe_sim::EndToEnd;
use bentpipe_tunnel::TunnelId;
use bytes::Bytes;

/// As much as is written at once.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Which of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Near,
    Far,
}

/// A flow.
pub(crate) struct Transfer {
    pub(crate) start: Instant,
    /// When its time is over, if it lasts one.
    pub(crate) until: Option<Instant>,
    /// At which end its source is.
    pub(crate) source: End,
    /// What the near end and the far one call its tunnel.
    pub(crate) tunnels: [Option<TunnelId>; 2],
    /// Until when it waits for a tunnel, where the far end had no room for it.
    pub(crate) waits: Option<Instant>,
    /// TCP of its hosts, where it passes end to end.
    pub(crate) passing: Option<Box<EndToEnd>>,
    /// What its source's rate is by.
    pub(crate) control: &'static str,
    /// Its source's connection stands.
    pub(crate) may_send: bool,
    /// What its source has not handed over; `None`: it never ends.
    left: Option<u64>,
    pub(crate) received: u64,
    pub(crate) connected: Option<Instant>,
    /// Its last byte came.
    pub(crate) last: Option<Instant>,
    /// When it was over, and why that was a failure.
    pub(crate) over: Option<(Instant, Option<String>)>,
}

impl Transfer {
    pub(crate) fn new(flow: &Flow, begin: Instant) -> Self {
        let start = begin + flow.start;
        Self {
            start,
            until: match flow.amount {
                Amount::Duration(time) => Some(start + time),
                Amount::Bytes(_) | Amount::Segments(_) => None,
            },
            source: if flow.opened_by == flow.from {
                End::Near
            } else {
                End::Far
            },
            tunnels: [None; 2],
            waits: None,
            passing: None,
            control: "quic",
            may_send: false,
            left: match flow.amount {
                Amount::Bytes(size) => Some(size.0),
                Amount::Duration(_) | Amount::Segments(_) => None,
            },
            received: 0,
            connected: None,
            last: None,
            over: None,
        }
    }

    /// Whether its SYN has come.
    pub(crate) fn has_begun(&self) -> bool {
        self.tunnels[0].is_some() || self.waits.is_some() || self.passing.is_some()
    }

    /// When it has something to do next, while it is not over.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let start = (!self.has_begun()).then_some(self.start);
        let passing = self.passing.as_ref().and_then(|it| it.deadline());
        let due = [start, self.until, self.waits, passing];
        due.into_iter().flatten().min()
    }

    /// The next bytes that its source hands over; empty: there are no more.
    pub(crate) fn next(&self) -> Bytes {
        let most = ZEROS.len();
        let length = self.left.map_or(most, |left| {
            usize::try_from(left).map_or(most, |left| left.min(most))
        });
        Bytes::from_static(&ZEROS[..length])
    }

    /// So many of them were taken.
    pub(crate) fn sent(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left -= bytes as u64;
        }
    }

    /// Whether its source has handed over all.
    pub(crate) fn is_sent(&self) -> bool {
        self.left == Some(0)
    }

    /// So many came at its receiver.
    pub(crate) fn got(&mut self, bytes: usize, now: Instant) {
        self.received += bytes as u64;
        self.last = Some(now);
    }

    pub(crate) fn end(&mut self, now: Instant, why: Option<String>) {
        self.over.get_or_insert((now, why));
    }
}
