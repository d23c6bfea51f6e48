//! The state that the workers and the supervising thread share: where the gateway is in its life, its settings, the number
//! of flows, heartbeats, and the eventfds by which they wake each other.

use crate::client_flows::{Answered, ClientFlows, Places, Room};
use crate::flow_limit::{FlowBounds, FlowCounter};
use crate::memory_pressure::MemoryPressure;
use crate::socket_policy::LegPolicies;
use crate::tunnel::TunnelAnswer;
use crate::unanswered_dials::UnansweredDials;
use bentpipe_base::{Bytes, Instant};
use bentpipe_gateway_config::{LegId, Limits};
use bentpipe_interception::{Limit, QueueReader};
use bentpipe_os::neighbour::Neighbour;
use bentpipe_os::nft::LIFE;
use bentpipe_sockets::epoll::Waker;
use bentpipe_sockets::timer;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Means that no number of flows is recorded.
const NEVER: usize = usize::MAX;

/// The stage of the gateway's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// New flows are taken.
    Serving,
    /// No new flows are taken; established ones go on.
    Draining,
    /// All flows are reset.
    Stopped,
}

/// What becomes of new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AdmissionMode {
    /// They are split.
    Serving,
    /// They pass unsplit: a limit is met.
    Suspended,
    /// They pass unsplit: the operator wants it.
    Bypassed,
    /// They pass unsplit: the gateway ends when its established flows have ended.
    Draining,
    /// They pass unsplit, because something that splitting needs is missing. Established flows may hang.
    Impaired,
}

/// What is missing while a gateway is [`AdmissionMode::Impaired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impairment {
    /// The worker of this number does not answer.
    Worker(usize),
    /// A thread that reads a queue does not.
    Reader(QueueReader),
    /// The rules or routes of the interception.
    Routes,
    /// The nft table.
    Table,
    /// All interfaces of a leg.
    Interfaces(LegId),
}

impl std::fmt::Display for Impairment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = match self {
            Self::Worker(number) => {
                return write!(
                    f,
                    "a thread of the gateway (`split-{number}`) does not answer"
                );
            }
            Self::Reader(reader) => {
                let name = reader.name();
                return write!(f, "a thread of the gateway (`{name}`) does not answer");
            }
            Self::Routes => {
                "its rules and routes are missing, or not the first, and cannot be made again (`ip rule`, `ip link show lo`)"
            }
            Self::Table => {
                "its nft table is missing, or `lo` has not the address 127.0.0.1 (`ip address show lo`)"
            }
            Self::Interfaces(leg) => {
                let leg = leg.name();
                return write!(
                    f,
                    "no interface of the {leg} leg is there: was it renamed, removed or made a port of a bridge? (`ip link`)"
                );
            }
        };
        f.write_str(words)
    }
}

impl AdmissionMode {
    const ALL: [Self; 5] = [
        Self::Serving,
        Self::Suspended,
        Self::Bypassed,
        Self::Draining,
        Self::Impaired,
    ];

    /// Its name, as in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Suspended => "suspended",
            Self::Bypassed => "bypassed",
            Self::Draining => "draining",
            Self::Impaired => "impaired",
        }
    }
}

/// The settings for new flows. A reload replaces all of them at once.
#[derive(Debug)]
pub struct Settings {
    /// The policies of their legs.
    pub legs: LegPolicies,
    /// How many pipes each worker has.
    pub pipes: usize,
    /// Bytes that each pipe holds.
    pub pipe_size: usize,
    /// The most held SYNs and answered connections at a time.
    pub half_open: usize,
    /// How long a flow may go without a byte.
    pub idle: Option<Duration>,
    /// How long a receiver may take nothing when memory is short.
    pub stalled: Duration,
    /// What the stalled flows of a client may hold.
    pub client_buffered: Option<Bytes>,
}

impl Settings {
    /// With `pipes` for each worker.
    pub fn new(legs: LegPolicies, pipes: usize, limits: &Limits) -> Self {
        Self {
            legs,
            pipes,
            pipe_size: limits.pipe.0 as usize,
            half_open: limits.half_open,
            idle: limits.idle,
            stalled: limits.stalled,
            client_buffered: limits.client_buffered,
        }
    }
}

/// The state of one gateway, for all of its threads.
#[derive(Debug)]
pub struct Shared {
    lifecycle: AtomicU8,
    mode: AtomicU8,
    /// When the watchdog last found all well, as [`Instant`]'s nanoseconds.
    well: AtomicU64,
    flow_counter: FlowCounter,
    client_flows: ClientFlows,
    settings: Mutex<Arc<Settings>>,
    /// Counted up with each change of the settings.
    edition: AtomicU64,
    /// How many flows there were when the kernel last refused a descriptor, which may be below the bounds; [`NEVER`] where it
    /// has not refused one recently.
    exhausted_at: AtomicUsize,
    memory: MemoryPressure,
    unanswered_dials: UnansweredDials,
    control_lost: AtomicBool,
    /// A successor has taken over.
    retired: AtomicBool,
    /// Workers that have ended and whose listeners no other worker serves yet.
    abandoned: Mutex<Vec<usize>>,
    /// For each worker, neighbours that did not answer.
    dead_neighbours: Vec<Mutex<Vec<Neighbour>>>,
    /// For each worker, what the far end of tunnels has said.
    tunnel_answers: Vec<Mutex<Vec<TunnelAnswer>>>,
    /// The number of the last heartbeat that was requested, and of the last one that each worker and each reader of a queue
    /// has answered; [`u64::MAX`] for one that has not started or has ended.
    heartbeat: AtomicU64,
    heartbeats: Vec<AtomicU64>,
    reader_heartbeats: [AtomicU64; QueueReader::ALL.len()],
    workers: Waker,
    gateway: Waker,
}

impl Shared {
    /// For `workers` workers.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(
        (bounds, buffered): (FlowBounds, Bytes),
        settings: Settings,
        workers: usize,
    ) -> io::Result<Self> {
        let memory = MemoryPressure::new(buffered, workers);
        memory.set_bounds(buffered, settings.client_buffered);
        Ok(Self {
            lifecycle: AtomicU8::new(0),
            mode: AtomicU8::new(AdmissionMode::Suspended as u8),
            well: AtomicU64::new(timer::now().as_nanos()),
            flow_counter: FlowCounter::new(bounds),
            client_flows: ClientFlows::default(),
            settings: Mutex::new(Arc::new(settings)),
            edition: AtomicU64::new(0),
            exhausted_at: AtomicUsize::new(NEVER),
            memory,
            unanswered_dials: UnansweredDials::default(),
            control_lost: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            abandoned: Mutex::default(),
            dead_neighbours: (0..workers).map(|_| Mutex::default()).collect(),
            tunnel_answers: (0..workers).map(|_| Mutex::default()).collect(),
            heartbeat: AtomicU64::new(0),
            heartbeats: (0..workers).map(|_| AtomicU64::new(u64::MAX)).collect(),
            reader_heartbeats: [const { AtomicU64::new(u64::MAX) }; QueueReader::ALL.len()],
            workers: Waker::new()?,
            gateway: Waker::new()?,
        })
    }

    /// The stage of the gateway's life.
    pub fn lifecycle(&self) -> Lifecycle {
        match self.lifecycle.load(Ordering::Acquire) {
            0 => Lifecycle::Serving,
            1 => Lifecycle::Draining,
            _ => Lifecycle::Stopped,
        }
    }

    /// Enters `lifecycle` and wakes the workers.
    pub fn enter(&self, lifecycle: Lifecycle) {
        self.lifecycle.store(lifecycle as u8, Ordering::Release);
        self.workers.wake();
    }

    /// What becomes of new flows at present.
    pub fn mode(&self) -> AdmissionMode {
        let number = usize::from(self.mode.load(Ordering::Relaxed));
        match AdmissionMode::ALL[number.min(AdmissionMode::ALL.len() - 1)] {
            AdmissionMode::Draining => AdmissionMode::Draining,
            _ if self.is_impaired() => AdmissionMode::Impaired,
            mode => mode,
        }
    }

    /// The watchdog has found everything that splitting needs.
    pub fn mark_healthy(&self, now: Instant) {
        self.well.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Whether the watchdog has found something missing, or does not run any more itself.
    fn is_impaired(&self) -> bool {
        let well = Instant::from_nanos(self.well.load(Ordering::Relaxed));
        timer::now().since(well) >= LIFE
    }

    /// What becomes of new flows from now on.
    pub fn set_mode(&self, mode: AdmissionMode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    /// The bounds at present.
    pub fn bounds(&self) -> FlowBounds {
        self.flow_counter.bounds()
    }

    /// Replaces bounds and settings, and has the workers look at them.
    pub fn renew(&self, (bounds, buffered): (FlowBounds, Bytes), settings: Settings) {
        self.memory.set_bounds(buffered, settings.client_buffered);
        self.flow_counter.set(bounds);
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.edition.fetch_add(1, Ordering::Release);
        self.workers.wake();
    }

    /// The edition of the settings at present.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The settings at present.
    pub fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&settings)
    }

    /// Asks all workers and readers for a heartbeat, and returns its number for [`Self::unanswered`].
    pub fn request_heartbeat(&self) -> u64 {
        let asked = self.heartbeat.fetch_add(1, Ordering::Relaxed) + 1;
        self.workers.wake();
        asked
    }

    /// Worker number `worker` answers the last heartbeat.
    pub fn beat(&self, worker: usize) {
        if let Some(pulse) = self.heartbeats.get(worker) {
            pulse.store(self.heartbeat.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// So does a reader of a queue.
    pub fn reader_beats(&self, reader: QueueReader) {
        let asked = self.heartbeat.load(Ordering::Relaxed);
        self.reader_heartbeats[reader as usize].store(asked, Ordering::Relaxed);
    }

    /// Worker number `worker` has ended, and is not to be waited for.
    pub fn worker_ended(&self, worker: usize) {
        if let Some(pulse) = self.heartbeats.get(worker) {
            pulse.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// So has a reader of a queue.
    pub fn reader_ended(&self, reader: QueueReader) {
        self.reader_heartbeats[reader as usize].store(u64::MAX, Ordering::Relaxed);
    }

    /// The first that has not answered since `asked`, if there is one.
    pub fn unanswered(&self, asked: u64) -> Option<Impairment> {
        let is_silent = |pulse: &AtomicU64| pulse.load(Ordering::Relaxed) < asked;
        let worker = self.heartbeats.iter().position(is_silent);
        worker.map(Impairment::Worker).or_else(|| {
            let mut readers = QueueReader::ALL.into_iter();
            let silent = readers.find(|one| is_silent(&self.reader_heartbeats[*one as usize]));
            silent.map(Impairment::Reader)
        })
    }

    /// Readable, edge-triggered, when a worker has something to look at.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.workers.as_fd()
    }

    /// Rings when the number of flows crosses a bound, when descriptors run out, and when a worker
    /// ends.
    pub fn gateway_waker(&self) -> &Waker {
        &self.gateway
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        self.flow_counter.flows()
    }

    /// One flow more, of `client`; called by [`FlowGuard`](crate::flow_guard::FlowGuard) alone, which keeps what is returned
    /// for [`Self::flow_ended`].
    pub(crate) fn flow_began(&self, client: IpAddr) -> Places {
        if self.flow_counter.began() {
            self.gateway.wake();
        }
        self.client_flows.begin(client)
    }

    /// One flow less; called by [`FlowGuard`](crate::flow_guard::FlowGuard) alone.
    pub(crate) fn flow_ended(&self, places: Places) {
        self.client_flows.end(places);
        let ended = self.flow_counter.ended();
        if ended.resumes {
            self.gateway.wake();
        }
        if ended.has_room {
            self.workers.wake();
        }
    }

    /// Whether one more connection may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.flow_counter.is_there()
    }

    /// Whether the share of `client` in the limit of flows leaves room for one more, beside what is `answered` for it already.
    pub(crate) fn has_room_for(&self, client: IpAddr, answered: Answered) -> bool {
        let room = Room {
            limit: self.bounds().suspend,
            left: self.flow_counter.left(),
        };
        self.client_flows.have_room_for(client, answered, room)
    }

    /// Whether the kernel has refused a descriptor of late.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted_at.load(Ordering::Relaxed) != NEVER
    }

    /// Takes note that the kernel holds `sockets` in the buffers of flows at `now`. Wakes the workers where that begins memory
    /// pressure.
    pub fn update_memory(&self, sockets: Bytes, now: Instant) {
        let was_short = self.memory.is_under_pressure();
        self.memory.update(sockets, now);
        if self.memory.is_under_pressure() && !was_short {
            self.workers.wake();
        }
    }

    /// The limit at which new flows pass unsplit, if one is met.
    pub fn limit(&self) -> Option<Limit> {
        if self.is_exhausted() {
            Some(Limit::Descriptors)
        } else if self.flow_counter.is_met() {
            Some(Limit::Flows)
        } else {
            self.memory.is_over().then_some(Limit::Buffered)
        }
    }

    /// How much waits in buffers.
    pub fn memory(&self) -> &MemoryPressure {
        &self.memory
    }

    /// Which clients' dials are met with silence.
    pub(crate) fn unanswered_dials(&self) -> &UnansweredDials {
        &self.unanswered_dials
    }

    /// Whether new flows may be intercepted again.
    pub fn may_resume(&self) -> bool {
        let exhausted_at = self.exhausted_at.load(Ordering::Relaxed);
        // A few flows less than those that were one too many.
        let fits = exhausted_at.saturating_sub(exhausted_at / 20 + 2);
        self.flow_counter.is_left() && self.flows() <= fits && !self.memory.is_over()
    }

    /// The kernel refused a descriptor.
    pub(crate) fn out_of_descriptors(&self) {
        self.exhausted_at.store(self.flows(), Ordering::Relaxed);
        self.gateway.wake();
    }

    /// Somebody else has removed a leg's congestion control from the kernel.
    pub(crate) fn control_lost(&self) {
        if !self.control_lost.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a congestion control is gone from the kernel: new connections use its default until the gateway is started again"
            );
        }
    }

    /// A successor has taken over: no new flows, and established ones go on for as long as they like.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Whether a successor has taken over.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Whether SYNs that cross now are split.
    pub(crate) fn splits(&self) -> bool {
        self.mode() == AdmissionMode::Serving && !self.is_retired()
    }

    /// Tells the workers of neighbours that did not answer.
    pub fn report_dead_neighbours(&self, neighbours: &[Neighbour]) {
        for mailbox in &self.dead_neighbours {
            let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            mailbox.extend_from_slice(neighbours);
        }
        self.workers.wake();
    }

    /// Has `worker` decide on a held SYN by what the far end of its tunnel has said.
    pub(crate) fn tell_tunnel_answer(&self, worker: usize, answer: TunnelAnswer) {
        if let Some(mailbox) = self.tunnel_answers.get(worker) {
            let mut answers = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            answers.push(answer);
            drop(answers);
            self.workers.wake();
        }
    }

    pub(crate) fn take_tunnel_answers(&self, worker: usize) -> Vec<TunnelAnswer> {
        let mailbox = self.tunnel_answers.get(worker);
        mailbox.map_or_else(Vec::new, |mailbox| {
            std::mem::take(&mut *mailbox.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }

    /// The neighbours that worker number `worker` has been told of since the last time.
    pub(crate) fn take_dead_neighbours(&self, worker: usize) -> Vec<Neighbour> {
        let Some(mailbox) = self.dead_neighbours.get(worker) else {
            return Vec::new();
        };
        let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut mailbox)
    }

    /// Hands over the listeners of these workers, which have ended. Another worker takes them with its next heartbeat.
    pub(crate) fn abandon_listeners(&self, workers: &[usize]) {
        let mut abandoned = self
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        abandoned.extend_from_slice(workers);
    }

    /// The workers whose listeners the caller is to serve from now on; none for a second caller.
    pub(crate) fn take_abandoned(&self) -> Vec<usize> {
        let mut abandoned = self
            .abandoned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut abandoned)
    }

    /// Tries again after `out_of_descriptors`.
    pub fn clear_exhaustion(&self) {
        if self.exhausted_at.swap(NEVER, Ordering::Relaxed) != NEVER {
            self.workers.wake();
        }
    }
}

#[cfg(test)]
impl Shared {
    /// For tests: with limits and no settings that matter.
    pub(crate) fn with(bounds: FlowBounds, workers: usize) -> Self {
        let leg = crate::socket_policy::SocketPolicy {
            mark: 0,
            tracked: 0,
            tracked_ceiling: None,
            control: None,
            usual_control: false,
            ceiling: None,
            keepalive: None,
            without_ecn: None,
            leg: bentpipe_gateway_config::Leg::terrestrial(),
        };
        let settings = Settings {
            legs: LegPolicies {
                plain: [leg.clone(), leg],
                profiles: Vec::new(),
            },
            pipes: 1,
            pipe_size: 1,
            half_open: 1,
            idle: None,
            stalled: Duration::from_secs(1),
            client_buffered: None,
        };
        Self::new((bounds, Bytes(100)), settings, workers).expect("eventfds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interception_stops_at_the_bound_and_resumes_well_below() {
        let bounds = FlowBounds {
            suspend: 4,
            resume: 2,
            hard: 5,
        };
        let shared = Shared::with(bounds, 1);
        let began = || shared.flow_began([192, 0, 2, 1].into());
        let first = [began(), began(), began()];
        assert!(shared.limit().is_none() && !shared.gateway_waker().drain());
        began();
        assert!(shared.limit() == Some(Limit::Flows) && shared.gateway_waker().drain());
        assert!(shared.has_room(), "what was intercepted already is taken");
        began();
        assert!(!shared.has_room());
        shared.flow_ended(first[0]);
        shared.flow_ended(first[1]);
        assert!(!shared.may_resume() && !shared.gateway_waker().drain());
        shared.flow_ended(first[2]);
        assert!(shared.may_resume() && shared.gateway_waker().drain());

        shared.out_of_descriptors();
        assert_eq!(shared.limit(), Some(Limit::Descriptors));
        assert!(
            !shared.may_resume(),
            "as many flows as when they were too many"
        );
        shared.clear_exhaustion();
        assert!(shared.limit().is_none() && shared.may_resume());

        shared.update_memory(Bytes(201), Instant::ZERO);
        assert_eq!(shared.limit(), Some(Limit::Buffered));
        assert!(!shared.may_resume());
    }
}
