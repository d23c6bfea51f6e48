//! The file of the control socket, and who may do what over it.
//!
//! Its permissions (0660) say who may look; orders are for root and the program's own user.

use bentpipe_sockets::socket;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Who may connect: the owner and the group.
const MODE: u32 = 0o660;

/// A control socket at its path; gone when dropped, unless another program has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    file: (u64, u64),
}

/// A socket that is not at its path yet.
#[derive(Debug)]
pub struct PendingSocketFile {
    path: PathBuf,
    aside: PathBuf,
}

impl SocketFile {
    /// Makes the socket beside `path`, which may be another program's until [`PendingSocketFile::take`]. What is there and is no
    /// socket stays, and is refused.
    ///
    /// # Errors
    /// What the kernel says, and that there is such a file.
    pub fn make(path: &Path) -> io::Result<(UnixListener, PendingSocketFile)> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".{}", std::process::id()));
        let pending = PendingSocketFile {
            path: path.to_owned(),
            aside: PathBuf::from(aside),
        };
        for place in [&pending.path, &pending.aside] {
            only_a_socket(place)?;
        }
        remove(&pending.aside)?;
        let listener = UnixListener::bind(&pending.aside)?;
        fs::set_permissions(&pending.aside, fs::Permissions::from_mode(MODE))?;
        Ok((listener, pending))
    }
}

impl PendingSocketFile {
    /// Puts the socket in its place, over what a dead or retired program left there.
    ///
    /// # Errors
    /// As of [`SocketFile::make`].
    pub fn take(self) -> io::Result<SocketFile> {
        let file = identity(&self.aside)?;
        only_a_socket(&self.path)?;
        fs::rename(&self.aside, &self.path)?;
        Ok(SocketFile {
            path: self.path.clone(),
            file,
        })
    }
}

impl Drop for PendingSocketFile {
    fn drop(&mut self) {
        // After the rename nothing is left at this path.
        let _ = remove(&self.aside);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|file| file == self.file)
            && let Err(error) = remove(&self.path)
        {
            tracing::warn!(%error, "cannot remove the control socket {}", self.path.display());
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let about = fs::symlink_metadata(path)?;
    Ok((about.dev(), about.ino()))
}

/// Refuses a path where there is something else than a socket: somebody's file, or a link to one.
fn only_a_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if !about.file_type().is_socket() => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file that is no socket",
        )),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether the process at the other end may give orders.
pub(crate) fn may_order(stream: impl AsFd) -> bool {
    socket::peer_user(stream).is_ok_and(|user| user == 0 || user == socket::own_user())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.sock");
        let make = || SocketFile::make(&path);
        let refused = || assert_eq!(make().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::write(&path, "precious").unwrap();
        refused();
        let aim = folder.path().join("aim");
        fs::rename(&path, &aim).unwrap();
        std::os::unix::fs::symlink(&aim, &path).unwrap();
        refused();
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        // It may come while the socket is made.
        let (_listener, making) = make().unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(making.take().is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_file(&path).unwrap();
        // What a killed gateway left is one.
        drop(UnixListener::bind(&path).unwrap());
        let place = make().unwrap().1.take().unwrap();
        drop(place);
        assert!(!path.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the aim");
    }
}
