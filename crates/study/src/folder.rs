//! The results folder: `manifest.json` says whose results they are, `points.jsonl` has a line for
//! each finished point.
//!
//! Lines are appended whole, as points finish. A line that a killed process left torn is cut off
//! when the folder is opened again, and its point redone. When all are finished, the file is
//! rewritten in the order of the points and put in place at once: so an interrupted study ends with
//! the same bytes as one that was not.

use crate::StudyError;
use crate::row::{Row, digest};
use bentpipe_scenario::Study;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest.json";
const POINTS: &str = "points.jsonl";

pub(crate) struct Folder {
    path: PathBuf,
    points: File,
    /// Bytes of whole lines in the file.
    length: u64,
    /// Lines of finished points by their keys.
    finished: BTreeMap<String, String>,
}

impl Folder {
    /// Opens or makes the folder for the results of `study`.
    pub(crate) fn open(path: &Path, study: &Study, fresh: bool) -> Result<Self, StudyError> {
        let failed = |source| StudyError::Write {
            path: path.to_owned(),
            source,
            kept: 0,
        };
        fs::create_dir_all(path).map_err(failed)?;
        if fresh {
            for name in [POINTS, MANIFEST] {
                match fs::remove_file(path.join(name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed(error));
                    }
                    _ => {}
                }
            }
        }
        let file = path.join(POINTS);
        let text = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let (length, finished) = whole_lines(&text);
        is_ours(path, study, finished.len())?;
        replace(&path.join(MANIFEST), manifest(study).as_bytes()).map_err(failed)?;
        let points = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file)
            .and_then(|points| points.set_len(length).map(|()| points))
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            points,
            length,
            finished,
        })
    }

    /// The line of a finished point.
    pub(crate) fn line(&self, key: &str) -> Option<&str> {
        self.finished.get(key).map(String::as_str)
    }

    /// Appends `line`, that of the point `key`.
    pub(crate) fn append(&mut self, key: &str, line: String) -> Result<(), StudyError> {
        let mut whole = line.clone();
        whole.push('\n');
        if let Err(source) = self.points.write_all(whole.as_bytes()) {
            // What is torn would be cut off at the next start; better now. If not, then.
            let _ = self.points.set_len(self.length);
            return Err(self.failed(source));
        }
        self.length += whole.len() as u64;
        self.finished.insert(key.to_owned(), line);
        Ok(())
    }

    /// Rewrites the file: the points of `order`, then those of other values by their keys.
    pub(crate) fn finish(mut self, order: &[String]) -> Result<(), StudyError> {
        let mut text = String::new();
        let mut put = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        let lines: Vec<Option<String>> =
            order.iter().map(|key| self.finished.remove(key)).collect();
        lines.into_iter().flatten().for_each(&mut put);
        let kept = order.len() as u64 + self.finished.len() as u64;
        std::mem::take(&mut self.finished)
            .into_values()
            .for_each(put);
        let path = self.path.join(POINTS);
        replace(&path, text.as_bytes()).map_err(|source| StudyError::Write { path, source, kept })
    }

    fn failed(&self, source: io::Error) -> StudyError {
        StudyError::Write {
            path: self.path.join(POINTS),
            source,
            kept: self.finished.len() as u64,
        }
    }
}

/// How many bytes of `text` are whole lines, and those that are rows.
fn whole_lines(text: &[u8]) -> (u64, BTreeMap<String, String>) {
    let length = text
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1);
    let whole = String::from_utf8_lossy(&text[..length]);
    let rows = whole.lines().filter_map(|line| {
        let row: Row = serde_json::from_str(line).ok()?;
        Some((row.point, line.to_owned()))
    });
    (length as u64, rows.collect())
}

/// Whether the folder is free, or holds results of this study by this version.
fn is_ours(path: &Path, study: &Study, points: usize) -> Result<(), StudyError> {
    let foreign = |what: String| StudyError::Foreign {
        path: path.to_owned(),
        what,
        points,
    };
    if points == 0 {
        return Ok(());
    }
    let text = match fs::read_to_string(path.join(MANIFEST)) {
        Ok(text) => text,
        Err(_) => return Err(foreign("an unknown study".to_owned())),
    };
    let there: Value = serde_json::from_str(&text).unwrap_or_default();
    let field = |name: &str| there[name].as_str().unwrap_or("unknown").to_owned();
    let version = field("bentpipe");
    if version != env!("CARGO_PKG_VERSION") {
        return Err(foreign(format!(
            "bentpipe {version}, this is {}",
            env!("CARGO_PKG_VERSION")
        )));
    }
    if field("scenario") != digest(&study.identity()) {
        let name = field("study");
        return Err(foreign(format!("another scenario than this (`{name}`)")));
    }
    Ok(())
}

fn manifest(study: &Study) -> String {
    let axes = study.axes().iter().map(|axis| {
        let labels: Vec<String> = axis.labels().take(1000).collect();
        json!({ "name": axis.name(), "values": axis.len(), "labels": labels })
    });
    let manifest = json!({
        "bentpipe": env!("CARGO_PKG_VERSION"),
        "study": study.base().name,
        "engine": study.engine().name(),
        "scenario": digest(&study.identity()),
        "seed": study.base().seed,
        "points": study.len(),
        "axes": axes.collect::<Vec<_>>(),
        "settings": study.base().to_toml(),
    });
    format!("{manifest:#}\n")
}

/// Puts a file of `bytes` in the place of `path` at once.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
