//! Every study of the repository is right, and a few points of it run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_scenario::Study;
use bentpipe_scenario::study::Engine;
use bentpipe_study::{load, simulate, single};
use std::fs;
use std::path::{Path, PathBuf};

fn shipped() -> Vec<PathBuf> {
    let papers = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../papers"));
    let entries = fs::read_dir(papers).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let folders = paths.filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    // A study of its own folder has its scenario there.
    let paths = files.map(|file| file.unwrap().path());
    let paths = paths.map(|path| {
        if path.is_dir() {
            path.join("scenario.toml")
        } else {
            path
        }
    });
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "toml"))
        // One scenario without axes is for `bentpipe compare`.
        .filter(|path| fs::read_to_string(path).unwrap().contains("[[sweep]]"))
        .collect()
}

/// The number of the point with the first value of each axis, or, but for size and seed, the last.
fn corner(study: &Study, last: bool) -> Option<u64> {
    let choice: Vec<u64> = study
        .axes()
        .iter()
        .map(|axis| match axis.name() {
            "packets" | "seed" => 0,
            _ => (axis.len() - 1) * u64::from(last),
        })
        .collect();
    study.index_of(&choice)
}

#[test]
fn every_shipped_study_reads_and_runs() {
    let shipped = shipped();
    assert!(shipped.len() >= 21, "{shipped:?}");
    for path in shipped {
        let study = load(&path).unwrap_or_else(|error| panic!("{error}")).study;
        assert!(!study.is_empty(), "{path:?}");
        if study.engine() != Engine::Simulator {
            continue;
        }
        // The others have no size to be small: one of their points is enough.
        let sized = study.axes().iter().any(|axis| axis.name() == "packets");
        let corners = [false, true].into_iter().filter(|last| sized || !last);
        for index in corners.filter_map(|last| corner(&study, last)) {
            let point = study.expander().point(index).unwrap();
            let measures = simulate(&point.scenario, &single(&study)).unwrap();
            assert!(
                measures["segments"].unwrap() >= 0.0,
                "{path:?}: {measures:?}"
            );
        }
    }
}
