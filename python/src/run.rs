//! One run of a scenario in the simulator.

use crate::interruptible::interruptible;
use crate::scenario::Scenario;
use crate::table::Table;
use crate::{columns, errors};
use bentpipe_outcome::{MEASURES, Run};
use bentpipe_sim::{Options, Sampler, Series, SimError};
use pyo3::prelude::*;
use std::sync::atomic::AtomicBool;

/// What a run found.
#[pyclass(frozen, module = "bentpipe._native")]
pub(crate) struct Outcome {
    run: Run,
    /// Samples and time-sequence, of a run that was traced.
    traced: Option<(Py<Table>, Py<Table>)>,
}

/// Runs `scenario`.
#[pyfunction]
#[pyo3(signature = (scenario, seed, trace))]
pub(crate) fn run(
    py: Python<'_>,
    scenario: &Bound<'_, Scenario>,
    seed: Option<u64>,
    trace: bool,
) -> PyResult<Outcome> {
    let scenario = &scenario.get().scenario;
    let options = Options { seed, wire: false };
    let work = |cancel: &AtomicBool| -> Result<_, SimError> {
        if !trace {
            let (run, _) = bentpipe_sim::observe(scenario, &options, cancel)?;
            return Ok((run, None));
        }
        let traces = (Series::new(scenario), Sampler::new(scenario));
        let (mut run, (_, (series, sampler))) =
            bentpipe_sim::observe(scenario, &options, (cancel, traces))?;
        run.samples = sampler.into_samples();
        let tables = (
            columns::samples(&run),
            columns::sequence(scenario, &run, &series),
        );
        run.samples = Vec::new();
        Ok((run, Some(tables)))
    };
    let done = interruptible(py, work, |_| Ok(()))?;
    let (run, tables) = done.map_err(|error| errors::of_run(py, error.to_string()))?;
    let traced = tables
        .map(|(samples, sequence)| PyResult::Ok((Py::new(py, samples)?, Py::new(py, sequence)?)))
        .transpose()?;
    Ok(Outcome { run, traced })
}

/// Name, unit and definition of each measure.
#[pyfunction]
pub(crate) fn measures() -> Vec<(&'static str, &'static str, &'static str)> {
    let all = MEASURES.iter();
    all.map(|measure| (measure.name, measure.unit, measure.summary))
        .collect()
}

#[pymethods]
impl Outcome {
    #[getter]
    fn scenario(&self) -> &str {
        &self.run.scenario
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.run.seed
    }

    #[getter]
    fn elapsed_s(&self) -> f64 {
        self.run.elapsed.as_secs_f64()
    }

    fn flows(&self) -> Table {
        columns::flows(&self.run.flows)
    }

    fn gateways(&self) -> Table {
        columns::gateways(&self.run.flows)
    }

    fn responses(&self) -> Table {
        columns::responses(&self.run.flows)
    }

    fn links(&self) -> Table {
        columns::links(&self.run.links)
    }

    fn proxies(&self) -> Table {
        columns::proxies(&self.run)
    }

    fn measures(&self) -> Table {
        columns::measures(&self.run)
    }

    /// `None` of a run that was not traced.
    fn samples(&self, py: Python<'_>) -> Option<Py<Table>> {
        self.traced
            .as_ref()
            .map(|(samples, _)| samples.clone_ref(py))
    }

    /// `None` of a run that was not traced.
    fn sequence(&self, py: Python<'_>) -> Option<Py<Table>> {
        self.traced
            .as_ref()
            .map(|(_, sequence)| sequence.clone_ref(py))
    }

    /// The document of `--json`.
    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        serde_json::to_string(&self.run.document())
            .map_err(|error| errors::of_run(py, error.to_string()))
    }
}
