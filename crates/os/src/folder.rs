//! Folders for the time of a run.

use crate::owner::Owner;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where shm_open(3) has its files, a tmpfs.
const MEMORY: &str = "/dev/shm";

/// A folder among the temporary ones, named after its [`Owner`] and closed to others; removed with all
/// that is in it when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one named after this process and `label`.
    ///
    /// # Errors
    /// When the folder for temporary files (`TMPDIR`) cannot be written.
    pub fn create(label: &str) -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir(), label)
    }

    /// One whose files are in memory: on the tmpfs that every Linux has for shared memory.
    ///
    /// # Errors
    /// When it is not there, or cannot be written.
    pub fn in_memory(label: &str) -> io::Result<Self> {
        Self::create_in(Path::new(MEMORY), label)
    }

    fn create_in(place: &Path, label: &str) -> io::Result<Self> {
        let owner = Owner::current().map_err(io::Error::other)?;
        let path = place.join(owner.unique_name(label));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "a temporary folder is left");
        }
    }
}

/// The folders of our own user that carry an owner's name.
pub(crate) fn owned() -> io::Result<Vec<PathBuf>> {
    let user = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    let temporary = fs::read_dir(std::env::temp_dir())?;
    // Not every container has the other.
    let memory = fs::read_dir(MEMORY).into_iter().flatten();
    for entry in temporary.chain(memory) {
        let entry = entry?;
        let named = entry.file_name().to_str().and_then(Owner::parse).is_some();
        // Of the entry itself: what a link leads to is not ours.
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
        for make in [Folder::create, Folder::in_memory] {
            let folder = make("Keys of a run").unwrap();
            let path = folder.path().to_owned();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
            assert!(owned().unwrap().contains(&path));
            fs::write(path.join("key"), "secret").unwrap();
            drop(folder);
            assert!(!path.exists());
        }
    }
}
