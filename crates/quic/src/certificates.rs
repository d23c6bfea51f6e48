//! X.509 beside raw public keys, for peers that know only that: the chain that this side shows, and the authorities that vouch for
//! clients. Bentpipe's own ends go on by raw public keys: what a client offers in its first message decides (RFC 7250, section 4).

use crate::clock::Calendar;
use crate::keys::{self, Identity, PublicKey, TrustedKeys};
use crate::peer_verifier::{Pins, Shown};
use crate::session_tickets::{IssuedTickets, TICKETS};
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use quinn_proto::crypto::rustls::{NoInitialCipherSuite, QuicServerConfig};
use quinn_proto::crypto::{Keys, ServerConfig as QuicCrypto, Session, UnsupportedVersion};
use quinn_proto::transport_parameters::TransportParameters;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime, pem,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    CertificateType, ClientHello, ResolvesServerCert, StoresServerSessions, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{Error, RootCertStore, SignatureScheme, version};
use std::sync::Arc;
use thiserror::Error as ThisError;

/// What a side shows to peers that know no raw public keys, and whom it trusts of these besides the keys that are pinned.
#[derive(Clone)]
pub struct Certificates {
    own: Arc<CertifiedKey>,
    key: PublicKey,
    authorities: Option<Arc<dyn ClientCertVerifier>>,
}

/// What is wrong with certificates. Which file it is about is known by whoever read it.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
pub enum UnusableCertificate {
    /// The text is no PEM.
    #[error("this is not PEM ({0}): expected `-----BEGIN ...-----` and base64")]
    Pem(String),
    /// There is no certificate in it.
    #[error("there is no certificate in it: expected `-----BEGIN CERTIFICATE-----`")]
    None,
    /// TLS does not understand the first of them.
    #[error("its first certificate is none of X.509, version 3")]
    Form,
    /// There is no secret key in the file for it.
    #[error(
        "there is no secret key in it that can be used ({0}): expected `-----BEGIN PRIVATE KEY-----` (PKCS #8), of Ed25519, P-256, P-384 or RSA, without a passphrase"
    )]
    Key(String),
    /// The certificate is another key's.
    #[error(
        "its first certificate is of another key than the secret one: the server's own certificate comes first, then those that lead to its authority"
    )]
    AnotherKey,
    /// An authority cannot be used.
    #[error("a certificate in it cannot be an authority's ({0})")]
    Authority(String),
    /// A list of revoked certificates cannot be used.
    #[error(
        "a list of revoked certificates cannot be used ({0}): expected `-----BEGIN X509 CRL-----`"
    )]
    Revoked(String),
}

/// What is wrong with PEM, in words: the library shows bytes as numbers.
fn in_words(error: &pem::Error) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).escape_debug().to_string();
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            format!("`-----END {}-----` is missing", text(end_marker))
        }
        pem::Error::IllegalSectionStart { line } => {
            let line = text(&line[..line.len().min(80)]);
            format!("`{line}` begins nothing")
        }
        other => other.to_string(),
    }
}

fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, UnusableCertificate> {
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(text).collect();
    match chain {
        Ok(chain) if chain.is_empty() => Err(UnusableCertificate::None),
        Ok(chain) => Ok(chain),
        Err(reason) => Err(UnusableCertificate::Pem(in_words(&reason))),
    }
}

impl PublicKey {
    /// The key of the first certificate in `text`, which is PEM: as peers pin it.
    ///
    /// # Errors
    /// [`UnusableCertificate`].
    pub fn of_pem(text: &[u8]) -> Result<Self, UnusableCertificate> {
        let chain = chain(text)?;
        let first = chain.first().ok_or(UnusableCertificate::None)?;
        Self::of_certificate(first).ok_or(UnusableCertificate::Form)
    }
}

impl Certificates {
    /// Shows the chain in `certificates`, this side's own first, whose secret key is in `key`; both are PEM.
    ///
    /// # Errors
    /// [`UnusableCertificate`].
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, UnusableCertificate> {
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|reason| UnusableCertificate::Key(in_words(&reason)))?;
        Self::of(certificates, key)
    }

    /// The same, of the key of `identity`.
    ///
    /// # Errors
    /// [`UnusableCertificate`].
    pub fn of_identity(
        certificates: &[u8],
        identity: &Identity,
    ) -> Result<Self, UnusableCertificate> {
        Self::of(certificates, identity.pkcs8().into())
    }

    fn of(certificates: &[u8], key: PrivateKeyDer<'static>) -> Result<Self, UnusableCertificate> {
        let chain = chain(certificates)?;
        let key = { keys::provider().key_provider }.load_private_key(key);
        let key = key.map_err(|reason| UnusableCertificate::Key(reason.to_string()))?;
        let first = chain.first().ok_or(UnusableCertificate::None)?;
        let public = PublicKey::of_certificate(first).ok_or(UnusableCertificate::Form)?;
        let own = CertifiedKey::new(chain, key);
        own.keys_match()
            .map_err(|_| UnusableCertificate::AnotherKey)?;
        Ok(Self {
            own: Arc::new(own),
            key: public,
            authorities: None,
        })
    }

    /// Trusts clients for whom one of `authorities` vouches, and who is not among the `revoked` of that authority; both are PEM. Where lists
    /// of revoked certificates are given, each authority needs one.
    ///
    /// # Errors
    /// [`UnusableCertificate`].
    pub fn with_authorities(
        mut self,
        authorities: &[u8],
        revoked: Option<&[u8]>,
    ) -> Result<Self, UnusableCertificate> {
        let mut roots = RootCertStore::empty();
        for authority in chain(authorities)? {
            let added = roots.add(authority);
            added.map_err(|reason| UnusableCertificate::Authority(reason.to_string()))?;
        }
        let lists: Result<Vec<_>, pem::Error> = { revoked.into_iter() }
            .flat_map(CertificateRevocationListDer::pem_slice_iter)
            .collect();
        let wrong = |reason: String| UnusableCertificate::Revoked(reason);
        let lists = lists.map_err(|reason| wrong(in_words(&reason)))?;
        if revoked.is_some() && lists.is_empty() {
            return Err(wrong("there is none".to_owned()));
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), keys::provider())
                .with_crls(lists)
                .only_check_end_entity_revocation()
                .build();
        self.authorities = Some(verifier.map_err(|reason| wrong(reason.to_string()))?);
        Ok(self)
    }

    /// What peers pin.
    pub const fn key(&self) -> PublicKey {
        self.key
    }

    pub(crate) const fn have_authorities(&self) -> bool {
        self.authorities.is_some()
    }

    /// What the authorities say of a client's certificate; `None`: there are none.
    pub(crate) fn verify(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Option<Result<(), Error>> {
        let verified = { self.authorities.as_ref()? }.verify_client_cert(shown, intermediates, now);
        Some(verified.map(drop))
    }
}

impl fmt::Debug for Certificates {
    /// Never the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("key", &self.key)
            .field("authorities", &self.authorities)
            .finish()
    }
}

/// What a client offers in its first message. TLS chooses a certificate before it asks whether keys are raw, on both sides.
#[derive(Debug)]
pub(crate) struct Offer {
    raw_key: Arc<CertifiedKey>,
    certificate: Arc<CertifiedKey>,
    server_raw: AtomicBool,
    client_raw: AtomicBool,
}

impl Offer {
    pub(crate) fn client_shows_raw_key(&self) -> bool {
        // One thread makes the handshake.
        self.client_raw.load(Ordering::Relaxed)
    }
}

impl ResolvesServerCert for Offer {
    fn resolve(&self, client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let raw = |types: Option<&[CertificateType]>| {
            types.is_some_and(|types| types.contains(&CertificateType::RawPublicKey))
        };
        let server_raw = raw(client.server_cert_types());
        self.server_raw.store(server_raw, Ordering::Relaxed);
        let client_raw = raw(client.client_cert_types());
        self.client_raw.store(client_raw, Ordering::Relaxed);
        Some(Arc::clone(if server_raw {
            &self.raw_key
        } else {
            &self.certificate
        }))
    }

    fn only_raw_public_keys(&self) -> bool {
        self.server_raw.load(Ordering::Relaxed)
    }
}

/// Who shows a certificate resumes nothing: its dates, and what is revoked, are looked at each time, before anything that it asks for.
#[derive(Debug)]
struct TicketsOfRawKeys {
    usual: Arc<dyn StoresServerSessions>,
    offer: Arc<Offer>,
}

impl StoresServerSessions for TicketsOfRawKeys {
    fn put(&self, ticket: Vec<u8>, session: Vec<u8>) -> bool {
        self.offer.client_shows_raw_key() && self.usual.put(ticket, session)
    }

    fn get(&self, _ticket: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        { self.offer.client_shows_raw_key() }
            .then(|| self.usual.take(ticket))
            .flatten()
    }

    fn can_cache(&self) -> bool {
        self.usual.can_cache()
    }
}

/// A client shows the certificate that it has, if any, to a server that shows one.
impl ResolvesClientCert for TrustedKeys {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.certificates().map(|certificates| certificates.own)
    }

    fn has_certs(&self) -> bool {
        self.certificates().is_some()
    }
}

/// TLS of a side that accepts connections.
#[derive(Clone)]
pub struct TlsServer {
    raw_keys: Arc<rustls::ServerConfig>,
    raw_key: Arc<CertifiedKey>,
    trusted: TrustedKeys,
    calendar: Calendar,
}

impl TlsServer {
    pub(crate) fn new(
        raw_keys: rustls::ServerConfig,
        raw_key: Arc<CertifiedKey>,
        trusted: TrustedKeys,
        calendar: Calendar,
    ) -> Self {
        Self {
            raw_keys: Arc::new(raw_keys),
            raw_key,
            trusted,
            calendar,
        }
    }

    /// The same, that resumes by tickets kept in `issued`.
    pub(crate) fn with_tickets(mut self, issued: &Arc<IssuedTickets>) -> Self {
        let config = Arc::make_mut(&mut self.raw_keys);
        config.session_storage = Arc::<IssuedTickets>::clone(issued);
        config.send_tls13_tickets = TICKETS;
        // QUIC bounds what comes early by its windows, and allows no other value (RFC 9001, section 4.6.1).
        config.max_early_data_size = u32::MAX;
        self
    }

    /// For the next connection alone: with certificates, its client decides what is shown.
    pub fn for_connection(&self) -> Arc<rustls::ServerConfig> {
        { self.trusted.certificates() }
            .and_then(|certificates| self.with(certificates.own).ok())
            .map_or_else(|| Arc::clone(&self.raw_keys), Arc::new)
    }

    /// As with raw public keys alone, which has shown that the versions are known.
    fn with(&self, certificate: Arc<CertifiedKey>) -> Result<rustls::ServerConfig, Error> {
        let offer = Arc::new(Offer {
            raw_key: Arc::clone(&self.raw_key),
            certificate,
            server_raw: AtomicBool::new(false),
            client_raw: AtomicBool::new(false),
        });
        let provider = Arc::clone(self.raw_keys.crypto_provider());
        let shown = Shown::Negotiated(Arc::clone(&offer));
        let pins = Pins::new(self.trusted.clone(), Arc::clone(&provider), shown);
        let time = Arc::new(self.calendar.clone());
        let mut config = rustls::ServerConfig::builder_with_details(provider, time)
            .with_protocol_versions(&[&version::TLS13])?
            .with_client_cert_verifier(Arc::new(pins))
            .with_cert_resolver(Arc::<Offer>::clone(&offer));
        let usual = &*self.raw_keys;
        config.alpn_protocols.clone_from(&usual.alpn_protocols);
        config.send_tls13_tickets = usual.send_tls13_tickets;
        config.session_storage = Arc::new(TicketsOfRawKeys {
            usual: Arc::clone(&usual.session_storage),
            offer,
        });
        config.max_early_data_size = usual.max_early_data_size;
        Ok(config)
    }
}

/// The same, as the stack of QUIC asks for it.
pub(crate) struct QuicTls {
    tls: TlsServer,
    usual: Arc<QuicServerConfig>,
}

impl QuicTls {
    pub(crate) fn new(tls: TlsServer) -> Result<Self, NoInitialCipherSuite> {
        let usual = QuicServerConfig::try_from(Arc::clone(&tls.raw_keys))?;
        Ok(Self {
            tls,
            usual: Arc::new(usual),
        })
    }
}

impl QuicCrypto for QuicTls {
    fn initial_keys(
        &self,
        version: u32,
        dst_cid: &quinn_proto::ConnectionId,
    ) -> Result<Keys, UnsupportedVersion> {
        self.usual.initial_keys(version, dst_cid)
    }

    fn retry_tag(
        &self,
        version: u32,
        orig_dst_cid: &quinn_proto::ConnectionId,
        packet: &[u8],
    ) -> [u8; 16] {
        self.usual.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(
        self: Arc<Self>,
        version: u32,
        params: &TransportParameters,
    ) -> Box<dyn Session> {
        // It has the cipher suites of the usual one.
        let chosen = QuicServerConfig::try_from(self.tls.for_connection());
        let chosen = chosen.map_or_else(|_| Arc::clone(&self.usual), Arc::new);
        chosen.start_session(version, params)
    }
}
