//! Which address validation tokens (RFC 9000, section 8.1.3) were used: each validates an address once.

use core::time::Duration;
use quinn_proto::{TokenLog, TokenReuseError};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tokens remembered in each of two generations.
const GENERATION: usize = 4096;

/// Used tokens, in bounded memory: the older half is forgotten when the newer one is full, and tokens that were issued no later
/// than one forgotten are refused. Who is refused is validated by the handshake, as without a token.
#[derive(Debug, Default)]
pub(crate) struct UsedTokens(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    now: Generation,
    past: Generation,
    /// The latest issue of a token that was forgotten, if any was.
    forgotten: Option<SystemTime>,
}

#[derive(Debug)]
struct Generation {
    nonces: BTreeSet<u128>,
    /// The latest issue of one of them.
    latest: SystemTime,
}

impl Default for Generation {
    fn default() -> Self {
        Self {
            nonces: BTreeSet::new(),
            latest: UNIX_EPOCH,
        }
    }
}

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        _lifetime: Duration,
    ) -> Result<(), TokenReuseError> {
        // Nothing panics midway, so what is poisoned is as good as any.
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = tokens
            .forgotten
            .is_some_and(|forgotten| issued <= forgotten);
        if old || tokens.past.nonces.contains(&nonce) {
            return Err(TokenReuseError);
        }
        if !tokens.now.nonces.insert(nonce) {
            return Err(TokenReuseError);
        }
        tokens.now.latest = tokens.now.latest.max(issued);
        if tokens.now.nonces.len() >= GENERATION {
            if !tokens.past.nonces.is_empty() {
                tokens.forgotten = tokens.forgotten.max(Some(tokens.past.latest));
            }
            tokens.past = core::mem::take(&mut tokens.now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(log: &UsedTokens, nonce: u128, issued: u64) -> bool {
        let issued = UNIX_EPOCH + Duration::from_secs(issued);
        { log.check_and_insert(nonce, issued, Duration::from_secs(3600)) }.is_err()
    }

    #[test]
    fn a_token_is_good_once_however_many_came_since() {
        let log = UsedTokens::default();
        assert!(!used(&log, 7, 1));
        assert!(used(&log, 7, 1));
        for nonce in 1000..1000 + 3 * GENERATION as u64 {
            assert!(!used(&log, u128::from(nonce), nonce));
        }
        // It is forgotten, and refused for its age.
        assert!(used(&log, 7, 1));
        let held = log.0.lock().unwrap();
        assert!(held.now.nonces.len() + held.past.nonces.len() <= 2 * GENERATION);
    }
}
