//! Bulk transfer: goodput, and processor time a gigabyte.

use super::worker::{Duty, Worker};
use super::{Direction, Doing, Path, TrafficError};
use crate::gateway::usage::MachineCpu;
use std::time::Duration;

/// What a bulk transfer showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::gateway) struct Bulk {
    /// Gbit/s of payload at the receiver.
    pub(in crate::gateway) goodput: f64,
    /// Processor seconds of the whole machine a GB received: endpoints, kernel and proxy.
    pub(in crate::gateway) cpu: f64,
    /// Processor seconds of the proxy's threads a GB; `None` without a proxy.
    pub(in crate::gateway) proxy_cpu: Option<f64>,
}

/// Sends over `flows` connections for `warm_up`, then measures for `window`.
pub(in crate::gateway) fn bulk(
    path: &Path<'_>,
    direction: Direction,
    flows: usize,
    warm_up: Duration,
    window: Duration,
) -> Result<Bulk, TrafficError> {
    let (serving, calling) = match direction {
        Direction::Up => (Duty::Sink, Duty::Source),
        Direction::Down => (Duty::Source, Duty::Sink),
    };
    let server = Worker::start(serving, Some(path.listen()?), Vec::new())?;
    let streams = path.connect(flows, |stream| stream.set_nonblocking(true))?;
    path.cancel.until(
        || format!("{} of {flows} flows reached the server", server.open()),
        || server.open() == flows,
    )?;
    let client = Worker::start(calling, None, streams.into_iter().map(Into::into).collect())?;
    let sink = match direction {
        Direction::Up => &server,
        Direction::Down => &client,
    };
    path.cancel.sleep(warm_up)?;
    let before = Reading::take(path, sink)?;
    path.cancel.sleep(window)?;
    let after = Reading::take(path, sink)?;
    let open = server.open().min(client.open());
    if open < flows {
        return Err(TrafficError::Ended {
            ended: flows - open,
            flows,
        });
    }
    let figures = after.since(&before, path.proxy.is_some())?;
    client.stop()?;
    server.stop()?;
    Ok(figures)
}

struct Reading {
    received: u64,
    machine: MachineCpu,
    proxy: Duration,
}

impl Reading {
    fn take(path: &Path<'_>, sink: &Worker) -> Result<Self, TrafficError> {
        Ok(Self {
            received: sink.received(),
            machine: MachineCpu::now().doing("reading the machine's processor time")?,
            proxy: path.proxy_cpu()?,
        })
    }

    fn since(&self, earlier: &Self, with_proxy: bool) -> Result<Bulk, TrafficError> {
        let bytes = self.received - earlier.received;
        if bytes == 0 {
            let window = self.machine.elapsed(&earlier.machine);
            return Err(TrafficError::Silent { window });
        }
        let gigabytes = bytes as f64 / 1e9;
        let elapsed = self.machine.elapsed(&earlier.machine).as_secs_f64();
        let proxy = self.proxy.saturating_sub(earlier.proxy).as_secs_f64();
        Ok(Bulk {
            goodput: gigabytes * 8.0 / elapsed,
            cpu: self.machine.since(&earlier.machine) / gigabytes,
            proxy_cpu: with_proxy.then_some(proxy / gigabytes),
        })
    }
}
