//! Who an endpoint is and whom it trusts: Ed25519 keys, shown to the peer as raw public keys (RFC 7250) and pinned there, and
//! [certificates](Certificates) beside them for peers that know no such keys.

use crate::certificates::{Certificates, TlsServer};
use crate::clock::Calendar;
use crate::peer_verifier::{Pins, Shown};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use core::fmt;
use core::str::FromStr;
use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, ParsedCertificate};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, OtherError, version};
use std::sync::{Arc, PoisonError, RwLock};
use thiserror::Error as ThisError;

/// What precedes the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];
/// As texts begin.
const TEXT_PREFIX: &str = "ed25519:";
const SPKI_TEXT_PREFIX: &str = "sha256:";
const SECRET_PREFIX: &str = "ed25519-secret:";
/// The protocol that TLS agrees on: HTTP/3.
pub(crate) const ALPN: &[u8] = b"h3";
/// The same with forward error correction below it (docs/fec.md). Nobody but bentpipe knows of it, and chooses it.
pub(crate) const FEC_ALPN: &[u8] = b"h3-bentpipe-fec-1";

/// The public key of a peer, by the way in which it is shown. As text: `ed25519:` and the 32 bytes of a raw public key in base64, or
/// `sha256:` and the SHA-256 of the SubjectPublicKeyInfo in a certificate, whatever kind of key that is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey {
    /// It stands in a certificate.
    certified: bool,
    bytes: [u8; 32],
}

/// A text that is no public key.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error(
    "`{0}` is not a public key: expected `{TEXT_PREFIX}` or, of a certificate, `{SPKI_TEXT_PREFIX}`, and 44 characters of base64, as `bentpipe proxy keys` prints it"
)]
pub struct ParseKeyError(String);

impl FromStr for PublicKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let refused = || ParseKeyError(text.to_owned());
        let trimmed = text.trim();
        let raw = trimmed.strip_prefix(TEXT_PREFIX);
        let base64 = raw.or_else(|| trimmed.strip_prefix(SPKI_TEXT_PREFIX));
        let bytes = base64.and_then(|base64| STANDARD.decode(base64).ok());
        Ok(Self {
            certified: raw.is_none(),
            bytes: { bytes.ok_or_else(refused)?.try_into() }.map_err(|_| refused())?,
        })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.certified {
            SPKI_TEXT_PREFIX
        } else {
            TEXT_PREFIX
        };
        write!(f, "{prefix}{}", STANDARD.encode(self.bytes))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PublicKey {
    const fn raw(bytes: [u8; 32]) -> Self {
        Self {
            certified: false,
            bytes,
        }
    }

    /// Whether it stands in a certificate.
    pub const fn is_certified(&self) -> bool {
        self.certified
    }

    /// The key in what a peer shows in its handshake: a raw public key or a certificate.
    fn shown(shown: &CertificateDer<'_>) -> Option<Self> {
        match shown.strip_prefix(&SPKI_PREFIX) {
            Some(key) => Some(Self::raw(key.try_into().ok()?)),
            None => Self::of_certificate(shown),
        }
    }

    /// The key of a certificate; `None`: it is none that TLS understands.
    pub(crate) fn of_certificate(shown: &CertificateDer<'_>) -> Option<Self> {
        let spki = ParsedCertificate::try_from(shown)
            .ok()?
            .subject_public_key_info();
        let digest = ring::digest::digest(&ring::digest::SHA256, &spki);
        Some(Self {
            certified: true,
            bytes: digest.as_ref().try_into().ok()?,
        })
    }

    /// The key of a peer, in what it showed in a handshake.
    pub fn of_handshake(shown: Option<&[CertificateDer<'_>]>) -> Option<Self> {
        Self::shown(shown?.first()?)
    }

    /// What [`Untrusted`] says, in the words that TLS has for an error with it.
    pub(crate) fn untrusted(words: &str) -> Option<&str> {
        let (_, from) = words.split_once(UNTRUSTED)?;
        Some(from.rsplit_once(UNTRUSTED_END)?.0)
    }
}

/// What a peer has shown in the handshake, as the stack has it.
pub(crate) fn shown_by(
    identity: Option<Box<dyn std::any::Any>>,
) -> Option<Vec<CertificateDer<'static>>> {
    let chain = identity?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    Some(*chain)
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
            public: PublicKey::raw(public),
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

    /// The secret in the form that libraries of TLS read.
    pub fn pkcs8(&self) -> PrivatePkcs8KeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.secret.to_vec())
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, Error> {
        let key = { provider.key_provider }.load_private_key(self.pkcs8().into())?;
        let spki = [&SPKI_PREFIX[..], &self.public.bytes].concat();
        Ok(Arc::new(CertifiedKey::new(
            vec![CertificateDer::from(spki)],
            key,
        )))
    }
}

/// Who is trusted, from the next handshake on.
#[derive(Debug)]
struct Trusted {
    keys: Vec<PublicKey>,
    certificates: Option<Certificates>,
}

/// Who is trusted, and by which certificate this side is known to who knows no raw public keys.
#[derive(Clone, Debug)]
pub(crate) struct TrustedKeys(Arc<RwLock<Trusted>>);

impl TrustedKeys {
    pub(crate) fn new(keys: Vec<PublicKey>, certificates: Option<Certificates>) -> Self {
        Self(Arc::new(RwLock::new(Trusted { keys, certificates })))
    }

    pub(crate) fn set(&self, keys: Vec<PublicKey>, certificates: Option<Certificates>) {
        // Nothing panics midway, so what is poisoned is as good as any.
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Trusted { keys, certificates };
    }

    /// Whether servers are known by certificates: a client wants either that or raw public keys.
    fn are_certified(&self) -> bool {
        let trusted = self.0.read().unwrap_or_else(PoisonError::into_inner);
        trusted.keys.iter().any(|key| key.certified)
    }

    pub(crate) fn certificates(&self) -> Option<Certificates> {
        let trusted = self.0.read().unwrap_or_else(PoisonError::into_inner);
        trusted.certificates.clone()
    }

    /// Whether a peer is trusted that shows this at `now`, of the time of day.
    pub(crate) fn admits(&self, shown: &[CertificateDer<'_>], now: UnixTime) -> bool {
        { shown.split_first() }.is_some_and(|(first, rest)| self.find(first, rest, now).is_ok())
    }

    /// The key of a peer that is trusted.
    pub(crate) fn find(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<PublicKey, Error> {
        let Some(key) = PublicKey::shown(shown) else {
            return Err(CertificateError::BadEncoding.into());
        };
        let trusted = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if trusted.keys.contains(&key) {
            return Ok(key);
        }
        let certificates = trusted.certificates.as_ref().filter(|_| key.certified);
        let why = match certificates.and_then(|it| it.verify(shown, intermediates, now)) {
            Some(Ok(())) => return Ok(key),
            Some(Err(why)) => Some(why),
            None => None,
        };
        Err(CertificateError::Other(OtherError(Arc::new(Untrusted { key, why }))).into())
    }
}

/// What stands before and after the words of [`Untrusted`] in those of TLS.
const UNTRUSTED: &str = "untrusted<";
const UNTRUSTED_END: &str = ">";

/// A peer has shown a key that is not trusted.
#[derive(ThisError)]
#[error("{key} is not trusted")]
struct Untrusted {
    key: PublicKey,
    /// What speaks against its certificate.
    why: Option<Error>,
}

impl fmt::Debug for Untrusted {
    /// This is what the words of TLS have of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UNTRUSTED}{}", self.key)?;
        if let Some(why) = &self.why {
            write!(f, " ({why})")?;
        }
        f.write_str(UNTRUSTED_END)
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// TLS of a side that accepts those of `peers`.
pub(crate) fn server(
    identity: &Identity,
    peers: &TrustedKeys,
    calendar: &Calendar,
    protocols: Vec<Vec<u8>>,
) -> Result<TlsServer, Error> {
    let provider = provider();
    let own = identity.certified(&provider)?;
    let pins = Pins::new(peers.clone(), Arc::clone(&provider), Shown::RawKey);
    let pins = Arc::new(pins);
    let builder = rustls::ServerConfig::builder_with_details(provider, Arc::new(calendar.clone()));
    let mut config = builder
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(pins)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(
            Arc::clone(&own),
        )));
    config.alpn_protocols = protocols;
    // Nothing is resumed, and so nothing replayed, but where an endpoint says otherwise.
    config.send_tls13_tickets = 0;
    Ok(TlsServer::new(config, own, peers.clone(), calendar.clone()))
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
    let certified = peers.are_certified();
    let shown = if certified {
        Shown::Certificate
    } else {
        Shown::RawKey
    };
    let pins = Pins::new(peers.clone(), Arc::clone(&provider), shown);
    let own = identity.certified(&provider)?;
    let builder = rustls::ClientConfig::builder_with_details(provider, Arc::new(calendar.clone()));
    let builder = builder
        .with_protocol_versions(&[&version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pins));
    let mut config = if certified {
        // It shows its certificate to a server that asks for one.
        builder.with_client_cert_resolver(Arc::new(peers.clone()))
    } else {
        builder.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)))
    };
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
