//! One worker: a thread with one epoll set that accepts clients, dials servers and pumps bytes.
//!
//! Sockets are registered with epoll once, edge-triggered, so that a flow costs two descriptors and two registrations
//! in its life. The near socket (the client's) is registered only when the far side (the server) has answered, so that
//! nothing is read from a client before there is somewhere to send it.

mod accept;
mod closing_flows;
mod delivery_after_reset;
mod dropped_syns;
mod idle_flows;
mod keepalive;
mod listener_takeover;
mod pending_resets;
mod silent_dials;
mod stalled_flows;
mod syn_queue;
mod tunnelled_flows;
mod withheld_acks;

pub use syn_queue::SynQueue;

use crate::counters::Counters;
use crate::deferred_slab::DeferredSlab;
use crate::flow::{Flow, Phase, Side};
use crate::flow_stats::FlowStats;
use crate::listen::{Listener, Listeners};
use crate::pump::{Broken, PumpBuffers, PumpState};
use crate::tunnel::TunnelPlan;
use crate::worker_coordination::{Lifecycle, Settings, Shared};
use crate::worker_freeze::FreezeDetector;
use bentpipe_base::Instant;
use bentpipe_gateway_config::LegId;
use bentpipe_os::conntrack::Conntrack;
use bentpipe_os::neighbour::Routes;
use bentpipe_process::sched;
use bentpipe_sockets::epoll::{Epoll, Event, Events, Interest};
use bentpipe_sockets::splice::Pool;
use bentpipe_sockets::{socket, timer};
use idle_flows::Idle;
use keepalive::Keepalive;
use pending_resets::PendingResets;
use silent_dials::Dialling;
use stalled_flows::Stalled;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use withheld_acks::WithheldAcks;

/// Epoll tokens from here on are listeners. Smaller tokens are a flow's slot and side.
const LISTENER: u64 = 1 << 40;
/// The token of the descriptor by which the gateway wakes its workers.
const WAKE: u64 = 1 << 41;
/// The token of the queues of SYNs, and the bit of tokens of dials for these.
const QUEUE: u64 = 1 << 42;
const DIAL: u64 = 1 << 43;
/// The most events that one epoll_wait takes.
const BATCH: usize = 256;
/// The most bytes that a pump moves before other flows have their turn.
const TURN: usize = 1 << 20;

/// Why no connections are accepted at present. They wait in the listeners' queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    /// The kernel gives no more file descriptors; it is asked again at `until`.
    Descriptors { until: Instant },
    /// The limit of flows is reached. Connections that still wait at `until` are reset.
    Room { until: Instant },
}

/// What a worker needs to start.
pub struct WorkerParts {
    /// Which of the workers it is, from 0.
    pub number: usize,
    /// The listeners of all workers.
    pub listeners: Listeners,
    /// What all threads share.
    pub shared: Arc<Shared>,
    /// Its own counters.
    pub counters: Arc<Counters>,
    /// Whether conntrack is to see the connections that are dialled, because addresses are translated here.
    pub translates: Arc<AtomicBool>,
    /// The queue of held SYNs; `None` where the kernel cannot hold SYNs.
    pub syn_queue: Option<SynQueue>,
    /// Where it records the figures of flows.
    pub flow_stats: FlowStats,
    /// The tunnels of legs that are carried over QUIC.
    pub tunnels: Option<TunnelPlan>,
}

/// A worker, not at work yet.
pub struct Worker {
    number: usize,
    epoll: Epoll,
    /// The listeners of all workers; those that this one serves; and the numbers of the workers that these belong to.
    all_listeners: Listeners,
    listeners: Vec<Arc<Listener>>,
    serves: Vec<usize>,
    paused: Option<Pause>,
    /// How often epoll_wait has returned, after which return connections were last accepted, and at most how many of one
    /// listener then.
    wakes: u64,
    accept_wake: u64,
    accept_batch: u32,
    settings: Arc<Settings>,
    edition: u64,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    translates: Arc<AtomicBool>,
    syn_queue: Option<SynQueue>,
    freeze_detector: FreezeDetector,
    flow_stats: FlowStats,
    tunnels: Option<TunnelPlan>,
    flows: DeferredSlab<Flow>,
    /// Flows in [`Phase::Dialling`], and what is dialled for them.
    dialling: HashMap<u32, Dialling>,
    /// Opened when a dial that conntrack has seen is first given up.
    conntrack: Option<Conntrack>,
    routes: Routes,
    /// When the dials were last searched for silent ones.
    listened: Instant,
    buffers: PumpBuffers,
    again: VecDeque<u32>,
    pending_resets: PendingResets,
    idle: Idle,
    keepalive: Keepalive,
    stalled: Stalled,
    withheld_acks: WithheldAcks,
}

impl Worker {
    /// A worker with these parts.
    ///
    /// # Errors
    /// When the kernel gives no epoll set, or no other descriptor.
    pub fn new(plan: WorkerParts) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(plan.shared.wake(), WAKE, Interest::READ | Interest::EDGE)?;
        if let Some(syn_queue) = &plan.syn_queue {
            epoll.add(&syn_queue.queues, QUEUE, Interest::READ)?;
        }
        plan.shared.beat(plan.number);
        let edition = plan.shared.edition();
        let settings = plan.shared.settings();
        let (pipes, pipe_size) = (settings.pipes, settings.pipe_size);
        let mut worker = Self {
            number: plan.number,
            epoll,
            all_listeners: plan.listeners,
            listeners: Vec::new(),
            serves: Vec::new(),
            paused: None,
            wakes: 0,
            accept_wake: 0,
            accept_batch: 1,
            settings,
            edition,
            shared: plan.shared,
            counters: plan.counters,
            translates: plan.translates,
            freeze_detector: FreezeDetector::new(),
            syn_queue: plan.syn_queue,
            flow_stats: plan.flow_stats,
            tunnels: plan.tunnels,
            flows: DeferredSlab::new(),
            dialling: HashMap::new(),
            conntrack: None,
            routes: Routes::open()?,
            listened: timer::now(),
            buffers: PumpBuffers {
                pool: Pool::new(pipes, pipes.min(64), pipe_size),
                buffer: vec![0; crate::pump::SMALL].into(),
                pending: 0,
                portion: pipe_size,
                turn: TURN,
            },
            again: VecDeque::new(),
            pending_resets: PendingResets::default(),
            idle: Idle::new(),
            keepalive: Keepalive::default(),
            stalled: Stalled::default(),
            withheld_acks: WithheldAcks::default(),
        };
        worker.serve(plan.number)?;
        Ok(worker)
    }

    /// Works until the gateway stops.
    ///
    /// # Errors
    /// When it cannot wait for events any more.
    pub fn run(mut self) -> io::Result<()> {
        sched::leave_signals_to_others();
        let mut events = Events::with_capacity(BATCH);
        loop {
            self.epoll.wait(&mut events, self.patience())?;
            if self.freeze_detector.wakes() {
                self.pass_all()?;
            }
            self.wakes += 1;
            self.idle.now = timer::now();
            for index in 0..events.len() {
                if let Some(event) = events.at(index) {
                    self.on_event(event)?;
                }
            }
            for _ in 0..self.again.len() {
                if let Some(index) = self.again.pop_front() {
                    self.on_turn(index);
                }
            }
            self.on_withheld_acks();
            self.on_pending_resets();
            self.on_idle();
            self.on_stalled();
            self.on_keepalive();
            self.on_syn_tick();
            self.tell_verdicts();
            self.flows.settle();
            self.shared
                .memory()
                .set_worker_usage(self.number, self.buffers.pending);
            if self.shared.lifecycle() == Lifecycle::Stopped {
                // Dropping the flows that are left resets them.
                return Ok(());
            }
            self.reconsider_accepting();
        }
    }

    /// Whether conntrack is to see the connections that are dialled.
    fn tracks_dials(&self) -> bool {
        self.translates.load(Ordering::Relaxed)
    }

    fn patience(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let room = match self.paused {
            Some(Pause::Room { until } | Pause::Descriptors { until }) => {
                Some(until.since(timer::now()))
            }
            _ => None,
        };
        let all = [
            room,
            self.pending_resets.patience(),
            self.withheld_acks.patience(),
            self.idle_tick(),
            self.stalled_tick(),
            self.keepalive_tick(),
            self.dial_tick(),
            self.syn_queue.as_ref().and_then(SynQueue::tick),
        ];
        all.into_iter().flatten().min()
    }

    fn on_event(&mut self, event: Event) -> io::Result<()> {
        match event.token {
            QUEUE => return self.on_syns(),
            WAKE => {
                self.shared.beat(self.number);
                self.on_renewal();
                self.on_dead_neighbours();
                self.on_tunnel_answers();
                self.on_abandoned_listeners();
                self.on_retirement();
                self.make_way();
            }
            token if token & DIAL != 0 => self.on_dial_ended(event),
            token if token >= LISTENER => self.on_clients((token - LISTENER) as usize),
            _ => self.on_flow(event),
        }
        Ok(())
    }

    fn on_flow(&mut self, event: Event) {
        let (index, side) = (
            (event.token >> 1) as u32,
            Side::BOTH[(event.token & 1) as usize],
        );
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        match flow.phase {
            Phase::Dialling => self.on_answer(index, event),
            Phase::Open => self.on_open(index, side, event),
            Phase::Closing => self.on_closing(index),
            Phase::Delivering { alive, .. } if side == alive => self.on_delivering(index, event),
            Phase::Delivering { .. } => {}
            Phase::ResetPending { alive, .. } => {
                if side == alive && (event.failed() || event.hung_up()) {
                    self.drop_flow(index);
                }
            }
        }
    }

    /// Takes new settings, for flows from now on. Sockets that a listener accepts inherit its options, so these are set again.
    fn on_renewal(&mut self) {
        let edition = self.shared.edition();
        if edition == self.edition {
            return;
        }
        self.edition = edition;
        self.settings = self.shared.settings();
        for listener in &self.listeners {
            let legs = self.settings.legs.of(listener.profile);
            let leg = &legs[listener.leg as usize];
            if let Err(error) = leg.renew(&listener.socket, listener.address) {
                tracing::warn!(leg = listener.leg.name(), %error, "a listener keeps a part of its old settings");
            }
        }
        let Settings {
            pipes, pipe_size, ..
        } = *self.settings;
        self.buffers.pool.resize(pipes, pipes.min(64), pipe_size);
        self.buffers.portion = pipe_size;
    }

    fn on_open(&mut self, index: u32, side: Side, event: Event) {
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        if flow.unanswered.is_some() {
            self.answer_again(index);
        }
        if event.failed() {
            return self.break_flow(index, side, None);
        }
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        if event.peer_closed() && !flow.pump(side).is_closing() {
            flow.pump(side).source_closes();
            // Of a short connection the rest is on its way already.
            if flow.pump(side).has_read_more_than(closing_flows::LITTLE) {
                keepalive::set_probed(flow, side, false);
            }
        }
        // The pump that waits for room in this socket goes first, because room may be all that it needs to end.
        let room = event.writable() && flow.pump(side.other()).is_full();
        let data = event.readable() && !flow.pump(side).is_full();
        if room && !self.pump(index, side.other()) {
            return;
        }
        if data {
            self.pump(index, side);
        }
    }

    /// Continues with a flow whose last turn ended before all was moved.
    fn on_turn(&mut self, index: u32) {
        if let Some(flow) = self.flows.get_mut(index) {
            flow.queued = false;
            if matches!(flow.phase, Phase::Delivering { .. }) {
                return self.deliver_rest(index);
            }
        }
        for side in Side::BOTH {
            let Some(flow) = self.flows.get_mut(index) else {
                return;
            };
            if flow.phase == Phase::Open && !flow.pump(side).is_full() && !self.pump(index, side) {
                return;
            }
        }
    }

    /// Runs the pump that reads from `side`; returns false where the flow has ended or waits for its reset.
    fn pump(&mut self, index: u32, side: Side) -> bool {
        let Some(flow) = self.flows.get_mut(index) else {
            return false;
        };
        if !flow.far_complete && flow.pump(side).expects_more() {
            complete_far(flow, &self.settings);
        }
        let mut moved = 0;
        let outward = flow.outward(side);
        let (pump, from, to) = flow.parts(side);
        let was_full = pump.is_full();
        let result = pump.run(from, to, &mut self.buffers, &mut moved);
        if moved > 0 {
            flow.active = self.idle.now;
        }
        match outward {
            LegId::Sat => self.counters.bytes_to_sat.many(moved),
            LegId::Lan => self.counters.bytes_to_lan.many(moved),
        }
        match result {
            Ok(PumpState::Empty) => true,
            Ok(PumpState::Full) => {
                if !was_full {
                    self.counters.held_back.one();
                }
                self.watch_room(index, side.other())
            }
            Ok(PumpState::More) => {
                if !std::mem::replace(&mut flow.queued, true) {
                    self.again.push_back(index);
                }
                true
            }
            // The close that follows tells the sink.
            Ok(PumpState::Ended) if flow.has_ended() => {
                self.finish(index, side);
                false
            }
            Ok(PumpState::Ended) => match socket::shutdown_send(flow.socket(side.other())) {
                Ok(()) => true,
                Err(error) => {
                    self.break_flow(index, side.other(), Some(error));
                    false
                }
            },
            Err(Broken { source, error }) => {
                let broken = if source { side } else { side.other() };
                self.break_flow(index, broken, Some(error));
                false
            }
        }
    }

    /// Ends a flow; both sockets close as their linger setting says.
    fn drop_flow(&mut self, index: u32) {
        let Some(mut flow) = self.flows.remove(index) else {
            return;
        };
        self.dialling.remove(&index);
        self.flow_stats.closes(&flow, &self.counters);
        self.keepalive.closes(&flow);
        for side in Side::BOTH {
            flow.pump(side).release(&mut self.buffers);
        }
    }
}

/// Sets what the far socket of a flow did without so far: the flow has lasted, or has moved more than its first bytes.
fn complete_far(flow: &mut Flow, settings: &Settings) {
    flow.far_complete = true;
    let leg = &settings.legs.of(flow.profile())[flow.leg.other() as usize];
    let far = flow.socket(Side::Far);
    let mut result = leg.apply_to_rest(far);
    if !flow.unprobed[Side::Far as usize] {
        result = result.and_then(|()| leg.probe(far));
    }
    if let Err(error) = result {
        tracing::debug!(%error, "a connection keeps a part of the kernel's own settings");
    }
}

impl Drop for Worker {
    /// Runs after a panic too, so that another worker serves the listeners. Flows are closed with the worker.
    fn drop(&mut self) {
        self.shared.memory().set_worker_usage(self.number, 0);
        self.shared.abandon_listeners(&self.serves);
    }
}
