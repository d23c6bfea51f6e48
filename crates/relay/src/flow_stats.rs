//! What is recorded of each flow: round-trip times and connect times as histograms, retransmitted segments and,
//! where asked for, one line in the flow log.
//!
//! Each worker writes its own [`FlowTimes`] without locks. A line for the log goes through a bounded channel to a
//! thread of its own, so that a full disk costs lines, which are counted, and nothing else.

use crate::counters::{Counter, Counters};
use crate::flow::{Flow, Phase, Side};
use bentpipe_base::Instant;
use bentpipe_gateway_config::LegId;
use bentpipe_sockets::tcp::{self, Info};
use bentpipe_sockets::{socket, timer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

/// Upper bounds of the histograms' buckets, in microseconds, with a fine resolution around the round trip of a GEO
/// satellite.
const BOUNDS: [u64; 17] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 600_000, 700_000,
    800_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// A histogram of durations, with one writer and many readers.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [Counter; BOUNDS.len() + 1],
    micros: Counter,
}

impl Histogram {
    /// Adds one sample.
    pub fn record(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(count) = self.counts.get(bucket) {
            count.one();
        }
        self.micros.many(micros);
    }
}

/// The sum of several histograms at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Upper bound in seconds, and how many were up to it and above the one before.
    pub buckets: Vec<(f64, u64)>,
    /// All times together, in seconds.
    pub sum: f64,
}

impl Distribution {
    /// Adds up `histograms`, whichever threads write them.
    pub fn of<'h>(histograms: impl Iterator<Item = &'h Histogram>) -> Self {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / 1e6);
        let mut buckets: Vec<(f64, u64)> = bounds.chain([f64::MAX]).map(|at| (at, 0)).collect();
        let mut micros = 0u64;
        for histogram in histograms {
            for (bucket, count) in buckets.iter_mut().zip(&histogram.counts) {
                bucket.1 += count.read();
            }
            micros = micros.wrapping_add(histogram.micros.read());
        }
        Self {
            buckets,
            sum: micros as f64 / 1e6,
        }
    }
}

/// The times of one worker's flows.
#[derive(Debug, Default)]
pub struct FlowTimes {
    /// Time from a client's SYN until both legs are established; with the early handshake it counts from the client's
    /// connection.
    pub connect: Histogram,
    /// Smoothed round-trip times by leg, taken at the end of each flow, and now and then of open flows.
    pub rtt: [Histogram; 2],
    /// Segments sent again by flows that have ended, by leg.
    pub retransmitted: [Counter; 2],
}

/// A flow that has ended, as the flow log describes it.
#[derive(Debug)]
pub struct FlowRecord {
    /// The client, where its address is still known.
    pub client: Option<SocketAddr>,
    /// The server, where its address is still known.
    pub server: Option<SocketAddr>,
    /// The leg that the client came by.
    pub from: LegId,
    /// From the client's SYN to the end.
    pub lasted: Duration,
    /// How it ended, in one word.
    pub end: &'static str,
    /// The `tcp_info` of the accepted socket.
    pub near: Info,
    /// The `tcp_info` of the dialled socket.
    pub far: Info,
}

/// Records the figures of one worker's flows: round-trip times, retransmissions, the flow log.
#[derive(Debug)]
pub struct FlowStats {
    /// The histograms; `None` where metrics are off, because they cost two system calls a flow.
    pub times: Option<Arc<FlowTimes>>,
    /// Where lines for the flow log go, if there is one.
    pub log: Option<SyncSender<FlowRecord>>,
}

impl FlowStats {
    /// The far side of a flow that began at `begun` has answered.
    pub(crate) fn connected(&self, begun: Instant) {
        if let Some(times) = &self.times {
            times.connect.record(timer::now().since(begun));
        }
    }

    /// A flow ends; its sockets are open still.
    pub(crate) fn closes(&self, flow: &Flow, counters: &Counters) {
        if self.times.is_none() && self.log.is_none() {
            return;
        }
        let info = |side: Side| tcp::info(flow.socket(side)).unwrap_or_default();
        let (near, far) = (info(Side::Near), info(Side::Far));
        if let Some(times) = &self.times {
            for (info, leg) in [(&near, flow.leg), (&far, flow.leg.other())] {
                if !info.rtt.is_zero() {
                    times.rtt[leg as usize].record(info.rtt);
                }
                times.retransmitted[leg as usize].many(info.total_retrans.into());
            }
        }
        let Some(log) = &self.log else {
            return;
        };
        let record = FlowRecord {
            // The peers' addresses are gone after a reset; our own are theirs.
            client: socket::local_address(flow.socket(Side::Far)).ok(),
            server: socket::local_address(flow.socket(Side::Near)).ok(),
            from: flow.leg,
            lasted: timer::now().since(flow.begun),
            end: match flow.phase {
                Phase::Open if flow.has_ended() => "finished",
                Phase::Closing => "finished",
                Phase::Dialling => "unanswered",
                _ => "reset",
            },
            near,
            far,
        };
        if log.try_send(record).is_err() {
            counters.log_lost.one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_the_bucket_that_bounds_them() {
        let worker = [Histogram::default(), Histogram::default()];
        worker[0].record(Duration::from_micros(500));
        worker[0].record(Duration::from_micros(501));
        worker[1].record(Duration::from_millis(620));
        worker[1].record(Duration::from_secs(3_600));
        let all = Distribution::of(worker.iter());
        let filled: Vec<(f64, u64)> = all
            .buckets
            .iter()
            .copied()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(filled, [(0.0005, 1), (0.001, 1), (0.7, 1), (f64::MAX, 1)]);
        assert!((all.sum - 3_600.621_001).abs() < 1e-9, "{}", all.sum);
    }
}
