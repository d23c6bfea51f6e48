//! The side that begins: get, put, take, give, list, delete.

use crate::aside::aside;
use crate::checksum::Algorithm;
use crate::incoming::Incoming;
use crate::node::{Key as SessionKey, Link, Node, WIDEST, key};
use crate::original::Original;
use crate::outgoing::Outgoing;
use crate::part::Part;
use crate::session::{Session, Work};
use crate::sink::Sink;
use crate::source::Source;
use crate::tree::{Tree, posix_times};
use crate::{Error, Key};
use bentpipe_os::timer;
use bentpipe_saratoga::sender::Failure;
use bentpipe_saratoga::{Inquiry, Receiver, Sender, refusal};
use bentpipe_wire::saratoga::{
    Capabilities, Checksum, Code, Entry, EntryKind, Frame, Kind, Metadata, Request, RequestKind,
    Time, Width, Willingness,
};
use core::time::Duration;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// How a client works.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the way to the server is like.
    pub link: Link,
    /// REQUESTs are authenticated with it.
    pub key: Option<Key>,
    /// How files that go are summed up.
    pub checksum: Algorithm,
    /// Octets of a file that comes at most.
    pub max_size: u64,
    /// Jobs at once at most: small files then do not wait for one another's round trips.
    pub parallel: usize,
}

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Job {
    /// Fetches the file at `remote`; with `take` it is deleted there afterwards.
    Get {
        /// The path at the server.
        remote: String,
        /// Where it goes.
        target: Target,
        /// Whether to delete it.
        take: bool,
    },
    /// Sends a file to `remote`; with `give` it is deleted here afterwards.
    Put {
        /// What; `None`: standard input, as a stream.
        local: Option<PathBuf>,
        /// The path at the server.
        remote: String,
        /// Whether to delete it.
        give: bool,
    },
    /// Fetches the list of a directory.
    List {
        /// The path at the server.
        remote: String,
    },
    /// Deletes a file.
    Delete {
        /// The path at the server.
        remote: String,
    },
}

/// Where what is fetched goes.
#[derive(Clone, Debug)]
pub enum Target {
    /// A path in a tree.
    File(Tree, String),
    /// Standard output.
    Stdout,
}

/// What came of a job.
#[derive(Debug)]
pub struct Report {
    /// The path at the server.
    pub path: String,
    /// The content of a list; nothing for other jobs.
    pub result: Result<Vec<u8>, Error>,
}

/// How far all jobs have come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Octets that have arrived.
    pub done: u64,
    /// Octets of all that has begun, as far as that is known.
    pub known: u64,
    /// Jobs that are over.
    pub over: usize,
    /// Jobs.
    pub jobs: usize,
}

/// Talks with one server.
pub struct Client {
    node: Node,
    server: SocketAddr,
    config: Config,
}

/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// A job whose session the server has forgotten begins anew this often at most.
const TRIES: u32 = 20;

/// A job under way.
struct Active {
    job: Job,
    tries: u32,
}

impl Client {
    /// A client of `server`.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn new(server: SocketAddr, config: Config) -> Result<Self, Error> {
        let own = match server.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let node = Node::bind(SocketAddr::new(own, 0), config.link)?;
        Ok(Self {
            node,
            server,
            config,
        })
    }

    /// Does `jobs`, some at once, and tells `watch` now and then how far it has come.
    ///
    /// # Errors
    /// The socket, or `stop`, which leaves what has arrived for the next time. What fails a single
    /// job is in its report.
    pub fn run(
        &mut self,
        jobs: Vec<Job>,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<Vec<Report>, Error> {
        let mut progress = Progress {
            jobs: jobs.len(),
            ..Progress::default()
        };
        let mut waiting: VecDeque<Active> = jobs
            .into_iter()
            .map(|job| Active { job, tries: 0 })
            .collect();
        let mut active: BTreeMap<u32, Active> = BTreeMap::new();
        let mut reports = Vec::new();
        while !waiting.is_empty() || !active.is_empty() {
            while active.len() < self.config.parallel.max(1)
                && let Some(next) = waiting.pop_front()
            {
                self.begin(next, &mut active, &mut reports);
            }
            if stop.load(Ordering::Relaxed) {
                self.stop()?;
                return Err(Error::Stopped);
            }
            let turn = self.node.turn(LOOK)?;
            self.disown(&turn.strays);
            let shown = self.shown(progress);
            let ends: Vec<u32> = turn.ended.iter().map(|ended| ended.key.1).collect();
            for id in ends {
                let (done, known) = self.counts(id);
                progress.done += done;
                progress.known += known;
            }
            self.node.bury(&turn)?;
            for ended in turn.ended {
                let Some(mut over) = active.remove(&ended.key.1) else {
                    continue;
                };
                over.tries += 1;
                if forgotten(&ended.result) && over.tries < TRIES {
                    tracing::info!(path = ended.path, "the server began anew; so does this");
                    waiting.push_front(over);
                    continue;
                }
                reports.push(Report {
                    path: ended.path,
                    result: ended.result,
                });
            }
            progress.over = reports.len();
            watch(Progress {
                over: reports.len(),
                ..shown
            });
        }
        Ok(reports)
    }

    /// What comes of sessions that this client has not begun, or no longer knows, is not wanted: somebody else
    /// may have asked for it in its name.
    fn disown(&mut self, strays: &[(SessionKey, Vec<u8>)]) {
        let server = key(self.server, 0).0;
        for ((from, id), datagram) in strays {
            let data =
                matches!(Frame::parse(datagram), Ok((Frame::Data(data), _)) if data.status_wanted);
            if *from == server && data {
                let unknown = refusal(*id, Code::UNKNOWN_ID);
                self.node.reply(&unknown, *from, None);
            }
        }
    }

    /// `over`, and what is under way.
    fn shown(&self, over: Progress) -> Progress {
        let mut shown = over;
        for key in self.node.sessions.keys() {
            let (done, known) = self.counts(key.1);
            shown.done += done;
            shown.known += known;
        }
        shown
    }

    /// Octets of session `id` that have arrived, and all.
    fn counts(&self, id: u32) -> (u64, u64) {
        let session = self.node.sessions.get(&key(self.server, id));
        match session.map(|session| &session.work) {
            Some(Work::Sending(outgoing)) => {
                let arrived = outgoing.sender.progress().arrived;
                (arrived, outgoing.sender.size().unwrap_or(arrived))
            }
            Some(Work::Receiving(incoming)) => {
                let arrived = incoming.receiver.have().total();
                (arrived, incoming.receiver.size().unwrap_or(arrived))
            }
            _ => (0, 0),
        }
    }

    /// Tells the server, and leaves what has arrived for the next time.
    fn stop(&mut self) -> Result<(), Error> {
        for session in self.node.sessions.values_mut() {
            match &mut session.work {
                Work::Sending(outgoing) => outgoing.sender.abort(Code::TERMINATED),
                Work::Receiving(incoming) if !incoming.is_verified() => {
                    incoming.save();
                    incoming.receiver.refuse(Code::NO_LONGER_WANTED);
                }
                _ => {}
            }
        }
        self.node.turn(Duration::ZERO)?;
        // Lets go of the files.
        self.node.sessions.clear();
        Ok(())
    }

    fn begin(
        &mut self,
        next: Active,
        active: &mut BTreeMap<u32, Active>,
        reports: &mut Vec<Report>,
    ) {
        let id = self.id(&next.job);
        let path = next.job.remote().to_owned();
        if active.contains_key(&id) {
            let failure = Failure::Own(Code::IN_USE);
            let result = Err(Error::session(&path, failure));
            return reports.push(Report { path, result });
        }
        let request = self.request(&next.job, id);
        match self.work(&next.job, id, request.clone()) {
            Ok(work) => {
                let peer = self.server;
                let session = Session::asking(peer, path, work, request, self.config.key.as_ref());
                self.node.start(key(peer, id), session);
                active.insert(id, next);
            }
            Err(error) => reports.push(Report {
                path,
                result: Err(error),
            }),
        }
    }

    fn work(&self, job: &Job, id: u32, request: Request) -> Result<Work, Error> {
        let (now, link) = (timer::now(), self.node.link());
        let sealed = self.config.key.is_some();
        Ok(match job {
            Job::Delete { .. } => Work::Asking(Box::new(Inquiry::new(request, link.silence, now))),
            Job::List { remote } => {
                let config = Node::receiving(link, id, Some(request), None);
                let sink = Sink::Memory(Vec::new());
                self.incoming(Receiver::new(config, now), sink, remote)
            }
            Job::Get { remote, target, .. } => {
                let (sink, kept) = match target {
                    Target::Stdout => {
                        let spool = spool()?;
                        (Sink::Pipe { spool, written: 0 }, None)
                    }
                    Target::File(tree, path) => {
                        let (folder, name) = tree.place(path, true)?;
                        let (part, kept) = Part::open(folder, name, path)?;
                        (Sink::Part(part), kept)
                    }
                };
                let config = Node::receiving(link, id, Some(request), kept);
                self.incoming(Receiver::new(config, now), sink, remote)
            }
            Job::Put {
                local: Some(local),
                remote,
                give,
            } => {
                let (local, remote, give) = (local.clone(), remote.clone(), *give);
                let (link, peer, algorithm) = (*link, self.server, self.config.checksum);
                let prepare = move |_: &_| {
                    let (metadata, file, was) = announce(&local, &remote, id, algorithm)?;
                    let original = match give {
                        true => Some(Original::at(
                            &local,
                            duplicate(&file, &local)?,
                            was.clone(),
                        )?),
                        false => None,
                    };
                    let config = Node::sending(&link, metadata, Some(request), peer, sealed);
                    let (sender, source) = (
                        Sender::new(config, timer::now()),
                        Source::file(file, was, None),
                    );
                    let outgoing = Outgoing::new(sender, source, remote);
                    Ok(Box::new(match original {
                        Some(original) => outgoing.deleting(original),
                        None => outgoing,
                    }))
                };
                let prepared = aside("prepare", prepare);
                Work::Preparing(prepared.map_err(Error::file("prepare", job.remote()))?)
            }
            Job::Put {
                local: None,
                remote,
                ..
            } => {
                let source = Source::stdin(spool()?);
                let source = source.map_err(Error::file("read", "standard input"))?;
                let config =
                    Node::sending(link, stream(remote, id), Some(request), self.server, sealed);
                let outgoing = Outgoing::new(Sender::new(config, now), source, remote.clone());
                Work::Sending(Box::new(outgoing))
            }
        })
    }

    fn incoming(&self, receiver: Receiver, sink: Sink, path: &str) -> Work {
        let (most, now) = (self.config.max_size, timer::now());
        let incoming = Incoming::new(receiver, sink, path.to_owned(), most, now);
        Work::Receiving(Box::new(incoming))
    }

    fn request(&self, job: &Job, session: u32) -> Request {
        let mut request = Request {
            capabilities: Capabilities {
                width: WIDEST,
                streams: true,
                send: Willingness::Willing,
                receive: Willingness::Willing,
                udp_lite: false,
            },
            session,
            kind: match job {
                Job::Get { take: false, .. } => RequestKind::Get,
                Job::Get { take: true, .. } => RequestKind::Take,
                Job::Put { give: false, .. } => RequestKind::Put,
                Job::Put { give: true, .. } => RequestKind::Give,
                Job::List { .. } => RequestKind::List,
                Job::Delete { .. } => RequestKind::Delete,
            },
            // A list is short.
            late_checksum: matches!(job, Job::Get { .. }),
            path: job.remote().to_owned(),
            authentication: Vec::new(),
        };
        if let Some(key) = &self.config.key {
            key.sign(&mut request);
        }
        request
    }

    /// The Id of a job's session: the same when the job is begun again on this machine, another for every other.
    /// Who does not know the machine's own Id cannot guess it.
    fn id(&self, job: &Job) -> u32 {
        let here = std::env::current_dir().unwrap_or_default();
        let what = match job {
            Job::Get {
                target: Target::File(_, path),
                ..
            } => format!("get {path}"),
            Job::Get { .. } => format!("get {}", std::process::id()),
            Job::Put {
                local: Some(path), ..
            } => format!("put {}", path.display()),
            Job::Put { .. } => format!("put {}", std::process::id()),
            Job::List { .. } => format!("list {}", std::process::id()),
            Job::Delete { .. } => format!("delete {}", std::process::id()),
        };
        let text = format!(
            "{}\n{}\n{what}\n{}\n{}",
            machine().trim(),
            here.display(),
            job.remote(),
            self.server
        );
        let digest = Sha256::digest(text);
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
    }
}

/// What tells this machine from others with the same command, such as those behind one NAT.
fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id");
    // Containers often have none; their names differ.
    id.ok()
        .filter(|id| !id.trim().is_empty())
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into())
}

impl Job {
    fn remote(&self) -> &str {
        match self {
            Self::Get { remote, .. }
            | Self::Put { remote, .. }
            | Self::List { remote }
            | Self::Delete { remote } => remote,
        }
    }
}

/// Whether the server has forgotten the session, as after a start.
fn forgotten(result: &Result<Vec<u8>, Error>) -> bool {
    let unknown = Failure::Peer(Code::UNKNOWN_ID);
    matches!(result, Err(Error::Session { failure, .. }) if *failure == unknown)
}

/// What the file at `local` is called and holds.
fn announce(
    local: &Path,
    remote: &str,
    id: u32,
    algorithm: Algorithm,
) -> Result<(Metadata, File, std::fs::Metadata), Error> {
    let name = local.display().to_string();
    let read = || {
        let file = File::open(local)?;
        let was = file.metadata()?;
        if !was.is_file() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        let checksum = algorithm.sum(&file, was.len())?;
        Ok((file, was, checksum))
    };
    let (file, was, checksum) = read().map_err(Error::file("read", name))?;
    let (modified, created) = posix_times(&was);
    let width = Width::holding(was.len().into());
    let entry = Entry {
        kind: EntryKind::File,
        width,
        unreliable: false,
        size: was.len().into(),
        modified,
        created,
        path: remote.to_owned(),
    };
    let metadata = Metadata {
        session: id,
        width,
        kind: Kind::File,
        ended: false,
        unreliable: false,
        checksum,
        entry,
    };
    Ok((metadata, file, was))
}

fn duplicate(file: &File, local: &Path) -> Result<File, Error> {
    let name = local.display().to_string();
    file.try_clone().map_err(Error::file("read", name))
}

/// A file without a name, for what is on its way through.
fn spool() -> Result<File, Error> {
    use rustix::fs::{Mode, OFlags};
    let folder = std::env::temp_dir();
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(&folder, flags, Mode::from_bits_truncate(0o600))
        .map(File::from)
        .map_err(|errno| Error::file("make a file in", folder.display().to_string())(errno.into()))
}

fn stream(remote: &str, id: u32) -> Metadata {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = Time::from_posix(now.map_or(0, |time| time.as_secs() as i64));
    Metadata {
        session: id,
        width: WIDEST,
        kind: Kind::Stream,
        ended: false,
        unreliable: false,
        checksum: Checksum::None,
        entry: Entry {
            kind: EntryKind::SpecialFile,
            width: Width::Bits16,
            unreliable: false,
            size: 0,
            modified: now,
            created: now,
            path: remote.to_owned(),
        },
    }
}
