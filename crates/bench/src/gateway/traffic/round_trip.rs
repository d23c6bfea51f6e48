//! The time of one byte there and back, on a connection that is established.
//!
//! Which threads and processors a connection meets decides much of its round trip, and stays as long
//! as the connection does. So there are several, one after another, and their medians are averaged:
//! a median over all would jump between the modes.

use super::worker::{Duty, Worker};
use super::{Doing, Path, TrafficError, ping};
use crate::stats::median;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Connections, one after another.
pub(crate) const CONNECTIONS: u32 = 10;

/// The round trip in microseconds: the mean over ten connections of the median of each. All take
/// `warm_up` and `window` together.
pub(in crate::gateway) fn round_trip(
    path: &Path<'_>,
    warm_up: Duration,
    window: Duration,
) -> Result<f64, TrafficError> {
    let server = Worker::start(Duty::Echo, Some(path.listen()?), Vec::new())?;
    let mut sum = 0.0;
    for _ in 0..CONNECTIONS {
        path.cancel.check()?;
        for mut stream in path.connect(1, ping)? {
            round_trips(&mut stream, warm_up / CONNECTIONS)?;
            let times = round_trips(&mut stream, window / CONNECTIONS)?;
            sum += median(&times).expect("at least one round trip was made");
        }
    }
    server.stop()?;
    Ok(sum / f64::from(CONNECTIONS))
}

/// The round trips that begin within `time`, at least one; in microseconds.
pub(crate) fn round_trips(
    stream: &mut TcpStream,
    time: Duration,
) -> Result<Vec<f64>, TrafficError> {
    let start = Instant::now();
    let mut sent = start;
    let mut times = Vec::new();
    while times.is_empty() || sent - start < time {
        ping(stream).doing("waiting for a byte to come back")?;
        let back = Instant::now();
        times.push((back - sent).as_secs_f64() * 1e6);
        sent = back;
    }
    Ok(times)
}
