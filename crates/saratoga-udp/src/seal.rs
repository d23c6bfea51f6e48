//! Seals: the message authentication codes by which a datagram of a session shows that it comes from who has the key.
//!
//! They are ours: the draft leaves authentication to the peers, and has a place for it in REQUEST alone. Where a
//! REQUEST was authenticated, every other datagram of its session, in either direction, has bit 18 of its first word
//! set, which the draft leaves at zero in all frames but BEACON (where it is a width, so that a sealed one tells no free
//! space), and ends with 16 octets: the first of an HMAC-SHA256 (RFC 2104) over the datagram before them. Each session
//! and each direction has a key of its own, made from the shared key and the REQUEST's authentication, so that nothing
//! counts that is played again in another session, or sent back to where it came from.

use crate::Key;
use core::time::Duration;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Octets that a seal adds to a datagram.
pub(crate) const SEAL: usize = 16;
/// Bit 18 of the first word, in its third octet.
const SEALED: u8 = 0x20;

/// How long a refusal without a seal waits for an answer with one: the longest round trip, and more than one REQUEST.
pub(crate) const DOUBT: Duration = Duration::from_secs(3);

/// The first octet of a REQUEST.
const REQUEST: u8 = 0x21;

/// Seals what goes out and opens what comes in.
#[derive(Clone)]
pub(crate) struct Seal {
    out: Hmac<Sha256>,
    into: Hmac<Sha256>,
}

/// The two ends of a session: who asks, and who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Seal {
    /// The seal of the session that a REQUEST with this `authentication` began, as `side` has it.
    pub(crate) fn of_session(key: &Key, authentication: &[u8], side: Side) -> Self {
        Self::new(key, "session", authentication, side)
    }

    /// The key of frames about session `id` from a side that does not know the session, for example after its start.
    pub(crate) fn of_stranger(key: &Key, id: u32, side: Side) -> Self {
        Self::new(key, "stranger", &id.to_be_bytes(), side)
    }

    fn new(key: &Key, what: &str, context: &[u8], side: Side) -> Self {
        let half = |from: &str| {
            let key = key.derive(&[b"bentpipe1 ", what.as_bytes(), from.as_bytes(), context]);
            key.hmac()
        };
        let (client, server) = (half(" of the client "), half(" of the server "));
        match side {
            Side::Client => Self {
                out: client,
                into: server,
            },
            Side::Server => Self {
                out: server,
                into: client,
            },
        }
    }

    /// Seals the datagram that begins at octet `start` of `out`; a REQUEST is authenticated by itself.
    pub(crate) fn close(&self, out: &mut Vec<u8>, start: usize) {
        if !is_request(&out[start..])
            && let Some([_, _, flags]) = out.get_mut(start..start + 3)
        {
            *flags |= SEALED;
            let sum = self.out.clone().chain_update(&out[start..]).finalize();
            out.extend_from_slice(&sum.into_bytes()[..SEAL]);
        }
    }

    /// What is under the seal of `datagram`; `None` where it has none, or another's.
    pub(crate) fn open<'a>(&self, datagram: &'a [u8]) -> Option<&'a [u8]> {
        let (octets, seal) = datagram.split_last_chunk::<SEAL>()?;
        let sum = || self.into.clone().chain_update(octets);
        // Compares in constant time.
        let right = is_sealed(datagram) && sum().verify_truncated_left(seal).is_ok();
        right.then_some(octets)
    }
}

/// Whether `datagram` is a REQUEST.
pub(crate) fn is_request(datagram: &[u8]) -> bool {
    datagram.first() == Some(&REQUEST)
}

/// Whether `datagram` says that it is sealed.
pub(crate) fn is_sealed(datagram: &[u8]) -> bool {
    datagram.get(2).is_some_and(|flags| flags & SEALED != 0)
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_session_one_direction_and_every_octet() {
        let key = Key::of(b"0123456789abcdef");
        let seal = |side| Seal::of_session(&key, b"a request", side);
        let (client, server) = (seal(Side::Client), seal(Side::Server));
        let mut sealed = b"xx\x23\x00\x00\x00content".to_vec();
        client.close(&mut sealed, 2);
        let sealed = sealed.split_off(2);
        assert_eq!(server.open(&sealed), Some(&b"\x23\x00\x20\x00content"[..]));
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(server.open(&damaged), None, "octet {at}");
            assert_eq!(server.open(&sealed[..at]), None, "cut at {at}");
        }
        assert_eq!(client.open(&sealed), None, "sent back");
        let other = Seal::of_session(&key, b"another", Side::Server);
        assert_eq!(other.open(&sealed), None);
        assert_eq!(Seal::of_stranger(&key, 7, Side::Server).open(&sealed), None);
    }
}
