//! Accepts sessions: handles datagrams that belong to none, from the first REQUEST to the session that it begins.

use super::Server;
use super::mounts::{Verdict, Waiting};
use super::recent::Over;
use crate::Error;
use crate::authenticate::{Novelty, Proof, is_signed, signature};
use crate::endpoint::{Key, key};
use crate::seal::{Seal, Side};
use crate::session::{PeerValidation, Session, Work};
use crate::session_id::may_be_anew;
use bentpipe_base::Instant;
use bentpipe_saratoga::sender::Failure;
use bentpipe_saratoga::{echo, refusal};
use bentpipe_saratoga_files::{WIDEST, network, path};
use bentpipe_sockets::timer;
use bentpipe_wire::saratoga::{
    Code, Data, Frame, Kind, Metadata, Request, RequestKind, Status, Timestamp, Width, Willingness,
};
use core::time::Duration;
use std::net::SocketAddr;

/// The least time between two log lines about differing clocks.
const CLOCKS: Duration = Duration::from_secs(60);

impl Server {
    /// A datagram of no session, or that may be a proof.
    pub(super) fn stray(&mut self, key: Key, datagram: &[u8]) {
        let waiting = self.validator.waiting(key).cloned();
        let seal = waiting.as_ref().and_then(|request| self.seal(request));
        let opened = seal.as_ref().and_then(|seal| seal.open(datagram));
        // With a key, frames count only under its seal.
        let trusted = opened.is_some() || self.config.key.is_none();
        let frame = match Frame::parse(opened.unwrap_or(datagram)) {
            Ok((frame, _)) => frame,
            Err(error) => {
                return tracing::debug!(%error, from = %key.0, "a datagram was dropped");
            }
        };
        if waiting.is_some() && !trusted && !matches!(frame, Frame::Request(_)) {
            return;
        }
        if let Frame::Status(status) = &frame
            && let Some(stamp) = status.timestamp
            && trusted
            && self.validator.proves(key, stamp, timer::now())
            && self.proven(key, waiting.as_ref(), seal.as_ref())
        {
            return;
        }
        // A session may have begun since the datagram was received.
        let settled = |session: &mut Session| session.take(datagram, timer::now());
        if self.endpoint.sessions.get_mut(&key).is_some_and(settled) {
            return;
        }
        match (frame, waiting) {
            (Frame::Request(request), _) => self.request(&request, key.0),
            (Frame::Metadata(metadata), waiting) => {
                let asked = waiting.filter(|request| trusted && puts(request));
                self.announced(key, &metadata, asked, seal);
            }
            (Frame::Data(data), Some(request)) if data.status_wanted && puts(&request) => {
                self.ask(key, &request, seal.as_ref());
            }
            (Frame::Data(data), _) if data.status_wanted => {
                // The frame is of a session from before a restart of this side or before a NAT changed the port. Such a
                // peer asks again if it is a bentpipe, whose DATA has timestamps. But the frame may also be the
                // question of a server that somebody asked in our name, and its timestamp must not be echoed.
                let moved = |other: &Key| other.0.ip() == key.0.ip() && other.1 == key.1;
                let asks = data.timestamp.is_some() || self.endpoint.sessions.keys().any(moved);
                if self.blind_allowed() && !asks {
                    // Says that METADATA is wanted, and keeps nothing of it.
                    let wanted = wanted(data.session, data.width, None, false);
                    self.endpoint.reply(&wanted, key.0, None);
                } else {
                    self.say_unknown(key);
                }
            }
            (Frame::Status(status), None) if status.code == Code::OK => {
                match self.recent.taken(key, timer::now()) {
                    Some(seal) => self
                        .endpoint
                        .reply(&echo(key.1, None), key.0, seal.as_ref()),
                    None => self.say_unknown(key),
                }
            }
            (Frame::Data(_) | Frame::Status(_) | Frame::Beacon(_), _) => {}
        }
    }

    /// The peer of `key` hears us; whether anything is known of what it wants.
    fn proven(&mut self, key: Key, waiting: Option<&Request>, seal: Option<&Seal>) -> bool {
        if let Some(session) = self.endpoint.sessions.get_mut(&key) {
            session.prove();
            return true;
        }
        let Some(request) = waiting else {
            return false;
        };
        self.validator.forget(key);
        // The same REQUEST may meanwhile have been accepted from its true address.
        if seal.is_none() || self.seen.novelty(request, key.0) == Novelty::New {
            self.admit(request, key.0, seal.cloned(), PeerValidation::Proven);
        }
        true
    }

    /// METADATA of no session: of a put that waits for a proof, or a blind one.
    fn announced(
        &mut self,
        key: Key,
        metadata: &Metadata,
        asked: Option<Request>,
        seal: Option<Seal>,
    ) {
        let began = timer::now();
        if self.recent.is_put(key, began) {
            return tracing::debug!(peer = %key.0, "a copy of what was put");
        }
        let may_work = self.for_unproven.is_left(began);
        let path = (asked.as_ref()).map_or(&*metadata.entry.path, |request| &*request.path);
        let in_the_way = may_work.then(|| self.in_the_way(key, path)).flatten();
        if in_the_way.is_some() {
            self.for_unproven.spend(began, timer::now());
        }
        let path = match &asked {
            // A valid seal does not prove the source address. Where too much is done already for who has proved nothing, or
            // METADATA has overtaken the proof that ends another session, a proof is wanted first, which those of our
            // kind can give.
            Some(request) if seal.is_some() || !may_work || in_the_way.is_some() => {
                return self.ask(key, request, seal.as_ref());
            }
            // It is of that very session, from another port.
            None if in_the_way.is_some_and(|other| other.1 == key.1) => {
                return self.say_unknown(key);
            }
            Some(_) => path.to_owned(),
            None if self.blind_allowed() && may_work => path.to_owned(),
            // As if it had been lost: who is there sends it again.
            None if self.blind_allowed() => {
                return tracing::debug!(peer = %key.0, "too many put blindly");
            }
            None => return self.refuse_with(key, Code::DENIED, None),
        };
        if !matches!(self.mounts.verdict(&path, began), Verdict::Go) {
            // As if it had been lost.
            return;
        }
        if asked.is_some() {
            self.validator.forget(key);
        }
        self.limit_unproven();
        let received = self.receive(key, &path, asked, None, PeerValidation::Unproven);
        if let Some(session) = self.endpoint.sessions.get_mut(&key)
            && let Work::Receiving(incoming) = &mut session.work
        {
            let frame = Frame::Metadata(metadata.clone());
            incoming.input(frame, timer::now());
        }
        self.for_unproven.spend(began, timer::now());
        if let Err(error) = received {
            self.refuse(key, &error, None);
        }
    }

    /// All those who have proved nothing have as many sessions together as one peer: what they announce has descriptors
    /// and directories, and they may all be one who forges addresses.
    fn limit_unproven(&mut self) {
        let unproven = (self.endpoint.sessions.iter()).filter(|(_, session)| !session.is_proven());
        if unproven.clone().count() < self.most_of_one() {
            return;
        }
        let oldest = unproven.min_by_key(|(_, session)| session.heard_at());
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.let_go(key);
        }
    }

    /// Sessions of one peer at most.
    fn most_of_one(&self) -> usize {
        (self.config.max_sessions / 4).max(1)
    }

    const fn blind_allowed(&self) -> bool {
        self.config.put && self.config.key.is_none()
    }

    /// What seals the session that `request` begins.
    fn seal(&self, request: &Request) -> Option<Seal> {
        let key = self.config.key.as_ref()?;
        Some(Seal::of_session(key, &request.authentication, Side::Server))
    }

    fn say_unknown(&mut self, key: Key) {
        let secret = self.config.key.as_ref();
        let seal = secret.map(|secret| Seal::of_stranger(secret, key.1, Side::Server));
        self.refuse_with(key, Code::UNKNOWN_ID, seal.as_ref());
    }

    pub(super) fn refuse_with(&mut self, key: Key, code: Code, seal: Option<&Seal>) {
        self.endpoint.reply(&refusal(key.1, code), key.0, seal);
    }

    fn refuse(&mut self, key: Key, error: &Error, seal: Option<&Seal>) {
        let code = error.code();
        match code {
            _ if !self.may_tell_of(key) => {}
            // For this host's own reasons, of which the peer is told that they are in the log.
            Code::UNSPECIFIED | Code::NOT_DELETED | Code::CANNOT_RECEIVE => {
                tracing::warn!(peer = %key.0, %error, "refused");
            }
            _ => tracing::info!(peer = %key.0, %error, "refused"),
        }
        self.refuse_with(key, code, seal);
    }

    /// A REQUEST of no session, or of one that its peer begins anew.
    fn request(&mut self, request: &Request, from: SocketAddr) {
        let key = key(from, request.session);
        let bare;
        let request = match self.config.key {
            None if !request.authentication.is_empty() && !is_signed(request) => {
                // What nobody here can check is not kept: it may be as long as a datagram.
                bare = Request {
                    authentication: Vec::new(),
                    ..request.clone()
                };
                &bare
            }
            _ => request,
        };
        tracing::debug!(peer = %from, kind = ?request.kind, path = request.path, "a request");
        if is_damaged(request) {
            if self.may_tell_of(key) {
                tracing::info!(peer = %from, kind = ?request.kind, path = request.path, "damaged");
            }
            if !self.endpoint.sessions.contains_key(&key) {
                self.refuse_with(key, Code::BAD_REQUEST, None);
            }
            return;
        }
        let trusted = match &self.config.key {
            Some(secret) => {
                let proof = secret.verify(request);
                self.say_clocks(from, proof);
                proof == Proof::Valid
            }
            // Who authenticates wants answers under a seal.
            None => !is_signed(request),
        };
        let allowed = match request.kind {
            RequestKind::Put | RequestKind::Give => self.config.put,
            // Without timestamps only a fresh Id tells that what arrived is of this session, and only our kind has one.
            RequestKind::Take => {
                self.config.delete && (self.endpoint.link().timestamps || request.late_checksum)
            }
            RequestKind::Delete => self.config.delete,
            _ => true,
        };
        let seal = self.seal(request).filter(|_| trusted);
        if !trusted
            && (self.validator.waiting(key).is_some() || self.endpoint.sessions.contains_key(&key))
        {
            // Somebody without the key claims to be a peer that has it.
            return;
        }
        if !trusted || !allowed {
            if self.may_tell_of(key) {
                tracing::info!(peer = %from, path = request.path, trusted, "denied");
            }
            return self.refuse_with(key, Code::DENIED, seal.as_ref());
        }
        if request.kind == RequestKind::None {
            // Who asks for nothing wants to know whom it has before it.
            let mut beacon = self.beacon(Some(request.session));
            if seal.is_some() {
                // The bit that says so is one of those of its width.
                beacon.free = None;
            }
            return self
                .endpoint
                .reply(&Frame::Beacon(beacon), from, seal.as_ref());
        }
        if self.validator.waiting(key) == Some(request) {
            return self.ask(key, request, seal.as_ref());
        }
        if self.config.key.is_some() {
            let session = self.endpoint.sessions.get(&key).and_then(Session::request);
            let current = self.validator.waiting(key).or(session);
            if current.is_some_and(|current| signature(current) > signature(request)) {
                return tracing::info!(peer = %from, path = request.path, "older than what goes on");
            }
            match self.seen.novelty(request, from) {
                Novelty::New => {}
                Novelty::Answered(code) => {
                    tracing::info!(peer = %from, path = request.path, %code, "asked before");
                    return self.refuse_with(key, code, seal.as_ref());
                }
                // A word under the seal of its session could be passed on to who has asked.
                Novelty::Played => {
                    return tracing::info!(peer = %from, path = request.path, "played again");
                }
            }
        } else if puts(request) && self.recent.is_put(key, timer::now()) {
            // A copy of what was put, or its sender has drawn the same Id again, and draws another one then.
            return self.say_unknown(key);
        } else if request.kind == RequestKind::Delete
            && let Some(code) = self.recent.deleted(key, &request.path, timer::now())
        {
            tracing::debug!(peer = %from, path = request.path, %code, "asked before");
            return self.refuse_with(key, code, None);
        }
        if let Err(error) = self.make_way(key, request) {
            return self.refuse(key, &error, seal.as_ref());
        }
        let deletes = request.kind == RequestKind::Delete;
        // With a key what changes something here wants an answer under the seal to a question of this server, even from an
        // address that is known: the REQUEST and all that follows it may have been withheld, or recorded at another server or
        // before this one began, and be played in the name of another client. Nor would who deletes know when it may sign anew.
        let changes = !matches!(request.kind, RequestKind::Get | RequestKind::List);
        let wants_word = changes && self.config.key.is_some();
        // Who names the file that somebody puts ends that session: an address is soon forged.
        let displaces = puts(request) && self.in_the_way(key, &request.path).is_some();
        let known = self.validator.knows(from, timer::now()) && !wants_word && !displaces;
        // The answer to a deletion is no longer than the REQUEST, so that it cannot amplify.
        let at_once = deletes && !wants_word;
        if !self.endpoint.link().timestamps && !wants_word {
            self.admit(request, from, seal, PeerValidation::Proven)
        } else if known || at_once {
            self.admit(request, from, seal, PeerValidation::Known)
        } else {
            self.ask(key, request, seal.as_ref())
        }
    }

    /// Clocks that differ look like a wrong key to who asks: it is told here, not more often than each minute, for
    /// what was recorded once can be played for ever.
    fn say_clocks(&mut self, from: SocketAddr, proof: Proof) {
        let Proof::Untimely { ahead, by } = proof else {
            return;
        };
        let now = timer::now();
        if self.clocks_at.is_some_and(|at| now < at) {
            return;
        }
        self.clocks_at = Some(now + CLOCKS);
        let way = if ahead { "ahead of" } else { "behind" };
        let seconds = by.as_secs();
        tracing::warn!(
            peer = %from,
            "denied: it has the key, but its clock is {seconds} s {way} ours (or somebody plays an old request again); \
             REQUESTs are believed for two minutes: set the clocks of both sides"
        );
    }

    /// There is room for what `request` begins, and nothing else under its Id.
    fn make_way(&mut self, key: Key, request: &Request) -> Result<(), Error> {
        let path = path::normal(&request.path)?;
        let taken = |session: &Session| session.path != path;
        match self.endpoint.sessions.get(&key) {
            // The REQUEST is fresh and authenticated, so that its sender begins a new session.
            Some(_) if self.config.key.is_some() => self.let_go(key),
            Some(session) if taken(session) => {
                let failure = Failure::Own(Code::IN_USE);
                return Err(Error::session("the Id of a session", failure));
            }
            // It asks for something else to be done with the same file.
            Some(_) => self.let_go(key),
            None => {}
        }
        self.has_room(key.0)
    }

    /// Asks who sent `request` to show that it hears us.
    fn ask(&mut self, key: Key, request: &Request, seal: Option<&Seal>) {
        let stamp = Some(self.validator.ask(key, request, timer::now()));
        let question = if puts(request) {
            wanted(key.1, width(request), stamp, true)
        } else {
            Frame::Data(Data {
                session: key.1,
                width: Width::Bits16,
                kind: match request.kind {
                    RequestKind::List => Kind::Directory,
                    _ => Kind::File,
                },
                timestamp: stamp,
                status_wanted: true,
                end: false,
                offset: 0,
                len: 0,
            })
        };
        self.endpoint.reply(&question, key.0, seal);
    }

    /// Serves `request`, whose source address is proven, as soon as the file system that it is about answers.
    pub(super) fn admit(
        &mut self,
        request: &Request,
        from: SocketAddr,
        seal: Option<Seal>,
        validation: PeerValidation,
    ) {
        let key = key(from, request.session);
        let verdict = match self.mounts.verdict(&request.path, timer::now()) {
            Verdict::Go => Ok(()),
            Verdict::Wait => {
                let waiting = Waiting {
                    request: request.clone(),
                    key,
                    seal: seal.clone(),
                    validation,
                };
                match self.mounts.wait(waiting) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            Verdict::Refuse(error) => Err(error),
        };
        if let Err(error) = verdict {
            return self.refuse(key, &error, seal.as_ref());
        }
        self.recent.forget(key);
        if self.config.key.is_some() {
            self.seen.note(request, from);
        }
        let asked = Some(request.clone());
        let done = match request.kind {
            RequestKind::Get | RequestKind::Take => {
                self.get(request, from, seal.clone(), validation)
            }
            RequestKind::List => self.list(request, from, seal.clone(), validation),
            RequestKind::Put | RequestKind::Give => {
                self.receive(key, &request.path, asked, seal.clone(), validation)
            }
            RequestKind::Delete => self.delete(request, key, seal.as_ref()),
            RequestKind::None | RequestKind::Other(_) => {
                return self.refuse_with(key, Code::BAD_REQUEST, seal.as_ref());
            }
        };
        if let Err(error) = done {
            self.seen.answered(request, error.code());
            self.refuse(key, &error, seal.as_ref());
        }
    }

    /// Whether one session more may begin with `from`: no address has more than a quarter of all, nor more than are left for
    /// others. One whose peer has shown nothing of itself and was not heard for the longest gives way.
    pub(super) fn has_room(&mut self, from: SocketAddr) -> Result<(), Error> {
        let peer = network(from);
        let same = |key: &Key| network(key.0) == peer;
        let sessions = &self.endpoint.sessions;
        let left = self.config.max_sessions.saturating_sub(sessions.len());
        let all = left == 0;
        let most = self.most_of_one().min(left.max(1));
        let own = sessions.keys().filter(|key| same(key)).count() >= most;
        if !all && !own {
            return Ok(());
        }
        let now = timer::now();
        let evictable = |(key, session): &(&Key, &Session)| {
            session.is_evictable(now) && (!own || same(key)) && session.heard_at().is_some()
        };
        let unproven = sessions.iter().filter(evictable);
        let oldest = unproven.min_by_key(|(_, session)| session.heard_at());
        match oldest.map(|(key, _)| *key) {
            Some(key) => {
                if self.may_tell_of(key) {
                    tracing::info!(peer = %key.0, "a session gave way");
                }
                self.let_go(key);
                Ok(())
            }
            None => {
                let failure = Failure::Own(Code::CANNOT_SEND);
                Err(Error::session("a session more than allowed", failure))
            }
        }
    }

    /// Ends a session without telling the peer; a later session resumes with what arrived.
    fn let_go(&mut self, key: Key) {
        if let Some(session) = self.endpoint.sessions.remove(&key)
            && let Work::Receiving(mut incoming) = session.work
        {
            if incoming.is_of_our_kind() {
                self.recent.note(key, Over::Put, timer::now());
            }
            incoming.let_go();
        }
    }

    /// A peer that begins anew from another port, as after a kill, still has a session that writes `path`: it
    /// ends when the peer has shown that it is at the same address, or when nothing more comes in it. So does one
    /// of whose peer nothing is proven, for whoever has shown that he is there.
    pub(super) fn supersede(&mut self, key: Key, path: &str, validation: PeerValidation) {
        let now = timer::now();
        let proven = validation != PeerValidation::Unproven;
        let old: Vec<Key> = (self.endpoint.sessions.iter())
            .filter(|(_, session)| writes(session, path))
            .filter(|(other, session)| gives_way(**other, session, key, proven, now))
            .map(|(other, _)| *other)
            .collect();
        for old in old {
            self.let_go(old);
        }
    }

    /// The session that writes `path` and would end for `key` if only that had shown that it hears us.
    fn in_the_way(&self, key: Key, path: &str) -> Option<Key> {
        let path = path::normal(path).ok()?;
        let now = timer::now();
        let other = self.endpoint.sessions.iter().find(|(other, session)| {
            writes(session, &path)
                && !session.is_verified()
                && gives_way(**other, session, key, true, now)
                && !gives_way(**other, session, key, false, now)
        });
        other.map(|(other, _)| *other)
    }
}

fn writes(session: &Session, path: &str) -> bool {
    session.path == path && matches!(session.work, Work::Receiving(_))
}

/// Whether the session of `other` ends for `key`, which wants to write the same, and is there if that is `proven`.
fn gives_way(other: Key, session: &Session, key: Key, proven: bool, now: Instant) -> bool {
    let moved = other.0.ip() == key.0.ip() && may_be_anew(other.1, key.1);
    let same = other.0 == key.0 || moved;
    let anew = same && (proven || session.is_quiet(now));
    anew || proven && !session.is_proven()
}

/// The width of what is said before METADATA tells that of the session: what who asks can read, and older
/// implementations read nothing else.
pub(super) fn width(request: &Request) -> Width {
    request.capabilities.width.min(WIDEST)
}

/// Whether `request` sends something.
const fn puts(request: &Request) -> bool {
    matches!(request.kind, RequestKind::Put | RequestKind::Give)
}

/// Whether it asks for a deletion, and says what of ours only other kinds do: a bit was another when it was sent.
fn is_damaged(request: &Request) -> bool {
    request.late_checksum
        && match request.kind {
            RequestKind::Delete => true,
            RequestKind::Take => request.capabilities.send == Willingness::Willing,
            _ => false,
        }
}

/// The STATUS that wants METADATA of `session`.
fn wanted(session: u32, width: Width, timestamp: Option<Timestamp>, voluntary: bool) -> Frame {
    Frame::Status(Status {
        session,
        width,
        timestamp,
        metadata_missing: true,
        incomplete: false,
        voluntary,
        code: Code::OK,
        progress: 0,
        in_response_to: 0,
        holes: Vec::new(),
    })
}
