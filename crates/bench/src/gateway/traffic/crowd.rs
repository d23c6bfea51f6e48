//! Bulk over some of many flows: whether all live, and how evenly the busy ones share.

use super::worker::{Duty, Worker};
use super::{Doing, Path, TrafficError, ping};
use std::time::{Duration, Instant};

/// What a crowd showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::gateway) struct Crowd {
    /// Jain's index of the busy flows' bytes: 1 when all got the same, 1/n when one got all.
    pub(in crate::gateway) jain: f64,
    /// Gbit/s of payload at the receivers, all busy flows together.
    pub(in crate::gateway) goodput: f64,
}

/// Sends from the server over `busy` connections beside `silent` ones, for `warm_up`, then measures
/// for `window`. Each silent one has to carry a byte there and back before and after.
pub(in crate::gateway) fn crowd(
    path: &Path<'_>,
    busy: usize,
    silent: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<Crowd, TrafficError> {
    let echo = Worker::start(Duty::Echo, Some(path.listen()?), Vec::new())?;
    let mut held = path.connect(silent, ping)?;
    let beside = path.next_port();
    let server = Worker::start(Duty::Source, Some(beside.listen()?), Vec::new())?;
    let streams = beside.connect(busy, |stream| stream.set_nonblocking(true))?;
    path.cancel.until(
        || format!("{} of {busy} flows reached the server", server.open()),
        || server.open() == busy,
    )?;
    let streams = streams.into_iter().map(Into::into).collect();
    let client = Worker::start(Duty::Sink, None, streams)?;
    path.cancel.sleep(warm_up)?;
    let (before, start) = (client.each(), Instant::now());
    path.cancel.sleep(window)?;
    let (after, elapsed) = (client.each(), start.elapsed());
    let open = server.open().min(client.open());
    if open < busy {
        return Err(TrafficError::Ended {
            ended: busy - open,
            flows: busy,
        });
    }
    client.stop()?;
    server.stop()?;
    for stream in &mut held {
        ping(stream).doing("exchanging a byte on a flow that was silent")?;
    }
    drop(held);
    path.cancel.until(
        || format!("{} flows outlived their clients", echo.open()),
        || echo.open() == 0,
    )?;
    echo.stop()?;
    let shares: Vec<f64> = before
        .iter()
        .zip(after)
        .map(|(before, after)| (after - before) as f64)
        .collect();
    let total: f64 = shares.iter().sum();
    Ok(Crowd {
        jain: bentpipe_outcome::jain(&shares).ok_or(TrafficError::Silent { window: elapsed })?,
        goodput: total * 8.0 / 1e9 / elapsed.as_secs_f64(),
    })
}
