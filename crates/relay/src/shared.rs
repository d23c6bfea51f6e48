//! What the workers and the gateway share: the stage of its life, how many flows there are, and
//! who is to be woken when that matters.

use crate::flow_limit::{Bounds, Room};
use crate::memory_pressure::Load;
use crate::socket_policy::Legs;
use crate::unanswered_dials::Silence;
use bentpipe_base::{Bytes, Instant};
use bentpipe_gateway_config::{LegId, Limits};
use bentpipe_interception::Limit;
use bentpipe_os::nft::LIFE;
use bentpipe_sockets::epoll::Bell;
use bentpipe_sockets::timer;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// No number of flows.
const NEVER: usize = usize::MAX;

/// Where the gateway stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// New flows are taken.
    Serving,
    /// No new flows; those that stand go on.
    Draining,
    /// Whatever stands is reset.
    Stopped,
}

/// What becomes of new flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// They are split.
    Serving,
    /// They pass unsplit: a limit is met.
    Suspended,
    /// They pass unsplit: the operator wants it.
    Bypassed,
    /// They pass unsplit: the gateway ends when those that stand have ended.
    Draining,
    /// They pass unsplit: something is missing that splitting takes. Those that stand may hang.
    Impaired,
}

/// What is missing while a gateway is [`Standing::Impaired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impairment {
    /// A thread does not answer.
    Worker,
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
            Self::Worker => "a thread of the gateway does not answer",
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
                    "no interface of the {leg} leg is there: was it renamed or removed? (`ip link`)"
                );
            }
        };
        f.write_str(words)
    }
}

impl Standing {
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

/// What new flows go by. A reload replaces it whole.
#[derive(Debug)]
pub struct Settings {
    /// The policies of their legs.
    pub legs: Legs,
    /// Pipes of each worker.
    pub pipes: usize,
    /// Bytes of each.
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
    pub fn new(legs: Legs, pipes: usize, limits: &Limits) -> Self {
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
    stage: AtomicU8,
    standing: AtomicU8,
    /// When the watchdog last found all well, as [`Instant`]'s nanoseconds.
    well: AtomicU64,
    room: Room,
    settings: Mutex<Arc<Settings>>,
    /// Counted up with each change of the settings.
    edition: AtomicU64,
    /// The flows there were when the kernel gave no more descriptors, whatever the bounds say;
    /// [`NEVER`] when it has not refused of late.
    exhausted_at: AtomicUsize,
    load: Load,
    silence: Silence,
    control_lost: AtomicBool,
    /// A successor has taken over.
    retired: AtomicBool,
    /// Workers that have ended, whose listeners nobody serves yet.
    orphaned: Mutex<Vec<usize>>,
    /// For each worker, neighbours that did not answer.
    silent: Vec<Mutex<Vec<IpAddr>>>,
    /// Which pulse was asked for last, and which each worker has answered; [`u64::MAX`] in the place of
    /// one that has never been there.
    pulse: AtomicU64,
    pulses: Vec<AtomicU64>,
    workers: Bell,
    gateway: Bell,
}

impl Shared {
    /// For `workers` workers.
    ///
    /// # Errors
    /// When the kernel gives no eventfd.
    pub fn new(
        (bounds, buffered): (Bounds, Bytes),
        settings: Settings,
        workers: usize,
    ) -> io::Result<Self> {
        let load = Load::new(buffered, workers);
        load.set_bounds(buffered, settings.client_buffered);
        Ok(Self {
            stage: AtomicU8::new(0),
            standing: AtomicU8::new(Standing::Suspended as u8),
            well: AtomicU64::new(timer::now().as_nanos()),
            room: Room::new(bounds),
            settings: Mutex::new(Arc::new(settings)),
            edition: AtomicU64::new(0),
            exhausted_at: AtomicUsize::new(NEVER),
            load,
            silence: Silence::default(),
            control_lost: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            orphaned: Mutex::default(),
            silent: (0..workers).map(|_| Mutex::default()).collect(),
            pulse: AtomicU64::new(0),
            pulses: (0..workers).map(|_| AtomicU64::new(u64::MAX)).collect(),
            workers: Bell::new()?,
            gateway: Bell::new()?,
        })
    }

    /// Where the gateway stands in its life.
    pub fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Serving,
            1 => Stage::Draining,
            _ => Stage::Stopped,
        }
    }

    /// Enters `stage` and wakes the workers.
    pub fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
        self.workers.ring();
    }

    /// What becomes of new flows at present.
    pub fn standing(&self) -> Standing {
        let number = usize::from(self.standing.load(Ordering::Relaxed));
        match Standing::ALL[number.min(Standing::ALL.len() - 1)] {
            Standing::Draining => Standing::Draining,
            _ if self.is_impaired() => Standing::Impaired,
            standing => standing,
        }
    }

    /// All that splitting takes is there.
    pub fn attend(&self, now: Instant) {
        self.well.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// Whether the watchdog has found something missing, or finds nothing at all any more.
    fn is_impaired(&self) -> bool {
        let well = Instant::from_nanos(self.well.load(Ordering::Relaxed));
        timer::now().since(well) >= LIFE
    }

    /// What becomes of new flows from now on.
    pub fn stand(&self, standing: Standing) {
        self.standing.store(standing as u8, Ordering::Relaxed);
    }

    /// The bounds at present.
    pub fn bounds(&self) -> Bounds {
        self.room.bounds()
    }

    /// Replaces bounds and settings, and has the workers look at them.
    pub fn renew(&self, (bounds, buffered): (Bounds, Bytes), settings: Settings) {
        self.load.set_bounds(buffered, settings.client_buffered);
        self.room.set(bounds);
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
        self.edition.fetch_add(1, Ordering::Release);
        self.workers.ring();
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

    /// Asks all workers for a sign of life; `answered` tells who gave it.
    pub fn feel_pulse(&self) -> u64 {
        let asked = self.pulse.fetch_add(1, Ordering::Relaxed) + 1;
        self.workers.ring();
        asked
    }

    /// Worker number `worker` lives.
    pub fn beat(&self, worker: usize) {
        if let Some(pulse) = self.pulses.get(worker) {
            pulse.store(self.pulse.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Worker number `worker` has ended, and is not to be waited for.
    pub fn leave(&self, worker: usize) {
        if let Some(pulse) = self.pulses.get(worker) {
            pulse.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Whether all have answered since `asked`.
    pub fn have_answered(&self, asked: u64) -> bool {
        let mut pulses = self.pulses.iter();
        pulses.all(|pulse| pulse.load(Ordering::Relaxed) >= asked)
    }

    /// Readable, edge-triggered, when a worker has something to look at.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.workers.as_fd()
    }

    /// Rings when the number of flows crosses a bound, when descriptors run out, and when a worker
    /// ends.
    pub fn gateway_bell(&self) -> &Bell {
        &self.gateway
    }

    /// How many flows there are.
    pub fn flows(&self) -> usize {
        self.room.flows()
    }

    pub(crate) fn flow_began(&self) {
        if self.room.began() {
            self.gateway.ring();
        }
    }

    pub(crate) fn flow_ended(&self) {
        let ended = self.room.ended();
        if ended.resumes {
            self.gateway.ring();
        }
        if ended.has_room {
            self.workers.ring();
        }
    }

    /// Whether one more connection may be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.room.is_there()
    }

    /// Whether the kernel has refused a descriptor of late.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted_at.load(Ordering::Relaxed) != NEVER
    }

    /// At `now` the kernel holds `sockets` in the buffers of flows. Workers hear of it when that makes memory short.
    pub fn weigh(&self, sockets: Bytes, now: Instant) {
        let was_short = self.load.is_short();
        self.load.weigh(sockets, now);
        if self.load.is_short() && !was_short {
            self.workers.ring();
        }
    }

    /// What is in the way of new flows.
    pub fn limit(&self) -> Option<Limit> {
        if self.is_exhausted() {
            Some(Limit::Descriptors)
        } else if self.room.is_met() {
            Some(Limit::Flows)
        } else {
            self.load.is_over().then_some(Limit::Buffered)
        }
    }

    /// What waits in buffers.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Which clients' dials are met with silence.
    pub(crate) fn silence(&self) -> &Silence {
        &self.silence
    }

    /// Whether new flows may be intercepted again.
    pub fn may_resume(&self) -> bool {
        let exhausted_at = self.exhausted_at.load(Ordering::Relaxed);
        // A few flows less than those that were one too many.
        let fits = exhausted_at.saturating_sub(exhausted_at / 20 + 2);
        self.room.is_left() && self.flows() <= fits && !self.load.is_over()
    }

    /// The kernel refused a descriptor.
    pub(crate) fn out_of_descriptors(&self) {
        self.exhausted_at.store(self.flows(), Ordering::Relaxed);
        self.gateway.ring();
    }

    /// A leg's congestion control has gone from the kernel, by another's hand.
    pub(crate) fn control_lost(&self) {
        if !self.control_lost.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "a congestion control is gone from the kernel: new connections use its default until the gateway is started again"
            );
        }
    }

    /// No more new flows, and no hurry for those that stand.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Whether a successor has taken over.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    /// Tells the workers of neighbours that did not answer.
    pub fn tell_silent(&self, neighbours: &[IpAddr]) {
        for mailbox in &self.silent {
            let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            mailbox.extend_from_slice(neighbours);
        }
        self.workers.ring();
    }

    /// The neighbours that worker number `worker` has been told of since the last time.
    pub(crate) fn take_silent(&self, worker: usize) -> Vec<IpAddr> {
        let Some(mailbox) = self.silent.get(worker) else {
            return Vec::new();
        };
        let mut mailbox = mailbox.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut mailbox)
    }

    /// The listeners of these workers have nobody who serves them, until a worker asks: at the next pulse.
    pub(crate) fn orphan(&self, workers: &[usize]) {
        let mut orphaned = self.orphaned.lock().unwrap_or_else(PoisonError::into_inner);
        orphaned.extend_from_slice(workers);
    }

    /// Workers whose listeners are to be served, by whoever asks first.
    pub(crate) fn take_orphans(&self) -> Vec<usize> {
        let mut orphaned = self.orphaned.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut orphaned)
    }

    /// Tries again after [`Shared::out_of_descriptors`].
    pub fn forget_exhaustion(&self) {
        if self.exhausted_at.swap(NEVER, Ordering::Relaxed) != NEVER {
            self.workers.ring();
        }
    }
}

#[cfg(test)]
impl Shared {
    /// With nothing but limits.
    fn with(bounds: Bounds, workers: usize) -> Self {
        let leg = crate::socket_policy::Prepared {
            mark: 0,
            tracked: 0,
            control: None,
            usual_control: false,
            ceiling: None,
            keepalive: None,
            without_ecn: None,
            leg: bentpipe_gateway_config::Leg::terrestrial(),
        };
        let settings = Settings {
            legs: Legs {
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
        let bounds = Bounds {
            suspend: 4,
            resume: 2,
            hard: 5,
        };
        let shared = Shared::with(bounds, 1);
        (0..3).for_each(|_| shared.flow_began());
        assert!(shared.limit().is_none() && !shared.gateway_bell().silence());
        shared.flow_began();
        assert!(shared.limit() == Some(Limit::Flows) && shared.gateway_bell().silence());
        assert!(shared.has_room(), "what was intercepted already is taken");
        shared.flow_began();
        assert!(!shared.has_room());
        shared.flow_ended();
        shared.flow_ended();
        assert!(!shared.may_resume() && !shared.gateway_bell().silence());
        shared.flow_ended();
        assert!(shared.may_resume() && shared.gateway_bell().silence());

        shared.out_of_descriptors();
        assert_eq!(shared.limit(), Some(Limit::Descriptors));
        assert!(
            !shared.may_resume(),
            "as many flows as when they were too many"
        );
        shared.forget_exhaustion();
        assert!(shared.limit().is_none() && shared.may_resume());

        shared.weigh(Bytes(201), Instant::ZERO);
        assert_eq!(shared.limit(), Some(Limit::Buffered));
        assert!(!shared.may_resume());
    }
}
