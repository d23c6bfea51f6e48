//! The emulator: a link between two TUN interfaces in wall time, driven by the same machine as the
//! simulator's links ([`bentpipe_link`]).
//!
//! One thread an emulator: it reads packets from each port, pushes them into the link with the time
//! at which it read them, and writes them to the other port at the time the link says. The thread
//! is real-time where the system allows it. It measures its own lateness, for every packet and by
//! probes when there are none, and counts what the kernel dropped because it did not read in time:
//! [`Report::valid`] says whether a run can be believed.

mod counters;
mod engine;
mod frame;
mod histogram;
mod report;
#[cfg(test)]
mod tests;

pub use counters::Traffic;
pub use frame::Frame;
pub use histogram::{Histogram, Lateness};
pub use report::{Port, Report};

use bentpipe_base::{Bytes, Instant};
use bentpipe_link::{End, Link, Settings};
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_sockets::epoll::Waker;
use counters::Counters;
use engine::Engine;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use thiserror::Error;

/// What to emulate, and how.
pub struct Spec {
    /// The link's name: part of the names of its streams of chance.
    pub name: String,
    /// The seed of the run.
    pub seed: u64,
    /// What A sends.
    pub from_a: Settings<Frame>,
    /// What B sends.
    pub from_b: Settings<Frame>,
    /// The largest packet; that of both ports.
    pub mtu: Bytes,
    /// How its thread is scheduled.
    pub scheduling: Scheduling,
    /// The run is invalid when more than 1% of the packets are later than this.
    pub lateness_limit: Duration,
}

/// How the thread of an emulator is scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduling {
    /// SCHED_FIFO where the system allows it; [`Report::realtime`] says whether it did.
    #[default]
    Realtime,
    /// Like any other thread.
    Ordinary,
}

impl Default for Spec {
    /// A wire of 1500-byte packets without limits, delay or errors; real-time; invalid beyond 5 ms:
    /// 1% of a geostationary round trip, and far above what a thread that keeps up shows.
    fn default() -> Self {
        Self {
            name: "link".to_owned(),
            seed: 0,
            from_a: Settings::default(),
            from_b: Settings::default(),
            mtu: Bytes(1500),
            scheduling: Scheduling::default(),
            lateness_limit: Duration::from_millis(5),
        }
    }
}

/// A running emulator; dropping it stops it.
pub struct Emulator {
    thread: Option<JoinHandle<Report>>,
    order: Arc<Order>,
    counters: [Counters; 2],
}

/// How the thread is told to stop.
pub(crate) struct Order {
    pub(crate) stop: AtomicBool,
    /// When the run began that the times of the link's changes and outages count from.
    pub(crate) began: OnceLock<Instant>,
    pub(crate) waker: Waker,
}

/// What a running emulator has done so far, for sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// What A sent.
    pub from_a: Traffic,
    /// What B sent.
    pub from_b: Traffic,
}

/// An emulator could not be started, or its thread broke.
#[derive(Debug, Error)]
pub enum EmulatorError {
    /// No descriptors for waiting.
    #[error(
        "cannot make the emulator's epoll set, timer and eventfd ({0}): raise the limit on open files (ulimit -n)"
    )]
    Descriptors(#[source] io::Error),
    /// No thread.
    #[error("cannot start the emulator's thread ({0}): raise the limit on processes (ulimit -u)")]
    Thread(#[source] io::Error),
    /// The counters of a port could not be read.
    #[error("cannot read the counters of the emulator's port: {0}")]
    Counters(#[from] bentpipe_os::netlink::NetlinkError),
    /// A fault of ours.
    #[error("the emulator's thread panicked: please report it with the scenario")]
    Panicked,
}

/// How a port of an emulator is best opened. TCP may send a whole window in one burst, faster than
/// any reader: the queue in front of the port holds the window of 250 Mb/s and 600 ms twice.
pub const fn port_config(mtu: Bytes) -> TunConfig {
    TunConfig {
        mtu,
        queue_packets: 30_000,
        offloads: false,
    }
}

impl Emulator {
    /// Puts a link between `port_a` and `port_b`, in whatever namespaces they are. Both should be
    /// opened with [`port_config`].
    ///
    /// # Errors
    /// Fails when descriptors or threads have run out.
    pub fn start(spec: Spec, port_a: Tun, port_b: Tun) -> Result<Self, EmulatorError> {
        let counters = [Counters::default(), Counters::default()];
        let shortest_delay = spec.from_a.delay.min(spec.from_b.delay);
        let link = Link::new(
            (spec.from_a, counters[0].clone()),
            (spec.from_b, counters[1].clone()),
            spec.seed,
            &spec.name,
        );
        let order = Arc::new(Order {
            stop: AtomicBool::new(false),
            began: OnceLock::new(),
            waker: Waker::new().map_err(EmulatorError::Descriptors)?,
        });
        let ports = [port_a, port_b];
        let engine = Engine::new(link, ports, spec.mtu, shortest_delay, Arc::clone(&order))?;
        let (scheduling, limit) = (spec.scheduling, spec.lateness_limit);
        let thread = thread::Builder::new()
            .name("emulator".to_owned())
            .spawn(move || engine.run(scheduling).judge(limit))
            .map_err(EmulatorError::Thread)?;
        Ok(Self {
            thread: Some(thread),
            order,
            counters,
        })
    }

    /// Says that the run begins at `at`: the link's changes and outages count from there. Only the
    /// first word counts.
    pub fn begin(&self, at: Instant) {
        let _ = self.order.began.set(at);
        self.order.waker.wake();
    }

    /// What it has done so far. Each figure is exact for some moment, not all for the same one.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            from_a: self.counters[0].read(),
            from_b: self.counters[1].read(),
        }
    }

    /// Stops it and tells what it did. Packets under way are gone; the ports close.
    ///
    /// # Errors
    /// Only a fault of ours.
    pub fn stop(mut self) -> Result<Report, EmulatorError> {
        self.end().unwrap_or(Err(EmulatorError::Panicked))
    }

    fn end(&mut self) -> Option<Result<Report, EmulatorError>> {
        let thread = self.thread.take()?;
        self.order.stop.store(true, Ordering::Release);
        self.order.waker.wake();
        Some(thread.join().map_err(|_| EmulatorError::Panicked))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.end() {
            tracing::error!(%error, "emulator");
        }
    }
}

/// The number of an end's port.
const fn index(end: End) -> usize {
    match end {
        End::A => 0,
        End::B => 1,
    }
}
