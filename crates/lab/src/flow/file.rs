//! A file moved by a program ([`crate::app`]): its server and client are processes in the namespaces of
//! the flow's ends, what has come is seen by the receiver's folder.
//!
//! All times count from the start of the client. The file has arrived when it stands whole under its name
//! at the receiver; then it is compared with what was sent. Of a program that sends everything once and stores
//! nothing ([`App::report`]), bytes and time are those that it says itself.

use super::{Pattern, Received, ReceivedEnd, SAMPLE};
use crate::app::{APPS, App, Pair, Report, Site, Ways, app_names};
use crate::error::LabError;
use crate::plan::FlowPlan;
use bentpipe_base::Instant;
use bentpipe_os::folder::Folder;
use bentpipe_os::netns::{Netns, spawn_bound};
use bentpipe_scenario::{Amount, Flow};
use bentpipe_sockets::timer;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// How often the receiver's folder is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How long a server may take to listen, as long as a gateway to be ready.
const START: Duration = Duration::from_secs(60);
/// How long a client may take to end when the file is there; Saratoga's hears out its peer.
const END: Duration = Duration::from_secs(15);
/// How much of a program's output a message quotes.
const LINES: usize = 5;

/// Where a flow's file goes from and to.
pub(crate) struct Ends<'a> {
    pub(crate) opener: &'a Netns,
    pub(crate) acceptor: &'a Netns,
    /// This program.
    pub(crate) program: &'a Path,
}

/// A flow whose server listens, and whose client was not started yet.
pub(crate) struct Prepared {
    name: String,
    server: Server,
    client: Command,
    /// How long from the start of the run.
    start: Duration,
    size: u64,
    target: PathBuf,
    folder: Folder,
    report: Option<fn(&str) -> Option<Report>>,
    pattern: Arc<Pattern>,
}

/// What the runner sees of a flow under way.
#[derive(Clone, Default)]
pub(super) struct Shown {
    pub(super) opened: Arc<OnceLock<Instant>>,
    pub(super) progress: Arc<AtomicU64>,
}

impl Prepared {
    /// Makes the file of `flow`, which the program `app` moves, and starts its server, and waits until that listens.
    pub(crate) fn prepare(
        (flow, app): (&Flow, &str),
        plan: &FlowPlan,
        ends: &Ends<'_>,
        pattern: &Arc<Pattern>,
    ) -> Result<Self, LabError> {
        let app = find(flow, app)?;
        app.needs.iter().try_for_each(|need| need.check())?;
        let failed = |error: io::Error| LabError::Program {
            flow: flow.name.clone(),
            what: error.to_string(),
        };
        let sends = flow.opened_by == flow.from;
        let wrong = match app.ways {
            Ways::ToClient if sends => Some(("fetches", &flow.to)),
            Ways::ToServer if !sends => Some(("sends", &flow.from)),
            _ => None,
        };
        if let Some((does, opener)) = wrong {
            let what = format!("`{}` only {does}: say opened_by = \"{opener}\"", app.name);
            return Err(failed(io::Error::other(what)));
        }
        let Amount::Bytes(size) = flow.amount else {
            // Checked when the scenario is read.
            return Err(failed(io::Error::other("a file has an amount in bytes")));
        };
        let folder = Folder::create(&flow.name).map_err(|source| LabError::Output {
            path: std::env::temp_dir(),
            source,
        })?;
        let site = Site {
            folder: folder.path(),
            server: ends.acceptor,
            client: ends.opener,
            address: plan.to,
            sends,
            rate: plan.rate,
            mtu: plan.mtu,
            control: flow.saratoga_control(),
            program: ends.program,
        };
        lay(&site, size.0, pattern).map_err(|source| LabError::Output {
            path: site.source(),
            source,
        })?;
        let Pair { server, client } = (app.prepare)(&site).map_err(failed)?;
        let own = app.interface.map(|name| name(site.address.port()));
        let server = Server::start(server, site.address, own, &folder).map_err(failed)?;
        let target = site.target();
        Ok(Self {
            name: flow.name.clone(),
            server,
            client,
            start: flow.start,
            size: size.0,
            target,
            folder,
            report: app.report,
            pattern: Arc::clone(pattern),
        })
    }

    /// The flow's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs the client in a run that began at `begin`, until the file is there, `limit`, or `stop`.
    pub(super) fn run(
        self,
        begin: Instant,
        limit: Instant,
        stop: &AtomicBool,
        shown: &Shown,
    ) -> Received {
        let start = begin + self.start;
        while timer::now() < start && !stop.load(Ordering::Relaxed) {
            thread::sleep(start.since(timer::now()).min(LOOK));
        }
        let now = timer::now();
        // Only this thread sets it, once.
        let _ = shown.opened.set(now);
        let client = match spawn_bound(self.client) {
            Ok(client) => KilledOnDrop(client),
            Err(error) => {
                return Received::failed(&format!("the client cannot be started: {error}"));
            }
        };
        let mut watch = Watch {
            client,
            _server: self.server,
            folder: &self.folder,
            target: &self.target,
            size: self.size,
            report: self.report,
            received: Received {
                connected: Some(now),
                ..Received::default()
            },
        };
        watch.received.end = match watch.until_there(now, limit, stop, shown) {
            Arrival::Whole => watch.verdict(&self.pattern),
            Arrival::Reported(report) => watch.take_report(now, report),
            Arrival::CutOff => ReceivedEnd::CutOff,
            Arrival::Failed(why) => ReceivedEnd::Failed(why),
        };
        watch.received
    }
}

fn find(flow: &Flow, name: &str) -> Result<&'static App, LabError> {
    let found = APPS.iter().find(|app| app.name == name);
    found.ok_or_else(|| LabError::App {
        flow: flow.name.clone(),
        app: name.to_owned(),
        known: app_names().join(", "),
    })
}

/// Makes the file that is sent, and the folder that it goes to.
fn lay(site: &Site<'_>, size: u64, pattern: &Pattern) -> io::Result<()> {
    fs::create_dir(site.to())?;
    fs::create_dir(site.folder.join("from"))?;
    let mut file = File::create(site.source())?;
    let mut written = 0;
    while written < size {
        let piece = pattern.piece(written, size - written);
        file.write_all(piece)?;
        written += piece.len() as u64;
    }
    Ok(())
}

/// A process that is killed when dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that listens.
struct Server {
    _process: KilledOnDrop,
}

impl Server {
    /// One with a TCP of its `own` has made that interface once it listens.
    fn start(
        command: Command,
        address: SocketAddr,
        own: Option<String>,
        folder: &Folder,
    ) -> io::Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut server = KilledOnDrop(spawn_bound(command)?);
        let deadline = timer::now() + START;
        let is_ready = |pid| match &own {
            Some(interface) => has_interface(pid, interface),
            None => listens(pid, address.port()),
        };
        while !is_ready(server.0.id()) {
            let ended = server.0.try_wait()?;
            if ended.is_some() || timer::now() > deadline {
                let said = said(folder, "server.log");
                let what = format!("`{program}` does not listen on {address}{said}");
                return Err(io::Error::other(what));
            }
            thread::sleep(LOOK);
        }
        Ok(Self { _process: server })
    }
}

/// Whether a socket in the namespace of process `pid` has `port` and waits for others.
fn listens(pid: u32, port: u16) -> bool {
    // As /proc/net has them: TCP's LISTEN, and UDP's unconnected (TCP_CLOSE).
    let tables = [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07")];
    tables.iter().any(|(table, state)| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        let end = format!(":{port:04X}");
        text.lines().skip(1).any(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let local = fields.next().is_some_and(|local| local.ends_with(&end));
            local && fields.nth(1) == Some(*state)
        })
    })
}

/// Whether an interface in the namespace of process `pid` is called `name` and has the network for which it was made.
fn has_interface(pid: u32, name: &str) -> bool {
    ["route", "ipv6_route"].iter().any(|table| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        text.split_ascii_whitespace().any(|word| word == name)
    })
}

/// The last lines of a log in `folder`, as the end of a sentence.
fn said(folder: &Folder, log: &str) -> String {
    let octets = fs::read(folder.path().join(log)).unwrap_or_default();
    let text = String::from_utf8_lossy(&octets);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    match &lines[lines.len().saturating_sub(LINES)..] {
        [] => " and said nothing".to_owned(),
        last => format!("; it said: {}", last.join(" | ")),
    }
}

/// How the transfer of a file ended.
enum Arrival {
    Whole,
    Reported(Report),
    CutOff,
    Failed(String),
}

/// A client under way; ends before its server, as fields are dropped in order.
struct Watch<'a> {
    client: KilledOnDrop,
    _server: Server,
    folder: &'a Folder,
    target: &'a Path,
    size: u64,
    report: Option<fn(&str) -> Option<Report>>,
    received: Received,
}

impl Watch<'_> {
    fn until_there(
        &mut self,
        mut next: Instant,
        limit: Instant,
        stop: &AtomicBool,
        shown: &Shown,
    ) -> Arrival {
        loop {
            let ended = self.client.0.try_wait();
            let now = timer::now();
            let whole = fs::metadata(self.target).is_ok_and(|file| file.len() == self.size);
            if whole || now >= next {
                let to = self.target.parent().unwrap_or(self.target);
                let bytes = if whole { self.size } else { stored(to) };
                let bytes = bytes.min(self.size);
                if whole || bytes > self.received.bytes {
                    self.received.bytes = bytes;
                    self.received.last = Some(now);
                    shown.progress.store(bytes, Ordering::Relaxed);
                }
                self.received.series.push((now, self.received.bytes));
                while next <= now {
                    next += SAMPLE;
                }
            }
            if whole {
                return Arrival::Whole;
            }
            if now >= limit || stop.load(Ordering::Relaxed) {
                return Arrival::CutOff;
            }
            match ended {
                Ok(None) => thread::sleep(LOOK),
                Ok(Some(status)) => {
                    if let Some(report) = self.reported() {
                        return Arrival::Reported(report);
                    }
                    let said = said(self.folder, "client.log");
                    return Arrival::Failed(format!("the client ended ({status}){said}"));
                }
                Err(error) => return Arrival::Failed(format!("the client is lost: {error}")),
            }
        }
    }

    /// What the client said at its end, of a program whose word is taken.
    fn reported(&self) -> Option<Report> {
        let read = self.report?;
        read(&fs::read_to_string(self.folder.path().join("client.log")).ok()?)
    }

    /// What a flow that began at `begin` received, by its program's own word.
    fn take_report(&mut self, begin: Instant, report: Report) -> ReceivedEnd {
        let last = begin + report.time;
        self.received.bytes = report.bytes.min(self.size);
        self.received.last = Some(last);
        self.received.series = vec![(begin, 0), (last, self.received.bytes)];
        if self.received.bytes == self.size {
            ReceivedEnd::Finished
        } else {
            ReceivedEnd::Incomplete
        }
    }

    /// Whether what came is what was sent, and the client is content.
    fn verdict(&mut self, pattern: &Pattern) -> ReceivedEnd {
        let deadline = timer::now() + END;
        let status = loop {
            match self.client.0.try_wait() {
                Ok(None) if timer::now() < deadline => thread::sleep(LOOK),
                status => break status.ok().flatten(),
            }
        };
        if let Some(status) = status.filter(|status| !status.success()) {
            let said = said(self.folder, "client.log");
            return ReceivedEnd::Failed(format!(
                "the file came, but the client ended ({status}){said}"
            ));
        }
        match holds(self.target, self.size, pattern) {
            Ok(true) => ReceivedEnd::Finished,
            Ok(false) => ReceivedEnd::Failed("what came is not what was sent".to_owned()),
            Err(error) => ReceivedEnd::Failed(format!("what came cannot be read: {error}")),
        }
    }
}

/// Bytes of all files in and below `folder`; of one with holes, the blocks that it has.
fn stored(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(file) if file.is_dir() => stored(&entry.path()),
        Ok(file) => file.len().min(file.blocks() * 512),
        Err(_) => 0,
    });
    sizes.sum()
}

/// Whether `path` holds `size` bytes of the pattern and no more.
fn holds(path: &Path, size: u64, pattern: &Pattern) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 256 * 1024];
    let mut read = 0;
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            return Ok(read == size);
        }
        if !pattern.matches(read, &buffer[..length]) {
            return Ok(false);
        }
        read += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_seen_when_something_listens_there() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = std::net::UdpSocket::bind("[::1]:0").unwrap();
        let own = std::process::id();
        assert!(listens(own, tcp.local_addr().unwrap().port()));
        assert!(listens(own, udp.local_addr().unwrap().port()));
        let port = tcp.local_addr().unwrap().port();
        drop(tcp);
        assert!(!listens(own, port));
    }

    #[test]
    fn holes_are_not_received() {
        use std::os::unix::fs::FileExt as _;
        let folder = Folder::create("holes").unwrap();
        let file = File::create(folder.path().join("part")).unwrap();
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        assert!(stored(folder.path()) < 1 << 17, "{}", stored(folder.path()));
        fs::create_dir(folder.path().join("sub")).unwrap();
        let pattern = Pattern::new();
        let whole = folder.path().join("sub/whole");
        fs::write(&whole, pattern.piece(0, 100_000)).unwrap();
        assert!(stored(folder.path()) >= 100_000);
        assert!(holds(&whole, 100_000, &pattern).unwrap());
        assert!(!holds(&whole, 100_001, &pattern).unwrap());
        fs::write(&whole, pattern.piece(1, 100_000)).unwrap();
        assert!(!holds(&whole, 100_000, &pattern).unwrap());
    }
}
