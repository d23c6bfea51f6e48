//! REQUESTs authenticated with a shared key. The format is ours: the draft leaves it to the peers.
//!
//! The field is `bentpipe1`, the time (64 bits, seconds since 1970) and HMAC-SHA256 over
//! `bentpipe1`, the time, and the REQUEST as it is emitted without the field. The draft would also
//! cover addresses and ports; they change on the way through a NAT and are left out. A REQUEST is
//! believed for two minutes around its time. What follows a REQUEST is not authenticated, nor is
//! anything encrypted: for that, use a tunnel.

use crate::Error;
use bentpipe_wire::saratoga::{Frame, Request};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const MAGIC: &[u8] = b"bentpipe1";
/// Seconds by which clocks may differ, and a REQUEST may be old.
const WINDOW: u64 = 120;

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
        let octets = std::fs::read(path).map_err(Error::file("read the key", name.clone()))?;
        let key = octets.trim_ascii().to_vec();
        if key.len() < 16 {
            return Err(Error::Path {
                path: name,
                why: "holds less than 16 octets of key; make one with `openssl rand -hex 32`",
            });
        }
        Ok(Self(key))
    }

    /// Puts the field into `request`.
    pub(crate) fn sign(&self, request: &mut Request) {
        let time = now();
        let mac = self.mac(request, time).finalize().into_bytes();
        request.authentication = [MAGIC, &time.to_be_bytes(), &mac].concat();
    }

    /// Whether the field of `request` was made with this key, now.
    pub(crate) fn verifies(&self, request: &Request) -> bool {
        let field = request.authentication.strip_prefix(MAGIC);
        let Some((time, mac)) = field.and_then(|rest| rest.split_first_chunk::<8>()) else {
            return false;
        };
        let time = u64::from_be_bytes(*time);
        // Compares in constant time.
        time.abs_diff(now()) <= WINDOW && self.mac(request, time).verify_slice(mac).is_ok()
    }

    fn mac(&self, request: &Request, time: u64) -> Hmac<Sha256> {
        let bare = Request {
            authentication: Vec::new(),
            ..request.clone()
        };
        let mut octets = [MAGIC, &time.to_be_bytes()].concat();
        // What was parsed, or built here, can be emitted; if not, the sum is over less and fails.
        let _ = Frame::Request(bare).emit(&mut octets);
        let mut mac = Hmac::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(&octets);
        mac
    }
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::saratoga::{Capabilities, RequestKind};

    #[test]
    fn a_request_is_believed_only_as_it_was_signed() {
        let key = Key(b"0123456789abcdef".to_vec());
        let mut request = Request {
            capabilities: Capabilities::default(),
            session: 7,
            kind: RequestKind::Delete,
            path: "a".to_owned(),
            authentication: Vec::new(),
        };
        assert!(!key.verifies(&request));
        key.sign(&mut request);
        assert!(key.verifies(&request));
        assert!(!Key(b"0123456789abcdeg".to_vec()).verifies(&request));
        for change in [
            |request: &mut Request| request.path.push('b'),
            |request: &mut Request| request.session += 1,
            |request: &mut Request| request.kind = RequestKind::Put,
            |request: &mut Request| request.authentication[16] ^= 1,
        ] {
            let mut forged = request.clone();
            change(&mut forged);
            assert!(!key.verifies(&forged), "{forged:?}");
        }
    }
}
