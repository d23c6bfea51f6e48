//! Snoop between two Ethernet interfaces: a machine with a bridge helps the TCP connections that cross it, and has no part in
//! them. It wants no addresses, no routes and no names of anybody; `bentpipe snoop` is this crate's loop.
//!
//! The frames' way is [`bentpipe_driver::Bridge`]'s, the agent [`bentpipe_pep::snoop::Snoop`]: this crate shows the one to
//! the other. What gateways snoop comes by routing instead (`gateway::snoop`), where policies choose the connections.
//! Begin with `agent.rs`.
#![forbid(unsafe_code)]

mod agent;

use agent::Agent;
use bentpipe_base::Bytes;
use bentpipe_driver::{Bridge, BridgeCounters, DriverError};
use bentpipe_pep::snoop::{self, Counters, SharedAgentLimits, Toward};
use std::fmt;
use std::time::{Duration, Instant};

/// The longest wait for frames, after which the caller is asked again whether to go on.
const TURN: Duration = Duration::from_millis(200);

/// Between two reports.
const PAUSE: Duration = Duration::from_secs(5);

/// What its operator says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The interface towards the senders of the data that gets lost.
    pub near: String,
    /// The interface towards the link that loses it.
    pub far: String,
    /// Whether data towards `near` is sent again too: links on both sides lose.
    pub both: bool,
    /// The cache of one connection and direction; all together may have 64 times as much.
    pub cache: Bytes,
}

/// Caches of one connection that all together may have.
const ALL: u64 = 64;

impl Settings {
    fn agent(&self) -> snoop::Config {
        snoop::Config {
            toward: if self.both {
                Toward::Both
            } else {
                Toward::Space
            },
            bytes: self.cache,
            total: Bytes(self.cache.0.saturating_mul(ALL)),
            shared_limits: Some(SharedAgentLimits::GATEWAY),
            ..snoop::Config::standard()
        }
    }
}

/// What it did so far; as a line for people by [`fmt::Display`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it did with frames.
    pub frames: BridgeCounters,
    /// What the agent did.
    pub snoop: Counters,
    /// Connections that it watches now.
    pub flows: usize,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            frames,
            snoop,
            flows,
        } = self;
        let again = snoop.retransmitted + snoop.timeouts;
        let lost = frames.refused + frames.overrun;
        let late = frames.latest.as_secs_f64() * 1e3;
        write!(
            f,
            "{} frames carried, {flows} connections watched, {again} segments sent again, {} duplicate acknowledgements kept back; \
             {lost} frames lost here, {} left to the kernel, {late:.1} ms late at most",
            frames.sent, snoop.suppressed, frames.left
        )
    }
}

/// A bridge with the agent in it.
pub struct SnoopBridge(Bridge<Agent>);

impl SnoopBridge {
    /// Takes the frames of both interfaces of the calling thread's namespace from now on, in which `lo` is up.
    ///
    /// # Errors
    /// No such interfaces, or without root (CAP_NET_ADMIN, CAP_NET_RAW).
    pub fn new(settings: &Settings) -> Result<Self, DriverError> {
        let agent = Agent::new(settings.agent());
        Bridge::new(agent, &settings.near, &settings.far).map(Self)
    }

    /// Carries frames until `stops` says so, which is asked several times a second; `tells` hears what was done, every 5 s in which
    /// frames came, and at the end. The kernel has the frames again afterwards.
    ///
    /// # Errors
    /// An interface is gone, or the rules that keep the kernel from the frames.
    pub fn run(
        mut self,
        mut stops: impl FnMut() -> bool,
        mut tells: impl FnMut(&Report),
    ) -> Result<(), DriverError> {
        let (mut last_report, mut before) = (Instant::now(), 0);
        while !stops() {
            self.0.turn(TURN, |never| match never {})?;
            let received = self.0.counters().received;
            if last_report.elapsed() > PAUSE && received > before {
                (last_report, before) = (Instant::now(), received);
                tells(&self.report());
            }
        }
        tells(&self.report());
        Ok(())
    }

    /// What was done so far.
    pub fn report(&self) -> Report {
        let agent = self.0.machine();
        Report {
            frames: *self.0.counters(),
            snoop: agent.counters(),
            flows: agent.flows(),
        }
    }
}

impl fmt::Debug for SnoopBridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SnoopBridge").field(&self.0).finish()
    }
}
