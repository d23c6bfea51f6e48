//! Address validation: before a REQUEST is served, its sender shows that it receives what is sent to its address (as in
//! QUIC; RFC 9000, section 8).
//!
//! The source address of a datagram is whatever its sender writes. So an address that is not known is sent no
//! more than a question: an empty DATA frame (a STATUS, where it wants to send) with a timestamp that
//! only this server can have made, for this address, session and minute. A STATUS that echoes
//! it, as the draft has every receiver do, is the proof. Until then a REQUEST costs an entry in a
//! table here, and nothing else: no session, no thread, no file, no directory. After it the address
//! is known for a while, and its further REQUESTs are served at once.

use crate::authenticate::is_signed;
use bentpipe_base::Instant;
use bentpipe_wire::saratoga::{Request, Timestamp};
use core::time::Duration;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::endpoint::Key;
use bentpipe_saratoga_files::network;

/// REQUESTs that wait for a proof at most; beyond, the oldest are forgotten, and asked again.
const MOST_WAITING: usize = 4096;
/// Of those with one signature, where there is no room for all: who has recorded one plays it from any number of addresses.
const MOST_COPIES: usize = 2;
/// Addresses that are known at most.
const MOST_KNOWN: usize = 4096;
/// How long a question can be answered.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// How long an address is known after its last proof.
const KNOWN_FOR: Duration = Duration::from_secs(120);
/// Octets that go to a known address before it answers, in all its sessions together and beyond ten times what comes
/// in its name: a line of 14 Mbit/s is full for 600 ms.
const CREDIT: u64 = 1 << 20;
/// The same for one that has answered to so much.
const MOST_CREDIT: u64 = 8 << 20;
/// With less it is asked again.
const LITTLE: u64 = 64 << 10;
/// Octets of the timestamp that say when it was made.
const TIME: usize = 6;
/// Octets that prove who made it.
const PROOF: usize = 9;

/// See the file's head.
#[derive(Debug)]
pub(crate) struct AddressValidation {
    secret: [u8; 32],
    /// The waiting REQUESTs by address and session, each with the time when it came first.
    waiting: BTreeMap<Key, (Request, Instant)>,
    /// The known addresses, each with its expiry and its credit.
    known: BTreeMap<SocketAddr, (Instant, Credit)>,
    /// When what waits was looked through last.
    tidied: Instant,
}

/// The octets that may be sent to a known address before it answers again. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Credit(Arc<AtomicU64>);

impl Credit {
    fn new() -> Self {
        Self(Arc::new(AtomicU64::new(CREDIT)))
    }

    /// Octets that are left of it.
    pub(crate) fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes `octets` of it.
    pub(crate) fn draw(&self, octets: u64) {
        self.0
            .store(self.left().saturating_sub(octets), Ordering::Relaxed);
    }

    /// `octets` were acknowledged: they are credited twice, as a congestion window grows in slow start.
    pub(crate) fn repay(&self, octets: u64) {
        let more = self.left().saturating_add(octets.saturating_mul(2));
        self.0.store(more.min(MOST_CREDIT), Ordering::Relaxed);
    }
}

impl AddressValidation {
    /// A table without any address.
    ///
    /// # Errors
    /// A system without random numbers.
    pub(crate) fn new() -> io::Result<Self> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        Ok(Self {
            secret,
            waiting: BTreeMap::new(),
            known: BTreeMap::new(),
            tidied: Instant::ZERO,
        })
    }

    /// `request` came from `key`, and waits for a proof: the timestamp to ask with.
    pub(crate) fn ask(&mut self, key: Key, request: &Request, now: Instant) -> Timestamp {
        if self.waiting.len() >= MOST_WAITING && !self.waiting.contains_key(&key) {
            self.make_room(now);
        }
        let (waiting, since) = (self.waiting.entry(key)).or_insert_with(|| (request.clone(), now));
        if waiting != request {
            (*waiting, *since) = (request.clone(), now);
        }
        self.stamp(key, now.as_nanos() / 1000)
    }

    /// Forgets what nobody can prove any more, so that the memory of a flood is given back. To be called now and then.
    pub(crate) fn tidy(&mut self, now: Instant) {
        if now.since(self.tidied) >= ANSWERED_WITHIN {
            self.tidied = now;
            self.waiting
                .retain(|_, (_, at)| now.since(*at) <= ANSWERED_WITHIN);
            self.known.retain(|_, (until, _)| *until > now);
        }
    }

    /// The timestamp with which `key`, which is served before it has proved anything, is asked meanwhile.
    pub(crate) fn question(&self, key: Key, now: Instant) -> Timestamp {
        self.stamp(key, now.as_nanos() / 1000)
    }

    /// The REQUEST that waits for a proof of `key`.
    pub(crate) fn waiting(&self, key: Key) -> Option<&Request> {
        self.waiting.get(&key).map(|(request, _)| request)
    }

    /// No longer waits for it.
    pub(crate) fn forget(&mut self, key: Key) {
        self.waiting.remove(&key);
    }

    /// `key` sent `stamp`: whether that proves that it hears us.
    pub(crate) fn proves(&mut self, key: Key, stamp: Timestamp, now: Instant) -> bool {
        let mut time = [0; 8];
        time[8 - TIME..].copy_from_slice(&stamp.0[..TIME]);
        let time = u64::from_be_bytes(time);
        let made = Instant::from_nanos(time.saturating_mul(1000));
        let fresh = made <= now && now.since(made) <= ANSWERED_WITHIN;
        let right = fresh && self.stamp(key, time) == stamp;
        if right {
            if self.known.len() >= MOST_KNOWN {
                self.known.retain(|_, (until, _)| *until > now);
                if let Some(most) = crowd(self.known.keys().copied(), MOST_KNOWN / 4) {
                    self.known.retain(|address, _| network(*address) != most);
                }
            }
            let room = self.known.len() < MOST_KNOWN;
            if room || self.known.contains_key(&key.0) {
                let fresh = (now, Credit::new());
                let (until, credit) = self.known.entry(key.0).or_insert(fresh);
                *until = now + KNOWN_FOR;
                credit.0.fetch_max(CREDIT, Ordering::Relaxed);
            }
        }
        right
    }

    /// Whether `address` has proved that it hears us, not long ago.
    pub(crate) fn knows(&self, address: SocketAddr, now: Instant) -> bool {
        self.credit(address, now).is_some()
    }

    /// What may go to `address`, if it is known and has answered to what went before.
    pub(crate) fn credit(&self, address: SocketAddr, now: Instant) -> Option<Credit> {
        let (until, credit) = self.known.get(&address)?;
        (*until > now && credit.left() >= LITTLE).then(|| credit.clone())
    }

    /// Forgets what came too long ago; copies of one REQUEST but the first; what the one address sent that has more than its part,
    /// or else the oldest quarter.
    fn make_room(&mut self, now: Instant) {
        self.waiting
            .retain(|_, (_, at)| now.since(*at) <= ANSWERED_WITHIN);
        if self.waiting.len() < MOST_WAITING {
            return;
        }
        self.forget_copies();
        if self.waiting.len() < MOST_WAITING {
            return;
        }
        let addresses = self.waiting.keys().map(|(address, _)| *address);
        if let Some(most) = crowd(addresses, MOST_WAITING / 4) {
            return self.waiting.retain(|key, _| network(key.0) != most);
        }
        let mut times: Vec<Instant> = self.waiting.values().map(|(_, at)| *at).collect();
        let (_, oldest, _) = times.select_nth_unstable(MOST_WAITING / 4);
        let oldest = *oldest;
        self.waiting.retain(|_, (_, at)| *at > oldest);
    }

    fn forget_copies(&mut self) {
        let signed = (self.waiting.iter()).filter(|(_, (request, _))| is_signed(request));
        let mut signed: Vec<(&[u8], Instant, Key)> = signed
            .map(|(key, (request, at))| (&*request.authentication, *at, *key))
            .collect();
        signed.sort_unstable();
        let copies = signed.chunk_by(|one, next| one.0 == next.0);
        let copies = copies.flat_map(|same| same.iter().skip(MOST_COPIES));
        let copies: Vec<Key> = copies.map(|(_, _, key)| *key).collect();
        for key in copies {
            self.waiting.remove(&key);
        }
    }

    /// The timestamp for `key`, made `micros` after the start of the clock.
    fn stamp(&self, (address, session): Key, micros: u64) -> Timestamp {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("any length will do");
        match address.ip() {
            IpAddr::V4(ip) => mac.update(&ip.octets()),
            IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        let time = &micros.to_be_bytes()[8 - TIME..];
        mac.update(&address.port().to_be_bytes());
        mac.update(&session.to_be_bytes());
        mac.update(time);
        let mut own = [0; TIME + PROOF];
        own[..TIME].copy_from_slice(time);
        own[TIME..].copy_from_slice(&mac.finalize().into_bytes()[..PROOF]);
        Timestamp::local(own)
    }
}

/// Which of `addresses` is there more than `part` times.
fn crowd(addresses: impl Iterator<Item = SocketAddr>, part: usize) -> Option<IpAddr> {
    let mut counts = BTreeMap::<IpAddr, usize>::new();
    for address in addresses {
        *counts.entry(network(address)).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.filter(|(_, count)| *count > part)
        .map(|(most, _)| most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::saratoga::{Capabilities, RequestKind};

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn request() -> Request {
        Request {
            capabilities: Capabilities::default(),
            session: 7,
            kind: RequestKind::Get,
            late_checksum: true,
            path: "a".to_owned(),
            authentication: Vec::new(),
        }
    }

    #[test]
    fn only_the_question_of_this_server_address_session_and_time_is_a_proof() {
        let key = ("10.0.0.2:700".parse().unwrap(), 7);
        let mut validation = AddressValidation::new().unwrap();
        let stamp = validation.ask(key, &request(), at(1000));
        assert!(!validation.knows(key.0, at(1000)));
        let mut changed = stamp;
        changed.0[5] ^= 1;
        let others = [
            (("10.0.0.3:700".parse().unwrap(), 7), stamp),
            (("10.0.0.2:701".parse().unwrap(), 7), stamp),
            ((key.0, 8), stamp),
            (key, changed),
        ];
        for (from, stamp) in others {
            assert!(!validation.proves(from, stamp, at(1600)), "{from:?}");
        }
        assert!(!validation.proves(key, stamp, at(40_000)), "late");
        let mut another = AddressValidation::new().unwrap();
        assert!(!another.proves(key, stamp, at(1600)));
        assert!(validation.proves(key, stamp, at(1600)));
        assert!(validation.knows(key.0, at(60_000)) && !validation.knows(key.0, at(200_000)));
    }

    #[test]
    fn a_flood_takes_no_more_room_than_there_is_and_the_youngest_stay() {
        let mut validation = AddressValidation::new().unwrap();
        for i in 0..20_000u64 {
            let ip = std::net::Ipv4Addr::from(0x0a00_0000 + i as u32);
            validation.ask((SocketAddr::from((ip, 7)), 7), &request(), at(i));
            assert!(validation.waiting.len() <= MOST_WAITING);
        }
        let last = std::net::Ipv4Addr::from(0x0a00_0000 + 19_999);
        assert!(
            validation
                .waiting((SocketAddr::from((last, 7)), 7))
                .is_some()
        );
    }

    /// With a key the proof is under the seal of its REQUEST, so that this has to be there still.
    #[test]
    fn a_recorded_request_from_everywhere_forgets_no_other() {
        let mut validation = AddressValidation::new().unwrap();
        let signed = |signature: &[u8]| Request {
            authentication: [b"bentpipe1", signature].concat(),
            ..request()
        };
        let honest = ("10.1.0.2:700".parse().unwrap(), 7);
        validation.ask(honest, &signed(b"honest"), at(1));
        let recorded = signed(b"recorded");
        for i in 0..20_000u64 {
            let ip = std::net::Ipv4Addr::from(0x0a00_0000 + i as u32);
            let from = (SocketAddr::from((ip, 7)), 7);
            validation.ask(from, &recorded, at(i));
            assert!(validation.waiting.len() <= MOST_WAITING);
        }
        assert!(validation.waiting(honest).is_some());
        // Who comes first may be the one that has signed it.
        let first = ("10.0.0.0:7".parse().unwrap(), 7);
        assert!(validation.waiting(first).is_some());
    }

    #[test]
    fn what_nobody_can_prove_any_more_is_forgotten_without_a_flood() {
        let key = ("10.0.0.2:700".parse().unwrap(), 7);
        let mut validation = AddressValidation::new().unwrap();
        let stamp = validation.ask(key, &request(), at(0));
        assert!(validation.proves(key, stamp, at(100)));
        validation.tidy(at(29_000));
        assert!(validation.waiting(key).is_some() && validation.knows(key.0, at(29_000)));
        validation.tidy(at(31_000));
        assert!(validation.waiting(key).is_none() && validation.knows(key.0, at(31_000)));
        validation.tidy(at(130_000));
        assert!(validation.known.is_empty());
    }

    #[test]
    fn one_host_forgets_its_own_by_whatever_of_its_addresses() {
        let mut validation = AddressValidation::new().unwrap();
        let other = ("10.0.0.2:700".parse().unwrap(), 7);
        let stamp = validation.ask(other, &request(), at(0));
        assert!(validation.proves(other, stamp, at(0)));
        for i in 0..10_000u64 {
            let ip = std::net::Ipv6Addr::from_bits((0x2001_0db8 << 96) + u128::from(i));
            let key = (SocketAddr::from((ip, 7)), 7);
            let stamp = validation.ask(key, &request(), at(i));
            assert!(validation.proves(key, stamp, at(i)));
            assert!(
                validation.waiting.len() <= MOST_WAITING && validation.known.len() <= MOST_KNOWN
            );
        }
        assert!(validation.waiting(other).is_some() && validation.knows(other.0, at(10_000)));
        let late = ("10.0.0.3:700".parse().unwrap(), 7);
        let stamp = validation.ask(late, &request(), at(10_000));
        assert!(validation.proves(late, stamp, at(10_000)) && validation.knows(late.0, at(10_000)));
    }

    #[test]
    fn who_answers_no_more_is_asked_again() {
        let key = ("10.0.0.2:700".parse().unwrap(), 7);
        let mut validation = AddressValidation::new().unwrap();
        let stamp = validation.ask(key, &request(), at(0));
        assert!(validation.proves(key, stamp, at(600)));
        let credit = validation.credit(key.0, at(1000)).unwrap();
        credit.draw(CREDIT - LITTLE);
        assert!(validation.knows(key.0, at(1000)));
        credit.draw(1);
        assert!(!validation.knows(key.0, at(1000)), "for all its sessions");
        assert!(validation.proves(key, stamp, at(1200)));
        assert_eq!(credit.left(), CREDIT);
        credit.draw(CREDIT);
        credit.repay(CREDIT);
        assert_eq!(credit.left(), 2 * CREDIT);
        (0..10).for_each(|_| credit.repay(CREDIT));
        assert_eq!(credit.left(), MOST_CREDIT);
    }
}
