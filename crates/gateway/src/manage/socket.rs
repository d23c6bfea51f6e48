//! The place of the control socket in the file system, and who may do what there.
//!
//! Its permissions (0660) say who may look; orders are for root and the gateway's own user.

use bentpipe_sockets::socket;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Who may connect: the owner and the group.
const MODE: u32 = 0o660;

/// A control socket at its path; gone when dropped, unless another gateway has taken its place.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    file: (u64, u64),
}

/// A socket that is not at its path yet.
#[derive(Debug)]
pub(super) struct Making {
    path: PathBuf,
    aside: PathBuf,
}

impl Place {
    /// Makes the socket beside `path`, which may be another gateway's until [`Making::take`].
    pub(super) fn make(path: &Path) -> io::Result<(UnixListener, Making)> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".{}", std::process::id()));
        let making = Making {
            path: path.to_owned(),
            aside: PathBuf::from(aside),
        };
        remove(&making.aside)?;
        let listener = UnixListener::bind(&making.aside)?;
        fs::set_permissions(&making.aside, fs::Permissions::from_mode(MODE))?;
        Ok((listener, making))
    }
}

impl Making {
    /// Puts the socket in its place, over what a dead or retired gateway left there.
    pub(super) fn take(self) -> io::Result<Place> {
        let file = identity(&self.aside)?;
        fs::rename(&self.aside, &self.path)?;
        Ok(Place {
            path: self.path.clone(),
            file,
        })
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // Renamed, it is not there any more.
        let _ = remove(&self.aside);
    }
}

impl Drop for Place {
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

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether the process at the other end may give orders.
pub(super) fn may_order(stream: impl AsFd) -> bool {
    socket::peer_user(stream).is_ok_and(|user| user == 0 || user == socket::own_user())
}
