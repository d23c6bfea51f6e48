//! The thread of an emulator.

use super::counters::Counters;
use super::frame::Frame;
use super::histogram::Histogram;
use super::report::{Port, Report};
use super::{EmulatorError, Order, Scheduling, index};
use bentpipe_base::{Bytes, Instant, Machine};
use bentpipe_link::{End, Length, Link};
use bentpipe_os::tun::Tun;
use bentpipe_process::sched;
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::timer::{Timer, now};
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The thread's real-time priority: above ordinary threads, below the kernel's interrupt threads (50).
const PRIORITY: u8 = 20;
/// Packets read or written in a row before the other side gets its turn.
const BATCH: usize = 64;
/// The least time between two wake-ups of a busy thread.
const QUANTUM: Duration = Duration::from_micros(100);
/// Between two probes.
const PROBE_INTERVAL: Duration = Duration::from_millis(20);
const ENDS: [End; 2] = [End::A, End::B];
const TIMER: u64 = 2;
const WAKER: u64 = 3;

pub(super) struct Engine {
    link: Link<Frame, Counters>,
    ports: [PortState; 2],
    mtu: usize,
    epoll: Epoll,
    timer: Timer,
    /// What the timer is set to, if it has not fired since.
    armed: Option<Instant>,
    order: Arc<Order>,
    /// Whether the link knows that the run has begun.
    begun: bool,
    lateness: Histogram,
    probes: Histogram,
    next_probe: Instant,
    quantum: Duration,
    woke: Instant,
    /// Packets read and written since then; one more when that was soon after the time before.
    moved: u32,
}

/// A port and what happened there.
struct PortState {
    tun: Tun,
    /// The kernel may have packets for us.
    readable: bool,
    /// Packets that the kernel had dropped before we began.
    dropped_before: u64,
    port: Port,
}

impl Engine {
    pub(super) fn new(
        link: Link<Frame, Counters>,
        ports: [Tun; 2],
        mtu: Bytes,
        shortest_delay: Duration,
        order: Arc<Order>,
    ) -> Result<Self, EmulatorError> {
        let [a, b] = ports;
        let engine = Self {
            link,
            ports: [PortState::new(a)?, PortState::new(b)?],
            mtu: usize::try_from(mtu.0).unwrap_or(usize::MAX).min(65_535),
            epoll: Epoll::new().map_err(EmulatorError::Descriptors)?,
            timer: Timer::new().map_err(EmulatorError::Descriptors)?,
            armed: None,
            order,
            begun: false,
            lateness: Histogram::default(),
            probes: Histogram::default(),
            next_probe: Instant::ZERO,
            // With a short delay that would be too long, so it is at most 1% of it.
            quantum: QUANTUM.min(shortest_delay / 100),
            woke: Instant::ZERO,
            moved: 0,
        };
        engine.register().map_err(EmulatorError::Descriptors)?;
        Ok(engine)
    }

    fn register(&self) -> io::Result<()> {
        // Events are edge-triggered: ports are read until they are empty, and neither timer nor waker is ever read.
        for (gate, token) in self.ports.iter().zip(0..) {
            self.epoll
                .add(&gate.tun, token, Interest::READ | Interest::EDGE)?;
        }
        let edge = Interest::READ | Interest::EDGE;
        self.epoll.add(&self.timer, TIMER, edge)?;
        self.epoll.add(&self.order.waker, WAKER, edge)
    }

    /// Tells the link that the run has begun, as soon as it has.
    fn begin(&mut self) {
        if let Some(began) = self.order.began.get().filter(|_| !self.begun) {
            self.link.begin(*began);
            self.begun = true;
        }
    }

    /// Runs until told to stop.
    pub(super) fn run(mut self, scheduling: Scheduling) -> Report {
        let realtime = scheduling == Scheduling::Realtime && become_realtime();
        let began = now();
        self.woke = began;
        self.next_probe = began + PROBE_INTERVAL;
        let mut events = Events::with_capacity(4);
        while !self.order.stop.load(Ordering::Acquire) {
            self.probe();
            self.begin();
            let more = self.deliver() | self.read();
            if more {
                continue;
            }
            if let Err(error) = self.rest(&mut events) {
                // Without timer or epoll nothing would be delivered.
                self.ports.iter_mut().for_each(|gate| gate.fail(&error));
                break;
            }
        }
        self.report(began, realtime)
    }

    /// Sleeps until there is something to do. When that would be more often than once a
    /// [`QUANTUM`], it sleeps for the rest of that instead and lets packets gather: at 250 Mb/s
    /// this spares more than half of the processor time.
    fn rest(&mut self, events: &mut Events) -> io::Result<()> {
        let woke_before = self.woke;
        if self.moved > 1 && self.quantum > Duration::ZERO {
            sleep_until(woke_before + self.quantum)?;
            self.woke = now();
            self.moved = 0;
            self.ports.iter_mut().for_each(|gate| gate.readable = true);
            return Ok(());
        }
        self.arm()?;
        self.epoll.wait(events, None)?;
        self.woke = now();
        self.moved = u32::from(self.woke - woke_before < self.quantum);
        for event in events.iter() {
            match event.token {
                TIMER => self.armed = None,
                WAKER => {}
                port => self.ports[port as usize & 1].readable = true,
            }
        }
        Ok(())
    }

    /// Notes how late a wake-up comes that was due.
    fn probe(&mut self) {
        let now = now();
        if self.next_probe <= now {
            self.probes.record(now - self.next_probe);
            self.next_probe = now + PROBE_INTERVAL;
        }
    }

    /// Writes what has arrived, a batch at most; `true` when more is due.
    fn deliver(&mut self) -> bool {
        let mut time = now();
        for _ in 0..BATCH {
            let Some((end, due, frame)) = self.link.deliver(time) else {
                return false;
            };
            self.ports[index(end)].send(frame.packet());
            time = now();
            self.moved += 1;
            self.lateness.record(time - due);
            let sender = self.link.from(end.opposite());
            sender.observer().delivered(frame.length());
        }
        true
    }

    /// Reads what waits at the ports, a batch each at most; `true` when there may be more.
    fn read(&mut self) -> bool {
        for end in ENDS {
            let gate = &mut self.ports[index(end)];
            let direction = self.link.from_mut(end);
            for _ in 0..BATCH {
                let Some(frame) = gate.receive(self.mtu) else {
                    break;
                };
                self.moved += 1;
                let len = frame.length();
                direction.observer().entered(len);
                direction.push(frame, len, now());
            }
            let backlog = direction.backlog(now());
            direction.observer().waiting(backlog);
        }
        self.ports.iter().any(|gate| gate.readable)
    }

    /// Sets the timer to the next thing due, unless it fires no later anyway.
    fn arm(&mut self) -> io::Result<()> {
        let due = self
            .link
            .deadline()
            .unwrap_or(Instant::MAX)
            .min(self.next_probe);
        if self.armed.is_some_and(|armed| armed <= due) {
            return Ok(());
        }
        self.timer.arm(Some(due))?;
        self.armed = Some(due);
        Ok(())
    }

    fn report(self, began: Instant, realtime: bool) -> Report {
        let [a, b] = self.ports;
        Report {
            valid: false,
            reasons: Vec::new(),
            realtime,
            elapsed: now() - began,
            cpu: thread_time(),
            lateness: self.lateness.lateness(),
            probes: self.probes.lateness(),
            from_a: self.link.from(End::A).observer().read(),
            from_b: self.link.from(End::B).observer().read(),
            port_a: a.close(),
            port_b: b.close(),
        }
    }
}

impl PortState {
    fn new(tun: Tun) -> Result<Self, EmulatorError> {
        Ok(Self {
            dropped_before: tun.stats()?.tx_dropped,
            tun,
            // Packets may have come before we began to watch.
            readable: true,
            port: Port::default(),
        })
    }

    /// The next packet from the kernel.
    fn receive(&mut self, mtu: usize) -> Option<Frame> {
        if !self.readable {
            return None;
        }
        match Frame::fill(mtu, |buffer| self.tun.receive(buffer)) {
            Ok(Some(frame)) => Some(frame),
            Ok(None) => {
                self.readable = false;
                None
            }
            Err(error) => {
                self.fail(&error);
                None
            }
        }
    }

    /// Hands the kernel a packet.
    fn send(&mut self, packet: &[u8]) {
        if self.tun.send(packet).is_err() {
            self.port.write_errors += 1;
        }
    }

    /// The port can be used no more. It reports errors without end, so it is not read again before
    /// the kernel reports something new.
    fn fail(&mut self, error: &io::Error) {
        self.readable = false;
        self.port.failure.get_or_insert_with(|| error.to_string());
    }

    fn close(mut self) -> Port {
        match self.tun.stats() {
            Ok(stats) => self.port.unread = stats.tx_dropped - self.dropped_before,
            Err(error) => {
                let why = || format!("its counters cannot be read: {error}");
                self.port.failure.get_or_insert_with(why);
            }
        }
        self.port
    }
}

fn become_realtime() -> bool {
    match sched::realtime(PRIORITY) {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(%error, "the emulator's thread is not real-time");
            // At least no wake-up shall be put off to save energy (50 us by default).
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            false
        }
    }
}

/// Sleeps until `at`, or until a signal comes.
fn sleep_until(at: Instant) -> io::Result<()> {
    use rustix::thread::{ClockId, clock_nanosleep_absolute};
    let at = rustix::time::Timespec {
        tv_sec: (at.as_nanos() / 1_000_000_000) as i64,
        tv_nsec: (at.as_nanos() % 1_000_000_000) as _,
    };
    match clock_nanosleep_absolute(ClockId::Monotonic, &at) {
        Ok(()) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Processor time that this thread has used.
fn thread_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
