//! Leaves out of what is put the files of which the server has copies already.
//!
//! The server is asked for the lists of the directories to which something goes, from the outermost on. Where one is
//! missing, nothing below it is asked for.

use crate::Error;
use crate::job::{Job, Report};
use bentpipe_saratoga::sender::Failure;
use bentpipe_saratoga_files::Stamp;
use bentpipe_saratoga_files::path::{above, joined};
use bentpipe_wire::saratoga::{Code, Entry, EntryKind, entries};
use std::collections::BTreeMap;
use std::iter;

/// See the file's head.
#[derive(Debug, Default)]
pub struct Update {
    /// By their paths at the server.
    directories: BTreeMap<String, Directory>,
    /// What is put in any case.
    missing: Vec<Job>,
    there: usize,
}

/// A directory at the server, whose list has not come.
#[derive(Debug, Default)]
struct Directory {
    /// What goes to it, each with what it is here.
    files: Vec<(Job, Stamp)>,
    /// Those in it whose lists are asked for next.
    below: Vec<String>,
}

impl Update {
    /// Of `jobs`, which go to `to` or directories in it, and the lists to ask for first.
    pub fn new(jobs: Vec<Job>, to: &str) -> (Self, Vec<Job>) {
        let mut update = Self::default();
        for mut job in jobs {
            let stamp = match &mut job {
                Job::Put {
                    local: Some(local), ..
                } => {
                    *local = local.clone().checked_later();
                    local.stamp()
                }
                _ => None,
            };
            match (stamp, above(job.remote())) {
                (Some(stamp), Some(directory)) => {
                    let directory = update.directories.entry(directory.to_owned()).or_default();
                    directory.files.push((job, stamp));
                }
                // Putting it tells what is wrong with it.
                _ => update.missing.push(job),
            }
        }
        // The list of `to` may be long, and is asked for only where files go to it. Those between tell what is not there.
        let paths: Vec<String> = update.directories.keys().cloned().collect();
        for path in &paths {
            let around = iter::successors(above(path), |path| above(path));
            for path in around.take_while(|path| path.len() > to.len()) {
                update.directories.entry(path.to_owned()).or_default();
            }
        }
        let mut first = Vec::new();
        let paths: Vec<String> = update.directories.keys().cloned().collect();
        for path in paths {
            match above(&path).and_then(|above| update.directories.get_mut(above)) {
                Some(directory) => directory.below.push(path),
                None => first.push(list(path)),
            }
        }
        (update, first)
    }

    /// Takes the report on a list; the lists to ask for next.
    ///
    /// # Errors
    /// What kept the list from coming, unless the server refuses it.
    pub fn listed(&mut self, report: Report) -> Result<Vec<Job>, Error> {
        let Some(Directory { files, below }) = self.directories.remove(&report.path) else {
            return Ok(Vec::new());
        };
        let put = |files: Vec<(Job, Stamp)>| files.into_iter().map(|(job, _)| job);
        let content = match report.result {
            Ok(content) => content,
            Err(error) if error.is_no_directory() => {
                tracing::info!(path = report.path, %error, "not listed: all that goes there is sent");
                self.missing.extend(put(files));
                return Ok(if is_missing(&error) {
                    Vec::new()
                } else {
                    below.into_iter().map(list).collect()
                });
            }
            Err(error) => return Err(error),
        };
        // What cannot be read of a list is as good as missing.
        let there: BTreeMap<String, Entry> = entries(&content)
            .map_while(Result::ok)
            .map(|entry| (joined(&report.path, &entry.path), entry))
            .collect();
        for (job, stamp) in files {
            let is_there = there.get(job.remote()).is_some_and(|entry| {
                entry.kind == EntryKind::File && Stamp::from(entry).is_copy_of(&stamp)
            });
            if is_there {
                self.there += 1;
            } else {
                self.missing.push(job);
            }
        }
        let is_listed = |path: &String| {
            let entry = there.get(path);
            entry.is_some_and(|entry| entry.kind == EntryKind::Directory)
        };
        Ok(below.into_iter().filter(is_listed).map(list).collect())
    }

    /// When no list is missing: what is to be put, and how many files are there already.
    pub fn rest(mut self) -> (Vec<Job>, usize) {
        for directory in self.directories.into_values() {
            let files = directory.files.into_iter();
            self.missing.extend(files.map(|(job, _)| job));
        }
        (self.missing, self.there)
    }
}

fn list(remote: String) -> Job {
    Job::List { remote }
}

/// Whether the server says that there is no such directory.
fn is_missing(error: &Error) -> bool {
    matches!(
        error,
        Error::Session {
            failure: Failure::Peer(Code::NOT_FOUND),
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_saratoga_files::LocalFile;

    /// A file of 2023 that is to be each of `remotes`.
    fn puts(folder: &std::path::Path, remotes: &[&str]) -> Vec<Job> {
        let path = folder.join("file");
        std::fs::write(&path, "content").unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let modified = rustix::time::Timespec {
            tv_sec: 1_700_000_000,
            tv_nsec: 0,
        };
        let times = rustix::fs::Timestamps {
            last_access: modified,
            last_modification: modified,
        };
        rustix::fs::futimens(&file, &times).unwrap();
        let put = |remote: &&str| Job::Put {
            local: Some(LocalFile::named(path.clone())),
            remote: remote.to_string(),
            give: false,
            size: None,
        };
        remotes.iter().map(put).collect()
    }

    /// The list of `path`: copies of that file, and directories, whose names end in `/`.
    fn listed(path: &str, names: &[&str]) -> Report {
        let mut content = Vec::new();
        for name in names {
            let modified = bentpipe_wire::saratoga::Time::from_posix(1_700_000_000);
            let mut entry = Entry {
                modified,
                ..Entry::file(name.trim_end_matches('/'), 7)
            };
            if name.ends_with('/') {
                entry.kind = EntryKind::Directory;
            }
            entry.emit(&mut content).unwrap();
        }
        report(path, Ok(content))
    }

    fn report(path: &str, result: Result<Vec<u8>, Error>) -> Report {
        Report {
            number: 0,
            path: path.to_owned(),
            result,
        }
    }

    fn paths(jobs: &[Job]) -> Vec<&str> {
        let mut paths: Vec<&str> = jobs.iter().map(Job::remote).collect();
        paths.sort_unstable();
        paths
    }

    #[test]
    fn lists_are_asked_for_from_the_outermost_on_and_below_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let remotes = [
            "to/a/1",
            "to/a/2",
            "to/a/b/c/1",
            "to/a/b/c/d/1",
            "to/a/x/1",
            "to/a/x-y/1",
            "to/e/f/1",
            "to/e/g/1",
        ];
        let (mut update, first) = Update::new(puts(folder.path(), &remotes), "to");
        assert_eq!(paths(&first), ["to/a", "to/e"]);
        let next = update
            .listed(listed("to/a", &["1", "b/", "x-y/", "x"]))
            .unwrap();
        assert_eq!(paths(&next), ["to/a/b", "to/a/x-y"]);
        let next = update.listed(listed("to/a/b", &["c/"])).unwrap();
        assert_eq!(paths(&next), ["to/a/b/c"]);
        let next = update.listed(listed("to/a/b/c", &["1", "d/"])).unwrap();
        assert_eq!(paths(&next), ["to/a/b/c/d"]);
        let next = update.listed(listed("to/a/b/c/d", &["1/"])).unwrap();
        assert_eq!(paths(&next), [""; 0]);
        update.listed(listed("to/a/x-y", &[])).unwrap();
        let missing = Error::session("to/e", Failure::Peer(Code::NOT_FOUND));
        update.listed(report("to/e", Err(missing))).unwrap();
        let (put, there) = update.rest();
        assert_eq!(there, 2);
        assert_eq!(
            paths(&put),
            [
                "to/a/2",
                "to/a/b/c/d/1",
                "to/a/x-y/1",
                "to/a/x/1",
                "to/e/f/1",
                "to/e/g/1"
            ]
        );
    }

    #[test]
    fn what_is_not_listed_is_sent() {
        let folder = tempfile::tempdir().unwrap();
        let mut jobs = puts(folder.path(), &["1", "a/1", "a/b/1"]);
        jobs.push(Job::Put {
            local: Some(LocalFile::named(folder.path().join("none"))),
            remote: "a/none".to_owned(),
            give: false,
            size: None,
        });
        for (code, asked) in [(Code::NOT_FOUND, &[][..]), (Code::DENIED, &["a"])] {
            let (mut update, first) = Update::new(jobs.clone(), "");
            assert_eq!(paths(&first), [""]);
            let refused = Error::session("", Failure::Peer(code));
            let next = update.listed(report("", Err(refused))).unwrap();
            assert_eq!(paths(&next), asked);
            let (put, there) = update.rest();
            assert_eq!(paths(&put), ["1", "a/1", "a/b/1", "a/none"]);
            assert_eq!(there, 0);
        }
    }
}
