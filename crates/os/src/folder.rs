//! Temporary folders that are removed at the end of a run.

use crate::owner::Owner;
use core::ffi::CStr;
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A folder among the temporary ones, named after its [`Owner`] and closed to others; removed with all
/// that is in it when dropped. It is locked as long as it is held (flock(2)), so that whoever sweeps in
/// another pid namespace can tell that its owner lives.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    lock: File,
}

impl Folder {
    /// Makes one named after this process and `label`.
    ///
    /// # Errors
    /// When the folder for temporary files (`TMPDIR`) cannot be written.
    pub fn create(label: &str) -> io::Result<Self> {
        let owner = Owner::current().map_err(io::Error::other)?;
        let path = std::env::temp_dir().join(owner.unique_name(label));
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = lock(&path)?;
        Ok(Self { path, lock })
    }

    /// One whose files are in memory: a tmpfs of its own, in large pages where the kernel has them.
    ///
    /// # Errors
    /// As [`Folder::create`], and without the right to mount.
    pub fn in_memory(label: &str) -> io::Result<Self> {
        let mut folder = Self::create(label)?;
        let mounted = |options: Option<&CStr>| {
            mount("tmpfs", &folder.path, "tmpfs", MountFlags::NOSUID, options)
        };
        mounted(Some(c"mode=700,huge=within_size")).or_else(|_| mounted(Some(c"mode=700")))?;
        // Another folder stands at the path now.
        folder.lock = lock(&folder.path)?;
        Ok(folder)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Locks a folder for as long as the file is open.
fn lock(path: &Path) -> io::Result<File> {
    let folder = File::open(path)?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

/// Whether somebody holds a folder: see [`Folder`].
pub(crate) fn is_held(path: &Path) -> bool {
    matches!(lock(path), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(folder = %self.path.display(), %error, "a temporary folder is left");
        }
    }
}

/// Removes `folder` with all that is in it, mounted there or not.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    // For a folder that is no mount the unmounting fails, which does no harm.
    let _ = unmount(folder, UnmountFlags::DETACH);
    fs::remove_dir_all(folder)
}

/// The folders of our own user that carry an owner's name.
pub(crate) fn owned() -> io::Result<Vec<PathBuf>> {
    let user = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in fs::read_dir(std::env::temp_dir())? {
        let entry = entry?;
        let named = entry.file_name().to_str().and_then(Owner::parse).is_some();
        // The metadata is that of the entry itself, because the target of a symbolic link is not ours.
        let own = |entry: &fs::DirEntry| {
            entry
                .metadata()
                .is_ok_and(|of| of.is_dir() && of.uid() == user)
        };
        if named && own(&entry) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_closed_to_others_and_goes_with_its_guard() {
        goes(Folder::create("Keys of a run").unwrap());
    }

    #[test]
    fn a_folder_in_memory_goes_too() {
        crate::need!(Root);
        let folder = Folder::in_memory("Files of a run").unwrap();
        let beside = fs::metadata(folder.path().parent().unwrap()).unwrap();
        let device = |path: &Path| fs::metadata(path).unwrap().dev();
        assert_ne!(device(folder.path()), beside.dev());
        goes(folder);
    }

    fn goes(folder: Folder) {
        let path = folder.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        assert!(owned().unwrap().contains(&path));
        assert!(is_held(&path));
        fs::write(path.join("key"), "secret").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
