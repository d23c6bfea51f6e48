//! TLS of an endpoint's keys for what its driver carries over TCP beside it.

use crate::config::ConfigError;
use crate::endpoint::{Endpoint, KEY_REFUSED};
use crate::keys;
use std::sync::Arc;

fn failed(reason: rustls::Error) -> ConfigError {
    ConfigError::Tls(reason.to_string())
}

impl Endpoint {
    /// TLS of who connects over TCP to one of the trusted peers, and speaks `protocol` there, as ALPN names it. Who is trusted follows
    /// [`Self::trust`].
    ///
    /// # Errors
    /// [`ConfigError::Tls`].
    pub fn tls_client(&self, protocol: &[u8]) -> Result<Arc<rustls::ClientConfig>, ConfigError> {
        let protocols = vec![protocol.to_vec()];
        let made = keys::client(&self.identity, &self.trusted, &self.calendar, protocols);
        made.map(Arc::new).map_err(failed)
    }

    /// TLS of who accepts those of the trusted peers over TCP, as [`Self::tls_client`].
    ///
    /// # Errors
    /// [`ConfigError::Tls`].
    pub fn tls_server(&self, protocol: &[u8]) -> Result<Arc<rustls::ServerConfig>, ConfigError> {
        let protocols = vec![protocol.to_vec()];
        let made = keys::server(&self.identity, &self.trusted, &self.calendar, protocols);
        made.map(Arc::new).map_err(failed)
    }

    /// What is said of a handshake over TCP that failed for these `words` of TLS.
    pub fn refusal(words: &str) -> String {
        let alert = words.strip_prefix("received fatal alert: ");
        if alert.is_some_and(|alert| alert.contains("Certificate") || alert == "AccessDenied") {
            return KEY_REFUSED.to_owned();
        }
        keys::PublicKey::untrusted(words).map_or_else(
            || words.to_owned(),
            |key| format!("the peer's key {key} is not trusted"),
        )
    }
}
