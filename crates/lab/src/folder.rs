//! The folder of a run: `manifest.json` (what was run, where, under which settings), `scenario.toml`
//! (runs again as it is, with the `profile.csv` that it may name), `result.json`, `flows.csv` and `samples.csv`. A run that is no result has
//! `unfit-flows.csv` and `unfit-samples.csv` instead, and no figures in `result.json`.

mod rows;

use crate::LabError;
use crate::emulator::Report;
use crate::result::{Measured, RunResult};
use bentpipe_outcome::Document;
use bentpipe_scenario::{Scenario, Traffic, TrafficSource};
use rows::{FlowRow, SampleRow};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The first transfers of cross traffic, where the scenario has them from a file.
const PROFILE: &str = "profile.csv";
/// Every file of the folder.
const FILES: [&str; 8] = [
    "manifest.json",
    PROFILE,
    "scenario.toml",
    "result.json",
    "flows.csv",
    "samples.csv",
    "unfit-flows.csv",
    "unfit-samples.csv",
];

#[derive(Serialize)]
struct ManifestFile<'a> {
    name: &'a str,
    seed: u64,
    version: &'a str,
    kernel: &'a str,
    processors: usize,
    /// Seconds since 1970, UTC.
    started: f64,
    valid: bool,
    reasons: &'a [String],
    scenario: &'a str,
    settings: &'a BTreeMap<String, BTreeMap<String, String>>,
    emulators: &'a BTreeMap<String, Report>,
    gateways: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct ResultFile<'a> {
    valid: bool,
    reasons: &'a [String],
    /// Absent where the run is no result.
    #[serde(flatten)]
    run: Option<Document<'a>>,
}

/// Makes the folder, and takes an earlier run's files out of it: a run that fails must not leave
/// another's results.
pub(crate) fn prepare(out: &Path) -> Result<(), LabError> {
    fs::create_dir_all(out).map_err(|e| error(out, e))?;
    for name in FILES {
        let path = out.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(error(&path, e)),
            _ => {}
        }
    }
    Ok(())
}

/// `scenario` as it stands in the folder of its run, beside all that it names.
pub(crate) fn self_contained(scenario: &Scenario) -> Scenario {
    let mut own = scenario.clone();
    if let Some(Traffic {
        source: TrafficSource::Profile { file, .. },
        ..
    }) = &mut own.traffic
    {
        PROFILE.clone_into(file);
    }
    own
}

/// Writes all files of a run of `scenario`, which is [`self_contained`].
pub(crate) fn write(out: &Path, scenario: &Scenario, result: &RunResult) -> Result<(), LabError> {
    let (measured, reasons, prefix) = match result.measured() {
        Ok(measured) => (measured, &[][..], ""),
        Err(reasons) => (result.measured_anyway(), reasons, "unfit-"),
    };
    let manifest = &result.manifest;
    let started = manifest
        .started
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let valid = reasons.is_empty();
    fs::write(out.join("scenario.toml"), &manifest.scenario)
        .map_err(|e| error(&out.join("scenario.toml"), e))?;
    let traffic = scenario.traffic.as_ref();
    if let Some((traffic, file)) = traffic.and_then(|traffic| Some((traffic, traffic.file()?))) {
        let text = traffic
            .profile(scenario.seed)
            .map(|profile| profile.to_string());
        let path = out.join(file);
        fs::write(&path, text.unwrap_or_default()).map_err(|e| error(&path, e))?;
    }
    json(
        &out.join("manifest.json"),
        &ManifestFile {
            name: &manifest.name,
            seed: manifest.seed,
            version: manifest.version,
            kernel: &manifest.kernel,
            processors: manifest.processors,
            started: started.as_secs_f64(),
            valid,
            reasons,
            scenario: &manifest.scenario,
            settings: &manifest.settings,
            emulators: &measured.links,
            gateways: &manifest.gateways,
        },
    )?;
    tables(out, prefix, measured)?;
    let run = measured.outcome(scenario);
    // Last: whoever finds it finds the rest.
    json(
        &out.join("result.json"),
        &ResultFile {
            valid,
            reasons,
            run: valid.then(|| run.document()),
        },
    )
}

fn tables(out: &Path, prefix: &str, measured: &Measured) -> Result<(), LabError> {
    let flows = measured.flows.iter().map(FlowRow::from);
    csv(&out.join(format!("{prefix}flows.csv")), flows)?;
    let samples = measured.samples.iter();
    let samples = samples.map(|sample| SampleRow::new(sample, &measured.flows[sample.flow].name));
    csv(&out.join(format!("{prefix}samples.csv")), samples)
}

fn json(path: &Path, value: &impl Serialize) -> Result<(), LabError> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| error(path, e.into()))?;
    text.push('\n');
    fs::write(path, text).map_err(|e| error(path, e))
}

fn csv(path: &PathBuf, rows: impl Iterator<Item = impl Serialize>) -> Result<(), LabError> {
    let write = || -> io::Result<()> {
        let mut writer = csv::Writer::from_path(path)?;
        for row in rows {
            writer.serialize(row)?;
        }
        writer.flush()
    };
    write().map_err(|e| error(path, e))
}

fn error(path: &Path, source: io::Error) -> LabError {
    LabError::Output {
        path: path.to_owned(),
        source,
    }
}
