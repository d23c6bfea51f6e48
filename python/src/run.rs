//! One run of a scenario in the simulator.

use crate::control::Controls;
use crate::interruptible::interruptible;
use crate::scenario::Scenario;
use crate::table::Table;
use crate::{columns, errors};
use bentpipe_outcome::{MEASURES, Run};
use bentpipe_sim::{Options, Sampler, Series, SimError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
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
#[pyo3(signature = (scenario, seed, trace, controls))]
pub(crate) fn run(
    py: Python<'_>,
    scenario: &Bound<'_, Scenario>,
    seed: Option<u64>,
    trace: bool,
    controls: BTreeMap<String, Py<PyAny>>,
) -> PyResult<Outcome> {
    let scenario = &scenario.get().scenario;
    have_senders(py, scenario, controls.keys())?;
    let controls = Controls::new(py, controls)?;
    let options = Options { seed, wire: false };
    let simulate = |cancel: &AtomicBool| -> Result<_, SimError> {
        let stops = (cancel, controls.failed());
        let own = |flow: &str| controls.of(flow);
        if !trace {
            let (run, _) = bentpipe_sim::observe_with(scenario, &options, stops, &own)?;
            return Ok((run, None));
        }
        let traces = (Series::new(scenario), Sampler::new(scenario));
        let (mut run, (_, (series, sampler))) =
            bentpipe_sim::observe_with(scenario, &options, (stops, traces), &own)?;
        run.samples = sampler.into_samples();
        let tables = (
            columns::samples(&run),
            columns::sequence(scenario, &run, &series),
        );
        run.samples = Vec::new();
        Ok((run, Some(tables)))
    };
    let work = |cancel: &AtomicBool| {
        if controls.is_empty() {
            return simulate(cancel);
        }
        // The thread is known to the interpreter before it lets go of it: each call of a control takes it back sooner then.
        Python::attach(|py| py.detach(|| simulate(cancel)))
    };
    let done = interruptible(py, work, |_| Ok(()))?;
    if let Some(error) = controls.error() {
        return Err(error);
    }
    let (run, tables) = done.map_err(|error| errors::of_run(py, error.to_string()))?;
    let traced = tables
        .map(|(samples, sequence)| PyResult::Ok((Py::new(py, samples)?, Py::new(py, sequence)?)))
        .transpose()?;
    Ok(Outcome { run, traced })
}

/// Refuses `flows` that are not there, or have no congestion control of TCP.
fn have_senders<'f>(
    py: Python<'_>,
    scenario: &bentpipe_scenario::Scenario,
    flows: impl Iterator<Item = &'f String>,
) -> PyResult<()> {
    for name in flows {
        let Some(flow) = scenario.flows.iter().find(|flow| flow.name == *name) else {
            let known: Vec<&str> = scenario.flows.iter().map(|flow| &*flow.name).collect();
            let why = format!("no flow is named `{name}`: there are {}", known.join(", "));
            return Err(PyValueError::new_err(why));
        };
        if let Some(app) = &flow.app {
            let why =
                format!("flow `{name}` is a file by {app}, whose congestion control is its own");
            return Err(errors::of_run(py, why));
        }
    }
    Ok(())
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
