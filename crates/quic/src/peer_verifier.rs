//! What TLS asks of a peer: a key that is trusted, raw or in a certificate, and a signature by it.

use crate::certificates::Offer;
use crate::keys::TrustedKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::sync::Arc;

/// Only peers who are trusted.
#[derive(Debug)]
pub(crate) struct Pins {
    trusted: TrustedKeys,
    provider: Arc<CryptoProvider>,
    /// What they show.
    shown: Shown,
}

/// What a peer shows.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    RawKey,
    Certificate,
    /// A client does what it offered.
    Negotiated(Arc<Offer>),
}

impl Pins {
    pub(crate) fn new(trusted: TrustedKeys, provider: Arc<CryptoProvider>, shown: Shown) -> Self {
        Self {
            trusted,
            provider,
            shown,
        }
    }

    fn are_raw(&self) -> bool {
        match &self.shown {
            Shown::RawKey => true,
            Shown::Certificate => false,
            Shown::Negotiated(offer) => offer.client_shows_raw_key(),
        }
    }

    fn find(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let key = self.trusted.find(shown, intermediates, now)?;
        if key.is_certified() == self.are_raw() {
            return Err(CertificateError::BadEncoding.into());
        }
        Ok(())
    }

    fn check(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        if self.are_raw() {
            let spki = SubjectPublicKeyInfoDer::from(shown.as_ref());
            return verify_tls13_signature_with_raw_key(message, &spki, signature, algorithms);
        }
        verify_tls13_signature(message, shown, signature, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        if self.are_raw() {
            return vec![SignatureScheme::ED25519];
        }
        let algorithms = self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
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
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.find(end_entity, intermediates, now)?;
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
        self.schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.are_raw()
    }
}

impl ClientCertVerifier for Pins {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.find(end_entity, intermediates, now)?;
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
        self.schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        self.are_raw()
    }
}
