//! Certificates in files, for ends that know no raw public keys.

use crate::identity_file::{IdentityFileError, read_secret};
use bentpipe_quic::{Certificates, Identity, PublicKey, UnusableCertificate};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// More than any chain, and any list of revoked certificates that a proxy's own authority has.
const LONGEST_LIST: u64 = 1 << 20;

/// A file has no certificates that could be used.
#[derive(Debug, Error)]
pub enum CertificateFileError {
    /// It cannot be read.
    #[error("cannot read {} ({source}): check the path and its permissions", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{}: {source}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: UnusableCertificate,
    },
    /// The secret key cannot be read.
    #[error(transparent)]
    Key(#[from] IdentityFileError),
}

/// Where the certificates of an end are, all of them PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// Its own certificate, and then those that lead to an authority.
    pub chain: PathBuf,
    /// The secret key of its own; `None`: that of its identity.
    pub key: Option<PathBuf>,
    /// The authorities that vouch for clients; `None`: there are none.
    pub authorities: Option<PathBuf>,
    /// Lists of certificates that they have revoked.
    pub revoked: Option<PathBuf>,
}

impl CertificateFiles {
    /// Reads them, for an end with `identity`.
    ///
    /// # Errors
    /// [`CertificateFileError`].
    pub fn read(&self, identity: &Identity) -> Result<Certificates, CertificateFileError> {
        let chain = read(&self.chain)?;
        let own = match &self.key {
            None => {
                Certificates::of_identity(&chain, identity).map_err(|it| wrong(&self.chain, it))
            }
            Some(file) => {
                let key = read_secret(file)?;
                Certificates::new(&chain, key.as_bytes()).map_err(|source| match source {
                    UnusableCertificate::Key(_) => wrong(file, source),
                    source => wrong(&self.chain, source),
                })
            }
        }?;
        let Some(file) = &self.authorities else {
            return Ok(own);
        };
        let authorities = read(file)?;
        let revoked = self.revoked.as_deref().map(read).transpose()?;
        let trusting = own.with_authorities(&authorities, revoked.as_deref());
        trusting.map_err(|source| match (&source, &self.revoked) {
            (UnusableCertificate::Revoked(_), Some(list)) => wrong(list, source),
            _ => wrong(file, source),
        })
    }
}

/// The key of the first certificate in the file at `path`, as peers pin it; `None`: the file is no PEM.
///
/// # Errors
/// [`CertificateFileError`].
pub fn read_certificate_key(path: &Path) -> Result<Option<PublicKey>, CertificateFileError> {
    let text = read(path)?;
    if !text.starts_with(b"-----BEGIN ") {
        return Ok(None);
    }
    let key = PublicKey::of_pem(&text);
    key.map(Some).map_err(|source| wrong(path, source))
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateFileError> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST_LIST).read_to_end(&mut text));
    read.map_err(|source| CertificateFileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    Ok(text)
}

fn wrong(path: &Path, source: UnusableCertificate) -> CertificateFileError {
    CertificateFileError::Wrong {
        path: path.to_owned(),
        source,
    }
}
