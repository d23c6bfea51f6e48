//! The time of one byte there and back, on a connection that stands.

use super::worker::{Duty, Worker};
use super::{Doing, PATIENCE, Path, TrafficError, ping};
use crate::bench::gateway::stats::median;
use std::time::{Duration, Instant};

/// The median round trip in microseconds, of as many as fit into `window`.
pub(in crate::bench::gateway) fn round_trip(
    path: &Path<'_>,
    warm_up: Duration,
    window: Duration,
) -> Result<f64, TrafficError> {
    let server = Worker::start(Duty::Echo, Some(path.listen()?), Vec::new())?;
    let mut streams = path.connect(1, ping)?;
    let mut times = Vec::new();
    for stream in &mut streams {
        let start = Instant::now();
        let mut sent = start;
        while sent - start < warm_up + window {
            ping(stream).doing("waiting for a byte to come back")?;
            let back = Instant::now();
            if sent - start >= warm_up {
                times.push((back - sent).as_secs_f64() * 1e6);
            }
            sent = back;
            path.cancel.check()?;
        }
    }
    drop(streams);
    server.stop()?;
    median(&times).ok_or_else(|| TrafficError::Stalled {
        what: format!("no byte came back in {PATIENCE:?}"),
    })
}
