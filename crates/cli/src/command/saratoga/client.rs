//! What all client commands share, and the two short ones: `ls` and `rm`.

use super::Way;
use super::progress::Bar;
use crate::failure::{Blame, Failure};
use crate::stop::Stop;
use crate::terminal;
use anyhow::{Context, anyhow};
use bentpipe_base::{Bytes, Rate};
use bentpipe_saratoga_udp::client::{ClientConfig, Job, Report};
use bentpipe_saratoga_udp::{Client, Error, Key, beacon, path};
use bentpipe_wire::saratoga::{Entry, EntryKind, PORT, entries};
use std::net::{SocketAddr, ToSocketAddrs};

/// Options of every client.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(super) way: Way,
    /// The longest file that is taken from the server
    #[arg(long, value_name = "SIZE", default_value = "100GB")]
    max_size: Bytes,
    /// Files at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    parallel: usize,
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

/// The sending rate of a client that only receives: it sends reports and requests.
pub(super) const REPORTS: Rate = Rate::from_bits_per_sec(1_000_000);

/// A client, and the flag that stops it.
pub(super) struct Session {
    client: Client,
    stop: Stop,
}

impl Session {
    pub(super) fn open(server: &str, common: &Common, rate: Rate) -> Result<Self, Failure> {
        Self::with(server, common, rate, common.way.key()?, false)
    }

    /// As [`Self::open`], with a key that is loaded already, for files that go without being asked for where `blind`.
    pub(super) fn with(
        server: &str,
        common: &Common,
        rate: Rate,
        key: Option<Key>,
        blind: bool,
    ) -> Result<Self, Failure> {
        let address = resolve(server).or_usage()?;
        let config = ClientConfig {
            link: common.way.link(rate, address.port()),
            key,
            checksum: common.way.checksum,
            max_size: common.max_size.0,
            parallel: common.parallel,
            blind,
        };
        Ok(Self {
            client: Client::new(address, config).or_usage()?,
            stop: Stop::on_signals().or_usage()?,
        })
    }

    /// Runs `jobs`, and the jobs that `next` makes of their reports.
    pub(super) fn run(
        &mut self,
        jobs: Vec<Job>,
        next: &mut dyn FnMut(Report) -> Result<Vec<Job>, Error>,
    ) -> Result<(), Failure> {
        let mut bar = Bar::new();
        let mut watch = |progress| bar.show(progress);
        let done = self
            .client
            .run_on(jobs, &self.stop.flag(), &mut watch, next);
        bar.finish();
        match done {
            Err(Error::Stopped) => {
                terminal::say("run the same command again to go on where it was");
                Err(Failure::Interrupted)
            }
            done => done.or_run(),
        }
    }

    /// Runs `jobs` that need no follow-up, and adds their failures to `outcome`.
    pub(super) fn run_all(&mut self, jobs: Vec<Job>, mut outcome: Outcome) -> Result<(), Failure> {
        self.run(jobs, &mut |report| {
            outcome.note(report.result.map(drop));
            Ok(Vec::new())
        })?;
        outcome.end()
    }
}

/// The result for all files of a command: how many there were, and which failed.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    count: usize,
    failed: usize,
    there_already: usize,
    /// The last that failed, which ends the command.
    last: Option<String>,
}

/// Failures that are named each in a line at most.
const MOST_NAMED: usize = 100;

impl Outcome {
    /// One file more.
    pub(super) fn note<E: std::fmt::Display>(&mut self, result: Result<(), E>) {
        self.count += 1;
        let Err(error) = result else {
            return;
        };
        self.failed += 1;
        if let Some(last) = self.last.replace(error.to_string())
            && self.failed <= MOST_NAMED
        {
            terminal::say(&format!("error: {last}"));
        }
    }

    /// Files more that did not have to go.
    pub(super) const fn there_already(&mut self, count: usize) {
        self.count += count;
        self.there_already += count;
    }

    /// Whether all are there.
    pub(super) fn end(self) -> Result<(), Failure> {
        let Self {
            count,
            failed,
            there_already,
            last,
        } = self;
        match there_already {
            0 => {}
            1 => terminal::say("1 file was there already"),
            files => terminal::say(&format!("{files} files were there already")),
        }
        match last {
            None => Ok(()),
            Some(last) if count == 1 => Err(anyhow!("{last}")).or_run(),
            Some(last) => Err(anyhow!("{last} ({failed} of {count} failed)")).or_run(),
        }
    }
}

/// Refuses `--update` where files are deleted after their transfer.
pub(super) fn update_deletes_nothing(deleted: bool) -> anyhow::Result<()> {
    if deleted {
        return Err(anyhow!(
            "--update goes with get and put alone: take and give delete only what they have transferred themselves"
        ));
    }
    Ok(())
}

/// The address of `server` at which one listens, with the port of Saratoga unless it says another.
pub(super) fn resolve(server: &str) -> anyhow::Result<SocketAddr> {
    // The standard library knows no interface in brackets, as in [fe80::1%eth0]:7542.
    let bracketed = server.strip_prefix('[').and_then(|rest| {
        let (plain, port) = rest.split_once(']')?;
        let port = match port {
            "" => PORT,
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        Some((plain, port))
    });
    let found = match (bracketed, server.to_socket_addrs()) {
        (Some(bracketed), _) => bracketed.to_socket_addrs(),
        (None, Ok(found)) => Ok(found),
        (None, Err(_)) => (server, PORT).to_socket_addrs(),
    };
    let found = found
        .ok()
        .and_then(|found| beacon::listening(found.collect()));
    found.with_context(|| {
        format!("`{server}` is no host: give a name or address, such as 10.0.0.1 or [::1]:7542")
    })
}

/// `saratoga ls`.
pub(crate) fn list(args: &List) -> Result<(), Failure> {
    let mut session = Session::open(&args.server, &args.common, REPORTS)?;
    let remote = path::normal(&args.path).or_usage()?;
    let mut listed = Ok(Vec::new());
    session.run(vec![Job::List { remote }], &mut |report| {
        listed = report.result;
        Ok(Vec::new())
    })?;
    let content = listed.or_run()?;
    let entries: Vec<Entry> = entries(&content)
        .collect::<Result<_, _>>()
        .with_context(|| format!("the list of `{}` cannot be read", args.path))
        .or_run()?;
    if args.json {
        let entries = entries.iter().map(|entry| {
            serde_json::json!({
                "path": entry.path,
                "directory": entry.kind == EntryKind::Directory,
                // Sizes of files fit 64 bits.
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
        let path = terminal::one_line(&entry.path.escape_debug().to_string());
        let line = format!("{:>15}  {path}{slash}", entry.size);
        terminal::print(&line).or_run()?;
    }
    Ok(())
}

/// `saratoga rm`.
pub(crate) fn remove(args: &Remove) -> Result<(), Failure> {
    let mut session = Session::open(&args.server, &args.common, REPORTS)?;
    let mut jobs = Vec::new();
    for path in &args.paths {
        let remote = path::normal(path).or_usage()?;
        jobs.push(Job::Delete { remote });
    }
    session.run_all(jobs, Outcome::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_an_interface_and_a_port() {
        for (written, address) in [
            ("10.0.0.1", "10.0.0.1:7542"),
            ("10.0.0.1:7", "10.0.0.1:7"),
            ("::1", "[::1]:7542"),
            ("[::1]", "[::1]:7542"),
            ("[::1]:7", "[::1]:7"),
            ("fe80::1%lo", "[fe80::1%1]:7542"),
            ("[fe80::1%lo]", "[fe80::1%1]:7542"),
            ("[fe80::1%lo]:7", "[fe80::1%1]:7"),
        ] {
            assert_eq!(resolve(written).unwrap().to_string(), address, "{written}");
        }
        for wrong in ["[::1]7", "[::1]:seven", "[::1"] {
            assert!(resolve(wrong).is_err(), "{wrong}");
        }
    }
}
