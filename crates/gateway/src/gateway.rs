//! A running gateway: its supervising thread, which suspends and resumes interception at limits, reloads, drains and
//! ends it; and the order in which all that a start has made is undone.

mod start;
mod thread_set;

pub use start::StartError;

use crate::command_handle::{
    Command, CommandError, CommandReceiver, Handle, ReplySender, StartSettings, Submission,
};
use crate::congestion::CongestionControls;
use crate::descriptor_budget::{Descriptors, RefusalPause, budget};
use crate::memory_bound::buffered;
use crate::scone::Scone;
use bentpipe_base::Bytes;
use bentpipe_carrier::CarrierHandle;
use bentpipe_gateway_config::{Config, LegId};
use bentpipe_interception::{
    InterceptError, Interception, Limit, Marks, PassCounters, PassReason, TableEvent,
};
use bentpipe_management::Shutdown;
use bentpipe_os::diag::{Diag, States};
use bentpipe_os::neighbour::Neighbours;
use bentpipe_os::nft::Count;
use bentpipe_os::sweep;
use bentpipe_process::Process;
use bentpipe_relay::{
    AdmissionMode, Counters, Distribution, FlowBounds, FlowTimes, Lifecycle, Settings, Shared,
    Snapshot, memory_pressure,
};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::timer;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thiserror::Error;
use thread_set::ThreadSet;

/// How long after descriptors ran out interception is tried again even if no flow has ended since: another part of the
/// process, or of the system, may have freed some.
const RETRY: Duration = Duration::from_secs(30);

/// How often a draining gateway looks whether all is delivered.
const DRAIN_TICK: Duration = Duration::from_millis(20);

/// What the supervising thread waits for.
const WAKER: u64 = 0;
const SHUTDOWN: u64 = 1;
const NEIGHBOURS: u64 = 2;
const TABLE: u64 = 3;

/// A running gateway broke down.
#[derive(Debug, Error)]
pub enum RunError {
    /// The supervising thread cannot wait.
    #[error("cannot wait for the gateway's workers ({0})")]
    Wait(#[source] io::Error),
    /// A thread ended by itself; the others went on without it.
    #[error("a thread of the gateway failed ({0}): its flows were reset; start again")]
    Worker(String),
    /// The table of the interception is gone, and cannot be made again.
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
    /// The gateway's own counters, beside those of its workers and of its flow log.
    own: Arc<Counters>,
    log: Arc<Counters>,
    /// The times of each worker's flows, and last those that are sampled from open flows.
    times: Arc<[Arc<FlowTimes>]>,
    shared: Arc<Shared>,
    passed: Arc<PassCounters>,
}

impl Meter {
    /// What has passed unsplit so far, by kind, reason and policy: the kernel's counters, which begin
    /// anew when somebody kills the process that holds the gateway's table.
    ///
    /// # Errors
    /// When the kernel does not list them.
    pub fn passed(&self) -> io::Result<Vec<Count>> {
        let mut counts = self.passed.read()?;
        // SYNs that the workers let pass. Their bytes are counted among those of their kind.
        for (name, packets) in self.read().unsplit() {
            match counts.iter_mut().find(|count| count.name == name) {
                Some(count) => count.packets += packets,
                None => counts.push(Count {
                    name: name.to_owned(),
                    packets,
                    bytes: Bytes(0),
                }),
            }
        }
        Ok(counts)
    }

    /// The counters now.
    pub fn read(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            open: self.shared.flows() as u64,
            ..Snapshot::default()
        };
        snapshot.add(&self.own);
        snapshot.add(&self.log);
        self.counters.iter().for_each(|worker| snapshot.add(worker));
        snapshot
    }

    /// How long far sides took to answer.
    pub(crate) fn connect_times(&self) -> Distribution {
        Distribution::of(self.times.iter().map(|times| &times.connect))
    }

    /// Round-trip times of a leg.
    pub(crate) fn round_trips(&self, leg: LegId) -> Distribution {
        Distribution::of(self.times.iter().map(|times| &times.rtt[leg as usize]))
    }

    /// Segments that flows which have ended sent again.
    pub(crate) fn retransmitted(&self, leg: LegId) -> u64 {
        let of = |times: &Arc<FlowTimes>| times.retransmitted[leg as usize].read();
        self.times.iter().map(of).sum()
    }

    /// Round-trip times sampled now, by leg; only one thread at a time may.
    pub(crate) fn sample(&self, leg: LegId, rtts: impl Iterator<Item = Duration>) {
        if let Some(times) = self.times.last() {
            rtts.for_each(|rtt| times.rtt[leg as usize].record(rtt));
        }
    }
}

/// A gateway that splits connections. Dropping it resets all flows and undoes the interception.
#[derive(Debug)]
pub struct Gateway {
    // Fields are dropped in this order: the interception goes before the workers whose sockets it feeds.
    interception: Interception,
    thread_set: ThreadSet,
    shared: Arc<Shared>,
    meter: Meter,
    /// What carries a satellite leg in the place of the kernel's TCP.
    carrier: Option<CarrierHandle>,
    scone: Option<Arc<Scone>>,
    connections: Connections,
    neighbours: Neighbours,
    /// This is dropped after the workers, because their congestion controls go with it.
    congestion_controls: CongestionControls,
    marks: Marks,
    handle: Handle,
    commands: CommandReceiver,
    start_settings: StartSettings,
    descriptors: Descriptors,
    schedule: Schedule,
    /// The operator wants new flows to pass end to end.
    bypassed: bool,
    /// A reload that waits for the table's new rules.
    reload: Option<Reload>,
    /// The predecessor whose place it has taken, if that is another process. It is ended when this gateway is told to end.
    predecessor: Option<Process>,
    drain_times: DrainTimes,
}

/// How long flows have to end by themselves.
#[derive(Clone, Copy, Debug)]
struct DrainTimes {
    /// After a request to end.
    drain: Duration,
    /// After a successor has taken over.
    retire: Duration,
}

impl DrainTimes {
    fn of(config: &Config) -> Self {
        Self {
            drain: config.drain,
            retire: config.retire,
        }
    }
}

/// What a reload changes once the table has its new rules, and who is to be told.
#[derive(Debug)]
struct Reload {
    config: Box<Config>,
    settings: Settings,
    bounds: (FlowBounds, Bytes),
    reply: ReplySender,
}

/// When the supervising thread looks at something again.
#[derive(Debug)]
struct Schedule {
    /// What waits in buffers.
    next: bentpipe_base::Instant,
    /// Whether there are descriptors again.
    retry: bentpipe_base::Instant,
    /// New flows pass meanwhile.
    pause: RefusalPause,
}

/// All connections that carry our marks, also those that no flow has: connections not accepted yet, and closed ones of
/// which the kernel still has bytes to deliver. Without the interception their packets would no longer reach them.
/// The connection beside a leg over QUIC is none of them: it stands as long as the gateway does.
#[derive(Debug)]
struct Connections {
    diag: Diag,
    marks: Marks,
}

impl Connections {
    /// What waits in their buffers.
    fn buffered(&mut self) -> io::Result<Bytes> {
        let marks = self.marks;
        self.diag
            .buffered(States::CARRYING, |mark| is_carried(marks, mark))
    }

    fn count(&mut self) -> io::Result<usize> {
        let all = self
            .diag
            .connections(States::HANDSHAKE | States::CARRYING)?;
        let ours = all
            .iter()
            .filter(|connection| is_carried(self.marks, connection.mark));
        Ok(ours.count())
    }
}

fn is_carried(marks: Marks, mark: u32) -> bool {
    mark & Marks::mask() == marks.intercepted() && mark != marks.beside_quic()
}

impl Gateway {
    /// A handle to the counters.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// A handle to look at the gateway and to give it orders.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Works until `shutdown` is requested, in the namespace that it was started in. The first request
    /// stops the interception at once and waits for the flows to end, at most for the time
    /// configured; the second, and the end of that time, reset those that are left. One that was told
    /// to retire ([`Handle::retire`]) ends with its last flow, at its own time for that, or as after a first
    /// request.
    ///
    /// # Errors
    /// See [`RunError`]. A thread that fails takes its own flows along; the gateway goes on as long as
    /// one is left that splits, and tells of it when it ends.
    pub fn run_until(mut self, shutdown: &Shutdown) -> Result<Ending, RunError> {
        let epoll = Epoll::new().map_err(RunError::Wait)?;
        let waker = self.shared.gateway_waker();
        epoll
            .add(waker, WAKER, Interest::READ)
            .and_then(|()| epoll.add(shutdown, SHUTDOWN, Interest::READ))
            .and_then(|()| epoll.add(&self.neighbours, NEIGHBOURS, Interest::READ))
            .and_then(|()| epoll.add(self.interception.waker(), TABLE, Interest::READ))
            .map_err(RunError::Wait)?;
        self.serve(&epoll, shutdown)?;
        self.drain(&epoll, shutdown)
    }

    fn serve(&mut self, epoll: &Epoll, shutdown: &Shutdown) -> Result<(), RunError> {
        let mut events = Events::with_capacity(4);
        while !self.shared.is_retired() && !shutdown.take() {
            self.measure_buffers();
            let patience = self.schedule.next.since(timer::now());
            epoll
                .wait(&mut events, Some(patience))
                .map_err(RunError::Wait)?;
            self.handle_events()?;
            self.reconsider_admission();
        }
        Ok(())
    }

    /// Handles everything that may have woken the supervising thread. Nothing here blocks.
    fn handle_events(&mut self) -> Result<(), RunError> {
        self.shared.gateway_waker().drain();
        self.thread_set.check(&self.shared)?;
        self.handle_neighbours();
        self.handle_table_events()?;
        self.handle_commands();
        Ok(())
    }

    /// Measures how much waits in buffers, when it is time to.
    fn measure_buffers(&mut self) {
        let now = timer::now();
        if now < self.schedule.next {
            return;
        }
        let all = bentpipe_process::limits::tcp_memory();
        let sockets = match all
            .ok()
            .filter(|all| self.shared.memory().is_surely_low(*all))
        {
            Some(at_most) => Ok(at_most),
            None => self.connections.buffered(),
        };
        match sockets {
            Ok(sockets) => self.shared.update_memory(sockets, now),
            Err(error) => tracing::warn!(%error, "cannot ask what waits in buffers"),
        }
        let cost = timer::now().since(now);
        self.schedule.next = timer::now()
            + (cost * memory_pressure::TIME_SHARE)
                .clamp(memory_pressure::MIN_INTERVAL, memory_pressure::MAX_INTERVAL);
    }

    /// Suspends interception at a limit, resumes it well below.
    fn reconsider_admission(&mut self) {
        let shared = &self.shared;
        if self.bypassed || shared.is_retired() {
            return;
        }
        let now = timer::now();
        let retry = shared.is_exhausted() && now >= self.schedule.retry;
        if let Some(limit) = shared.limit().filter(|_| self.interception.is_on()) {
            self.schedule.retry = now + RETRY;
            if limit == Limit::Descriptors {
                self.schedule.pause.begin(now);
            }
            self.interception.suspend(PassReason::Limit(limit));
            shared.set_mode(AdmissionMode::Suspended);
            self.meter.own.suspended.one();
            tracing::warn!(
                flows = shared.flows(),
                buffered = (limit == Limit::Buffered).then(|| shared.memory().held().0),
                "at the limit of {limit}: new flows pass unsplit"
            );
        } else if !self.interception.is_on() && (shared.may_resume() || retry) {
            // Those that were intercepted before, and wait for descriptors, have them first.
            shared.clear_exhaustion();
            if !retry && !self.schedule.pause.is_over(now) {
                return;
            }
            self.schedule.pause.end(now);
            self.interception.resume();
            shared.set_mode(AdmissionMode::Serving);
            tracing::info!(
                flows = shared.flows(),
                "below the limit: new flows are split again"
            );
        }
    }

    fn handle_commands(&mut self) {
        while let Ok(Submission { command, reply }) = self.commands.try_recv() {
            let result = match command {
                Command::Bypass(on) => self.bypass(on),
                Command::Reload(config) => match self.prepare(config, &reply) {
                    // The reply is sent when the table has its new rules.
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                Command::Pulse => Ok(()),
                Command::Link(leg, is_up) => self.set_link(leg, is_up),
                // Of several that want its place one has it.
                Command::Retire if self.shared.is_retired() => Err(CommandError::Retired),
                Command::Retire => {
                    self.shared.retire();
                    self.interception.suspend(PassReason::Draining);
                    Ok(())
                }
            };
            // The asker may have given up waiting.
            let _ = reply.try_send(result);
        }
    }

    fn set_link(&self, leg: String, is_up: bool) -> Result<(), CommandError> {
        match &self.carrier {
            Some(carrier) if self.start_settings.carries(&leg) => {
                let state = if is_up { "up" } else { "down" };
                tracing::info!(leg, "the link is said to be {state}");
                carrier.set_link(is_up);
                Ok(())
            }
            _ => Err(self.start_settings.not_carried(leg)),
        }
    }

    fn bypass(&mut self, on: bool) -> Result<(), CommandError> {
        if self.shared.lifecycle() != Lifecycle::Serving {
            return Err(CommandError::Draining);
        }
        if on {
            self.interception.suspend(PassReason::Bypassed);
            self.shared.set_mode(AdmissionMode::Bypassed);
            tracing::warn!("bypass is on: new flows pass unsplit");
        } else if self.bypassed {
            self.interception.resume();
            self.shared.set_mode(AdmissionMode::Serving);
            tracing::warn!("bypass is off: new flows are split");
        }
        self.bypassed = on;
        Ok(())
    }

    /// Checks and prepares a reload, and has the table get its new rules.
    fn prepare(&mut self, config: Box<Config>, reply: &ReplySender) -> Result<(), CommandError> {
        if self.shared.lifecycle() != Lifecycle::Serving {
            return Err(CommandError::Draining);
        }
        if self.reload.is_some() {
            return Err(CommandError::Busy);
        }
        self.start_settings.admit(&config)?;
        let budget = budget(&config.limits, &self.descriptors).ok_or(CommandError::NoRoom)?;
        let legs = match self.congestion_controls.prepare_all(&config, self.marks) {
            Ok(legs) => legs,
            Err(error) => {
                self.undo_preparation();
                return Err(error.into());
            }
        };
        self.interception.renew(&config);
        self.reload = Some(Reload {
            settings: Settings::new(legs, budget.pipes, &config.limits),
            bounds: (budget.bounds, buffered(&config.limits)),
            reply: reply.clone(),
            config,
        });
        Ok(())
    }

    /// Tells the congestion controls of the old link again, because one leg's may have been told of the new one.
    fn undo_preparation(&mut self) {
        let [lan, sat] = &self.shared.settings().legs.plain;
        let undone = self
            .congestion_controls
            .prepare_both(&lan.leg, &sat.leg, self.marks);
        if let Err(error) = undone {
            tracing::warn!(%error, "a congestion control may have lost the rate of its link");
        }
    }

    /// The table has its new rules, or keeps the old ones.
    fn renew(&mut self, result: Result<(), InterceptError>) {
        let Some(reload) = self.reload.take() else {
            return;
        };
        if result.is_ok() {
            let config = &reload.config;
            crate::config_file::warn(config, self.interception.interfaces());
            self.shared.renew(reload.bounds, reload.settings);
            self.drain_times = DrainTimes::of(config);
            if let Some(scone) = &self.scone {
                scone.advise(config.sat.scone);
            }
            tracing::info!("reloaded: new flows go by the new configuration");
        } else {
            self.undo_preparation();
        }
        // The asker may have given up waiting.
        let _ = reload.reply.try_send(result.map_err(CommandError::from));
    }

    fn drain(mut self, epoll: &Epoll, shutdown: &Shutdown) -> Result<Ending, RunError> {
        self.interception.suspend(PassReason::Draining);
        self.shared.set_mode(AdmissionMode::Draining);
        tracing::info!(
            flows = self.shared.flows(),
            "draining: new flows pass unsplit"
        );
        self.shared.enter(Lifecycle::Draining);
        let DrainTimes { drain, retire } = self.drain_times;
        // One that has retired is in no hurry, until it is told to end.
        let mut in_a_hurry = !self.shared.is_retired();
        let mut until = Instant::now() + if in_a_hurry { drain } else { retire };
        if in_a_hurry {
            self.end_predecessor();
        }
        let mut events = Events::with_capacity(4);
        let cut = loop {
            let flows = self.shared.flows();
            let waits = in_a_hurry && self.predecessor_drains() && Instant::now() < until;
            // Asked only at the end: the answer is a list of all connections of the machine.
            let left = match flows {
                0 if !waits => match self.connections.count().map_err(RunError::Wait)? {
                    // The kernel's sockets have ended; what the carrier has of them is to be delivered too.
                    0 => self.carried(),
                    left => left,
                },
                flows => flows,
            };
            if (left == 0 && !waits) || Instant::now() >= until {
                break left;
            }
            if shutdown.take() {
                self.end_predecessor();
                if std::mem::replace(&mut in_a_hurry, true) {
                    break left;
                }
                until = Instant::now() + drain;
            }
            epoll
                .wait(&mut events, Some(DRAIN_TICK))
                .map_err(RunError::Wait)?;
            self.handle_events()?;
        };
        self.thread_set.stop(&self.shared)?;
        Ok(match cut {
            0 => Ending::Drained,
            cut => Ending::Cut(cut),
        })
    }

    /// Connections that the carrier has to deliver bytes of; 1 while it has not counted them.
    fn carried(&self) -> usize {
        let unfinished = self.carrier.as_ref().map(CarrierHandle::unfinished);
        unfinished.map_or(0, |told| told.unwrap_or(1))
    }

    /// Passes a request to end on to the retired predecessor, because a service manager would kill it when this
    /// process, the main one, has ended.
    fn end_predecessor(&mut self) {
        let predecessor = self.predecessor.take();
        let Some(predecessor) = predecessor.filter(|one| !one.has_ended()) else {
            return;
        };
        match predecessor.terminate() {
            Ok(()) => {
                tracing::info!("the predecessor is to end too");
                self.predecessor = Some(predecessor);
            }
            Err(error) => tracing::warn!(%error, "the predecessor cannot be told to end"),
        }
    }

    fn predecessor_drains(&self) -> bool {
        let predecessor = self.predecessor.as_ref();
        predecessor.is_some_and(|predecessor| !predecessor.has_ended())
    }

    fn handle_neighbours(&mut self) {
        match self.neighbours.failed() {
            Ok(failed) if failed.is_empty() => {}
            Ok(failed) => self.shared.report_dead_neighbours(&failed),
            Err(error) => {
                tracing::warn!(%error, "cannot hear of neighbours that do not answer");
            }
        }
    }

    /// Handles the events of the table's thread.
    fn handle_table_events(&mut self) -> Result<(), RunError> {
        let news: Vec<TableEvent> = self.interception.events().collect();
        for one in news {
            match one {
                TableEvent::Renewed(result) => self.renew(result),
                TableEvent::Lost(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Err(error) = self.thread_set.stop(&self.shared) {
            tracing::error!(%error, "the gateway did not end well");
        }
        // A mark that no listener has any more is that of a gateway that has ended.
        if let Err(error) = sweep::end_connections(&mut self.connections.diag) {
            tracing::warn!(%error, "what is left of connections cannot be ended: new ones of the same addresses and ports may have to wait for a minute");
        }
    }
}
