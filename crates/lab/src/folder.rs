//! The folder of a run: `manifest.json` (what was run, where, under which settings), `scenario.toml`
//! (runs again as it is, with the `profile.csv` that it may name), `result.json`, `flows.csv` and `samples.csv`. A run that is no result has
//! `unfit-flows.csv` and `unfit-samples.csv` instead, and no figures in `result.json`.

mod rows;

use crate::LabError;
use crate::emulator::Report;
use crate::result::{Measured, RunResult};
use bentpipe_base::read_whole;
use bentpipe_outcome::Document;
use bentpipe_scenario::{Scenario, Traffic, TrafficSource, UnreadProfile};
use rows::{FlowRow, SampleRow};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The first transfers of cross traffic, where the scenario has them from a file.
const PROFILE: &str = "profile.csv";
const MANIFEST: &str = "manifest.json";
/// What was run, which may be run again from the folder.
const INPUTS: [&str; 3] = [MANIFEST, PROFILE, "scenario.toml"];
/// What was found.
const RESULTS: [&str; 5] = [
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

/// Makes the folder, and takes an earlier run's results out of it: a run that fails must not leave
/// another's. What was run stays until there is something in its place, for it may be what is run now. No other run
/// has the folder as long as what this returns is there.
pub(crate) fn prepare(out: &Path) -> Result<fs::File, LabError> {
    fs::create_dir_all(out).map_err(|e| error(out, e))?;
    let held = fs::File::open(out).map_err(|e| error(out, e))?;
    // A file system without locks has none to respect.
    let lock = rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive);
    if lock == Err(Errno::WOULDBLOCK) {
        return Err(LabError::Busy(out.to_owned()));
    }
    if !is_of_a_run(&out.join(MANIFEST)) {
        let mut names = INPUTS.iter().chain(&RESULTS);
        if let Some(name) = names.find(|name| out.join(name).exists()) {
            let path = out.join(name);
            return Err(LabError::Foreign { path });
        }
    }
    for name in RESULTS {
        let path = out.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(error(&path, e)),
            _ => {}
        }
    }
    Ok(held)
}

/// Whether `manifest` is one that [`write()`] has written.
fn is_of_a_run(manifest: &Path) -> bool {
    let manifest = fs::File::open(manifest)
        .and_then(read_whole)
        .ok()
        .and_then(|octets| serde_json::from_slice::<Value>(&octets).ok());
    let is_there = |manifest: &Value| {
        ["kernel", "settings", "emulators"]
            .iter()
            .all(|key| manifest.get(key).is_some())
    };
    manifest.as_ref().is_some_and(is_there)
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
        let profile = traffic
            .profile(scenario.seed)
            .map_err(|UnreadProfile(file)| LabError::Profile(file))?;
        let path = out.join(file);
        fs::write(&path, profile.to_string()).map_err(|e| error(&path, e))?;
    }
    json(
        &out.join(MANIFEST),
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
    let samples = measured
        .samples
        .iter()
        .map(|sample| SampleRow::new(sample, &measured.flows[sample.flow].name));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn fill(out: &Path, names: &[&str]) {
        for name in names {
            fs::write(out.join(name), format!("{name} of somebody's")).unwrap();
        }
    }

    fn names(out: &Path) -> BTreeSet<String> {
        let listed = fs::read_dir(out).unwrap();
        let names = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn what_is_not_of_a_run_is_neither_removed_nor_replaced() {
        for name in INPUTS.iter().chain(&RESULTS) {
            let folder = tempfile::tempdir().unwrap();
            fill(folder.path(), &[name, "notes"]);
            let refused = prepare(folder.path()).unwrap_err();
            assert!(refused.to_string().contains(name), "{refused}");
            assert_eq!(names(folder.path()).len(), 2, "{name}");
        }
    }

    #[test]
    fn two_runs_do_not_have_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let held = prepare(folder.path()).unwrap();
        let refused = prepare(folder.path()).unwrap_err();
        assert!(matches!(refused, LabError::Busy(_)), "{refused}");
        drop(held);
        prepare(folder.path()).unwrap();
    }

    #[test]
    fn of_an_earlier_run_the_results_go_and_what_was_run_stays() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("a/b");
        prepare(&out).unwrap();
        fill(&out, &INPUTS);
        fill(&out, &RESULTS);
        let manifest = r#"{ "kernel": "6.18", "settings": {}, "emulators": {} }"#;
        fs::write(out.join(MANIFEST), manifest).unwrap();
        prepare(&out).unwrap();
        let left: BTreeSet<String> = INPUTS.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names(&out), left);
    }
}
