//! The side that waits for REQUESTs.

use crate::aside::aside;
use crate::authenticate::{Novelty, Seen};
use crate::beacon::{self, Herald};
use crate::checksum::{Algorithm, Sum};
use crate::incoming::Incoming;
use crate::late::Late;
use crate::node::{Link, Node, Session, WIDEST, Work, key};
use crate::outgoing::Outgoing;
use crate::part::Part;
use crate::sink::Sink;
use crate::source::Source;
use crate::tree::{Tree, posix_times};
use crate::{Error, Key as Secret};
use bentpipe_os::timer;
use bentpipe_saratoga::{Receiver, Sender, refusal};
use bentpipe_wire::saratoga::{
    Beacon, Code, Entry, EntryKind, Frame, Kind, Metadata, Request, RequestKind, Status, Width,
};
use core::time::Duration;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a server allows, and where.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What the ways to its peers are like.
    pub link: Link,
    /// Peers may write files.
    pub put: bool,
    /// Peers may delete files.
    pub delete: bool,
    /// REQUESTs must be authenticated with it.
    pub key: Option<Secret>,
    /// Octets of a file that comes at most.
    pub max_size: u64,
    /// Sessions at once at most; a quarter of them, but at least one, with one peer.
    pub max_sessions: usize,
    /// How files that go are summed up.
    pub checksum: Algorithm,
    /// Its name in beacons; none: it sends none.
    pub name: Option<String>,
}

/// Serves a tree until it is stopped.
pub struct Server {
    node: Node,
    tree: Tree,
    config: Config,
    herald: Option<Herald>,
    seen: Seen,
}

/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(200);

impl Server {
    /// Opens the port.
    ///
    /// # Errors
    /// A port that cannot be had.
    pub fn new(tree: Tree, config: Config) -> Result<Self, Error> {
        let node = Node::bind(config.listen, config.link)?;
        let herald = match &config.name {
            Some(_) => Some(Herald::new()?),
            None => None,
        };
        Ok(Self {
            node,
            tree,
            config,
            herald,
            seen: Seen::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.node.address()
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// What ends the whole: the socket. What ends one session is logged.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) {
            let turn = self.node.turn(LOOK)?;
            for ended in &turn.ended {
                let (peer, path) = (ended.key.0, &ended.path);
                match &ended.result {
                    Ok(_) => tracing::info!(%peer, path, "done"),
                    Err(error) => tracing::warn!(%peer, %error, "a session failed"),
                }
            }
            self.say_failures(&turn.ended);
            self.node.bury(&turn)?;
            for (frame, from) in turn.strays {
                self.stray(frame, from);
            }
            let now = timer::now();
            if self
                .herald
                .as_ref()
                .is_some_and(|herald| herald.is_due(now))
            {
                let beacon = self.beacon();
                if let Some(herald) = &mut self.herald {
                    herald.call(beacon, now);
                }
            }
        }
        for session in self.node.sessions.values_mut() {
            if let Work::Receiving(incoming) = &mut session.work {
                incoming.save();
            }
        }
        Ok(())
    }

    /// What it says of itself.
    fn beacon(&self) -> Beacon {
        let room = self.tree.room().ok();
        let name = self.config.name.as_deref().unwrap_or_default();
        beacon::of(name, self.config.link.rate, self.config.put, room)
    }

    /// A preparation that failed has no machine to tell the peer.
    fn say_failures(&mut self, ended: &[crate::node::Ended]) {
        for ended in ended {
            let session = self.node.sessions.get(&ended.key);
            if let (Err(error), Some(session)) = (&ended.result, session)
                && matches!(session.work, Work::Preparing(_))
            {
                let (code, peer) = (error.code(), session.peer);
                self.node.reply(&refusal(ended.key.1, code), peer);
            }
        }
    }

    fn stray(&mut self, frame: Frame, from: SocketAddr) {
        match frame {
            Frame::Request(request) => self.request(&request, from),
            Frame::Metadata(metadata) => self.blind(&metadata, from),
            Frame::Data(data) if self.blind_allowed() => {
                // Says that METADATA is wanted, and keeps nothing of it.
                if data.status_wanted {
                    let status = Status {
                        session: data.session,
                        width: data.width,
                        timestamp: data.timestamp,
                        metadata_missing: true,
                        incomplete: false,
                        voluntary: false,
                        code: Code::OK,
                        progress: 0,
                        in_response_to: 0,
                        holes: Vec::new(),
                    };
                    self.node.reply(&Frame::Status(status), from);
                }
            }
            Frame::Data(data) => {
                if data.status_wanted {
                    self.node
                        .reply(&refusal(data.session, Code::UNKNOWN_ID), from);
                }
            }
            Frame::Status(status) if status.code == Code::OK => {
                self.node
                    .reply(&refusal(status.session, Code::UNKNOWN_ID), from);
            }
            Frame::Status(_) | Frame::Beacon(_) => {}
        }
    }

    const fn blind_allowed(&self) -> bool {
        self.config.put && self.config.key.is_none()
    }

    fn refuse(&mut self, session: u32, error: &Error, from: SocketAddr) {
        tracing::info!(peer = %from, %error, "refused");
        self.node.reply(&refusal(session, error.code()), from);
    }

    fn request(&mut self, request: &Request, from: SocketAddr) {
        tracing::debug!(peer = %from, kind = ?request.kind, path = request.path, "a request");
        let known = self.config.key.as_ref();
        let trusted = known.is_none_or(|key| key.verifies(request));
        let allowed = match request.kind {
            RequestKind::Put | RequestKind::Give => self.config.put,
            RequestKind::Take | RequestKind::Delete => self.config.delete,
            _ => true,
        };
        if !trusted || !allowed {
            tracing::info!(peer = %from, path = request.path, trusted, "denied");
            return self
                .node
                .reply(&refusal(request.session, Code::DENIED), from);
        }
        if known.is_some() && request.kind != RequestKind::None {
            let code = match self.seen.note(request, from) {
                Novelty::New => None,
                Novelty::Answered(code) => Some(code),
                Novelty::Played => Some(Code::DENIED),
            };
            if let Some(code) = code {
                tracing::info!(peer = %from, path = request.path, %code, "asked before");
                return self.node.reply(&refusal(request.session, code), from);
            }
        }
        let at = key(from, request.session);
        // A peer that began anew: what it sent before counts.
        if let Some(session) = self.node.sessions.remove(&at)
            && let Work::Receiving(mut incoming) = session.work
        {
            incoming.save();
        }
        let done = match request.kind {
            // Who asks for nothing wants to know whom it has before it.
            RequestKind::None => {
                let beacon = Frame::Beacon(self.beacon());
                return self.node.reply(&beacon, from);
            }
            RequestKind::Get | RequestKind::Take => self.get(request, from),
            RequestKind::List => self.list(request, from),
            RequestKind::Put | RequestKind::Give => {
                self.receive(request.session, &request.path, from)
            }
            RequestKind::Delete => self.delete(request, from),
            RequestKind::Other(_) => {
                return self
                    .node
                    .reply(&refusal(request.session, Code::BAD_REQUEST), from);
            }
        };
        if let Err(error) = done {
            self.seen.answered(request, error.code());
            self.refuse(request.session, &error, from);
        }
    }

    fn has_room(&self, from: SocketAddr) -> Result<(), Error> {
        let peer = key(from, 0).0;
        let all = self.node.sessions.len();
        let same = self.node.sessions.keys().filter(|key| key.0 == peer);
        if all < self.config.max_sessions && same.count() < (self.config.max_sessions / 4).max(1) {
            return Ok(());
        }
        let failure = bentpipe_saratoga::sender::Failure::Own(Code::CANNOT_SEND);
        Err(Error::session("a session more than allowed", failure))
    }

    fn get(&mut self, request: &Request, from: SocketAddr) -> Result<(), Error> {
        self.has_room(from)?;
        let (file, was) = self.tree.file(&request.path)?;
        let (path, session) = (request.path.clone(), request.session);
        let asked = request.clone();
        let original = match request.kind {
            RequestKind::Take => Some(self.tree.original(&path, &file, &was)?),
            _ => None,
        };
        let (algorithm, link) = (self.config.checksum, *self.node.link());
        let late = request.late_checksum && algorithm != Algorithm::None;
        let prepare = move || {
            let checksum = match late {
                true => algorithm.later(),
                false => algorithm
                    .sum(&file, was.len())
                    .map_err(Error::file("sum up", &*asked.path))?,
            };
            let (modified, created) = posix_times(&was);
            let entry = Entry {
                kind: EntryKind::File,
                width: Width::holding(was.len().into()),
                unreliable: false,
                size: was.len().into(),
                modified,
                created,
                path: asked.path.clone(),
            };
            let metadata = announcement(&asked, Kind::File, checksum, entry)?;
            let config = Node::sending(&link, metadata, None, from);
            let sender = Sender::new(config, timer::now());
            let late = late.then(|| Late::Follows(Sum::new(algorithm)));
            let source = Source::file(file, was, late);
            let outgoing = Outgoing::new(sender, source, asked.path);
            Ok(Box::new(match original {
                Some(original) => outgoing.deleting(original),
                None => outgoing,
            }))
        };
        let work = match late {
            true => Work::Sending(prepare()?),
            false => {
                let prepared = aside("prepare", prepare);
                Work::Preparing(prepared.map_err(Error::file("prepare", &*path))?)
            }
        };
        self.begin(session, from, path, work);
        Ok(())
    }

    fn list(&mut self, request: &Request, from: SocketAddr) -> Result<(), Error> {
        self.has_room(from)?;
        let content = self.tree.list(&request.path, request.capabilities.width)?;
        let entry = Entry {
            kind: EntryKind::Directory,
            width: Width::holding(content.len() as u128),
            unreliable: false,
            size: content.len() as u128,
            modified: Default::default(),
            created: Default::default(),
            path: request.path.clone(),
        };
        let checksum = Algorithm::Crc32c.sum_octets(&content);
        let metadata = announcement(request, Kind::Directory, checksum, entry)?;
        let config = Node::sending(self.node.link(), metadata, None, from);
        let sender = Sender::new(config, timer::now());
        let path = request.path.clone();
        let outgoing = Outgoing::new(sender, Source::Memory(content), path.clone());
        self.begin(
            request.session,
            from,
            path,
            Work::Sending(Box::new(outgoing)),
        );
        Ok(())
    }

    /// METADATA without a REQUEST before it: a blind put.
    fn blind(&mut self, metadata: &Metadata, from: SocketAddr) {
        if !self.blind_allowed() {
            return self
                .node
                .reply(&refusal(metadata.session, Code::DENIED), from);
        }
        let path = metadata.entry.path.clone();
        if let Err(error) = self.receive(metadata.session, &path, from) {
            return self.refuse(metadata.session, &error, from);
        }
        if let Some(session) = self.node.sessions.get_mut(&key(from, metadata.session))
            && let Work::Receiving(incoming) = &mut session.work
        {
            let frame = Frame::Metadata(metadata.clone());
            incoming.input(frame, timer::now());
        }
    }

    fn receive(&mut self, session: u32, path: &str, from: SocketAddr) -> Result<(), Error> {
        self.has_room(from)?;
        let (folder, name) = self.tree.place(path, true)?;
        let (part, kept) = Part::open(folder, name, path)?;
        let now = timer::now();
        let config = Node::receiving(self.node.link(), session, None, kept);
        let mut receiver = Receiver::new(config, now);
        receiver.repeat(now);
        let sink = Sink::Part(part);
        let incoming = Incoming::new(receiver, sink, path.to_owned(), self.config.max_size, now);
        let work = Work::Receiving(Box::new(incoming));
        self.begin(session, from, path.to_owned(), work);
        Ok(())
    }

    fn delete(&mut self, request: &Request, from: SocketAddr) -> Result<(), Error> {
        let busy = |session: &Session| {
            let over = matches!(&session.work, Work::Receiving(incoming) if incoming.is_verified());
            session.path == request.path && !over
        };
        let code = if self.node.sessions.values().any(busy) {
            Code::IN_USE
        } else {
            match self.tree.remove(&request.path) {
                Ok(()) => Code::OK,
                Err(Error::Path { .. }) => Code::DENIED,
                Err(error) => {
                    tracing::info!(peer = %from, %error, "not deleted");
                    Code::NOT_DELETED
                }
            }
        };
        self.seen.answered(request, code);
        self.node.reply(&refusal(request.session, code), from);
        Ok(())
    }

    fn begin(&mut self, id: u32, peer: SocketAddr, path: String, work: Work) {
        let session = Session { peer, path, work };
        self.node.start(key(peer, id), session);
    }
}

/// METADATA in answer to `request`, which must be able to take it.
fn announcement(
    request: &Request,
    kind: Kind,
    checksum: bentpipe_wire::saratoga::Checksum,
    entry: Entry,
) -> Result<Metadata, Error> {
    let widest = request.capabilities.width.min(WIDEST);
    if entry.width > widest {
        return Err(Error::TooLong {
            path: entry.path,
            size: u64::try_from(entry.size).unwrap_or(u64::MAX),
            most: u64::try_from(widest.limit()).unwrap_or(u64::MAX),
        });
    }
    Ok(Metadata {
        session: request.session,
        width: entry.width,
        kind,
        ended: false,
        unreliable: false,
        checksum,
        entry,
    })
}
