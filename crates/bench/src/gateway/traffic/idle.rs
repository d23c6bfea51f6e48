//! Measures what a flow costs that is open and silent.

use super::worker::{Duty, Worker};
use super::{Doing, Path, TrafficError, ping};
use crate::gateway::usage;
use std::time::Duration;

/// Flows opened before the first reading: what a proxy allocates once is no flow's cost.
const FIRST: usize = 64;

/// What one idle flow takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::gateway) struct Idle {
    /// Bytes of kernel objects on the whole machine: both endpoints' sockets and the proxy's.
    pub(in crate::gateway) kernel_memory: f64,
    /// Bytes of the proxy's own memory (PSS); `None` without a proxy.
    pub(in crate::gateway) proxy_memory: Option<f64>,
    /// Descriptors of the proxy; `None` without one.
    pub(in crate::gateway) descriptors: Option<f64>,
}

/// Opens `flows` connections, each with one byte there and back, and reads what they take.
pub(in crate::gateway) fn idle(
    path: &Path<'_>,
    flows: usize,
    settle: Duration,
) -> Result<Idle, TrafficError> {
    let server = Worker::start(Duty::Echo, Some(path.listen()?), Vec::new())?;
    let first = path.connect(FIRST, ping)?;
    path.cancel.sleep(settle)?;
    let before = Reading::take(path.proxy)?;
    let rest = path.connect(flows, ping)?;
    path.cancel.sleep(settle)?;
    let after = Reading::take(path.proxy)?;
    let open = server.open();
    if open < FIRST + flows {
        return Err(TrafficError::Ended {
            ended: FIRST + flows - open,
            flows: FIRST + flows,
        });
    }
    drop((first, rest));
    path.cancel.until(
        || format!("{} flows outlived their clients", server.open()),
        || server.open() == 0,
    )?;
    server.stop()?;
    let each = |before: u64, after: u64| (after as f64 - before as f64) / flows as f64;
    let proxy = before.proxy.zip(after.proxy);
    Ok(Idle {
        kernel_memory: each(before.kernel, after.kernel),
        proxy_memory: proxy.map(|(before, after)| each(before.memory, after.memory)),
        descriptors: proxy.map(|(before, after)| each(before.descriptors, after.descriptors)),
    })
}

struct Reading {
    kernel: u64,
    proxy: Option<Proxy>,
}

#[derive(Clone, Copy)]
struct Proxy {
    memory: u64,
    descriptors: u64,
}

impl Reading {
    fn take(proxy: Option<u32>) -> Result<Self, TrafficError> {
        let proxy = proxy
            .map(|pid| {
                Ok(Proxy {
                    memory: usage::process_memory(pid)?,
                    descriptors: usage::process_descriptors(pid)?,
                })
            })
            .transpose()
            .doing("reading what the proxy holds")?;
        Ok(Self {
            kernel: usage::kernel_memory().doing("reading the kernel's memory (as root)")?,
            proxy,
        })
    }
}
