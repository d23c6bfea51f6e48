//! The two ends of a leg over QUIC in virtual time: what a scenario's pair of gateways with `carrier = "quic"` does in the lab as two
//! processes, here the same endpoints (`tunnel::Side` over `quic::Endpoint`) do on the scenario's link.
//!
//! QUIC's packets are sealed, sent, lost, found lost and repaired as they are on sockets; only the clock is virtual. Of the terrestrial
//! legs, which must be plain wires, and of the hosts there is no TCP: a wire without rate and delay never holds anything up. Only flows that
//! find no tunnel pass end to end, as TCP of their hosts. The connection stands when the run begins, as in the lab. With one seed, times and lengths of all packets are the same from run to run;
//! their bytes are not, for each run makes its keys.
//!
//! It is not part of `sim`, which is built for browsers: what seals QUIC's packets is not. Scenarios without such a pair go to `sim`
//! as they are. Begin with [`run_sampled`].
#![forbid(unsafe_code)]

mod drive;
mod error;
mod setup;
mod transfer;
mod without_tunnel;

pub use drive::Departure;
pub use error::PairError;

use bentpipe_outcome::Run;
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Options, SimError};
use bentpipe_study::Measures;
use drive::Drive;
use setup::Setup;
use thiserror::Error;

/// Why a scenario was not simulated.
#[derive(Debug, Error)]
pub enum RunError {
    /// By the simulator.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// As a pair.
    #[error(transparent)]
    Pair(#[from] PairError),
}

/// Runs `scenario`, if it has a gateway with a leg over QUIC; `None`: it has none, and is the simulator's.
///
/// # Errors
/// [`PairError`].
pub fn run(scenario: &Scenario, options: &Options) -> Result<Option<Run>, PairError> {
    let Some(setup) = Setup::new(scenario, options)? else {
        return Ok(None);
    };
    Drive::new(setup)?.run().map(|(run, _)| Some(run))
}

/// As [`run`], with the time and length of every packet in the order in which they entered the link.
///
/// # Errors
/// [`PairError`].
pub fn run_traced(
    scenario: &Scenario,
    options: &Options,
) -> Result<Option<(Run, Vec<Departure>)>, PairError> {
    let Some(setup) = Setup::new(scenario, options)? else {
        return Ok(None);
    };
    Drive::new(setup)?.traced().run().map(Some)
}

/// Runs `scenario` in virtual time, here or in the simulator, which samples the course of its flows.
///
/// # Errors
/// [`RunError`].
pub fn run_sampled(scenario: &Scenario, options: &Options) -> Result<Run, RunError> {
    match run(scenario, options)? {
        Some(run) => Ok(run),
        None => Ok(bentpipe_sim::run_sampled(scenario, options)?),
    }
}

/// As [`bentpipe_study::simulate`], also of scenarios with a leg over QUIC.
///
/// # Errors
/// Why it was not simulated, in words.
pub fn simulate(scenario: &Scenario, single: &[String]) -> Result<Measures, String> {
    match run(scenario, &Options::default()).map_err(|error| error.to_string())? {
        Some(run) => Ok(bentpipe_study::measures(&run, single)),
        None => bentpipe_study::simulate(scenario, single),
    }
}
