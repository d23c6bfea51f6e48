//! What held a direction of a connection back, and when: the analysis of `bentpipe trace --expert`.
//!
//! Ideas are those of T-RAT (Zhang, Breslau, Paxson and Shenker, "On the characteristics and origins of Internet flow
//! rates", SIGCOMM 2002), of which it has the causes, and of tcptrace's graphs. It differs where a capture near the sender
//! tells more than flights do: whoever has data and room sends at once when an acknowledgement comes. So each
//! time in which nothing new was sent is judged by what ended it ([`timeline`]):
//!
//! - new data without an acknowledgement that let it go, or acknowledgements that nobody answered: the application had none;
//! - an acknowledgement that was answered at once: a window was full. It was the peer's where no segment fitted into that
//!   ([`Limit::ReceiveWindow`]). Otherwise what was sent for what was acknowledged tells ([`windows`]): twice as much is slow start,
//!   the same again and again at a height that is never exceeded is the send buffer, and all else the congestion window;
//! - a retransmission: loss, by the retransmission timer or by fast retransmit, until all is acknowledged that was
//!   sent before it. Where every repair was acknowledged sooner than a round trip takes, or reported as a duplicate
//!   (RFC 2883), nothing was lost: reordering.
//!
//! Begin with [`judge`].

mod timeline;
mod windows;
mod words;

pub use words::expert;
pub(crate) use words::limits_as_json;

use crate::{Connection, Direction, Series, Side};
use bentpipe_base::Instant;
use std::fmt;
use timeline::Timeline;

/// What held a sender back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// The peer's window was full.
    ReceiveWindow,
    /// The send buffer was full of data in flight.
    SendBuffer,
    /// The application had given nothing to send.
    Application,
    /// The congestion window, while it doubled each round trip.
    SlowStart,
    /// The congestion window, in avoidance.
    CongestionWindow,
    /// A loss that the retransmission timer found, from the silence before it.
    Timeout,
    /// Losses found by duplicate acknowledgements or SACK.
    Recovery,
    /// Duplicate acknowledgements though nothing was lost.
    Reordering,
}

impl Limit {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 8] = [
        Self::ReceiveWindow,
        Self::SendBuffer,
        Self::Application,
        Self::SlowStart,
        Self::CongestionWindow,
        Self::Timeout,
        Self::Recovery,
        Self::Reordering,
    ];

    /// Its name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "receive_window",
            Self::SendBuffer => "send_buffer",
            Self::Application => "application",
            Self::SlowStart => "slow_start",
            Self::CongestionWindow => "congestion_window",
            Self::Timeout => "loss_with_rto",
            Self::Recovery => "loss_with_recovery",
            Self::Reordering => "reordering",
        }
    }

    /// What it means, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::ReceiveWindow => "receive window: the peer had no room for another segment",
            Self::SendBuffer => "send buffer: it was full of data in flight, always as much",
            Self::Application => "application: all that it had given was sent",
            Self::SlowStart => "slow start: the congestion window still doubled each round trip",
            Self::CongestionWindow => "congestion window in avoidance: the link, or what shares it",
            Self::Timeout => "loss, found by the retransmission timer (RTO)",
            Self::Recovery => {
                "loss, found by duplicate acknowledgements and repaired (fast recovery)"
            }
            Self::Reordering => "reordering: duplicate acknowledgements, and nothing was lost",
        }
    }
}

/// A time with one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// When it began.
    pub from: Instant,
    /// When it ended.
    pub to: Instant,
    /// What held the sender back.
    pub limit: Limit,
}

impl Period {
    /// How long it was, in nanoseconds.
    pub fn nanos(&self) -> u64 {
        self.to.nanos_since(self.from)
    }
}

/// Why a direction is not judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotJudged {
    /// It has no data.
    NoData,
    /// Nothing of what it sent is acknowledged in the capture.
    OneDirection,
    /// The capture was made far from the sender.
    FarFromSender,
}

impl fmt::Display for NotJudged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoData => "no data",
            Self::OneDirection => {
                "not judged: its acknowledgements are not in the capture; capture both directions"
            }
            Self::FarFromSender => {
                "not judged: the capture was made far from the sender, where it does not show which acknowledgement let a segment go, nor what was lost before; capture at the sender"
            }
        })
    }
}

/// What held back what the end on `side` sent, in the order of time, from its first data until all of it is acknowledged.
///
/// # Errors
/// When the capture does not tell.
pub fn judge(
    connection: &Connection,
    series: &Series,
    side: Side,
) -> Result<Vec<Period>, NotJudged> {
    let (own, peer) = match side {
        Side::A => (&connection.a2b, &connection.b2a),
        Side::B => (&connection.b2a, &connection.a2b),
    };
    if own.data_packets == 0 {
        return Err(NotJudged::NoData);
    }
    let stream = series.stream(side);
    if stream.acks.is_empty() || peer.packets == 0 || own.acknowledged.is_none() {
        return Err(NotJudged::OneDirection);
    }
    if !is_near(own, peer) {
        return Err(NotJudged::FarFromSender);
    }
    let timeline = Timeline::new(own, peer, stream).run(stream);
    Ok(joined(windows::classified(timeline)))
}

/// Whether most of the round trip of `own` lies behind the place of the capture. Who answers late adds to the peer's, so
/// that the least times are compared.
fn is_near(own: &Direction, peer: &Direction) -> bool {
    let (ahead, behind) = match (own.rtt.handshake, peer.rtt.handshake) {
        (0, 0) => (own.rtt.samples.min, peer.rtt.samples.min),
        handshakes => handshakes,
    };
    // A simulated handshake at the sender's own interface takes it no time at all.
    ahead >= behind.saturating_mul(4)
}

/// Periods of one limit that touch each other, as one.
fn joined(periods: Vec<Period>) -> Vec<Period> {
    let mut joined: Vec<Period> = Vec::new();
    for period in periods.into_iter().filter(|period| period.nanos() > 0) {
        match joined.last_mut() {
            Some(last) if last.limit == period.limit && last.to == period.from => {
                last.to = period.to;
            }
            _ => joined.push(period),
        }
    }
    joined
}
