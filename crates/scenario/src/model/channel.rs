//! What happens to packets on a link: queues, bursts of errors, outages; and to the link itself.

use bentpipe_base::{Bytes, Probability, Rate};
use core::time::Duration;

/// A queue and how it decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Queue {
    /// First in, first out; a packet that finds no room is dropped.
    DropTail(QueueLimit),
    /// Random early detection.
    Red(Red),
    /// Learns from overflow and idle time how often to drop.
    Blue(Blue),
}

impl Default for Queue {
    /// Drop-tail of 1000 packets, the `txqueuelen` of Linux interfaces.
    fn default() -> Self {
        Self::DropTail(QueueLimit::Packets(1000))
    }
}

/// How much a queue holds, the packet in transmission not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// At most so many packets.
    Packets(u32),
    /// At most so many bytes.
    Bytes(Bytes),
}

impl QueueLimit {
    /// Its number of packets, or of bytes.
    pub const fn count(self) -> u64 {
        match self {
            Self::Packets(packets) => packets as u64,
            Self::Bytes(bytes) => bytes.0,
        }
    }
}

/// Whose random early detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedKind {
    /// As S. Floyd and V. Jacobson published it, 1993.
    #[default]
    Published,
    /// As Linux does it.
    Linux,
    /// As ns-2 2.35 does it.
    Ns2,
}

impl RedKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Published, Self::Linux, Self::Ns2];

    /// As scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published => "red",
            Self::Linux => "red-linux",
            Self::Ns2 => "red-ns2",
        }
    }
}

/// Random early detection. Between the thresholds the chance that a packet is dropped grows with the
/// average length of the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Red {
    /// By whose rules.
    pub kind: RedKind,
    /// Most that it holds; its unit is also that of the thresholds.
    pub limit: QueueLimit,
    /// Average length from which packets are dropped, in packets or bytes as `limit`.
    pub min_threshold: u64,
    /// Average length at which the chance of a drop reaches `max_probability`.
    pub max_threshold: u64,
    /// Chance of a drop at `max_threshold`. Default 10%.
    pub max_probability: Probability,
    /// Weight of the present length in the average, in (0, 1]. Default 0.002.
    pub weight: f64,
    /// Whether above `max_threshold` the chance grows on to 1 at twice that, rather than at once.
    /// Default yes; Linux's is never.
    pub gentle: bool,
    /// The length of a typical packet: what idle time is counted in, at the rate of the link, and what the chance
    /// in bytes is meant for. Default: of the published one the link's MTU, and idle time in the
    /// transmission time that was measured last; 1000 B of Linux's (`avpkt` of tc), 500 B of ns-2's (`mean_pktsize_`).
    pub mean_packet: Option<Bytes>,
}

/// BLUE (Feng, Kandlur, Saha and Shin, 1999): every packet is dropped with a chance that overflow
/// raises and an idle link lowers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blue {
    /// Most that it holds.
    pub limit: QueueLimit,
    /// What an overflow adds to the chance. Default 0.25%.
    pub increment: Probability,
    /// What an idle link takes from it. Default 0.025%.
    pub decrement: Probability,
    /// Least time between two changes of the chance. Default 100 ms.
    pub freeze: Duration,
}

/// Two-state errors (Gilbert and Elliott): packets are lost with a chance that depends on a state
/// that changes from packet to packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gilbert {
    /// By what is seen: every packet of the bad state is lost, none of the good one.
    Means {
        /// Mean number of packets in a row that are lost, at least 1.
        mean_burst: f64,
        /// Share of packets that are lost.
        error_rate: Probability,
    },
    /// By the chain itself.
    Transitions {
        /// Chance that a packet in the good state is followed by the bad one.
        to_bad: Probability,
        /// Chance that a packet in the bad state is followed by the good one.
        to_good: Probability,
        /// Chance that a packet of the good state is lost. Default 0.
        good_error_rate: Probability,
        /// Chance that a packet of the bad state is lost. Default 1.
        bad_error_rate: Probability,
    },
}

impl Gilbert {
    /// The share of packets that are lost in the long run.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Means { error_rate, .. } => error_rate.value(),
            Self::Transitions {
                to_bad,
                to_good,
                good_error_rate,
                bad_error_rate,
            } => {
                let sum = to_bad.value() + to_good.value();
                // A chain that never moves stays where it began: in the good state.
                let bad = if sum > 0.0 { to_bad.value() / sum } else { 0.0 };
                bad * bad_error_rate.value() + (1.0 - bad) * good_error_rate.value()
            }
        }
    }
}

/// A time in which nothing passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it begins, from the start of the run.
    pub start: Duration,
    /// How long it lasts, more than nothing.
    pub length: Duration,
    /// When it begins again, counted from `start`: longer than `length`. Default never.
    pub every: Option<Duration>,
}

/// What becomes of one direction of a link in the course of a run; what it does not say stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When, from the start of the run.
    pub at: Duration,
    /// The rate from then on, more than nothing.
    pub rate: Option<Rate>,
    /// The propagation delay from then on. Nothing overtakes what left earlier.
    pub delay: Option<Duration>,
}
