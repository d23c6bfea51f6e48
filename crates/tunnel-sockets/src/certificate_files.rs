//! Certificates in files, for ends that know no raw public keys.

use crate::identity_file::{IdentityFileError, open, read_secret};
use bentpipe_quic::{Certificates, Identity, PublicKey, UnusableCertificate};
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
    /// There is more in it than is read: what follows would be left out, such as who is revoked.
    #[error("{} is longer than {LONGEST_LIST} bytes: keep in it what is needed, in PEM", .path.display())]
    Long {
        /// The file.
        path: PathBuf,
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
    let read = open(path).and_then(|file| file.take(LONGEST_LIST + 1).read_to_end(&mut text));
    let read = read.map_err(|source| CertificateFileError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    if read as u64 > LONGEST_LIST {
        let path = path.to_owned();
        return Err(CertificateFileError::Long { path });
    }
    Ok(text)
}

fn wrong(path: &Path, source: UnusableCertificate) -> CertificateFileError {
    CertificateFileError::Wrong {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Whatever is in the place of a file is told, and nobody waits for it.
    #[test]
    fn what_is_no_file_of_certificates_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("folder")).unwrap();
        let mode = rustix::fs::Mode::RUSR;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("pipe"),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )
        .unwrap();
        fs::write(path("long"), vec![b'\n'; 1 << 20 | 1]).unwrap();
        fs::write(path("noise"), [0xff; 100]).unwrap();
        fs::write(path("cut"), "-----BEGIN CERTIFICATE-----\nMIIB\n").unwrap();
        let identity = Identity::generate().unwrap();
        for (name, said) in [
            ("none", "No such file"),
            ("folder", "no regular file"),
            ("pipe", "no regular file"),
            ("long", "is longer than 1048576 bytes"),
            ("noise", "there is no certificate in it"),
            ("cut", "`-----END CERTIFICATE-----` is missing"),
        ] {
            let files = CertificateFiles {
                chain: path(name),
                key: None,
                authorities: None,
                revoked: None,
            };
            let error = files.read(&identity).unwrap_err().to_string();
            assert!(
                error.contains(said) && error.contains(name),
                "{name}: {error}"
            );
        }
    }
}
