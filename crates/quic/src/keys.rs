//! Who an endpoint is and whom it trusts: Ed25519 keys, shown to the peer as raw public keys (RFC 7250) and pinned there.

use crate::clock::Calendar;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use core::fmt;
use core::str::FromStr;
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    version,
};
use std::sync::{Arc, PoisonError, RwLock};
use thiserror::Error as ThisError;

/// What precedes the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// As texts begin.
const TEXT_PREFIX: &str = "ed25519:";
const SECRET_PREFIX: &str = "ed25519-secret:";
/// The protocol that TLS agrees on: HTTP/3.
pub(crate) const ALPN: &[u8] = b"h3";
/// The same with forward error correction below it (docs/fec.md). Nobody but bentpipe knows of it, and chooses it.
pub(crate) const FEC_ALPN: &[u8] = b"h3-bentpipe-fec-1";

/// The public key of a peer. As text: `ed25519:` and its 32 bytes in base64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// A text that is no public key.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error(
    "`{0}` is not a public key: expected `{TEXT_PREFIX}` and 44 characters of base64, as `bentpipe proxy keys` prints it"
)]
pub struct ParseKeyError(String);

impl FromStr for PublicKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let refused = || ParseKeyError(text.to_owned());
        let base64 = text.trim().strip_prefix(TEXT_PREFIX).ok_or_else(refused)?;
        let bytes = STANDARD.decode(base64).map_err(|_| refused())?;
        Ok(Self(bytes.try_into().map_err(|_| refused())?))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT_PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PublicKey {
    /// The key in what a peer shows in its handshake.
    fn shown(spki: &[u8]) -> Option<Self> {
        let key = spki.strip_prefix(&SPKI_PREFIX)?;
        Some(Self(key.try_into().ok()?))
    }

    /// The key of a peer, in what it showed in a handshake.
    pub fn of_handshake(shown: Option<&[CertificateDer<'_>]>) -> Option<Self> {
        Self::shown(shown?.first()?)
    }

    /// The key that [`Untrusted`] is about, in the words that TLS has for an error with it.
    pub(crate) fn untrusted(words: &str) -> Option<Self> {
        let from = &words[words.find(TEXT_PREFIX)?..];
        let end = from.find(')').unwrap_or(from.len());
        from[..end].parse().ok()
    }

    /// [`Self::shown`], of what the stack knows of a peer.
    pub(crate) fn of_peer(identity: Option<Box<dyn std::any::Any>>) -> Option<Self> {
        let chain = identity?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        Self::shown(chain.first()?)
    }
}

/// An own key pair.
#[derive(Clone)]
pub struct Identity {
    /// PKCS #8, version 2.
    secret: Arc<Vec<u8>>,
    public: PublicKey,
}

/// What is wrong with a secret key.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum IdentityError {
    /// The text has another form.
    #[error(
        "this is not a secret key: expected `{SECRET_PREFIX}` and base64, as `bentpipe proxy keys` writes it"
    )]
    Form,
    /// The bytes are no Ed25519 key pair.
    #[error("this is not an Ed25519 key pair ({0}): make another with `bentpipe proxy keys`")]
    Pair(String),
    /// The machine has no random numbers.
    #[error("no key was made: the system has no random numbers for it")]
    Randomness,
}

impl fmt::Debug for Identity {
    /// Never the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Identity").field(&self.public).finish()
    }
}

impl Identity {
    /// A new key pair, from the system's randomness.
    ///
    /// # Errors
    /// [`IdentityError::Randomness`].
    pub fn generate() -> Result<Self, IdentityError> {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new());
        let pkcs8 = pkcs8.map_err(|_| IdentityError::Randomness)?;
        Self::from_pkcs8(pkcs8.as_ref().to_vec())
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Result<Self, IdentityError> {
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8);
        let pair = pair.map_err(|reason| IdentityError::Pair(reason.to_string()))?;
        let public = ring::signature::KeyPair::public_key(&pair).as_ref();
        let public = <[u8; 32]>::try_from(public).map_err(|_| IdentityError::Form)?;
        Ok(Self {
            secret: Arc::new(pkcs8),
            public: PublicKey(public),
        })
    }

    /// A key pair from the text that [`Self::secret_text`] gave.
    ///
    /// # Errors
    /// [`IdentityError::Form`], [`IdentityError::Pair`].
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        let base64 = text
            .trim()
            .strip_prefix(SECRET_PREFIX)
            .ok_or(IdentityError::Form)?;
        let pkcs8 = STANDARD.decode(base64).map_err(|_| IdentityError::Form)?;
        Self::from_pkcs8(pkcs8)
    }

    /// The secret as text, for a file that nobody else reads.
    pub fn secret_text(&self) -> String {
        format!("{SECRET_PREFIX}{}\n", STANDARD.encode(&*self.secret))
    }

    /// What peers pin.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// Keys for what only this identity must be able to make or read, told apart by `purpose`. A process that starts again
    /// has them again, so that it can tell peers of its predecessor that their connections are gone.
    pub(crate) fn derived(&self, purpose: &str) -> [u8; 32] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.secret);
        let tag = ring::hmac::sign(&key, purpose.as_bytes());
        let mut out = [0; 32];
        out.copy_from_slice(tag.as_ref());
        out
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
        let pkcs8 = PrivatePkcs8KeyDer::from(self.secret.to_vec());
        let key = { provider.key_provider }.load_private_key(pkcs8.into())?;
        let spki = [&SPKI_PREFIX[..], &self.public.0].concat();
        Ok(Arc::new(CertifiedKey::new(
            vec![CertificateDer::from(spki)],
            key,
        )))
    }
}

/// Whose keys are trusted, from the next handshake on.
#[derive(Clone, Debug)]
pub(crate) struct TrustedKeys(Arc<RwLock<Vec<PublicKey>>>);

impl TrustedKeys {
    pub(crate) fn new(keys: Vec<PublicKey>) -> Self {
        Self(Arc::new(RwLock::new(keys)))
    }

    pub(crate) fn set(&self, keys: Vec<PublicKey>) {
        // Nothing panics midway, so what is poisoned is as good as any.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    pub(crate) fn hold(&self, key: PublicKey) -> bool {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.contains(&key)
    }
}

/// A peer has shown a key that is not trusted.
#[derive(Debug, ThisError)]
#[error("{0} is not trusted")]
struct Untrusted(PublicKey);

/// Only peers whose keys are pinned.
#[derive(Debug)]
struct Pins {
    keys: TrustedKeys,
    provider: Arc<CryptoProvider>,
}

impl Pins {
    fn find(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let Some(key) = PublicKey::shown(shown) else {
            return Err(CertificateError::BadEncoding.into());
        };
        if self.keys.hold(key) {
            return Ok(());
        }
        Err(CertificateError::Other(OtherError(Arc::new(Untrusted(key)))).into())
    }

    fn check(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(shown.as_ref()),
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn refuse_old() -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(
            rustls::PeerIncompatible::Tls12NotOffered,
        ))
    }
}

impl ServerCertVerifier for Pins {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.find(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::refuse_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for Pins {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.find(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::refuse_old()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// TLS of a side that accepts those of `peers`.
pub(crate) fn server(
    identity: &Identity,
    peers: &TrustedKeys,
    calendar: &Calendar,
    protocols: Vec<Vec<u8>>,
) -> Result<rustls::ServerConfig, Error> {
    let provider = provider();
    let own = identity.certified(&provider)?;
    let pins = Arc::new(Pins {
        keys: peers.clone(),
        provider: Arc::clone(&provider),
    });
    let builder = rustls::ServerConfig::builder_with_details(provider, Arc::new(calendar.clone()));
    let mut config = builder
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(pins)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    config.alpn_protocols = protocols;
    // Nothing is resumed, and so nothing replayed, but where an endpoint says otherwise.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// The protocols over QUIC that a side knows, the dearest first.
pub(crate) fn protocols(fec: bool) -> Vec<Vec<u8>> {
    let with = fec.then(|| FEC_ALPN.to_vec());
    with.into_iter().chain([ALPN.to_vec()]).collect()
}

/// TLS of a side that connects to one of `peers`.
pub(crate) fn client(
    identity: &Identity,
    peers: &TrustedKeys,
    calendar: &Calendar,
    protocols: Vec<Vec<u8>>,
) -> Result<rustls::ClientConfig, Error> {
    let provider = provider();
    let own = identity.certified(&provider)?;
    let pins = Arc::new(Pins {
        keys: peers.clone(),
        provider: Arc::clone(&provider),
    });
    let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(calendar.clone()));
    let mut config = builder
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(pins)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    config.alpn_protocols = protocols;
    config.resumption = rustls::client::Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written() {
        let identity = Identity::generate().unwrap();
        let public = identity.public();
        assert_eq!(public.to_string().parse(), Ok(public));
        let again = Identity::parse(&identity.secret_text()).unwrap();
        assert_eq!(again.public(), public);
        assert_eq!(again.derived("a"), identity.derived("a"));
        assert_ne!(again.derived("a"), identity.derived("b"));
        assert!(!format!("{identity:?}").contains(identity.secret_text().trim()));
    }

    #[test]
    fn what_is_no_key_is_refused_with_what_was_expected() {
        for text in ["", "ed25519:", "ed25519:AAAA", "rsa:AAAA", "ed25519:????"] {
            let error = text.parse::<PublicKey>().unwrap_err().to_string();
            assert!(error.contains("proxy keys"), "{error}");
        }
        assert_eq!(Identity::parse("secret").unwrap_err(), IdentityError::Form);
        let error = Identity::parse("ed25519-secret:AAAA").unwrap_err();
        assert!(matches!(error, IdentityError::Pair(_)), "{error}");
    }
}
