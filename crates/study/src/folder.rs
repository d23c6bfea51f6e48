//! The results folder: `manifest.json` says whose results they are, `points.jsonl` has a line for
//! each finished point.
//!
//! Lines are appended whole, as points finish; of each only its place in the file is kept in memory. A line that a killed process left torn is cut off
//! when the folder is opened again, and its point redone. When all are finished, the file is
//! rewritten in the order of the points and put in place at once: so an interrupted study ends with
//! the same bytes as one that was not. The folder is locked as long as it is open: two studies that append
//! would not know where their lines begin.

use crate::StudyError;
use crate::row::{Key, Row};
use bentpipe_base::read_whole;
use bentpipe_scenario::Study;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest.json";
const POINTS: &str = "points.jsonl";
/// Most lines are shorter, in bytes: so much is read at a time.
const LINE: usize = 1024;

pub(crate) struct Folder {
    path: PathBuf,
    points: File,
    /// Bytes of whole lines in the file.
    length: u64,
    /// Where the lines of finished points begin, by their keys.
    finished: BTreeMap<Key, u64>,
    /// The folder itself, locked.
    _lock: File,
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
        let lock = File::open(path).map_err(failed)?;
        // File systems that lock no folder do without.
        if let Err(Errno::WOULDBLOCK) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            return Err(StudyError::Busy(path.to_owned()));
        }
        has_room(path, fresh)?;
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
        let (length, finished) = match File::open(&file) {
            Ok(points) => whole_lines(points).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (0, BTreeMap::new()),
            Err(error) => return Err(failed(error)),
        };
        is_ours(path, study, finished.len())?;
        let manifest = manifest(study);
        replace(&path.join(MANIFEST), |file| {
            file.write_all(manifest.as_bytes())
        })
        .map_err(failed)?;
        let points = OpenOptions::new()
            .read(true)
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
            _lock: lock,
        })
    }

    /// The row of a finished point. A point whose row cannot be read again counts as not finished.
    pub(crate) fn row(&self, key: Key) -> Option<Row> {
        let line = line(&self.points, *self.finished.get(&key)?).ok()?;
        serde_json::from_slice(&line).ok()
    }

    /// Appends `row`, that of the point `key`.
    pub(crate) fn append(&mut self, key: Key, row: &Row) -> Result<(), StudyError> {
        let written = serde_json::to_vec(row)
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.points.write_all(&line).map(|()| line.len() as u64)
            });
        match written {
            Ok(length) => {
                self.finished.insert(key, self.length);
                self.length += length;
                Ok(())
            }
            Err(source) => {
                // A torn line is cut off at once where possible; otherwise the next start does it.
                let _ = self.points.set_len(self.length);
                Err(self.failed(source))
            }
        }
    }

    /// Rewrites the file: the points of `order`, then those of other values by their keys.
    pub(crate) fn finish(mut self, order: &[Key]) -> Result<(), StudyError> {
        let own = order.iter().filter_map(|key| self.finished.remove(key));
        let mut places: Vec<u64> = own.collect();
        places.extend(std::mem::take(&mut self.finished).into_values());
        let path = self.path.join(POINTS);
        let copied = replace(&path, |file| {
            let mut file = BufWriter::new(file);
            for place in &places {
                file.write_all(&line(&self.points, *place)?)?;
            }
            file.flush()
        });
        let kept = places.len() as u64;
        copied.map_err(|source| StudyError::Write { path, source, kept })
    }

    fn failed(&self, source: io::Error) -> StudyError {
        StudyError::Write {
            path: self.path.join(POINTS),
            source,
            kept: self.finished.len() as u64,
        }
    }
}

/// The line of `points` that begins at `place`, its end included.
fn line(mut points: &File, place: u64) -> io::Result<Vec<u8>> {
    points.seek(SeekFrom::Start(place))?;
    let mut line = Vec::new();
    BufReader::with_capacity(LINE, points).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// How many bytes of `points` are whole lines, and where those that are rows begin.
fn whole_lines(points: File) -> io::Result<(u64, BTreeMap<Key, u64>)> {
    let mut points = BufReader::new(points);
    let (mut length, mut finished) = (0, BTreeMap::new());
    let mut line = Vec::new();
    while points.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
        let row = serde_json::from_slice::<Row>(&line).ok();
        if let Some(key) = row.and_then(|row| Key::parse(&row.point)) {
            finished.insert(key, length);
        }
        length += line.len() as u64;
        line.clear();
    }
    Ok((length, finished))
}

/// Whether nothing lies at `path` that is not of a study and would be lost; of results without a manifest `fresh` says
/// so.
fn has_room(path: &Path, fresh: bool) -> Result<(), StudyError> {
    let manifest = File::open(path.join(MANIFEST));
    let exists = manifest.is_ok();
    let there = manifest
        .and_then(read_whole)
        .ok()
        .and_then(|octets| serde_json::from_slice::<Value>(&octets).ok());
    let fields = ["bentpipe", "study", "points"];
    let ours = there.is_some_and(|there| fields.iter().all(|key| there.get(key).is_some()));
    let points = fs::metadata(path.join(POINTS)).is_ok_and(|about| about.len() > 0);
    match (exists, points) {
        (true, _) if !ours => Err(StudyError::Taken(path.join(MANIFEST))),
        (false, true) if !fresh => Err(StudyError::Taken(path.join(POINTS))),
        _ => Ok(()),
    }
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
    let there: Value = fs::read_to_string(path.join(MANIFEST))
        .and_then(|text| Ok(serde_json::from_str(&text)?))
        .map_err(|e| {
            foreign(format!(
                "something else: its {MANIFEST} cannot be read ({e})"
            ))
        })?;
    let field = |name: &str| there[name].as_str().unwrap_or("unknown").to_owned();
    let version = field("bentpipe");
    if version != env!("CARGO_PKG_VERSION") {
        return Err(foreign(format!(
            "bentpipe {version}, this is {}",
            env!("CARGO_PKG_VERSION")
        )));
    }
    if field("scenario") != Key::of_text(&study.identity()).to_string() {
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
        "scenario": Key::of_text(&study.identity()).to_string(),
        "seed": study.base().seed,
        "points": study.len(),
        "axes": axes.collect::<Vec<_>>(),
        "settings": study.base().to_toml(),
    });
    format!("{manifest:#}\n")
}

/// Puts a file of what `write` writes in the place of `path` at once.
fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    write(&mut file)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}
