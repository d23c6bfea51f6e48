//! One session: its peer, what is done in it, and what may be sent in it.

use crate::Error;
use crate::address_validation::Credit;
use crate::authenticate::{Key, is_ageing, is_outdated};
use crate::batch::Way;
use crate::preparing::Preparing;
use crate::seal::{DOUBT, Seal, Side, is_request, is_sealed};
use bentpipe_base::{Instant, Machine};
use bentpipe_saratoga::{Answer, Inquiry, sender};
use bentpipe_saratoga_files::{Incoming, Outgoing};
use bentpipe_sockets::timer;
use bentpipe_wire::saratoga::{Code, Data, Frame, Request, RequestKind, Status, Timestamp};
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

/// How many times what came in may be sent to a peer that has not shown that it hears us.
const AMPLIFICATION: u64 = 10;
/// Octets that an IP and a UDP header have at least.
const HEADERS: u64 = 28;
/// A peer that has been silent for so long no longer counts for the division of the rate.
const QUIET: Duration = Duration::from_millis(2500);
/// How long one that was known before may hear nothing of a session.
const UNHEARD: Duration = Duration::from_secs(10);

/// What a session does.
pub(crate) enum Work {
    Sending(Box<Outgoing>),
    Receiving(Box<Incoming>),
    Asking(Box<Inquiry>),
    /// A thread prepares what is to be sent.
    Preparing(Preparing),
}

/// How far the address of the peer is validated: see [`crate::address_validation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerValidation {
    /// The peer has shown nothing.
    Unproven,
    /// In another session, not long ago, it has shown that it hears us.
    Known,
    /// It has shown so in this session, or this side has chosen the peer.
    Proven,
}

/// How frames of a session are sealed.
struct Seals {
    session: Seal,
    /// The seal of a server that does not know the session.
    stranger: Option<Seal>,
    /// A client signs its REQUEST anew with it.
    key: Option<Key>,
    /// Nothing was opened yet: a server with another key can only say so without a seal.
    unheard: bool,
    doubtful: Option<UnsealedRefusal>,
}

/// A refusal that is not under the session's own seal, which somebody else may have sent, or made the server send.
struct UnsealedRefusal {
    refusal: Status,
    /// The refusal is sealed by a server that does not know the session.
    sealed: bool,
    /// It counts unless a frame under the session's seal arrives before this time.
    until: Instant,
}

/// See the file's head.
pub(crate) struct Session {
    pub(crate) peer: SocketAddr,
    /// At which address of this host the peer was heard last, where that is known: answers come from it.
    pub(crate) local_address: Option<IpAddr>,
    pub(crate) path: String,
    pub(crate) work: Work,
    /// The REQUEST that began it.
    request: Option<Request>,
    seals: Option<Seals>,
    validation: PeerValidation,
    /// The timestamp by which an unproven peer is asked to show that it hears us, and from which one that asks whether it may
    /// tell a checksum last knows that it may.
    question: Option<Timestamp>,
    began: Instant,
    /// When it said something last, if it receives.
    pub(crate) said_at: Instant,
    /// Octets in and out, with their headers.
    received: u64,
    sent: u64,
    /// What a peer that is known may have, and what it has taken of that.
    credit: Option<Credit>,
    drawn: u64,
}

impl Session {
    /// The session of the side that asks, by `request`, or begins without one (blind).
    pub(crate) fn asking(
        peer: SocketAddr,
        path: String,
        work: Work,
        request: Option<Request>,
        key: Option<&Key>,
    ) -> Self {
        let seals = key.zip(request.as_ref()).map(|(key, request)| Seals {
            session: Seal::of_session(key, &request.authentication, Side::Client),
            stranger: Some(Seal::of_stranger(key, request.session, Side::Client)),
            key: Some(key.clone()),
            unheard: true,
            doubtful: None,
        });
        Self {
            peer,
            local_address: None,
            path,
            work,
            request,
            seals,
            validation: PeerValidation::Proven,
            question: None,
            began: timer::now(),
            said_at: Instant::ZERO,
            received: 0,
            sent: 0,
            credit: None,
            drawn: 0,
        }
    }

    /// The session of the side that is asked, by `request` unless the peer began without one (blind).
    pub(crate) fn serving(
        peer: SocketAddr,
        path: String,
        mut work: Work,
        request: Option<Request>,
        seal: Option<Seal>,
        validation: PeerValidation,
    ) -> Self {
        if let (Work::Receiving(incoming), PeerValidation::Unproven) = (&mut work, validation) {
            incoming.doubt();
        }
        let seals = seal.map(|session| Seals {
            session,
            stranger: None,
            key: None,
            unheard: false,
            doubtful: None,
        });
        Self {
            peer,
            local_address: None,
            path,
            work,
            request,
            seals,
            validation,
            question: None,
            began: timer::now(),
            said_at: Instant::ZERO,
            // What made it begin.
            received: HEADERS,
            sent: 0,
            credit: None,
            drawn: 0,
        }
    }

    /// Asks the peer, in every STATUS as long as nothing has come, to show that it hears us.
    #[must_use]
    pub(crate) const fn questioning(mut self, question: Timestamp) -> Self {
        self.question = Some(question);
        self
    }

    /// Until the peer answers in this session, what goes beyond ten times what came in is taken of `credit`.
    #[must_use]
    pub(crate) fn on(mut self, credit: Option<Credit>) -> Self {
        self.credit = credit;
        self
    }

    /// Where what it says goes, and from where.
    pub(crate) const fn way(&self) -> Way {
        (self.peer, self.local_address)
    }

    /// What seals its frames.
    pub(crate) fn seal(&self) -> Option<&Seal> {
        self.seals.as_ref().map(|seals| &seals.session)
    }

    /// The REQUEST that began it.
    pub(crate) const fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Whether `request` is the one that this session serves.
    pub(crate) fn serves(&self, request: &Request) -> bool {
        self.request.as_ref().is_some_and(|own| {
            own.kind == request.kind
                && own.path == request.path
                && (self.seals.is_none() || own.authentication == request.authentication)
        })
    }

    /// Whether it sends what is to be deleted here then.
    pub(crate) fn takes(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| request.kind == RequestKind::Take)
    }

    /// Whether no more will come of it than its last word.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.work, Work::Receiving(incoming) if incoming.receiver.is_over())
    }

    /// Whether the peer has shown that it hears us, here or elsewhere.
    pub(crate) fn is_proven(&self) -> bool {
        self.validation != PeerValidation::Unproven
    }

    /// Whether it ends where there is no room for others: its peer has shown nothing, or nothing in this session
    /// in all the time that was for it.
    pub(crate) fn is_evictable(&self, now: Instant) -> bool {
        let unheard = || {
            let is_heard =
                matches!(&self.work, Work::Sending(outgoing) if outgoing.sender.is_proven());
            !is_heard && now.since(self.began) >= UNHEARD
        };
        !self.is_proven() || self.validation == PeerValidation::Known && unheard()
    }

    /// The peer has shown it.
    pub(crate) fn prove(&mut self) {
        self.validation = PeerValidation::Proven;
        if let Work::Receiving(incoming) = &mut self.work {
            incoming.believe();
        }
    }

    /// When the peer was last heard, as far as that matters to what is done.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        match &self.work {
            Work::Sending(outgoing) => Some(outgoing.sender.heard_at()),
            Work::Receiving(incoming) => Some(incoming.receiver.heard_at()),
            Work::Asking(_) | Work::Preparing(_) => None,
        }
    }

    /// Stretches that it keeps: of what has come, or of what is to be sent again.
    pub(crate) fn stretches(&self) -> usize {
        match &self.work {
            Work::Sending(outgoing) => outgoing.sender.stretches(),
            Work::Receiving(incoming) => incoming.receiver.have().len(),
            Work::Asking(_) | Work::Preparing(_) => 0,
        }
    }

    /// It keeps no more than `most` from now on.
    pub(crate) fn limit_stretches(&mut self, most: usize) {
        match &mut self.work {
            Work::Sending(outgoing) => outgoing.sender.limit_stretches(most),
            Work::Receiving(incoming) => incoming.receiver.limit_stretches(most),
            Work::Asking(_) | Work::Preparing(_) => {}
        }
    }

    /// Whether nothing was heard of the peer for some time.
    pub(crate) fn is_quiet(&self, now: Instant) -> bool {
        self.heard_at().is_some_and(|at| now.since(at) >= QUIET)
    }

    /// A datagram of this session's peer and Id; whether it is settled, or its owner is to look at it too.
    pub(crate) fn take(&mut self, datagram: &[u8], now: Instant) -> bool {
        let Some(octets) = self.open(datagram, now) else {
            tracing::debug!(from = %self.peer, "a datagram without a right seal was dropped");
            return true;
        };
        self.received += datagram.len() as u64 + HEADERS;
        if let Some((data, payload)) = Data::of(octets)
            && let Work::Receiving(incoming) = &mut self.work
        {
            incoming.data(&data, payload, now);
            return true;
        }
        let frame = match Frame::parse(octets) {
            Ok((frame, _)) => frame,
            Err(error) => {
                tracing::debug!(%error, from = %self.peer, "a datagram was dropped");
                return true;
            }
        };
        let settled = match &frame {
            // Another request comes from a peer that began anew.
            Frame::Request(request) if !self.serves(request) || self.is_asked_anew() => {
                return false;
            }
            // It may be the proof that was asked for.
            Frame::Status(status) => self.is_proven() || status.timestamp.is_none(),
            _ => true,
        };
        self.input(frame, now);
        self.repay();
        settled
    }

    /// What is under the seal, where one is wanted; `None` for what is not the peer's.
    fn open<'a>(&mut self, datagram: &'a [u8], now: Instant) -> Option<&'a [u8]> {
        let outdated = self.is_outdated();
        let Some(seals) = &mut self.seals else {
            return Some(datagram);
        };
        if let Some(octets) = seals.session.open(datagram) {
            seals.unheard = false;
            // What nobody has asked for contradicts no refusal under the key: a NAT may have another port for this side by now.
            let contradicts = |doubtful: &UnsealedRefusal| {
                let voluntary =
                    |frame: Frame| matches!(frame, Frame::Status(said) if said.voluntary);
                !doubtful.sealed || !Frame::parse(octets).is_ok_and(|(frame, _)| voluntary(frame))
            };
            if seals.doubtful.as_ref().is_some_and(contradicts) {
                seals.doubtful = None;
            }
            return Some(octets);
        }
        let stranger = seals.stranger.as_ref();
        let opened = stranger.and_then(|stranger| stranger.open(datagram));
        if opened.is_none() && is_sealed(datagram) {
            return None;
        }
        let sealed = opened.is_some();
        let first = (seals.doubtful.as_ref()).is_none_or(|doubtful| sealed && !doubtful.sealed);
        if first
            && (sealed || seals.unheard || outdated)
            && let Ok((Frame::Status(refusal), _)) = Frame::parse(opened.unwrap_or(datagram))
            && refusal.code != Code::OK
        {
            seals.doubtful = Some(UnsealedRefusal {
                refusal,
                sealed,
                until: now + DOUBT,
            });
        }
        // A REQUEST is authenticated by itself.
        let request = matches!(Frame::parse(datagram), Ok((Frame::Request(_), _)));
        request.then_some(datagram)
    }

    /// Whether a REQUEST like its own begins another session: who sends it has begun anew, once all is here. To repeat that
    /// all is here would be said of content that never came. (With a key the REQUEST itself tells.)
    const fn is_asked_anew(&self) -> bool {
        self.seals.is_none() && self.is_verified()
    }

    /// Whether it has asked for a deletion that may be done, and no server believes the REQUEST any more: who is asked again
    /// has no seal for the answer.
    fn is_outdated(&self) -> bool {
        let asks = matches!(self.work, Work::Asking(_)) && self.seals.is_some();
        asks && self.request.as_ref().is_some_and(is_outdated)
    }

    fn doubtful(&self) -> Option<&UnsealedRefusal> {
        self.seals.as_ref()?.doubtful.as_ref()
    }

    /// A frame that is not DATA, or for which there is no use.
    fn input(&mut self, frame: Frame, now: Instant) {
        match &mut self.work {
            Work::Sending(outgoing) => outgoing.input(frame, now),
            Work::Receiving(incoming) => incoming.input(frame, now),
            Work::Asking(inquiry) => inquiry.input((), frame, now),
            // The session is still being prepared, and will answer later.
            Work::Preparing(preparing) => preparing.input(frame, now),
        }
    }

    /// The end, if it has come.
    pub(crate) fn timeout(&mut self, now: Instant) -> Option<Result<Vec<u8>, Error>> {
        let unsealed = self
            .doubtful()
            .filter(|doubtful| !doubtful.sealed)
            .map(|doubtful| doubtful.refusal.code);
        if let Some(doubtful) = self.doubtful()
            && doubtful.until <= now
        {
            // No frame under the session's seal has contradicted the refusal.
            let frame = Frame::Status(doubtful.refusal.clone());
            self.input(frame, now);
        }
        let result = self.advance(now)?;
        Some(match unsealed {
            Some(_) if self.is_outdated() => result.map_err(|_| Error::AnswerLost {
                path: self.path.clone(),
            }),
            Some(code) => result.map_err(|_| Error::Unsealed {
                path: self.path.clone(),
                code,
            }),
            None => result,
        })
    }

    fn advance(&mut self, now: Instant) -> Option<Result<Vec<u8>, Error>> {
        match &mut self.work {
            Work::Sending(outgoing) => {
                outgoing.timeout(now);
                let ended = outgoing.ended(now);
                ended.map(|result| result.map(|()| Vec::new()))
            }
            Work::Receiving(incoming) => {
                incoming.timeout(now);
                incoming.ended()
            }
            Work::Asking(inquiry) => {
                inquiry.timeout(now);
                Some(match inquiry.event()? {
                    Answer::Said(Code::OK) => Ok(Vec::new()),
                    Answer::Said(code) => {
                        Err(Error::session(&self.path, sender::Failure::Peer(code)))
                    }
                    Answer::Silence => Err(Error::session(&self.path, sender::Failure::Silence)),
                })
            }
            Work::Preparing(preparing) => match preparing.outcome(&self.path, now)? {
                Ok(outgoing) => {
                    self.work = Work::Sending(outgoing);
                    None
                }
                Err(error) => Some(Err(error)),
            },
        }
    }

    /// Whether the peer has shown in this session that it hears us.
    fn is_answered(&self) -> bool {
        self.validation == PeerValidation::Proven
            || matches!(&self.work, Work::Sending(outgoing) if outgoing.sender.is_proven())
    }

    /// Octets that may be sent without credit, beyond those that were.
    fn earned(&self) -> u64 {
        let all = AMPLIFICATION.saturating_mul(self.received) + self.drawn;
        all.saturating_sub(self.sent)
    }

    /// Octets that may still be sent to this peer.
    fn allowance(&self) -> u64 {
        if self.is_answered() {
            return u64::MAX;
        }
        let credit = self.credit.as_ref().map_or(0, Credit::left);
        self.earned().saturating_add(credit)
    }

    /// `len` octets are sent.
    fn spend(&mut self, len: u64) {
        if let Some(credit) = &self.credit
            && !self.is_answered()
        {
            let beyond = len.saturating_sub(self.earned());
            credit.draw(beyond);
            self.drawn += beyond;
        }
        self.sent += len;
    }

    /// What was taken on credit was heard.
    fn repay(&mut self) {
        if self.drawn > 0
            && self.is_answered()
            && let Some(credit) = &self.credit
        {
            credit.repay(std::mem::take(&mut self.drawn));
        }
    }

    /// Whether it must hear the peer before more is sent.
    fn is_held(&self) -> bool {
        let Work::Sending(outgoing) = &self.work else {
            return false;
        };
        self.allowance() < outgoing.sender.packet().0
    }

    /// Until when the line is taken by what it sent last, if it sends.
    pub(crate) fn line_free_at(&self) -> Option<Instant> {
        match &self.work {
            Work::Sending(outgoing) => Some(outgoing.sender.line_free_at()),
            _ => None,
        }
    }

    /// Whether it sends and needs the line now: for what it has to send, or for the rest of what it sent last. Otherwise
    /// it waits for the peer, and what it asks meanwhile is little.
    pub(crate) fn needs_line(&self, now: Instant) -> bool {
        let has_more = matches!(&self.work, Work::Sending(outgoing) if outgoing.sender.has_more());
        has_more && !self.is_held() || self.line_free_at().is_some_and(|at| at > now)
    }

    /// Appends the next datagram to `out`; `false` when none is due.
    pub(crate) fn transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        if self.is_held() {
            return false;
        }
        let start = out.len();
        while self.emit(now, out) {
            self.sign_anew(out, start);
            if let Some(seals) = &self.seals {
                seals.session.close(out, start);
            }
            let len = (out.len() - start) as u64 + HEADERS;
            if len <= self.allowance() {
                self.spend(len);
                return true;
            }
            // The datagram is dropped, as if it had been lost.
            out.truncate(start);
        }
        false
    }

    /// A REQUEST at octet `start` of `out` that nobody has answered is signed anew before it is too old to be believed. What is
    /// still said to the older one is under another seal, and counts for nothing. Once the server was heard the signature
    /// stays: what it was told then may have it delete, and a REQUEST signed anew would be another deletion.
    fn sign_anew(&mut self, out: &mut Vec<u8>, start: usize) {
        let (Some(seals), Some(request)) = (&mut self.seals, &mut self.request) else {
            return;
        };
        let Some(key) = seals.key.as_ref().filter(|_| is_request(&out[start..])) else {
            return;
        };
        if seals.unheard && is_ageing(request) {
            key.sign(request);
            seals.session = Seal::of_session(key, &request.authentication, Side::Client);
            seals.doubtful = None;
        }
        // The work knows the first signature only.
        out.truncate(start);
        // Where that could be written, so can this.
        let _ = Frame::Request(request.clone()).emit(out);
    }

    fn emit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        let frame = match &mut self.work {
            Work::Sending(outgoing) => return outgoing.transmit(now, out),
            Work::Receiving(incoming) => {
                let (proven, question) =
                    (self.validation != PeerValidation::Unproven, self.question);
                let frame = incoming.receiver.transmit(now);
                frame.map(|((), frame)| ((), answered(frame, proven, question)))
            }
            Work::Asking(inquiry) => inquiry.transmit(now),
            Work::Preparing(preparing) => preparing.transmit(now).map(|frame| ((), frame)),
        };
        let start = out.len();
        let written = frame.is_some_and(|((), frame)| frame.emit(out).is_ok());
        if !written {
            out.truncate(start);
        }
        written
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.work {
            // What ends a session that is held is the silence, for which a look now and then will do.
            Work::Sending(_) if self.is_held() => None,
            Work::Sending(outgoing) => outgoing.deadline(),
            Work::Receiving(incoming) => incoming.receiver.deadline(),
            Work::Asking(inquiry) => inquiry.deadline(),
            Work::Preparing(preparing) => preparing.deadline(),
        }
    }

    /// Whether the content that it receives has arrived and is verified.
    pub(crate) const fn is_verified(&self) -> bool {
        matches!(&self.work, Work::Receiving(incoming) if incoming.is_verified())
    }

    pub(crate) fn wants_a_look(&self) -> bool {
        match &self.work {
            Work::Sending(outgoing) => outgoing.waits(),
            Work::Receiving(incoming) => incoming.verifies(),
            Work::Asking(_) => false,
            Work::Preparing(_) => true,
        }
    }
}

/// `frame` as a peer may have it. A timestamp that is echoed proves to who made it that it was heard and wanted:
/// what comes in another's name must not be answered so, or a server would prove for us that we have asked it.
fn answered(frame: Frame, proven: bool, question: Option<Timestamp>) -> Frame {
    match frame {
        Frame::Status(status)
            if !proven || status.metadata_missing && status.timestamp.is_none() =>
        {
            Frame::Status(Status {
                timestamp: question,
                ..status
            })
        }
        frame => frame,
    }
}
