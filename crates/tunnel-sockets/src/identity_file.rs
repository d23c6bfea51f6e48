//! Keys in files.

use bentpipe_quic::{Identity, IdentityError};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The owner reads and writes a secret.
const MODE: u32 = 0o600;
/// What nobody else may do with it: its group may read it, so that a service with a user of its own can.
const FORBIDDEN: u32 = 0o027;
/// More bytes than any secret of an identity has, or of RSA with 8,192 bits.
const LONGEST: u64 = 16_384;

/// A file has no key that could be used, or none could be put there.
#[derive(Debug, Error)]
pub enum IdentityFileError {
    /// It cannot be read.
    #[error("cannot read the secret key {} ({source}): `bentpipe proxy keys {}` makes one", .path.display(), .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Others than its owner might read or change it.
    #[error("the secret key {} may be read or changed by others (mode {mode:o}): `chmod 600 {}`", .path.display(), .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It holds something else.
    #[error("{}: {source}", .path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: IdentityError,
    },
    /// It cannot be made.
    #[error("cannot make the secret key {} ({source}): choose another place", .path.display())]
    Unmade {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
}

/// The key pair in the file at `path`, which nobody but its owner may change and others may not read.
///
/// # Errors
/// [`IdentityFileError`].
pub fn read_identity(path: &Path) -> Result<Identity, IdentityFileError> {
    let text = read_secret(path)?;
    Identity::parse(&text).map_err(|source| IdentityFileError::Wrong {
        path: path.to_owned(),
        source,
    })
}

/// The text of the secret in the file at `path`, which nobody but its owner may change and others may not read.
pub(crate) fn read_secret(path: &Path) -> Result<String, IdentityFileError> {
    let unreadable = |source| IdentityFileError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let file = open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    let mode = about.mode() & 0o777;
    if mode & FORBIDDEN != 0 {
        let path = path.to_owned();
        return Err(IdentityFileError::Open { path, mode });
    }
    let mut text = String::new();
    file.take(LONGEST)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    Ok(text)
}

/// Opens a file for reading. From a pipe nothing might come for ever, while others wait for whoever reads.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let about = fs::metadata(path)?;
    if about.is_file() {
        File::open(path)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

/// Makes a key pair and puts it into a new file at `path`, for its owner alone. What is there already stays.
///
/// # Errors
/// [`IdentityFileError`].
pub fn make_identity(path: &Path) -> Result<Identity, IdentityFileError> {
    let unmade = |source| IdentityFileError::Unmade {
        path: path.to_owned(),
        source,
    };
    let identity = Identity::generate().map_err(|source| IdentityFileError::Wrong {
        path: path.to_owned(),
        source,
    })?;
    let mut options = OpenOptions::new();
    let mut file = { options.write(true).create_new(true) }
        .mode(MODE)
        .open(path)
        .map_err(unmade)?;
    let written =
        { file.write_all(identity.secret_text().as_bytes()) }.and_then(|()| file.sync_all());
    if let Err(source) = written {
        // Half a key is of no use to anybody.
        let _ = fs::remove_file(path);
        return Err(unmade(source));
    }
    Ok(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_read_as_it_was_made_and_never_made_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let made = make_identity(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert_eq!(read_identity(&path).unwrap().public(), made.public());
        let error = make_identity(&path).unwrap_err();
        assert!(matches!(error, IdentityFileError::Unmade { .. }), "{error}");
        assert_eq!(read_identity(&path).unwrap().public(), made.public());
        for (mode, fine) in [(0o640, true), (0o400, true), (0o644, false), (0o660, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_identity(&path).is_ok(), fine, "{mode:o}");
        }
        let error = read_identity(&path).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn what_is_no_key_is_told_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.key");
        let missing = read_identity(&path).unwrap_err().to_string();
        assert!(
            missing.contains("a.key") && missing.contains("proxy keys"),
            "{missing}"
        );
        fs::write(&path, "nonsense").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).unwrap();
        let wrong = read_identity(&path).unwrap_err().to_string();
        assert!(
            wrong.contains("a.key") && wrong.contains("not a secret key"),
            "{wrong}"
        );
    }
}
