//! The commands that begin: get, take, put, give, ls, rm.

use super::Way;
use super::progress::Bar;
use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_base::{Bytes, Rate};
use bentpipe_saratoga::sender::Failure as Failed;
use bentpipe_transfer::client::{Config, Job, Report, Target};
use bentpipe_transfer::{Client, Error, Tree, beacon};
use bentpipe_wire::saratoga::{Entry, EntryKind, PORT, entries};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of every client.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    way: Way,
    /// The longest file that is taken from the server
    #[arg(long, value_name = "SIZE", default_value = "100GB")]
    max_size: Bytes,
    /// Files at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    parallel: usize,
}

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
    #[command(flatten)]
    common: Common,
}

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
    #[command(flatten)]
    common: Common,
}

/// Options of `saratoga ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// The server: a name or address, and its port if it is not 7542
    server: String,
    /// A directory in the served one
    #[arg(default_value = "")]
    path: String,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

/// Options of `saratoga rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// The server: a name or address, and its port if it is not 7542
    server: String,
    /// Paths in the served directory
    #[arg(required = true)]
    paths: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// A side that only receives sends little besides: reports and requests.
const REPORTS: Rate = Rate::from_bits_per_sec(1_000_000);

struct Session {
    client: Client,
    stop: Stop,
}

impl Session {
    fn open(server: &str, common: &Common, rate: Rate) -> Result<Self, Failure> {
        let address = resolve(server).or_usage()?;
        let config = Config {
            link: common.way.link(rate),
            key: common.way.key()?,
            checksum: common.way.checksum,
            max_size: common.max_size.0,
            parallel: common.parallel,
        };
        Ok(Self {
            client: Client::new(address, config).or_usage()?,
            stop: Stop::on_signals().or_usage()?,
        })
    }

    /// Does the jobs; what came of each.
    fn reports(&mut self, jobs: Vec<Job>) -> Result<Vec<Report>, Failure> {
        let mut bar = Bar::new();
        let done = self
            .client
            .run(jobs, &self.stop.flag(), &mut |progress| bar.show(progress));
        bar.finish();
        match done {
            Err(Error::Stopped) => {
                terminal::say("run the same command again to go on where it was");
                Err(Failure::Interrupted)
            }
            done => done.or_run(),
        }
    }

    /// Does the jobs and tells of those that failed.
    fn run(&mut self, jobs: Vec<Job>) -> Result<(), Failure> {
        let count = jobs.len();
        let reports = self.reports(jobs)?;
        let mut failed: Vec<&Error> = reports
            .iter()
            .filter_map(|report| report.result.as_ref().err())
            .collect();
        let last = failed.pop();
        for error in &failed {
            terminal::say(&format!("error: {error}"));
        }
        match last {
            None => Ok(()),
            Some(last) if count == 1 => Err(anyhow!("{last}")).or_run(),
            Some(last) => {
                let failures = failed.len() + 1;
                Err(anyhow!("{last} ({failures} of {count} failed)")).or_run()
            }
        }
    }

    /// The entries of a directory at the server, or why it gives none.
    fn entries(&mut self, path: &str) -> Result<Result<Vec<Entry>, Error>, Failure> {
        let remote = path.to_owned();
        let mut reports = self.reports(vec![Job::List { remote }])?;
        let content = match reports.pop().map(|report| report.result) {
            Some(Err(error)) => return Ok(Err(error)),
            Some(Ok(content)) => content,
            None => Vec::new(),
        };
        entries(&content)
            .collect::<Result<_, _>>()
            .map(Ok)
            .with_context(|| format!("the list of `{path}` cannot be read"))
            .or_run()
    }

    /// All files in and below a directory at the server. What it does not list is given as a file: it is
    /// one, or fetching it tells why not.
    fn walk(&mut self, path: &str) -> Result<Vec<String>, Failure> {
        let mut files = Vec::new();
        let mut folders = vec![path.trim_end_matches('/').to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match self.entries(&folder)? {
                Err(error) if is_answer(&error) => {
                    files.push(folder);
                    continue;
                }
                entries => entries.or_run()?,
            };
            for entry in entries {
                // A list has names; one with more in it would lead elsewhere.
                if entry.path.contains('/') || matches!(entry.path.as_str(), "" | "." | "..") {
                    continue;
                }
                let path = joined(&folder, &entry.path);
                match entry.kind {
                    EntryKind::Directory => folders.push(path),
                    EntryKind::File => files.push(path),
                    EntryKind::SpecialFile | EntryKind::SpecialDirectory => {}
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

/// Whether the server is there, and says no.
fn is_answer(error: &Error) -> bool {
    let answered = |failure: &Failed| matches!(failure, Failed::Peer(_));
    matches!(error, Error::Session { failure, .. } if answered(failure))
}

fn joined(folder: &str, name: &str) -> String {
    match folder {
        "" | "." => name.to_owned(),
        folder => format!("{}/{name}", folder.trim_end_matches('/')),
    }
}

/// The address of `server`, with the port of Saratoga unless it says another.
fn resolve(server: &str) -> anyhow::Result<SocketAddr> {
    let plain = server.trim_start_matches('[').trim_end_matches(']');
    let found = match server.to_socket_addrs() {
        Ok(found) => Ok(found),
        Err(_) => (plain, PORT).to_socket_addrs(),
    };
    found
        .ok()
        .and_then(|mut found| found.next())
        .with_context(|| {
            format!("`{server}` is no host: give a name or address, such as 10.0.0.1 or [::1]:7542")
        })
}

/// `saratoga get` and `take`.
pub(crate) fn get(args: &Get, take: bool) -> Result<(), Failure> {
    let mut session = Session::open(&args.server, &args.common, REPORTS)?;
    let stdout = args.to == Path::new("-");
    if stdout && (args.paths.len() != 1 || args.recursive) {
        return Err(anyhow!(
            "standard output takes one file: give one path, without -r"
        ))
        .or_usage();
    }
    let tree = match stdout {
        true => None,
        false => Some(Tree::open(&args.to).or_usage()?),
    };
    let mut jobs = Vec::new();
    for path in &args.paths {
        let path = path.trim_end_matches('/');
        let base = path.rsplit('/').next().unwrap_or(path);
        let files = match args.recursive {
            true => session.walk(path)?,
            false => vec![path.to_owned()],
        };
        for remote in files {
            let target = match &tree {
                None => Target::Stdout,
                Some(tree) => {
                    // The directory itself comes along: `get -r a/b` makes `b`.
                    let below = remote.strip_prefix(path).unwrap_or(&remote);
                    let inside = joined(base, below.trim_start_matches('/'));
                    Target::File(tree.clone(), inside.trim_end_matches('/').to_owned())
                }
            };
            jobs.push(Job::Get {
                remote,
                target,
                take,
            });
        }
    }
    session.run(jobs)
}

/// `saratoga put` and `give`.
pub(crate) fn put(args: &Put, give: bool) -> Result<(), Failure> {
    let jobs = to_put(args, give).or_usage()?;
    let rate = match args.rate {
        Some(rate) => rate,
        None => learnt(args)?,
    };
    Session::open(&args.server, &args.common, rate)?.run(jobs)
}

fn to_put(args: &Put, give: bool) -> anyhow::Result<Vec<Job>> {
    if args.name.is_some() && (args.files.len() != 1 || args.recursive) {
        return Err(anyhow!("--as names one file: give one, without -r"));
    }
    let mut jobs = Vec::new();
    for file in &args.files {
        if file == Path::new("-") {
            let Some(name) = &args.name else {
                return Err(anyhow!("standard input has no name: give one with --as"));
            };
            let remote = joined(&args.to, name);
            jobs.push(Job::Put {
                local: None,
                remote,
                give: false,
            });
            continue;
        }
        let own = file.file_name().map(|name| name.to_string_lossy());
        // `.` and `..` have none: what is in them goes as it is.
        let name = args.name.clone().unwrap_or(own.unwrap_or_default().into());
        let files = match (file.is_dir(), args.recursive) {
            (true, true) => local_files(file, &name)?,
            (true, false) => {
                let file = file.display();
                return Err(anyhow!(
                    "`{file}` is a directory: -r sends all that is in it"
                ));
            }
            (false, _) => vec![(file.clone(), name)],
        };
        jobs.extend(files.into_iter().map(|(local, name)| Job::Put {
            local: Some(local),
            remote: joined(&args.to, &name),
            give,
        }));
    }
    Ok(jobs)
}

/// The rate that the server takes, where none was given.
fn learnt(args: &Put) -> Result<Rate, Failure> {
    let address = resolve(&args.server).or_usage()?;
    let key = args.common.way.key()?;
    let patience = args.common.way.silence.min(PATIENCE);
    let rate = beacon::ask_rate(address, key.as_ref(), patience).or_run()?;
    terminal::say(&format!(
        "sending at {rate}, which is what the server takes"
    ));
    Ok(rate)
}

/// How long a server may take to say its rate.
const PATIENCE: Duration = Duration::from_secs(10);

/// All files in and below `folder`, and the name of each at the server.
fn local_files(folder: &Path, name: &str) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), name.to_owned())];
    while let Some((folder, name)) = folders.pop() {
        let listed = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot list `{}`", folder.display()))?;
        for entry in listed {
            let entry = entry.with_context(|| format!("cannot list `{}`", folder.display()))?;
            let Ok(own) = entry.file_name().into_string() else {
                let path = entry.path();
                terminal::say(&format!(
                    "left out `{}`: its name is not UTF-8",
                    path.display()
                ));
                continue;
            };
            let kind = entry.file_type()?;
            let remote = joined(&name, &own);
            if kind.is_dir() {
                folders.push((entry.path(), remote));
            } else if kind.is_file() {
                files.push((entry.path(), remote));
            } else {
                let path = entry.path();
                terminal::say(&format!("left out `{}`: it is no file", path.display()));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// `saratoga ls`.
pub(crate) fn list(args: &List) -> Result<(), Failure> {
    let mut session = Session::open(&args.server, &args.common, REPORTS)?;
    let entries = session.entries(&args.path)?.or_run()?;
    if args.json {
        let entries = entries.iter().map(|entry| {
            serde_json::json!({
                "path": entry.path,
                "directory": entry.kind == EntryKind::Directory,
                // No file is longer than 64 bits tell.
                "bytes": u64::try_from(entry.size).ok(),
                "modified_unix": entry.modified.posix(),
            })
        });
        let entries: Vec<_> = entries.collect();
        return terminal::print(&serde_json::json!({ "entries": entries }).to_string()).or_run();
    }
    for entry in entries {
        let slash = match entry.kind {
            EntryKind::Directory => "/",
            _ => "",
        };
        let line = format!("{:>15}  {}{slash}", entry.size, entry.path.escape_debug());
        terminal::print(&line).or_run()?;
    }
    Ok(())
}

/// `saratoga rm`.
pub(crate) fn remove(args: &Remove) -> Result<(), Failure> {
    let mut session = Session::open(&args.server, &args.common, REPORTS)?;
    let jobs = args.paths.iter().map(|remote| Job::Delete {
        remote: remote.clone(),
    });
    session.run(jobs.collect())
}
