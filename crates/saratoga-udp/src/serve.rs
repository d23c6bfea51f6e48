//! The server: it waits for REQUESTs, and serves a tree of files to those that it accepts (`accept`).

mod accept;
mod hang_watch;
mod lists;
mod mounts;
mod recent;
mod stranger_log;
mod time_budget;

use crate::address_validation::{AddressValidation, Credit};
use crate::authenticate::Seen;
use crate::beacon::{self, BeaconSender};
use crate::capacity;
use crate::endpoint::{Endpoint, Key, Link, key};
use crate::preparing::Preparing;
use crate::seal::Seal;
use crate::session::{PeerValidation, Session, Work};
use crate::{Error, Key as Secret};
use bentpipe_base::Instant;
use bentpipe_saratoga::{Receiver, Sender, refusal};
use bentpipe_saratoga_files::checksum::Algorithm;
use bentpipe_saratoga_files::{
    Cancel, ChecksumOnRead, FairSemaphore, Incoming, Original, Outgoing, Part, Sink, Source, Sum,
    Tree, WIDEST, entry, known_size, leftovers, mode, path, spawn,
};
use bentpipe_sockets::timer;
use bentpipe_sockets::udp::Udp;
use bentpipe_wire::saratoga::{
    Beacon, Code, Entry, EntryKind, Kind, Metadata, Request, RequestKind, Width,
};
use core::time::Duration;
use hang_watch::HangWatch;
use lists::Lists;
use mounts::Mounts;
use recent::{Over, Recent};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use stranger_log::StrangerLog;
use time_budget::TimeBudget;

/// What a server allows, and where.
#[derive(Clone, Debug)]
pub struct ServerConfig {
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
    endpoint: Endpoint,
    tree: Tree,
    config: ServerConfig,
    beacon_sender: Option<BeaconSender>,
    seen: Seen,
    validator: AddressValidation,
    /// Files are summed up a few at once: they share the processors and the disk.
    turns: FairSemaphore,
    lists: Lists,
    mounts: Mounts,
    /// What is over and may be asked for again.
    recent: Recent,
    /// Working time for peers that have proved nothing.
    for_unproven: TimeBudget,
    stranger_log: StrangerLog,
    known_log: StrangerLog,
    /// Clocks that differ are not told of before.
    clocks_at: Option<Instant>,
}

/// Octets of a name in beacons at most: whoever forges a question has the answer sent to somebody else.
const MOST_NAME: usize = 200;
/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(200);
/// The same where something waits for a file system's answer.
const SOON: Duration = Duration::from_millis(2);

impl Server {
    /// Opens the port. Where this process may have few descriptors or little memory, it serves fewer sessions at once
    /// than the configuration says, and the log says so.
    ///
    /// # Errors
    /// A port that cannot be had, or descriptors for no session.
    pub fn new(tree: Tree, mut config: ServerConfig) -> Result<Self, Error> {
        config.max_sessions = capacity::serving(config.max_sessions)?;
        let carried = config.link.most_sessions();
        if carried < config.max_sessions {
            tracing::info!(rate = %config.link.rate, sessions = carried, "the rate is enough for fewer sessions; who comes when there are so many waits");
            config.max_sessions = carried;
        }
        if let Some(name) = config.name.as_ref().filter(|name| name.len() > MOST_NAME) {
            let long = io::Error::other(format!("the name has more than {MOST_NAME} octets"));
            return Err(Error::file("send beacons of", name.as_str())(long));
        }
        // Who listens for beacons on this host needs the port too.
        let mut endpoint = Endpoint::on(Udp::bind_server(config.listen), config.link)?;
        endpoint.bound_answers();
        let beacon_sender = match &config.name {
            Some(_) => Some(BeaconSender::new()?),
            None => None,
        };
        Ok(Self {
            endpoint,
            mounts: Mounts::below(&tree),
            tree,
            config,
            beacon_sender,
            seen: Seen::default(),
            validator: AddressValidation::new().map_err(Error::socket("draw random numbers"))?,
            turns: FairSemaphore::new(std::thread::available_parallelism().map_or(1, usize::from)),
            lists: Lists::new(capacity::lists()),
            recent: Recent::default(),
            for_unproven: TimeBudget::new(timer::now()),
            stranger_log: StrangerLog::new(timer::now()),
            known_log: StrangerLog::of_known(timer::now()),
            clocks_at: None,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        self.endpoint.address()
    }

    /// Serves until `stop` is set.
    ///
    /// # Errors
    /// An error of the socket. Errors of one session are logged.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let mut tidy_at = timer::now();
        let mut tidying: Option<JoinHandle<()>> = None;
        let hang_watch = HangWatch::start();
        while !stop.load(Ordering::Relaxed) {
            hang_watch.turn();
            if tidy_at <= timer::now() {
                tidy_at = timer::now() + leftovers::PAUSE;
                // One that waits for a file system that does not answer stays the only one.
                if tidying.as_ref().is_none_or(JoinHandle::is_finished) {
                    tidying = leftovers::remove_in_background(&self.tree);
                }
            }
            let waited_for = self.mounts.is_waited_for();
            let turn = self.endpoint.turn(if waited_for { SOON } else { LOOK })?;
            for ended in &turn.ended {
                let (peer, path) = (ended.key.0, &ended.path);
                let is_told = ended.result.is_ok() && self.is_known(ended.key, timer::now());
                if !is_told && !self.may_tell_of(ended.key) {
                    continue;
                }
                match &ended.result {
                    Ok(_) => tracing::info!(%peer, path, "done"),
                    Err(error) => tracing::warn!(%peer, %error, "a session failed"),
                }
            }
            self.say_failures(&turn.ended);
            self.remember(&turn.ended);
            self.endpoint.remove_ended(&turn)?;
            for stray in turn.strays {
                self.endpoint.handle(&stray);
                self.stray(stray.key, &stray.datagram);
            }
            for waiting in self.mounts.take_waiting() {
                let (request, from) = (&waiting.request, waiting.key.0);
                self.admit(request, from, waiting.seal, waiting.validation);
            }
            let now = timer::now();
            self.validator.tidy(now);
            if self
                .beacon_sender
                .as_ref()
                .is_some_and(|beacon_sender| beacon_sender.is_due(now))
            {
                let beacon = self.beacon(None);
                if let Some(beacon_sender) = &mut self.beacon_sender {
                    beacon_sender.call(beacon, now);
                }
            }
        }
        for session in self.endpoint.sessions.values_mut() {
            if let Work::Receiving(incoming) = &mut session.work {
                incoming.let_go();
            }
        }
        Ok(())
    }

    /// Whether its address, or its peer in this session, has shown that it hears us.
    fn is_known(&self, key: Key, now: Instant) -> bool {
        let session = self.endpoint.sessions.get(&key);
        session.is_some_and(Session::is_proven) || self.validator.knows(key.0, now)
    }

    /// Whether the log has a line more about this peer.
    fn may_tell_of(&mut self, key: Key) -> bool {
        let now = timer::now();
        let log = if self.is_known(key, now) {
            &mut self.known_log
        } else {
            &mut self.stranger_log
        };
        let line = log.line(now);
        if let Some(more @ 1..) = line {
            tracing::warn!(
                more,
                "the log leaves out what goes wrong with peers that have shown nothing, or forge the address of one that has"
            );
        }
        line.is_some()
    }

    /// The server's own beacon; to who has `asked` for it, with the Id of the question.
    pub(super) fn beacon(&self, asked: Option<u32>) -> Beacon {
        let room = self.tree.room().ok();
        let name = self.config.name.as_deref().unwrap_or_default();
        beacon::of(name, self.config.link.rate, asked, self.config.put, room)
    }

    /// Who took something may have missed that it is deleted here, and what was put may come again.
    fn remember(&mut self, ended: &[crate::endpoint::Ended]) {
        for ended in ended {
            let Some(session) = self.endpoint.sessions.get(&ended.key) else {
                continue;
            };
            let over = match (&ended.result, &session.work) {
                (Ok(_), _) if session.takes() => Over::Taken(session.seal().cloned().map(Box::new)),
                (_, Work::Receiving(incoming)) if incoming.is_of_our_kind() => Over::Put,
                (Err(Error::Misnamed { .. }), _) => Over::Put,
                _ => continue,
            };
            self.recent.note(ended.key, over, timer::now());
        }
    }

    /// A preparation that failed has no machine to tell the peer.
    fn say_failures(&mut self, ended: &[crate::endpoint::Ended]) {
        for ended in ended {
            let session = self.endpoint.sessions.get(&ended.key);
            if let (Err(error), Some(session)) = (&ended.result, session)
                && matches!(session.work, Work::Preparing(_))
            {
                let (code, peer) = (error.code(), session.peer);
                let seal = session.seal().cloned();
                self.endpoint
                    .reply(&refusal(ended.key.1, code), peer, seal.as_ref());
            }
        }
    }

    /// The credit of `from`: how much may be sent to it before it answers.
    fn credit(&self, from: SocketAddr, validation: PeerValidation) -> Option<Credit> {
        match validation {
            PeerValidation::Known => self.validator.credit(from, timer::now()),
            PeerValidation::Unproven | PeerValidation::Proven => None,
        }
    }

    /// Begins the session of `request`, in which `work` is done.
    fn start(
        &mut self,
        request: &Request,
        from: SocketAddr,
        path: String,
        work: Work,
        seal: Option<Seal>,
        validation: PeerValidation,
    ) {
        let asked = Some(request.clone());
        let session = Session::serving(from, path, work, asked, seal, validation)
            .on(self.credit(from, validation));
        self.endpoint.start(key(from, request.session), session);
    }

    pub(super) fn get(
        &mut self,
        request: &Request,
        from: SocketAddr,
        seal: Option<Seal>,
        validation: PeerValidation,
    ) -> Result<(), Error> {
        self.tree.is_there()?;
        self.has_room(from)?;
        let path = path::normal(&request.path)?;
        let takes = request.kind == RequestKind::Take;
        let opened = match open(&self.tree, &path, takes, None) {
            // The thread that prepares it may wait.
            Err(error) if error.is_leased() => None,
            opened => Some(opened?),
        };
        let at_once = opened.is_some();
        let (tree, wanted, asked) = (self.tree.clone(), path.clone(), request.clone());
        let (algorithm, link) = (self.config.checksum, *self.endpoint.link());
        let late = request.late_checksum && algorithm != Algorithm::None;
        let sealed = seal.is_some();
        let turns = self.turns.clone();
        let prepare = move |cancel: &Cancel| {
            let (file, was, original) = match opened {
                Some(opened) => opened,
                // Who waits longer hears that it may ask again, before it takes our silence for the end.
                None => open(&tree, &wanted, takes, Some((link.silence / 2, cancel)))?,
            };
            let summed = || {
                let turns = (&turns, from);
                Sum::new(algorithm).rest_in_turns(turns, cancel, &file, was.len())
            };
            let checksum = if late {
                algorithm.later()
            } else {
                summed()
                    .map(Sum::finish)
                    .map_err(Error::file("sum up", &*asked.path))?
            };
            let entry = entry(&asked.path, &was, &checksum);
            let mut metadata = announcement(&asked, Kind::File, checksum, entry)?;
            // Only a peer of our kind asks so, and knows of modes.
            metadata.mode = asked
                .late_checksum
                .then(|| mode(&was) & tree.reach(&wanted));
            let mut config = Endpoint::sending(&link, metadata, None, from, sealed);
            config.late_checksum = asked.late_checksum;
            let sender = Sender::new(config, timer::now());
            let late = late.then(|| {
                Box::new(ChecksumOnRead::new(
                    Sum::new(algorithm),
                    turns.clone(),
                    from,
                ))
            });
            let source = Source::file(file, was, late);
            let outgoing = Outgoing::new(sender, source, asked.path);
            Ok(Box::new(match original {
                Some(original) => outgoing.deleting(original),
                None => outgoing,
            }))
        };
        let work = if late && at_once {
            Work::Sending(prepare(&Cancel::default())?)
        } else {
            let prepared = spawn("checksum", prepare).map_err(Error::file("prepare", &*path))?;
            Work::Preparing(Preparing::new(prepared, self.endpoint.link().silence))
        };
        self.start(request, from, path, work, seal, validation);
        Ok(())
    }

    pub(super) fn list(
        &mut self,
        request: &Request,
        from: SocketAddr,
        seal: Option<Seal>,
        validation: PeerValidation,
    ) -> Result<(), Error> {
        self.tree.is_there()?;
        self.has_room(from)?;
        let path = path::normal(&request.path)?;
        let listed = path.clone();
        let (tree, lists, turns) = (self.tree.clone(), self.lists.clone(), self.turns.clone());
        let (algorithm, link) = (self.config.checksum, *self.endpoint.link());
        let (asked, sealed, came) = (request.clone(), seal.is_some(), timer::now());
        let prepare = move |cancel: &Cancel| {
            let turn = turns.take_in_background(from, cancel);
            let _turn = turn.map_err(Error::file("list", &*asked.path))?;
            let width = asked.capabilities.width;
            let content = match lists.since(came, &listed, width) {
                Some(content) => content,
                None => {
                    let begun = timer::now();
                    let share = lists
                        .begin(from)
                        .map_err(Error::file("list", &*asked.path))?;
                    let content = tree.list(&listed, width, share)?;
                    lists.shared(&listed, width, begun, content)
                }
            };
            let entry = Entry {
                kind: EntryKind::Directory,
                ..Entry::file(&asked.path, content.len() as u64)
            };
            let checksum = algorithm.sum_octets(&content);
            let metadata = announcement(&asked, Kind::Directory, checksum, entry)?;
            let config = Endpoint::sending(&link, metadata, None, from, sealed);
            let sender = Sender::new(config, timer::now());
            let outgoing = Outgoing::new(sender, Source::Memory(content), asked.path);
            Ok(Box::new(outgoing))
        };
        let prepared = spawn("list", prepare).map_err(Error::file("list", &*path))?;
        let work = Work::Preparing(Preparing::new(prepared, self.endpoint.link().silence));
        self.start(request, from, path, work, seal, validation);
        Ok(())
    }

    pub(super) fn receive(
        &mut self,
        key: Key,
        path: &str,
        request: Option<Request>,
        seal: Option<Seal>,
        validation: PeerValidation,
    ) -> Result<(), Error> {
        self.tree.is_there()?;
        let path = &*path::normal(path)?;
        self.has_room(key.0)?;
        self.supersede(key, path, validation);
        let (folder, name) = self.tree.place(path, true)?;
        let (part, kept) = Part::open(folder, name, path, seal.is_some())?;
        let now = timer::now();
        let mut config = Endpoint::receiving(self.endpoint.link(), key.1, None, kept);
        config.width = request.as_ref().map_or(Width::Bits16, accept::width);
        let mut receiver = Receiver::new(config, now);
        receiver.repeat();
        let sink = Sink::Part(Box::new(part));
        let incoming = Incoming::new(receiver, sink, path.to_owned(), self.config.max_size, now);
        let work = Work::Receiving(Box::new(incoming));
        let asks = request
            .as_ref()
            .is_some_and(|request| request.late_checksum || validation == PeerValidation::Unproven);
        let session = Session::serving(key.0, path.to_owned(), work, request, seal, validation)
            .on(self.credit(key.0, validation));
        let session = if asks {
            session.questioning(self.validator.question(key, now))
        } else {
            session
        };
        self.endpoint.start(key, session);
        Ok(())
    }

    pub(super) fn delete(
        &mut self,
        request: &Request,
        key: Key,
        seal: Option<&Seal>,
    ) -> Result<(), Error> {
        self.tree.is_there()?;
        let path = path::normal(&request.path)?;
        let busy = |session: &Session| session.path == path && !session.is_verified();
        let code = if self.endpoint.sessions.values().any(busy) {
            Code::IN_USE
        } else {
            match self.tree.remove(&request.path) {
                Ok(()) => Code::OK,
                Err(Error::Path { .. }) => Code::DENIED,
                Err(error) => {
                    tracing::warn!(peer = %key.0, %error, "not deleted");
                    Code::NOT_DELETED
                }
            }
        };
        self.seen.answered(request, code);
        let over = Over::deletion(&request.path, code);
        self.recent.note(key, over, timer::now());
        self.refuse_with(key, code, seal);
        Ok(())
    }
}

/// The file at `path`, what it is, and where the peer `takes` it what is deleted then. What another process has a lease on is waited
/// for with `patience`, in a thread that may.
fn open(
    tree: &Tree,
    path: &str,
    takes: bool,
    patience: Option<(Duration, &Cancel)>,
) -> Result<(File, std::fs::Metadata, Option<Original>), Error> {
    let (file, was) = match patience {
        Some((patience, cancel)) => tree.file_within(path, patience, cancel)?,
        None => tree.file(path)?,
    };
    known_size(&file, &was).map_err(Error::file("read", path))?;
    let original = takes.then(|| tree.original(path, &file, &was));
    Ok((file, was, original.transpose()?))
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
        checksum,
        ..Metadata::new(request.session, kind, entry)
    })
}
