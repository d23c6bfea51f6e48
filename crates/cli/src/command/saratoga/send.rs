//! `saratoga put` and `give`: files, what is in directories, and standard input.

use super::client::{Common, Outcome, Session, resolve, update_deletes_nothing};
use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::anyhow;
use bentpipe_base::Rate;
use bentpipe_saratoga_udp::client::Job;
use bentpipe_saratoga_udp::path::{joined, normal, once, real};
use bentpipe_saratoga_udp::{Key, LocalFile, LocalFolder, Update, beacon, is_of_a_part, leftovers};
use rustix::fs::{FileType, OFlags};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `saratoga put` and `give`.
#[derive(Debug, clap::Args)]
pub(crate) struct Put {
    /// The server: a name or address, and its port if it is not 7542
    server: String,
    /// Files to send; `-`: standard input, with --as
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// What the line towards the server carries, IP headers included [default: what the server says it
    /// takes]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// The directory they go to, in the served one
    #[arg(long, value_name = "DIR", default_value = "")]
    to: String,
    /// Another name for the one file
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Files may be directories: send all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// With put: leave out files that are there already, of the same size and modification time, so that the same
    /// command again goes on with a directory that takes longer than a pass
    #[arg(short, long, requires = "recursive", conflicts_with = "blind")]
    update: bool,
    /// Send without asking first, for older servers that know no other way; the server is not asked for its rate,
    /// either
    #[arg(long, requires = "rate", conflicts_with = "key_file")]
    blind: bool,
    #[command(flatten)]
    common: Common,
}

/// `saratoga put` and `give`.
pub(crate) fn put(args: &Put, give: bool) -> Result<(), Failure> {
    update_deletes_nothing(args.update && give).or_usage()?;
    let (mut jobs, mut outcome) = to_put(args, give).or_usage()?;
    let key = args.common.way.key()?;
    let rate = match args.rate {
        Some(rate) => rate,
        None => learnt(args, key.as_ref())?,
    };
    let mut session = Session::with(&args.server, &args.common, rate, key, args.blind)?;
    if args.update {
        let (mut update, lists) = Update::new(jobs, &normal(&args.to).or_usage()?);
        session.run(lists, &mut |report| update.listed(report))?;
        let there;
        (jobs, there) = update.rest();
        outcome.there_already(there);
    }
    session.run_all(jobs, outcome)
}

/// What to send, and what cannot be.
fn to_put(args: &Put, give: bool) -> anyhow::Result<(Vec<Job>, Outcome)> {
    if args.name.is_some() && (args.files.len() != 1 || args.recursive) {
        return Err(anyhow!("--as names one file: give one, without -r"));
    }
    if give {
        // A missing file is reported when it is sent.
        let named = |file: &PathBuf| Some((file.display().to_string(), real(file).ok()?));
        once(args.files.iter().filter_map(named).collect())?;
    }
    let to = normal(&args.to)?;
    let as_named = args.name.as_deref().map(normal).transpose()?;
    if as_named.as_ref().is_some_and(String::is_empty) {
        return Err(anyhow!(
            "--as is empty: give the name under which it is to be there"
        ));
    }
    let mut found = Found::default();
    let mut jobs = Vec::new();
    for file in &args.files {
        if file == Path::new("-") {
            let Some(name) = &as_named else {
                return Err(anyhow!("standard input has no name: give one with --as"));
            };
            if terminal::is_closed(io::stdin(), OFlags::RDONLY) {
                return Err(anyhow!(
                    "standard input is closed, or not open for reading: `{name}` would be empty; open it, or give a file"
                ));
            }
            let key = args.common.way.key_file.as_deref();
            if key.is_some_and(|key| {
                ["/dev/stdin", "/dev/fd/0"]
                    .iter()
                    .any(|name| key == Path::new(name))
            }) {
                return Err(anyhow!(
                    "standard input cannot be both the key and the content: give the key by a file"
                ));
            }
            jobs.push(Job::Put {
                local: None,
                remote: joined(&to, name),
                give: false,
                size: None,
            });
            continue;
        }
        let name = match (&as_named, file.file_name()) {
            (Some(name), _) => name.clone(),
            // `.` and `..` have no name of their own, so their content goes directly into the target.
            (None, None) => String::new(),
            (None, Some(own)) => match own.to_str() {
                Some(own) => own.to_owned(),
                None => {
                    found.left_out(file, "its name is not UTF-8; --as gives it another");
                    continue;
                }
            },
        };
        match (file.is_dir(), args.recursive) {
            (true, true) => found.walk(file, &name),
            (true, false) => {
                let what = "is a directory: -r sends all that is in it";
                return Err(anyhow!("`{}` {what}", file.display()));
            }
            (false, _) => found.files.push((LocalFile::named(file.clone()), name)),
        }
    }
    let interrupted = found.interrupted;
    let mut files: Vec<_> = found
        .files
        .into_iter()
        .map(|(file, name)| (file.path(), name, file))
        .collect();
    if give {
        let found = files.iter().map(|(path, ..)| path);
        let found = found.chain(&interrupted).map(PathBuf::as_path);
        for path in leftovers::end_deletions(found) {
            terminal::say(&format!("`{}` {}", path.display(), leftovers::STAYS));
        }
    }
    files.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    files.dedup_by(|one, other| (&one.0, &one.1) == (&other.0, &other.1));
    let mut places = BTreeMap::new();
    for (path, name, local) in files {
        if let Some(other) = places.insert(name.clone(), path.clone()) {
            let (other, path) = (other.display(), path.display());
            return Err(anyhow!(
                "`{other}` and `{path}` would both be `{name}` there: send them to different directories"
            ));
        }
        jobs.push(Job::Put {
            size: std::fs::symlink_metadata(&path)
                .ok()
                .filter(std::fs::Metadata::is_file)
                .map(|about| about.len()),
            local: Some(local),
            remote: joined(&to, &name),
            give,
        });
    }
    Ok((jobs, found.outcome))
}

/// The rate that the server takes, where none was given.
fn learnt(args: &Put, key: Option<&Key>) -> Result<Rate, Failure> {
    let address = resolve(&args.server).or_usage()?;
    let patience = args.common.way.silence.min(PATIENCE);
    let rate = beacon::ask_rate(address, key, patience).or_run()?;
    terminal::say(&format!(
        "sending at {rate}, which is what the server takes"
    ));
    Ok(rate)
}

/// How long a server may take to say its rate.
const PATIENCE: Duration = Duration::from_secs(10);

/// Files, each with its name at the server, and what has none.
#[derive(Default)]
struct Found {
    files: Vec<(LocalFile, String)>,
    interrupted: Vec<PathBuf>,
    outcome: Outcome,
}

impl Found {
    /// All files in and below the directory at `path`, which is called `name` at the server.
    fn walk(&mut self, path: &Path, name: &str) {
        let top = match LocalFolder::open(path) {
            Ok(top) => top,
            Err(error) => return self.not_listed(path, &error),
        };
        let mut folders = vec![(PathBuf::new(), name.to_owned())];
        while let Some((below, name)) = folders.pop() {
            if let Err(error) = self.look(&top, &below, &name, &mut folders) {
                // Other directories are sent all the same.
                self.not_listed(&top.file(below).path(), &error);
            }
        }
    }

    /// All files in the directory `below` `top`; directories are left for later.
    fn look(
        &mut self,
        top: &LocalFolder,
        below: &Path,
        name: &str,
        folders: &mut Vec<(PathBuf, String)>,
    ) -> io::Result<()> {
        for (entry, kind) in top.entries(below)? {
            let file = top.file(below.join(&entry));
            let path = file.path();
            let Some(own) = entry.to_str() else {
                self.left_out(&path, "its name is not UTF-8");
                continue;
            };
            let remote = joined(name, own);
            if kind == FileType::Directory {
                folders.push((below.join(&entry), remote));
            } else if is_of_a_part(&entry) {
                let why = "an interrupted transfer has left it";
                terminal::say(&format!("left out `{}`: {why}", path.display()));
                self.interrupted.push(path);
            } else if kind == FileType::RegularFile {
                self.files.push((file, remote));
            } else {
                terminal::say(&format!("left out `{}`: it is no file", path.display()));
            }
        }
        Ok(())
    }

    fn not_listed(&mut self, path: &Path, error: &io::Error) {
        self.left_out(path, &format!("it cannot be listed ({error})"));
    }

    /// A file, or a directory of them, that will not be there.
    fn left_out(&mut self, path: &Path, why: &str) {
        let path = path.to_string_lossy();
        let why = format!("left out `{}`: {why}", path.escape_debug());
        self.outcome.note(Err(why));
    }
}
