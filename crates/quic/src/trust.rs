//! Whom an endpoint trusts from now on, and TLS of its keys for what its driver carries over TCP beside it.

use crate::certificates::{Certificates, TlsServer};
use crate::config::ConfigError;
use crate::endpoint::{Endpoint, KEY_REFUSED, NO_CERTIFICATE};
use crate::keys::{self, PublicKey};
use crate::stack_interface::ConnectionId;
use bentpipe_base::Instant;
use core::time::Duration;
use rustls::pki_types::CertificateDer;
use rustls::time_provider::TimeProvider as _;
use std::sync::Arc;

fn failed(reason: rustls::Error) -> ConfigError {
    ConfigError::Tls(reason.to_string())
}

impl Endpoint {
    /// Trusts `peers`, and whom authorities of `certificates` vouch for, from the next handshake on, and nobody else; what was
    /// agreed on with peers before is resumed no more. Connections that stand stay.
    pub fn trust(&self, peers: Vec<PublicKey>, certificates: Option<Certificates>) {
        self.trusted.set(peers, certificates);
        self.issued.forget();
        self.held.forget();
    }

    /// It is so long after 1970 at `now`, by which certificates are judged.
    pub fn set_time_of_day(&self, since_1970: Duration, now: Instant) {
        self.calendar.correct(since_1970, now);
    }

    /// Whether a connection's peer is trusted still, by what it showed in its handshake.
    pub fn is_trusted(&self, connection: ConnectionId) -> bool {
        let found = self.connections.get(&connection);
        let shown = found.and_then(|it| keys::shown_by(it.stack.crypto_session().peer_identity()));
        shown.is_some_and(|shown| self.admits(&shown))
    }

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
    pub fn tls_server(&self, protocol: &[u8]) -> Result<TlsServer, ConfigError> {
        let protocols = vec![protocol.to_vec()];
        let made = keys::server(&self.identity, &self.trusted, &self.calendar, protocols);
        made.map_err(failed)
    }

    /// Whether a peer is trusted that has shown this in a handshake over TCP.
    pub fn admits(&self, shown: &[CertificateDer<'_>]) -> bool {
        { self.calendar.current_time() }.is_some_and(|now| self.trusted.admits(shown, now))
    }

    /// What is said of a handshake over TCP that failed for these `words` of TLS.
    pub fn refusal(words: &str) -> String {
        let alert = words.strip_prefix("received fatal alert: ");
        if alert == Some("CertificateRequired") {
            return NO_CERTIFICATE.to_owned();
        }
        if alert.is_some_and(|alert| alert.contains("Certificate") || alert == "AccessDenied") {
            return KEY_REFUSED.to_owned();
        }
        PublicKey::untrusted(words).map_or_else(
            || words.to_owned(),
            |key| format!("the peer's key {key} is not trusted"),
        )
    }
}
