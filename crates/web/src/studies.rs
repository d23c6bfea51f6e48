//! The studies of the papers: which there are, how far their results are.

use crate::run_record::Work;
use crate::run_store::open_regular;
use bentpipe_study::load;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

/// The folder of the papers, and that of the results.
pub(crate) struct Studies {
    papers: PathBuf,
    results: PathBuf,
}

/// A study.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Entry {
    /// Its file, below the folder of the papers.
    pub(crate) path: String,
    pub(crate) name: String,
    /// What runs its points.
    engine: &'static str,
    points: u64,
    /// Those with fewer values, where it names some for `--quick`.
    quick_points: u64,
    /// Lines of its results, and whether there is a report.
    finished: u64,
    report: bool,
    quick_finished: u64,
    quick_report: bool,
}

/// Which one is to be run.
#[derive(Debug, Deserialize)]
pub(crate) struct Ask {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) quick: bool,
}

impl Studies {
    pub(crate) fn new(papers: &Path, results: &Path) -> Self {
        Self {
            papers: papers.canonicalize().unwrap_or_else(|_| papers.to_owned()),
            results: results.to_owned(),
        }
    }

    /// All of them.
    pub(crate) fn list(&self) -> Vec<Entry> {
        let mut files = Vec::new();
        tomls(&self.papers, 0, &mut files);
        files.sort();
        files.iter().filter_map(|file| self.entry(file)).collect()
    }

    /// What is to be done for the study of `ask`, if it is one of them.
    pub(crate) fn work(&self, ask: &Ask) -> Option<(Entry, Work)> {
        let entry = self
            .list()
            .into_iter()
            .find(|entry| entry.path == ask.path)?;
        let work = Work::Study {
            path: self.papers.join(&ask.path),
            out: self.out(&ask.path, ask.quick),
            quick: ask.quick,
        };
        Some((entry, work))
    }

    /// The report of the study at `path`.
    pub(crate) fn report(&self, path: &str, quick: bool) -> Option<(fs::File, u64)> {
        let known = self.list().into_iter().any(|entry| entry.path == path);
        known.then(|| open_regular(&self.out(path, quick).join("report/index.html")))?
    }

    /// What makes a report of the points of the study at `path` that are finished, and the file of it.
    pub(crate) fn so_far(&self, path: &str, quick: bool) -> Option<(Vec<OsString>, PathBuf)> {
        let known = self.list().into_iter().any(|entry| entry.path == path);
        let out = known.then(|| self.out(path, quick))?;
        let report = out.join("so-far");
        let mut args: Vec<OsString> = ["study", "report"].map(OsString::from).into();
        args.push(self.papers.join(path).into());
        args.extend([
            "--out".into(),
            out.into(),
            "--report".into(),
            report.clone().into(),
        ]);
        args.extend(quick.then(|| "--quick".into()));
        Some((args, report.join("index.html")))
    }

    /// Where the results of the study at `path` are: not among the runs, but in a folder of their own.
    fn out(&self, path: &str, quick: bool) -> PathBuf {
        let name = path.trim_end_matches(".toml");
        let kind = if quick { ".quick" } else { ".studies" };
        self.results.join(kind).join(name)
    }

    fn entry(&self, file: &Path) -> Option<Entry> {
        let path = file.strip_prefix(&self.papers).ok()?.to_str()?.to_owned();
        let mut study = load(file).ok()?.study;
        if study.axes().is_empty() {
            return None;
        }
        let points = study.len();
        let engine = study.engine().name();
        let name = study.base().name.clone();
        study.set_quick();
        let finished = |quick| lines(&self.out(&path, quick).join("points.jsonl"));
        let report = |quick| self.out(&path, quick).join("report/index.html").is_file();
        Some(Entry {
            name,
            engine,
            points,
            quick_points: study.len(),
            finished: finished(false),
            report: report(false),
            quick_finished: finished(true),
            quick_report: report(true),
            path,
        })
    }
}

/// Files of TOML at most three folders below.
fn tomls(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < 3 => tomls(&path, depth + 1, found),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|it| it == "toml") => {
                found.push(path);
            }
            _ => {}
        }
    }
}

fn lines(path: &Path) -> u64 {
    let Some((file, _)) = open_regular(path) else {
        return 0;
    };
    BufReader::new(file).split(b'\n').count() as u64
}
