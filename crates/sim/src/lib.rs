//! The deterministic simulator: the same links, TCP endpoints and proxies that carry real packets,
//! in virtual time.
//!
//! A [`Scenario`] becomes nodes joined by simplex links ([`bentpipe_link::Direction`]). Hosts hold the ends of flows,
//! each a [`bentpipe_tcp::Connection`] with an application ([`App`]), or an end of a Saratoga file; routers forward
//! packets by static routes; proxies ([`bentpipe_pep::AnyPep`]) sit at routers, on one link. It is a discrete-event
//! simulation: the engine runs whatever is due first, which the event queue knows.
//!
//! How a link, a TCP or a proxy behaves is not decided here but in the crates of their names, which the gateway and the
//! lab share; what a scenario may say is in `bentpipe-scenario`, sweeps over many scenarios are in `bentpipe-study`.
//! Begin with `engine.rs` (the run loop) and `network.rs` (links and routes), then `build.rs` and `endpoint_builder.rs`,
//! which make both from a scenario, and `outcome.rs`, which reads the result off them.
//!
//! Time is in nanoseconds; chance comes from streams named after what draws. So a scenario and a
//! seed give the same [`Run`], bit for bit, on any machine and on any number of threads: runs
//! share nothing.
#![forbid(unsafe_code)]

mod addresses;
pub mod app;
mod app_socket;
mod capture;
mod cross_traffic_flows;
mod end_to_end;
mod endpoint_builder;
mod engine;
mod engine_builder;
mod error;
mod event_queue;
mod flow_endpoint;
mod flow_sampler;
mod hosted_connection;
mod link_counters;
mod live_observer;
mod network;
mod observer;
mod outcome;
mod packet;
mod packet_codec;
mod packet_slab;
mod queueing_samples;
mod saratoga_endpoint;
mod split_config;
mod time_sequence;
mod zero_delay_check;

pub use app::App;
pub use app_socket::Socket;
pub use capture::Captures;
pub use end_to_end::EndToEnd;
pub use error::SimError;
pub use flow_sampler::Sampler;
pub use link_counters::LinkCounters;
pub use live_observer::{Live, outline};
pub use observer::{Observer, Standing};
pub use packet::{Content, EndId, Packet};
pub use time_sequence::{Sent, Series};

use bentpipe_base::Instant;
use bentpipe_cc::Congestion;
use bentpipe_outcome::Run;
use bentpipe_scenario::Scenario;
use engine::Engine;

/// How to run a scenario.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Instead of the scenario's seed.
    pub seed: Option<u64>,
    /// At every hop each packet becomes the bytes that would be on the wire, and is read again; the
    /// receiver compares each byte with what was sent. Ends of TCP that have a handshake are hosts (`bentpipe_host`), which
    /// listen, number their connections and find them by addresses and ports. Results are the same, several times later.
    pub wire: bool,
}

/// Makes the congestion control that the source of the flow of a name has in place of the scenario's; `None`: it has that. For
/// what is in no registry: trials, and other languages.
pub type Controls<'a> = dyn Fn(&str) -> Option<Box<dyn Congestion>> + 'a;

/// A run that is over, and all memory that it held. To free that after a long queue takes a twentieth of the run's time: a
/// process that exits next may leave it to the kernel, which frees it at once ([`core::mem::forget`]).
pub struct Finished {
    /// What came of it.
    pub outcome: Run,
    _held: Held,
}

/// Links with what waits on them, packets, and the ends of flows.
type Held = (
    Vec<network::SimplexLink>,
    packet_slab::Packets,
    Vec<flow_endpoint::FlowEndpoint>,
);

/// Runs `scenario` in virtual time.
///
/// # Errors
/// What the scenario asks for and the simulator does not have.
pub fn run(scenario: &Scenario, options: &Options) -> Result<Run, SimError> {
    finish(scenario, options).map(|finished| finished.outcome)
}

/// As [`run`], with samples of the course of each flow.
///
/// # Errors
/// As [`run`].
pub fn run_sampled(scenario: &Scenario, options: &Options) -> Result<Run, SimError> {
    let (run, sampler) = observe(scenario, options, Sampler::new(scenario))?;
    Ok(Run {
        samples: sampler.into_samples(),
        ..run
    })
}

/// Settings of `scenario` that are allowed and yet likely not what was meant, each in a sentence.
///
/// # Errors
/// As [`run`].
pub fn warnings(scenario: &Scenario) -> Result<Vec<String>, SimError> {
    engine_builder::warnings(scenario)
}

/// Runs `scenario` while `observer` watches, which does not change the outcome; returns the observer too.
///
/// # Errors
/// As [`run`].
pub fn observe<O: Observer>(
    scenario: &Scenario,
    options: &Options,
    observer: O,
) -> Result<(Run, O), SimError> {
    observe_with(scenario, options, observer, &|_| None)
}

/// As [`observe`], with congestion controls of the caller's own.
///
/// # Errors
/// As [`run`].
pub fn observe_with<O: Observer>(
    scenario: &Scenario,
    options: &Options,
    observer: O,
    controls: &Controls<'_>,
) -> Result<(Run, O), SimError> {
    let (finished, observer) = finish_with(scenario, options, observer, controls)?;
    Ok((finished.outcome, observer))
}

/// As [`run`]; returns the memory that the run held too. Whoever runs without an observer runs the code that is made here,
/// and not a copy in each crate, so that a profile of some runs serves all of them.
///
/// # Errors
/// As [`run`].
pub fn finish(scenario: &Scenario, options: &Options) -> Result<Finished, SimError> {
    finish_with(scenario, options, (), &|_| None).map(|(finished, ())| finished)
}

fn finish_with<O: Observer>(
    scenario: &Scenario,
    options: &Options,
    observer: O,
    controls: &Controls<'_>,
) -> Result<(Finished, O), SimError> {
    let mut engine = engine_builder::engine(scenario, options, observer, controls)?;
    let horizon = Instant::ZERO + scenario.time_limit;
    let end = engine.run(horizon)?;
    let outcome = outcome::of_run(scenario, options, &engine, end);
    let Engine { network, ends, .. } = engine;
    let finished = Finished {
        outcome,
        _held: (network.links, network.packets, ends),
    };
    Ok((finished, network.observer))
}
