//! The certificate that `bentpipe proxy keys` makes.

use bentpipe_connect_tcp::{Host, NoTarget};
use bentpipe_quic::Identity;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// No certificate was made.
#[derive(Debug, Error)]
pub(crate) enum CertificateError {
    /// A name is none.
    #[error(
        "no certificate is made ({0}): give names of hosts or IP addresses, such as `--name proxy.example`"
    )]
    Name(#[from] NoTarget),
    /// The library refuses something else.
    #[error("no certificate is made ({0}): make one by other means")]
    Refused(#[from] rcgen::Error),
    /// It cannot be written.
    #[error("cannot make the certificate {} ({source}): choose another place", .path.display())]
    Unmade {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// Makes a certificate for the key of `identity` in a new file at `path`: it signs itself, is for servers and clients that are called
/// by `names`, and does not expire, as keys do not.
pub(crate) fn make_certificate(
    path: &Path,
    identity: &Identity,
    names: &[String],
) -> Result<(), CertificateError> {
    let hosts: Result<Vec<Host>, NoTarget> = names.iter().map(|name| name.parse()).collect();
    let names: Vec<String> = hosts?.iter().map(Host::to_string).collect();
    let key = KeyPair::try_from(&identity.pkcs8())?;
    let mut params = CertificateParams::new(names.as_slice())?;
    params.distinguished_name = DistinguishedName::new();
    let common = names.first().map_or("bentpipe", String::as_str);
    params.distinguished_name.push(DnType::CommonName, common);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let text = params.self_signed(&key)?.pem();
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    { file.and_then(|mut file| file.write_all(text.as_bytes())) }.map_err(|source| {
        CertificateError::Unmade {
            path: path.to_owned(),
            source,
        }
    })
}
