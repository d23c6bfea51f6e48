//! The result folders: all that the server knows. What `lab run --out` or a hand put there is shown, too.

use crate::response::Refusal;
use crate::run_record::{ASKED, RunRecord, State, Work, now};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What the server writes of a run.
const NOTE: &str = "run.json";
/// What a run found.
const RESULT: &str = "result.json";
/// The most that is read of a small file.
const SMALL: u64 = 16 << 20;
/// Folders that a list has at most, the newest.
const LISTED: usize = 2_000;
/// Longest name of a run or file.
const LONGEST: usize = 128;

/// The folder of the result folders.
pub(crate) struct RunStore {
    folder: PathBuf,
}

/// Whether `name` is one of a single file or folder, and no hidden one.
fn is_plain(name: &str) -> bool {
    let right = |octet: u8| octet.is_ascii_alphanumeric() || b"._-+".contains(&octet);
    !name.is_empty() && name.len() <= LONGEST && !name.starts_with('.') && name.bytes().all(right)
}

impl RunStore {
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let folder = folder.canonicalize()?;
        Ok(Self { folder })
    }

    /// Where the folders are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of run `id`, which is a folder itself and no link to one.
    pub(crate) fn of(&self, id: &str) -> Result<PathBuf, Refusal> {
        let folder = self.folder.join(id);
        let there = is_plain(id) && fs::symlink_metadata(&folder).is_ok_and(|it| it.is_dir());
        there.then_some(folder).ok_or_else(|| {
            Refusal::missing("there is no such run; History has those that are there")
        })
    }

    /// Makes a folder for a run of the scenario `text`, which is noted as `label`, and returns what is noted.
    pub(crate) fn make(
        &self,
        name: &str,
        label: &str,
        work: Work,
        captured: bool,
        text: Option<&str>,
    ) -> io::Result<RunRecord> {
        let stem: String = { name.chars() }
            .map(|it| {
                if it.is_ascii_alphanumeric() {
                    it.to_ascii_lowercase()
                } else {
                    '-'
                }
            })
            .take(40)
            .collect();
        let stem = format!("{}-{}", stem.trim_matches('-'), compact(now()));
        let mut number = 0;
        let id = loop {
            let id = match number {
                0 => stem.trim_start_matches('-').to_owned(),
                more => format!("{}-{more}", stem.trim_start_matches('-')),
            };
            match fs::create_dir(self.folder.join(&id)) {
                Ok(()) => break id,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        };
        if let Some(text) = text {
            fs::write(self.folder.join(&id).join(ASKED), text)?;
        }
        let record = RunRecord::new(id, label.to_owned(), work, captured);
        self.write(&record)?;
        Ok(record)
    }

    /// Writes `record` into its folder, whole or not at all.
    pub(crate) fn write(&self, record: &RunRecord) -> io::Result<()> {
        let folder = self.folder.join(&record.id);
        let new = folder.join(".run.json.new");
        let mut text = serde_json::to_string_pretty(record)?;
        text.push('\n');
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(new, folder.join(NOTE))
    }

    /// What is known of run `id`.
    pub(crate) fn record(&self, id: &str) -> Result<RunRecord, Refusal> {
        let folder = self.of(id)?;
        read_record(&folder, id).ok_or_else(|| Refusal::missing("this folder has no run in it"))
    }

    /// All runs, the newest first.
    pub(crate) fn list(&self) -> io::Result<Vec<RunRecord>> {
        let folders = fs::read_dir(&self.folder)?;
        let mut records: Vec<RunRecord> = folders
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let id = entry.file_name().into_string().ok()?;
                let own = is_plain(&id) && entry.file_type().ok()?.is_dir();
                own.then(|| read_record(&entry.path(), &id)).flatten()
            })
            .collect();
        records.sort_by(|a, b| b.asked.total_cmp(&a.asked).then_with(|| b.id.cmp(&a.id)));
        records.truncate(LISTED);
        Ok(records)
    }

    /// A file in the folder of run `id`, or in a folder below that: a regular one, that no link leads out to.
    pub(crate) fn open(&self, id: &str, names: &[&str]) -> Result<(File, u64), Refusal> {
        let missing = || Refusal::missing("the run has no such file");
        if !names.iter().all(|name| is_plain(name)) {
            return Err(missing());
        }
        let mut path = self.of(id)?;
        for name in &names[..names.len().saturating_sub(1)] {
            path.push(name);
            if !fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir()) {
                return Err(missing());
            }
        }
        path.extend(names.last());
        open_regular(&path).ok_or_else(missing)
    }

    /// The files of run `id` that can be downloaded, with their sizes; captures are in a folder of their own.
    pub(crate) fn files(&self, id: &str) -> Result<Vec<(String, u64)>, Refusal> {
        let folder = self.of(id)?;
        let mut all = Vec::new();
        for (below, prefix) in [(folder.clone(), ""), (folder.join("captures"), "captures/")] {
            if !fs::symlink_metadata(&below).is_ok_and(|it| it.is_dir()) {
                continue;
            }
            for entry in fs::read_dir(&below).into_iter().flatten().flatten() {
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                let length = entry.metadata().map_or(0, |it| it.len());
                if is_plain(&name) && entry.file_type().is_ok_and(|it| it.is_file()) {
                    all.push((format!("{prefix}{name}"), length));
                }
            }
        }
        all.sort();
        Ok(all)
    }
}

/// A regular file, which `path` does not name by a link, and its length.
pub(crate) fn open_regular(path: &Path) -> Option<(File, u64)> {
    // Without waiting, lest a named pipe has somebody wait.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    let file = { options.read(true) }
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .ok()?;
    let about = file.metadata().ok()?;
    about.is_file().then_some((file, about.len()))
}

/// All of a small file.
pub(crate) fn read_small(path: &Path) -> Option<Vec<u8>> {
    let (file, length) = open_regular(path)?;
    let mut octets = Vec::new();
    (length <= SMALL).then_some(())?;
    file.take(SMALL).read_to_end(&mut octets).ok()?;
    Some(octets)
}

fn read_record(folder: &Path, id: &str) -> Option<RunRecord> {
    if let Some(octets) = read_small(&folder.join(NOTE))
        && let Ok(record) = serde_json::from_slice::<RunRecord>(&octets)
    {
        // A folder may have been copied.
        return Some(RunRecord {
            id: id.to_owned(),
            ..record
        });
    }
    foreign(folder, id)
}

/// A result that this server did not make.
fn foreign(folder: &Path, id: &str) -> Option<RunRecord> {
    let path = folder.join(RESULT);
    let result: Value = serde_json::from_slice(&read_small(&path)?).ok()?;
    let engine = result.get("engine").and_then(Value::as_str);
    let valid = result.get("valid").and_then(Value::as_bool) != Some(false);
    let made = fs::metadata(&path).ok()?.modified().ok()?;
    let made = made.duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    let work = match engine {
        Some("simulator") => Work::Simulator,
        _ => Work::Lab,
    };
    Some(RunRecord {
        state: if valid { State::Done } else { State::Failed },
        asked: made,
        ended: Some(made),
        why: (!valid).then(|| "the emulator fell behind".to_owned()),
        ..RunRecord::new(id.to_owned(), id.to_owned(), work, false)
    })
}

/// Seconds since 1970 as `20261126-204500`.
fn compact(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
}

/// The date `days` after the 1st of January 1970: Howard Hinnant's `civil_from_days`.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn times_name_folders() {
        assert_eq!(compact(0.0), "19700101-000000");
        assert_eq!(compact(1_795_725_900.9), "20261126-204500");
        assert_eq!(compact(1_709_164_799.0), "20240228-235959");
        assert_eq!(compact(1_709_164_800.0), "20240229-000000");
    }

    #[test]
    fn nothing_outside_a_runs_folder_is_opened() {
        let around = tempfile::tempdir().unwrap();
        fs::write(around.path().join("secret"), "s").unwrap();
        let results = around.path().join("results");
        fs::create_dir(&results).unwrap();
        let store = RunStore::new(&results).unwrap();
        let record = store
            .make("a/../b", "l", Work::Simulator, false, Some("text"))
            .unwrap();
        assert!(is_plain(&record.id), "{}", record.id);
        let own = results.join(&record.id);
        symlink(around.path().join("secret"), own.join("link.json")).unwrap();
        symlink(around.path(), own.join("captures")).unwrap();
        symlink(around.path(), results.join("elsewhere")).unwrap();
        assert!(store.open(&record.id, &[ASKED]).is_ok());
        for names in [
            &["link.json"][..],
            &["captures", "secret"],
            &["..", "secret"],
            &["."],
            &[""],
            &["/etc/passwd"],
            &[".run.json.new"],
            &[],
        ] {
            assert!(store.open(&record.id, names).is_err(), "{names:?}");
        }
        for id in ["elsewhere", "..", ".", "", "a/b", "no-such-run"] {
            assert!(store.of(id).is_err(), "{id}");
        }
        let files: Vec<String> = { store.files(&record.id).unwrap() }
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(files, [ASKED, NOTE]);
        // A pipe has nobody wait.
        rustix::fs::mknodat(
            rustix::fs::CWD,
            own.join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(store.open(&record.id, &["pipe"]).is_err());
    }

    #[test]
    fn what_others_put_there_is_listed_too() {
        let folder = tempfile::tempdir().unwrap();
        let store = RunStore::new(folder.path()).unwrap();
        let own = store
            .make("geo", "geo, cubic", Work::Lab, true, Some("t"))
            .unwrap();
        let again = store
            .make("geo", "geo, bbr", Work::Lab, true, Some("t"))
            .unwrap();
        assert_ne!(own.id, again.id);
        fs::create_dir(folder.path().join("by-hand")).unwrap();
        fs::write(
            folder.path().join("by-hand/result.json"),
            r#"{"engine":"kernel","valid":false}"#,
        )
        .unwrap();
        fs::create_dir(folder.path().join("nothing")).unwrap();
        let listed = store.list().unwrap();
        let of = |id: &str| listed.iter().find(|record| record.id == id);
        assert_eq!((listed.len(), of(&own.id)), (3, Some(&own)));
        assert_eq!(
            of("by-hand").map(|record| record.state),
            Some(State::Failed)
        );
        assert!(store.record("nothing").is_err());
    }
}
