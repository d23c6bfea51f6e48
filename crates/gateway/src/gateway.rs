//! The gateway from start to end: what it makes, in which order, and how that is undone.

mod start;

pub use start::StartError;

use crate::control::Supply;
use crate::counters::{Counters, Snapshot};
use crate::intercept::{InterceptError, Interception};
use crate::mark::Marks;
use crate::shared::{Shared, Stage};
use crate::shutdown::Shutdown;
use bentpipe_os::diag::{Diag, States};
use bentpipe_os::epoll::{Epoll, Events, Interest};
use bentpipe_os::neighbour::Neighbours;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long after descriptors ran out they are asked for again when no flow has ended since: some
/// other part of the process, or of the system, may have given them back.
const RETRY: Duration = Duration::from_secs(30);

/// How often a draining gateway looks whether all is delivered.
const DRAIN_TICK: Duration = Duration::from_millis(20);

/// What the supervising thread waits for.
const BELL: u64 = 0;
const SHUTDOWN: u64 = 1;
const NEIGHBOURS: u64 = 2;
const TABLE: u64 = 3;

/// A running gateway broke down.
#[derive(Debug, Error)]
pub enum RunError {
    /// The supervising thread cannot wait.
    #[error("cannot wait for the gateway's workers ({0})")]
    Wait(#[source] io::Error),
    /// A worker ended by itself.
    #[error("a worker of the gateway failed ({0}): its flows are reset; start again")]
    Worker(String),
    /// Interception could not be changed.
    #[error(transparent)]
    Intercept(#[from] InterceptError),
}

/// How a gateway ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All flows had ended by themselves, their last bytes delivered.
    Drained,
    /// Time was up, or a second request came: this many flows were cut off.
    Cut(usize),
}

/// Reads a gateway's counters from any thread.
#[derive(Clone, Debug)]
pub struct Meter {
    counters: Arc<[Arc<Counters>]>,
    /// The gateway's own, beside its workers'.
    own: Arc<Counters>,
    shared: Arc<Shared>,
}

impl Meter {
    /// The counters now.
    pub fn read(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            open: self.shared.flows() as u64,
            ..Snapshot::default()
        };
        snapshot.add(&self.own);
        self.counters.iter().for_each(|worker| snapshot.add(worker));
        snapshot
    }
}

/// A gateway that splits connections. Dropping it resets all flows and undoes the interception.
#[derive(Debug)]
pub struct Gateway {
    // In this order: interception goes before the workers whose sockets it feeds.
    interception: Interception,
    workers: Vec<JoinHandle<io::Result<()>>>,
    shared: Arc<Shared>,
    meter: Meter,
    connections: Connections,
    neighbours: Neighbours,
    /// After the workers: without it their controls go.
    supply: Supply,
    drain: Duration,
}

/// The connections that carry our marks, whether a flow has them or not: those not accepted yet,
/// and those closed of which the kernel has still bytes to deliver. Without the interception their
/// packets would go past them.
#[derive(Debug)]
struct Connections {
    diag: Diag,
    marks: Marks,
}

impl Connections {
    fn count(&mut self) -> io::Result<usize> {
        let all = self
            .diag
            .connections(States::HANDSHAKE | States::CARRYING)?;
        let ours = all
            .iter()
            .filter(|connection| connection.mark & Marks::mask() == self.marks.intercepted());
        Ok(ours.count())
    }
}

impl Gateway {
    /// A handle to the counters.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// Works until `shutdown` is requested, in the namespace that it was started in. The first request stops the interception at once and
    /// waits for the flows to end, at most for the time configured; the second, and the end of that
    /// time, reset those that are left.
    pub fn run_until(mut self, shutdown: &Shutdown) -> Result<Ending, RunError> {
        let epoll = Epoll::new().map_err(RunError::Wait)?;
        let bell = self.shared.gateway_bell();
        epoll
            .add(bell, BELL, Interest::READ)
            .and_then(|()| epoll.add(shutdown, SHUTDOWN, Interest::READ))
            .and_then(|()| epoll.add(&self.neighbours, NEIGHBOURS, Interest::READ))
            .and_then(|()| epoll.add(&self.interception, TABLE, Interest::READ))
            .map_err(RunError::Wait)?;
        self.serve(&epoll, shutdown)?;
        self.drain(&epoll, shutdown)
    }

    fn serve(&mut self, epoll: &Epoll, shutdown: &Shutdown) -> Result<(), RunError> {
        let mut events = Events::with_capacity(4);
        while !shutdown.take() {
            let retry = (!self.interception.is_on()).then_some(RETRY);
            epoll.wait(&mut events, retry).map_err(RunError::Wait)?;
            self.shared.gateway_bell().silence();
            self.check_workers()?;
            self.heed_neighbours();
            self.heed_table(epoll, &events)?;
            if self.shared.take_control_lost() {
                self.supply.refresh();
            }
            let retry = events.is_empty() && self.shared.is_exhausted();
            self.reconsider(retry)?;
        }
        Ok(())
    }

    /// Suspends interception at a limit, resumes it well below.
    fn reconsider(&mut self, retry: bool) -> Result<(), RunError> {
        let shared = &self.shared;
        if self.interception.is_on() && shared.should_suspend() {
            self.interception.suspend()?;
            self.meter.own.suspended.one();
            tracing::warn!(
                flows = shared.flows(),
                "at the limit of flows or descriptors: new flows pass unsplit"
            );
        } else if !self.interception.is_on() && (shared.may_resume() || retry) {
            shared.forget_exhaustion();
            self.interception.resume()?;
            tracing::info!(
                flows = shared.flows(),
                "below the limit: new flows are split again"
            );
        }
        Ok(())
    }

    fn drain(mut self, epoll: &Epoll, shutdown: &Shutdown) -> Result<Ending, RunError> {
        self.interception.suspend()?;
        tracing::info!(
            flows = self.shared.flows(),
            "draining: new flows pass unsplit"
        );
        self.shared.enter(Stage::Draining);
        let until = Instant::now() + self.drain;
        let mut events = Events::with_capacity(4);
        let cut = loop {
            let flows = self.shared.flows();
            // Asked only at the end: the answer is a list of all connections of the machine.
            let left = match flows {
                0 => self.connections.count().map_err(RunError::Wait)?,
                flows => flows,
            };
            let patience = until.saturating_duration_since(Instant::now());
            if left == 0 || patience.is_zero() || shutdown.take() {
                break left;
            }
            let patience = patience.min(DRAIN_TICK);
            epoll
                .wait(&mut events, Some(patience))
                .map_err(RunError::Wait)?;
            self.shared.gateway_bell().silence();
            self.heed_neighbours();
            self.heed_table(epoll, &events)?;
        };
        self.stop()?;
        Ok(match cut {
            0 => Ending::Drained,
            cut => Ending::Cut(cut),
        })
    }

    fn heed_neighbours(&mut self) {
        match self.neighbours.failed() {
            Ok(failed) if failed.is_empty() => {}
            Ok(failed) => self.shared.tell_silent(&failed),
            Err(error) => {
                tracing::warn!(%error, "cannot hear of neighbours that do not answer");
            }
        }
    }

    /// Brings the table back when it has gone with the nft process that held it.
    fn heed_table(&mut self, epoll: &Epoll, events: &Events) -> Result<(), RunError> {
        if !events.iter().any(|event| event.token == TABLE) {
            return Ok(());
        }
        epoll.remove(&self.interception).map_err(RunError::Wait)?;
        if self.interception.restore()? {
            tracing::warn!(
                "the nft process that held the gateway's table ended, and the table with it: made again"
            );
        }
        epoll
            .add(&self.interception, TABLE, Interest::READ)
            .map_err(RunError::Wait)
    }

    fn check_workers(&mut self) -> Result<(), RunError> {
        if self.workers.iter().any(JoinHandle::is_finished) {
            self.stop()?;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), RunError> {
        self.shared.enter(Stage::Stopped);
        let mut result = Ok(());
        for worker in self.workers.drain(..) {
            let failure = match worker.join() {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it panicked".to_owned(),
            };
            result = Err(RunError::Worker(failure));
        }
        result
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(%error, "the gateway did not end well");
        }
    }
}
