//! REQUESTs authenticated with a shared key. The format is ours: the draft leaves it to the peers.
//!
//! The field is `bentpipe1`, the time (64 bits, nanoseconds since 1970) and HMAC-SHA256 over
//! `bentpipe1`, the time, and the REQUEST as it is emitted without the field. The draft would also
//! cover addresses and ports; they change on the way through a NAT and are left out. A REQUEST is
//! believed for two minutes around its time, and once: a server remembers what it was asked ([`Seen`]). A client that
//! nobody answers signs it anew each minute ([`is_ageing`]).
//! What follows a REQUEST is sealed ([`crate::seal`]), also the answer to the question with which a server
//! lets it in ([`crate::address_validation`]): a REQUEST that was overheard is of no use without the key. Nothing
//! is encrypted: for that, use a tunnel.

use crate::Error;
use bentpipe_base::read_whole;
use bentpipe_wire::saratoga::{Code, Frame, Request};
use core::time::Duration;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const MAGIC: &[u8] = b"bentpipe1";
/// Nanoseconds by which clocks may differ, and a REQUEST may be old.
const WINDOW: u64 = 120_000_000_000;
/// REQUESTs that are remembered at most. Beyond them the oldest are forgotten, and what is as old as those is
/// no longer believed.
const MOST_SEEN: usize = 1 << 16;
/// Stretches of time that are remembered at most, see [`Forgotten`].
const MOST_STRETCHES: usize = 64;

/// A key that both peers have.
#[derive(Clone)]
pub struct Key(Vec<u8>);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Reads the key from `path`: all its octets but white space at the ends; at least 16.
    ///
    /// # Errors
    /// A file that cannot be read, or is too short.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let octets = File::open(path)
            .and_then(read_whole)
            .map_err(Error::file("read the key", name.clone()))?;
        let key = octets.trim_ascii().to_vec();
        if key.len() < 16 {
            let short = "it has less than 16 octets; make one with `openssl rand -hex 32`";
            return Err(Error::file("use the key", name)(io::Error::other(short)));
        }
        Ok(Self(key))
    }

    /// Puts the field into `request`.
    pub(crate) fn sign(&self, request: &mut Request) {
        self.sign_at(request, now());
    }

    /// As [`Self::sign`], at `time`.
    pub(crate) fn sign_at(&self, request: &mut Request, time: u64) {
        let mac = self.mac(request, time).finalize().into_bytes();
        request.authentication = [MAGIC, &time.to_be_bytes(), &mac].concat();
    }

    /// What the field of `request` shows.
    pub(crate) fn verify(&self, request: &Request) -> Proof {
        let field = request.authentication.strip_prefix(MAGIC);
        let Some((time, mac)) = field.and_then(|rest| rest.split_first_chunk::<8>()) else {
            return Proof::None;
        };
        let (time, now) = (u64::from_be_bytes(*time), now());
        // Compares in constant time.
        if self.mac(request, time).verify_slice(mac).is_err() {
            return Proof::None;
        }
        if time.abs_diff(now) <= WINDOW {
            Proof::Valid
        } else {
            Proof::Untimely {
                ahead: time > now,
                by: Duration::from_nanos(time.abs_diff(now)),
            }
        }
    }

    /// A key made from this one, for what `parts` say.
    pub(crate) fn derive(&self, parts: &[&[u8]]) -> Self {
        let mut mac = self.hmac();
        parts.iter().for_each(|part| mac.update(part));
        Self(mac.finalize().into_bytes().to_vec())
    }

    pub(crate) fn hmac(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(&self.0).expect("HMAC takes keys of any length")
    }

    #[cfg(test)]
    pub(crate) fn of(octets: &[u8]) -> Self {
        Self(octets.to_vec())
    }

    fn mac(&self, request: &Request, time: u64) -> Hmac<Sha256> {
        let bare = Request {
            authentication: Vec::new(),
            ..request.clone()
        };
        let mut octets = [MAGIC, &time.to_be_bytes()].concat();
        // What was parsed, or built here, can be emitted; if not, the sum is over less and fails.
        let _ = Frame::Request(bare).emit(&mut octets);
        self.hmac().chain_update(&octets)
    }
}

/// Nanoseconds since 1970; they fit until 2554.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64)
}

/// What the field of a REQUEST shows of who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// It was made with the key, now.
    Valid,
    /// It was made with the key, at another time: the clocks differ, or it was recorded.
    Untimely {
        /// Whether the clock of who made it is ahead of ours.
        ahead: bool,
        by: Duration,
    },
    /// Nothing.
    None,
}

/// What a REQUEST that verifies is to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Novelty {
    /// Never seen.
    New,
    /// Its peer sends it again, having missed that it was refused, or done at once, with this code; or what it
    /// began is over, and nobody knows it any more.
    Answered(Code),
    /// Somebody plays it again.
    Played,
}

/// The authenticated REQUESTs that a server has let in while they could be believed.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// By time of signature and the rest of the field.
    entries: BTreeMap<(u64, Vec<u8>), Entry>,
    forgotten: Forgotten,
}

/// When those were signed that a server has forgotten, for their age or for want of room: stretches from a first to a
/// last, in order. What was signed in one is not believed again. Nobody without the key can sign what is younger, so nobody
/// can shut out those who have it. There is one stretch as long as time only goes on; a clock that was ahead for a while and is
/// set right leaves one behind that is yet to come.
#[derive(Debug, Default)]
struct Forgotten(Vec<(u64, u64)>);

impl Forgotten {
    fn covers(&self, time: u64) -> bool {
        let within = |(first, last): &(u64, u64)| (*first..=*last).contains(&time);
        self.0.iter().any(within)
    }

    fn note(&mut self, time: u64) {
        let near = |(first, last): &&mut (u64, u64)| {
            first.saturating_sub(WINDOW) <= time && time <= last.saturating_add(WINDOW)
        };
        if let Some((first, last)) = self.0.iter_mut().find(near) {
            (*first, *last) = (time.min(*first), time.max(*last));
            return;
        }
        let place = self.0.partition_point(|(first, _)| *first < time);
        self.0.insert(place, (time, time));
        if self.0.len() > MOST_STRETCHES {
            // The two that are nearest to each other become one.
            let gap = |at: &usize| self.0[at + 1].0.saturating_sub(self.0[*at].1);
            if let Some(at) = (0..self.0.len() - 1).min_by_key(gap) {
                self.0[at].1 = self.0[at].1.max(self.0[at + 1].1);
                self.0.remove(at + 1);
            }
        }
    }
}

#[derive(Debug)]
struct Entry {
    from: SocketAddr,
    answer: Option<Code>,
}

impl Seen {
    /// What `request`, which verifies, is.
    pub(crate) fn novelty(&self, request: &Request, from: SocketAddr) -> Novelty {
        let key = signature(request);
        match self.entries.get(&key) {
            Some(entry) if entry.from == from => {
                Novelty::Answered(entry.answer.unwrap_or(Code::UNKNOWN_ID))
            }
            Some(_) => Novelty::Played,
            None if self.forgotten.covers(key.0) => Novelty::Played,
            None => Novelty::New,
        }
    }

    /// Remembers `request`, which is new and of who is at `from`. Who only says that he is there could play it before
    /// it comes from there.
    pub(crate) fn note(&mut self, request: &Request, from: SocketAddr) {
        self.note_at(request, from, now());
    }

    fn note_at(&mut self, request: &Request, from: SocketAddr, now: u64) {
        let entry = Entry { from, answer: None };
        self.entries.insert(signature(request), entry);
        // What is too old to be believed need not be remembered.
        let believed = now.saturating_sub(WINDOW);
        while let Some(oldest) = self.entries.first_entry()
            && (oldest.key().0 < believed || self.entries.len() > MOST_SEEN)
        {
            if let Some(((time, _), _)) = self.entries.pop_first() {
                self.forgotten.note(time);
            }
        }
    }

    /// `request` was answered with `code` and is over.
    pub(crate) fn answered(&mut self, request: &Request, code: Code) {
        if let Some(entry) = self.entries.get_mut(&signature(request)) {
            entry.answer = Some(code);
        }
    }
}

/// Whether `request` is authenticated as this module does it, with whatever key.
pub(crate) fn is_signed(request: &Request) -> bool {
    request.authentication.starts_with(MAGIC)
}

/// Whether `request`, which this side has signed, is to be signed anew where it is said again: half of the window is for
/// the way and for clocks that differ.
pub(crate) fn is_ageing(request: &Request) -> bool {
    age(request) > WINDOW / 2
}

/// Whether a server with the same clock no longer believes `request`.
pub(crate) fn is_outdated(request: &Request) -> bool {
    age(request) > WINDOW
}

/// Nanoseconds since `request` was signed. By the clock of its signature: others stand still while the machine sleeps.
fn age(request: &Request) -> u64 {
    signature(request).0.abs_diff(now())
}

/// When `request`, which verifies, was signed, and its HMAC: of two REQUESTs the later one is greater.
pub(crate) fn signature(request: &Request) -> (u64, Vec<u8>) {
    let field = request.authentication.strip_prefix(MAGIC);
    let parts = field.and_then(|rest| rest.split_first_chunk::<8>());
    parts.map_or_else(Default::default, |(time, mac)| {
        (u64::from_be_bytes(*time), mac.to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::saratoga::{Capabilities, RequestKind};

    /// A request that is not signed yet.
    fn request(session: u32, kind: RequestKind) -> Request {
        Request {
            capabilities: Capabilities::default(),
            session,
            kind,
            late_checksum: false,
            path: "a".to_owned(),
            authentication: Vec::new(),
        }
    }

    #[test]
    fn a_request_is_believed_only_as_it_was_signed() {
        let key = Key(b"0123456789abcdef".to_vec());
        let mut request = request(7, RequestKind::Delete);
        assert_eq!(key.verify(&request), Proof::None);
        key.sign(&mut request);
        assert_eq!(key.verify(&request), Proof::Valid);
        assert_eq!(
            Key(b"0123456789abcdeg".to_vec()).verify(&request),
            Proof::None
        );
        for change in [
            |request: &mut Request| request.path.push('b'),
            |request: &mut Request| request.session += 1,
            |request: &mut Request| request.kind = RequestKind::Put,
            |request: &mut Request| request.late_checksum = true,
            |request: &mut Request| request.authentication[16] ^= 1,
        ] {
            let mut forged = request.clone();
            change(&mut forged);
            assert_eq!(key.verify(&forged), Proof::None, "{forged:?}");
        }
    }

    #[test]
    fn a_request_counts_once_and_its_peer_hears_the_answer_again() {
        let key = Key(b"0123456789abcdef".to_vec());
        let mut request = request(7, RequestKind::Delete);
        key.sign(&mut request);
        let [peer, other] = ["10.0.0.2:1", "10.0.0.3:1"].map(|at| at.parse().unwrap());
        let mut seen = Seen::default();
        assert_eq!(seen.novelty(&request, other), Novelty::New);
        assert_eq!(seen.novelty(&request, peer), Novelty::New);
        seen.note(&request, peer);
        let over = Novelty::Answered(Code::UNKNOWN_ID);
        assert_eq!(seen.novelty(&request, peer), over);
        assert_eq!(seen.novelty(&request, other), Novelty::Played);
        seen.answered(&request, Code::OK);
        assert_eq!(seen.novelty(&request, peer), Novelty::Answered(Code::OK));
        assert_eq!(seen.novelty(&request, other), Novelty::Played);
        // Signed anew it is another one.
        key.sign(&mut request);
        assert_eq!(key.verify(&request), Proof::Valid);
        assert_eq!(seen.novelty(&request, other), Novelty::New);
    }

    #[test]
    fn recorded_requests_do_not_shut_out_who_has_the_key() {
        let key = Key(b"0123456789abcdef".to_vec());
        let from = "10.0.0.2:1".parse().unwrap();
        let mut seen = Seen::default();
        let signed = |session| {
            let mut request = request(session, RequestKind::Get);
            key.sign(&mut request);
            request
        };
        let recorded: Vec<Request> = (0..66_000).map(signed).collect();
        for request in &recorded {
            seen.note(request, from);
        }
        let signed = signed(70_000);
        assert_eq!(seen.novelty(&signed, from), Novelty::New);
        seen.note(&signed, from);
        for request in &recorded {
            assert_ne!(seen.novelty(request, from), Novelty::New, "once is enough");
        }
        assert!(seen.entries.len() <= MOST_SEEN);
    }

    /// The clock of server and clients was an hour ahead for some minutes and is set right.
    #[test]
    fn who_has_the_key_is_heard_after_the_clock_was_set_back() {
        let key = Key(b"0123456789abcdef".to_vec());
        let from = "10.0.0.2:1".parse().unwrap();
        let mut seen = Seen::default();
        let mut ask = |session: u32, time: u64| {
            let mut request = request(session, RequestKind::Get);
            let mac = key.mac(&request, time).finalize().into_bytes();
            request.authentication = [MAGIC, &time.to_be_bytes(), &mac].concat();
            let novelty = seen.novelty(&request, from);
            seen.note_at(&request, from, time);
            novelty
        };
        let (second, hour) = (1_000_000_000, 3_600_000_000_000);
        let start = 1_000 * hour;
        assert_eq!(ask(1, start), Novelty::New);
        for session in 2..5 {
            let time = start + hour + u64::from(session) * 150 * second;
            assert_eq!(ask(session, time), Novelty::New);
        }
        for session in 5..25 {
            let time = start + u64::from(session) * 150 * second;
            assert_eq!(ask(session, time), Novelty::New, "{session}");
        }
        // What was signed and forgotten is played again when its time has come, or come back.
        for (session, time) in [(1, start), (2, start + hour + 300 * second)] {
            assert_ne!(ask(session, time), Novelty::New);
        }
        for session in 100..300 {
            ask(session, start + u64::from(session) * hour);
        }
        assert_ne!(ask(1, start), Novelty::New);
        assert!(seen.forgotten.0.len() <= MOST_STRETCHES);
    }

    #[test]
    fn a_clock_that_differs_is_told_from_a_wrong_key() {
        let key = Key(b"0123456789abcdef".to_vec());
        let mut request = request(7, RequestKind::Get);
        for (time, after) in [
            (now() + 180_000_000_000, true),
            (now() - 180_000_000_000, false),
        ] {
            let mac = key.mac(&request, time).finalize().into_bytes();
            request.authentication = [MAGIC, &time.to_be_bytes(), &mac].concat();
            let Proof::Untimely { ahead, by } = key.verify(&request) else {
                panic!("taken for {:?}", key.verify(&request));
            };
            assert_eq!(ahead, after);
            assert!(by.as_secs().abs_diff(180) <= 20, "{by:?}");
            let other = Key(b"0123456789abcdeg".to_vec());
            assert_eq!(other.verify(&request), Proof::None);
        }
    }
}
