//! What is sent from this host: files that the user names, and what lies in directories that he names.
//!
//! A transfer may go on for hours, and others may write to the directories meanwhile. What the user named is opened
//! by its path; what was found below it is opened beneath the directory's own descriptor, without following symbolic
//! links, so that nothing else is sent, or deleted, in its place.

use crate::leased;
use crate::permissions::{let_in, reach};
use crate::quick_check::Stamp;
use crate::task::Cancel;
use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A file to send.
#[derive(Clone, Debug)]
pub struct LocalFile {
    /// The directory it was found in, or below.
    found_in: Option<LocalFolder>,
    /// Its path, from that directory on, if there is one.
    path: PathBuf,
    /// A quick check will look for its copy.
    checked_later: bool,
}

/// A directory that the user named, of which all files are sent. Clones share it.
#[derive(Clone, Debug)]
pub struct LocalFolder(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    fd: OwnedFd,
    path: PathBuf,
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

impl LocalFile {
    /// The file that the user calls `path`, which may be a symbolic link or lie behind one.
    pub fn named(path: PathBuf) -> Self {
        Self {
            found_in: None,
            path,
            checked_later: false,
        }
    }

    /// The same, for whose copy a quick check will look.
    pub fn checked_later(self) -> Self {
        Self {
            checked_later: true,
            ..self
        }
    }

    pub(crate) const fn is_checked_later(&self) -> bool {
        self.checked_later
    }

    /// Its path as the user would write it.
    pub fn path(&self) -> PathBuf {
        match &self.found_in {
            Some(folder) => folder.0.path.join(&self.path),
            None => self.path.clone(),
        }
    }

    /// The file, to be read. Another process that has a lease on it is waited for.
    ///
    /// # Errors
    /// What the kernel says, that a symbolic link is in the way of what was found, and that nobody waits for it any more.
    pub(crate) fn open(&self, cancel: &Cancel) -> io::Result<File> {
        leased::open(Duration::MAX, cancel, |flags| match &self.found_in {
            Some(folder) => folder.beneath(&self.path, flags),
            None => Ok(rustix::fs::open(&self.path, flags, Mode::empty())?),
        })
    }

    /// Its size and times, unless it is no file that could be sent.
    pub fn stamp(&self) -> Option<Stamp> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = match &self.found_in {
            Some(folder) => folder.beneath(&self.path, flags).ok()?,
            None => rustix::fs::open(&self.path, flags, Mode::empty()).ok()?,
        };
        let metadata = File::from(opened).metadata().ok()?;
        metadata.is_file().then(|| Stamp::from(&metadata))
    }

    /// What of its mode the directories leave to it that go along: that which the user named, and those below.
    pub(crate) fn reach(&self) -> u16 {
        self.found_in.as_ref().map_or(0o777, |folder| {
            let below = reach(&self.path, |path| {
                folder.beneath(path, OFlags::PATH | DIRECTORY)
            });
            // What is in `.` goes without that.
            let goes_along = folder.0.path.file_name().is_some();
            let own = goes_along.then(|| let_in(folder.0.fd.try_clone()));
            below & own.unwrap_or(0o777)
        })
    }

    /// The directory it lies in, and its name there; `None` for what has no name.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn place(&self) -> io::Result<Option<(OwnedFd, &OsStr)>> {
        let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Ok(None);
        };
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        let fd = match &self.found_in {
            Some(folder) => folder.beneath(parent, DIRECTORY)?,
            None => rustix::fs::open(parent, DIRECTORY, Mode::empty())?,
        };
        Ok(Some((fd, name)))
    }
}

impl LocalFolder {
    /// The directory that the user calls `path`.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = rustix::fs::open(path, DIRECTORY, Mode::empty())?;
        let path = path.to_owned();
        Ok(Self(Arc::new(Opened { fd, path })))
    }

    /// What is in the directory `below` it, which is itself where `below` is empty: names, and what they are.
    ///
    /// # Errors
    /// What the kernel says, and that a symbolic link is in the way.
    pub fn entries(&self, below: &Path) -> io::Result<Vec<(OsString, FileType)>> {
        let below = if below.as_os_str().is_empty() {
            Path::new(".")
        } else {
            below
        };
        let fd = self.beneath(below, DIRECTORY)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not say it in the list.
                FileType::Unknown => {
                    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
                    match rustix::fs::statat(&fd, name, flags) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        Err(Errno::NOENT) => continue,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                kind => kind,
            };
            entries.push((name.to_owned(), kind));
        }
        Ok(entries)
    }

    /// The file at `below`, as it was found.
    pub fn file(&self, below: PathBuf) -> LocalFile {
        LocalFile {
            found_in: Some(self.clone()),
            path: below,
            checked_later: false,
        }
    }

    fn beneath(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened = rustix::fs::openat2(&self.0.fd, path, flags, Mode::empty(), resolve);
        opened.map_err(|errno| match errno {
            Errno::LOOP => io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a symbolic link has taken its place, or that of a directory on the way; name it to send what it points to",
            ),
            errno => errno.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_was_found_is_not_opened_behind_a_link_that_takes_its_place() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("inside"), root.path().join("outside"));
        for folder in [&inside, &outside] {
            fs::create_dir_all(folder.join("sub")).unwrap();
            fs::write(folder.join("sub/file"), "x").unwrap();
        }
        let folder = LocalFolder::open(&inside).unwrap();
        let names = |below: &str| {
            let entries = folder.entries(Path::new(below));
            entries.map(|all| all.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        };
        assert_eq!(names("").unwrap(), ["sub"]);
        assert_eq!(names("sub").unwrap(), ["file"]);
        let found = folder.file("sub/file".into());
        let cancel = Cancel::default();
        assert!(found.open(&cancel).is_ok() && found.place().unwrap().is_some());
        assert_eq!(found.path(), inside.join("sub/file"));
        // The file becomes a link.
        fs::remove_file(inside.join("sub/file")).unwrap();
        symlink(outside.join("sub/file"), inside.join("sub/file")).unwrap();
        assert!(found.open(&cancel).is_err());
        // A directory on the way becomes one.
        fs::remove_dir_all(inside.join("sub")).unwrap();
        symlink(outside.join("sub"), inside.join("sub")).unwrap();
        assert!(found.open(&cancel).is_err() && found.place().is_err() && names("sub").is_err());
        // What is named may be a link, and lie behind one.
        let named = LocalFile::named(inside.join("sub/file"));
        assert!(named.open(&cancel).is_ok() && named.place().unwrap().is_some());
    }
}
