//! What is kept of a run: the measures of the whole, and those of single flows, links and proxies that a study names.

use crate::captures;
use crate::row::Measures;
use bentpipe_outcome::{MEASURES, Run, find};
use bentpipe_scenario::Scenario;
use bentpipe_sim::Options;
use std::path::Path;

/// Runs `scenario` in the simulator and takes the measures of the whole, and those of `single`: measures such as
/// `goodput(download)`.
///
/// # Errors
/// What the simulator cannot run, in words.
pub fn simulate(scenario: &Scenario, single: &[String]) -> Result<Measures, String> {
    let run = bentpipe_sim::run(scenario, &Options::default()).map_err(|e| e.to_string())?;
    Ok(measures(&run, single))
}

/// The same, with captures in `folder`.
///
/// # Errors
/// As [`simulate`], and what writing the captures gives.
pub fn simulate_captured(
    scenario: &Scenario,
    single: &[String],
    folder: &Path,
) -> Result<Measures, String> {
    let failed = |error| format!("cannot write captures to `{}`: {error}", folder.display());
    let observer = captures(scenario, folder).map_err(failed)?;
    let observed = bentpipe_sim::observe(scenario, &Options::default(), observer);
    let (run, observer) = observed.map_err(|error| error.to_string())?;
    observer.finish().map_err(failed)?;
    Ok(measures(&run, single))
}

/// The measures of the whole of `run` that have a value, and those of `single`, whether they have or not.
pub fn measures(run: &Run, single: &[String]) -> Measures {
    let whole = MEASURES.iter().filter_map(|measure| {
        let value = measure.of(run)?;
        Some((measure.name.to_owned(), Some(value)))
    });
    let single = single.iter().map(|name| {
        let value = find(name).ok().and_then(|named| named.of(run));
        (name.clone(), value)
    });
    whole.chain(single).collect()
}
