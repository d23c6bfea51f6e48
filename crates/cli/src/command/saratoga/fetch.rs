//! `saratoga get` and `take`: files, and what is in directories, which is found out while it is fetched.

use super::client::{Common, Outcome, REPORTS, Session, update_deletes_nothing};
use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::anyhow;
use bentpipe_saratoga_udp::client::{Job, Report, Target};
use bentpipe_saratoga_udp::path::{MAX_DIRECTORIES, joined, normal, once};
use bentpipe_saratoga_udp::{Error, Stamp, Tree};
use bentpipe_wire::saratoga::{Entry, EntryKind, entries};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Options of `saratoga get` and `take`.
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The server: a name or address, and its port if it is not 7542
    server: String,
    /// Paths in the served directory
    #[arg(required = true)]
    paths: Vec<String>,
    /// The directory they go to; `-`: standard output
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
    /// Paths may be directories: fetch all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// With get: leave out files that are here already, of the same size and modification time, so that the same
    /// command again goes on with a directory that takes longer than a pass
    #[arg(short, long, requires = "recursive")]
    update: bool,
    /// Files and directories that -r finds at most, for a server may list what has no end
    #[arg(long, value_name = "N", default_value = "1000000")]
    max_files: NonZeroUsize,
    #[command(flatten)]
    common: Common,
}

/// Octets of a path that cost no more than one file: each so many of a longer one count as a file more, so that the
/// memory of a client is bounded by the number of files.
const LONG: usize = 256;

/// `saratoga get` and `take`.
pub(crate) fn get(args: &Get, take: bool) -> Result<(), Failure> {
    update_deletes_nothing(args.update && take).or_usage()?;
    let stdout = args.to == Path::new("-");
    if stdout && (args.paths.len() != 1 || args.recursive) {
        return Err(anyhow!(
            "standard output takes one file: give one path, without -r"
        ))
        .or_usage();
    }
    if stdout && terminal::is_closed(std::io::stdout(), OFlags::WRONLY) {
        return Err(anyhow!(
            "standard output is closed, or not open for writing: what is fetched would be lost; open it, or give a directory to --to"
        ))
        .or_usage();
    }
    if take && args.recursive {
        let paths = args.paths.iter().filter_map(|path| normal(path).ok());
        once(paths.map(|path| (path.clone(), path.into())).collect()).or_usage()?;
    }
    let tree = if stdout {
        None
    } else {
        Some(Tree::open_for(&args.to, args.update).or_usage()?)
    };
    let mut fetch = Fetch {
        tree,
        take,
        begun: 0,
        folders: BTreeMap::new(),
        claimed: BTreeMap::new(),
        walked: 0,
        most: args.max_files.get(),
        listed: args.update.then(Vec::new),
        outcome: Outcome::default(),
    };
    let mut jobs = Vec::new();
    for path in &args.paths {
        match fetch.asked(path, args.recursive) {
            Ok(job) => jobs.extend(job),
            // A path that cannot be asked for does not keep the others from being fetched.
            Err(Refused::Path(error)) => fetch.outcome.note(Err(error)),
            Err(Refused::Use(error)) => return Err(error).or_usage(),
        }
    }
    let mut session = Session::open(&args.server, &args.common, REPORTS)?;
    session.run(jobs, &mut |report| fetch.next(report))?;
    // No session waits meanwhile for the disk.
    let missing = fetch.missing();
    session.run(missing, &mut |report| fetch.next(report))?;
    fetch.outcome.end()
}

/// Why a path of the command line is not asked for.
enum Refused {
    Path(Error),
    Use(anyhow::Error),
}

/// A directory whose list is asked for.
struct Folder {
    /// The path at the server.
    remote: String,
    /// Where it goes here.
    place: String,
}

/// What is fetched, and what came of it.
struct Fetch {
    /// Where it goes; `None`: standard output.
    tree: Option<Tree>,
    take: bool,
    /// Jobs that were begun.
    begun: usize,
    /// By the number of the job that asks for the list.
    folders: BTreeMap<usize, Folder>,
    /// What goes where: the path at the server by that here.
    claimed: BTreeMap<String, String>,
    /// What lists had in them, as [`LONG`] has it, and at most.
    walked: usize,
    most: usize,
    /// With `--update`, files in lists, each with what it is there: those that are not here are fetched when all lists have come.
    listed: Option<Vec<(Job, Stamp)>>,
    outcome: Outcome,
}

impl Fetch {
    /// The first job for a path of the command line; `None` if it was named before.
    fn asked(&mut self, path: &str, recursive: bool) -> Result<Option<Job>, Refused> {
        let remote = normal(path).map_err(Refused::Path)?;
        // The directory itself comes along: `get -r a/b` makes `b`. The served one has no name.
        let place = { remote.rsplit_once('/') }.map_or(&*remote, |(_, name)| name);
        let place = place.to_owned();
        if recursive {
            return Ok(Some(self.list(remote, place)));
        }
        if remote.is_empty() {
            return Err(Refused::Use(anyhow!(
                "`{path}` is the served directory: -r fetches all that is in it"
            )));
        }
        match self.claimed.get(&place) {
            Some(other) if *other == remote => Ok(None),
            Some(other) => Err(Refused::Use(anyhow!(
                "`{other}` and `{remote}` would both be `{place}` here: fetch them to different directories"
            ))),
            None => Ok(self.file(remote, place, None)),
        }
    }

    fn list(&mut self, remote: String, place: String) -> Job {
        let folder = Folder {
            remote: remote.clone(),
            place,
        };
        self.folders.insert(self.begun, folder);
        self.begun += 1;
        Job::List { remote }
    }

    /// The job for a file, which a list may have had as `entry`; `None` if it is put off.
    fn file(&mut self, remote: String, place: String, entry: Option<&Entry>) -> Option<Job> {
        self.claimed.insert(place.clone(), remote.clone());
        let target = match &self.tree {
            None => Target::Stdout,
            Some(tree) => Target::File(tree.clone(), place),
        };
        let job = Job::Get {
            remote,
            target,
            take: self.take,
            size: entry.and_then(|entry| u64::try_from(entry.size).ok()),
        };
        if let (Some(listed), Some(entry)) = (&mut self.listed, entry) {
            listed.push((job, entry.into()));
            return None;
        }
        self.begun += 1;
        Some(job)
    }

    /// Takes a report; what there is to do besides.
    ///
    /// # Errors
    /// When lists have more in them than is walked.
    fn next(&mut self, report: Report) -> Result<Vec<Job>, Error> {
        let Some(Folder { remote, place }) = self.folders.remove(&report.number) else {
            self.outcome.note(report.result.map(drop));
            return Ok(Vec::new());
        };
        match report.result {
            Ok(content) => self.listed(&remote, &place, &content),
            // The path is a file after all, or fetching it tells why it cannot be had.
            Err(error) if error.is_no_directory() && !remote.is_empty() => {
                Ok(self.found(remote, place, None).into_iter().collect())
            }
            Err(error) => {
                self.outcome.note(Err(error));
                Ok(Vec::new())
            }
        }
    }

    /// What is in a directory.
    fn listed(&mut self, remote: &str, place: &str, content: &[u8]) -> Result<Vec<Job>, Error> {
        let mut jobs = Vec::new();
        for entry in entries(content) {
            match entry {
                Ok(entry) => {
                    self.walked += 1 + (remote.len() + entry.path.len()) / LONG;
                    if self.walked > self.most {
                        let (path, most) = (remote.to_owned(), self.most);
                        return Err(Error::TooMany { path, most });
                    }
                    jobs.extend(self.entry(remote, place, &entry));
                }
                Err(error) => {
                    let error =
                        format!("the list of `{remote}` cannot be read to its end: {error}");
                    self.outcome.note(Err(error));
                }
            }
        }
        Ok(jobs)
    }

    fn entry(&mut self, folder: &str, place: &str, entry: &Entry) -> Option<Job> {
        let name = entry.path.as_str();
        let left_out = |why: &str| {
            let path = joined(folder, name);
            Err(format!("left out `{}`: {why}", path.escape_debug()))
        };
        // A list must have plain names; a path in one could lead out of the directory.
        if name.contains('/') || matches!(name, "" | "." | "..") {
            self.outcome.note(left_out("it is no name"));
            return None;
        }
        let (remote, place) = (joined(folder, name), joined(place, name));
        match entry.kind {
            // Nothing could be put into it here.
            EntryKind::Directory if place.split('/').count() > MAX_DIRECTORIES => {
                self.outcome.note(left_out(&format!(
                    "it lies in {MAX_DIRECTORIES} directories, one in another, and that is the most"
                )));
                None
            }
            EntryKind::Directory => Some(self.list(remote, place)),
            EntryKind::File => self.found(remote, place, Some(entry)),
            EntryKind::SpecialFile | EntryKind::SpecialDirectory => {
                self.outcome.note(left_out(
                    "its name is not UTF-8, it is no file, or the server cannot look at it",
                ));
                None
            }
        }
    }

    /// What of the files in lists is not here yet.
    fn missing(&mut self) -> Vec<Job> {
        let mut missing = Vec::new();
        for (job, there) in self.listed.take().unwrap_or_default() {
            match &job {
                Job::Get {
                    target: Target::File(tree, place),
                    ..
                } if tree.has_copy(place, &there) => self.outcome.there_already(1),
                _ => missing.push(job),
            }
        }
        missing
    }

    /// A file of a directory, unless something else goes to its place.
    fn found(&mut self, remote: String, place: String, entry: Option<&Entry>) -> Option<Job> {
        match self.claimed.get(&place) {
            None => self.file(remote, place, entry),
            Some(other) if *other == remote => None,
            Some(other) => {
                let error = format!("`{remote}` was left out: `{other}` is `{place}` here");
                self.outcome.note(Err(error));
                None
            }
        }
    }
}
