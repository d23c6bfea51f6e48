//! The results folder: `manifest.json` says whose results they are, `points.jsonl` has a line for
//! each finished point.
//!
//! Lines are appended whole, as points finish; of each only its place in the file is kept in memory. A line that a killed process left torn is cut off
//! when the folder is opened again, and its point redone. When all are finished, the file is
//! rewritten in the order of the points and put in place at once: so an interrupted study ends with
//! the same bytes as one that was not. The folder is locked as long as it is open: two studies that append
//! would not know where their lines begin.

use crate::StudyError;
use crate::capture::CAPTURES;
use crate::row::{Key, Row};
use crate::shard::Shard;
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
/// Has a line for each point that could not be run; there is none in a finished folder.
const FAILED: &str = "failed.jsonl";
/// Most lines are shorter, in bytes: so much is read at a time.
const LINE: usize = 1024;

pub(crate) struct Folder {
    path: PathBuf,
    points: File,
    /// Bytes of whole lines in the file.
    length: u64,
    /// Where the lines of finished points begin, by their keys.
    finished: BTreeMap<Key, u64>,
    /// The lines of points that failed, once there is one.
    failed: Option<File>,
    /// The folder itself, locked unless it is only looked at.
    _lock: File,
}

/// What came from the folder of a shard beside its points.
pub(crate) struct Absorbed {
    /// Which shard it is; `None` of the folder of a run of all points.
    pub(crate) shard: Option<Shard>,
    /// The file that names the points that failed there.
    pub(crate) failures: Option<PathBuf>,
}

impl Folder {
    /// Opens or makes the folder for the results of `study`, or of one `shard` of it.
    pub(crate) fn open(
        path: &Path,
        study: &Study,
        fresh: bool,
        shard: Option<Shard>,
    ) -> Result<Self, StudyError> {
        let failed = |source| StudyError::Write {
            path: path.to_owned(),
            source,
            kept: 0,
        };
        fs::create_dir_all(path).map_err(failed)?;
        let Some(lock) = locked(path).map_err(failed)? else {
            return Err(StudyError::Busy(path.to_owned()));
        };
        has_room(path, fresh)?;
        if fresh {
            for name in [POINTS, MANIFEST] {
                remove(&path.join(name)).map_err(failed)?;
            }
        }
        let file = path.join(POINTS);
        let (length, finished) = match File::open(&file) {
            Ok(points) => whole_lines(points).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (0, BTreeMap::new()),
            Err(error) => return Err(failed(error)),
        };
        if !finished.is_empty() {
            is_ours(path, study, Some(finished.len()))?;
        }
        // Points that failed are run again.
        remove(&path.join(FAILED)).map_err(failed)?;
        let manifest = manifest(study, shard);
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
            failed: None,
            _lock: lock,
        })
    }

    /// The folder of an earlier run of `study`, in which nothing is to be changed.
    pub(crate) fn read(path: &Path, study: &Study) -> Result<Self, StudyError> {
        Self::unchanged(path, study, locked)
    }

    /// As [`read`](Self::read), also while a run appends to it: lines are whole or not looked at.
    pub(crate) fn look(path: &Path, study: &Study) -> Result<Self, StudyError> {
        Self::unchanged(path, study, |path| File::open(path).map(Some))
    }

    fn unchanged(
        path: &Path,
        study: &Study,
        hold: impl FnOnce(&Path) -> io::Result<Option<File>>,
    ) -> Result<Self, StudyError> {
        let unread = |source| StudyError::Read {
            path: path.join(POINTS),
            source,
        };
        if !path.join(MANIFEST).is_file() {
            return Err(StudyError::NoResults(path.to_owned()));
        }
        let Some(lock) = hold(path).map_err(unread)? else {
            return Err(StudyError::Busy(path.to_owned()));
        };
        // One file for both: a run that ends puts another in its place.
        let points = File::open(path.join(POINTS)).map_err(unread)?;
        let (length, finished) = points.try_clone().and_then(whole_lines).map_err(unread)?;
        is_ours(path, study, Some(finished.len()))?;
        Ok(Self {
            path: path.to_owned(),
            points,
            length,
            finished,
            failed: None,
            _lock: lock,
        })
    }

    /// Takes in the finished points, and their captures, of another folder of `study`, which is only read.
    pub(crate) fn absorb(&mut self, other: &Path, study: &Study) -> Result<Absorbed, StudyError> {
        let file = other.join(POINTS);
        let unread = |source| StudyError::ReadShard {
            path: other.to_owned(),
            source,
        };
        if !other.join(MANIFEST).is_file() {
            return Err(StudyError::NoShard(other.to_owned()));
        }
        let Some(_lock) = locked(other).map_err(unread)? else {
            return Err(StudyError::Busy(other.to_owned()));
        };
        let mut points = BufReader::new(File::open(&file).map_err(unread)?);
        let manifest = is_ours(other, study, None)?;
        let mut line = Vec::new();
        while points.read_until(b'\n', &mut line).map_err(unread)? > 0 && line.ends_with(b"\n") {
            let key = key(&line).filter(|key| !self.finished.contains_key(key));
            if let Some(key) = key {
                self.write(key, &line)?;
            }
            line.clear();
        }
        let captures = self.path.join(CAPTURES);
        copy_missing(&other.join(CAPTURES), &captures).map_err(|source| StudyError::Write {
            path: captures,
            source,
            kept: self.finished.len() as u64,
        })?;
        let shard = manifest["shard"].as_str();
        let failures = Some(other.join(FAILED)).filter(|file| file.is_file());
        Ok(Absorbed {
            shard: shard.and_then(|text| text.parse().ok()),
            failures,
        })
    }

    /// The row of a finished point. A point whose row cannot be read again counts as not finished.
    pub(crate) fn row(&self, key: Key) -> Option<Row> {
        let line = line(&self.points, *self.finished.get(&key)?).ok()?;
        serde_json::from_slice(&line).ok()
    }

    /// Appends `row`, that of the point `key`.
    pub(crate) fn append(&mut self, key: Key, row: &Row) -> Result<(), StudyError> {
        let line = json_line(row).map_err(|source| self.failed_at(POINTS, source))?;
        self.write(key, &line)
    }

    /// Appends `line`, that of the point `key`.
    fn write(&mut self, key: Key, line: &[u8]) -> Result<(), StudyError> {
        if let Err(source) = self.points.write_all(line) {
            // A torn line is cut off at once where possible; otherwise the next start does it.
            let _ = self.points.set_len(self.length);
            return Err(self.failed_at(POINTS, source));
        }
        self.finished.insert(key, self.length);
        self.length += line.len() as u64;
        Ok(())
    }

    /// The file that names the points that failed.
    pub(crate) fn failures(&self) -> PathBuf {
        self.path.join(FAILED)
    }

    /// Appends that the point of these labels failed, and why.
    pub(crate) fn fail(&mut self, labels: &[String], why: &str) -> Result<(), StudyError> {
        let written = json_line(&json!({ "labels": labels, "why": why })).and_then(|line| {
            let mut file = match self.failed.take() {
                Some(file) => file,
                None => File::create(self.failures())?,
            };
            file.write_all(&line)?;
            Ok(file)
        });
        self.failed = Some(written.map_err(|source| self.failed_at(FAILED, source))?);
        Ok(())
    }

    /// Rewrites the file: the points of `order`, then those of other values by their keys.
    pub(crate) fn finish(mut self, order: impl Iterator<Item = Key>) -> Result<(), StudyError> {
        let own = order.filter_map(|key| self.finished.remove(&key));
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

    fn failed_at(&self, name: &str, source: io::Error) -> StudyError {
        StudyError::Write {
            path: self.path.join(name),
            source,
            kept: self.finished.len() as u64,
        }
    }
}

/// The folder `path`, locked; `None` where another holds it. File systems that lock no folder do without.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let folder = File::open(path)?;
    let held = flock(&folder, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
    Ok((!held).then_some(folder))
}

/// Removes a file that need not be there.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies the folders in `from` that `to` does not have, with the files in them; nothing where there is no `from`.
fn copy_missing(from: &Path, to: &Path) -> io::Result<()> {
    let folders = match fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        folders => folders?,
    };
    for folder in folders {
        let folder = folder?;
        let target = to.join(folder.file_name());
        if target.exists() {
            continue;
        }
        // A copy that breaks off is not taken for a whole one.
        let beside = target.with_extension("new");
        fs::create_dir_all(&beside)?;
        for file in fs::read_dir(folder.path())? {
            let file = file?;
            fs::copy(file.path(), beside.join(file.file_name()))?;
        }
        fs::rename(beside, target)?;
    }
    Ok(())
}

fn json_line(value: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

/// The key of the point whose row `line` is; `None` if it is no row.
fn key(line: &[u8]) -> Option<Key> {
    let row = serde_json::from_slice::<Row>(line).ok()?;
    Key::parse(&row.point)
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
        if let Some(key) = key(&line) {
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

/// The manifest of a folder with results of this study by this version; `points`: how many there are, where that is known.
fn is_ours(path: &Path, study: &Study, points: Option<usize>) -> Result<Value, StudyError> {
    let foreign = |what: String| match points {
        Some(points) => StudyError::Foreign {
            path: path.to_owned(),
            what,
            points,
        },
        None => StudyError::ForeignShard {
            path: path.to_owned(),
            what,
        },
    };
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
    Ok(there)
}

fn manifest(study: &Study, shard: Option<Shard>) -> String {
    let axes = study.axes().iter().map(|axis| {
        let labels: Vec<String> = axis.labels().take(1000).collect();
        json!({ "name": axis.name(), "values": axis.len(), "labels": labels })
    });
    let mut manifest = json!({
        "bentpipe": env!("CARGO_PKG_VERSION"),
        "study": study.base().name,
        "engine": study.engine().name(),
        "scenario": Key::of_text(&study.identity()).to_string(),
        "seed": study.base().seed,
        "points": study.len(),
        "axes": axes.collect::<Vec<_>>(),
        "settings": study.base().to_toml(),
    });
    if let Some(shard) = shard {
        manifest["shard"] = json!(shard.to_string());
    }
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
