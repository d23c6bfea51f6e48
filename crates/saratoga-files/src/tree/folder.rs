//! A directory inside a [`Tree`], open: what is made, looked at, renamed and removed in it by name.

use super::{DIRECTORY, MOST_LASTING, OWN, PART, Tree, beneath, room, sync};
use crate::permissions::permitted;
use crate::reservation::Reservations;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::PoisonError;

/// Before the ending of one that shows whose files are here.
const OWNER: &str = ".owner";

/// A directory inside a tree.
#[derive(Debug)]
pub struct Folder {
    pub(super) fd: OwnedFd,
    pub(super) tree: Tree,
    /// Its path there; empty for the tree itself.
    pub(super) path: String,
    /// The paths of what was made to have it, the outermost first.
    pub(super) made: Vec<String>,
}

impl Folder {
    /// Whether a quick check will look for the copies in it.
    pub(crate) fn is_checked_later(&self) -> bool {
        self.tree.0.checked_later
    }

    /// Takes away what was made to have it, as far as nothing is in it.
    pub(crate) fn unmake(&self) {
        for path in self.made.iter().rev() {
            let (folder, name) = path.rsplit_once('/').unwrap_or((".", path));
            let parent = beneath(self.tree.root(), folder, OFlags::RDONLY | DIRECTORY);
            let removed = parent
                .and_then(|folder| Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?));
            if removed.is_err() {
                // Somebody else's file is in it.
                return;
            }
        }
    }

    /// Opens or makes `name`, to be read and written by its owner alone. What somebody else has put there, who may
    /// have it open or know it by another name, gives way; not where it is seen to be locked, as the part of a session is.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mode = Mode::from_bits_truncate(0o600);
        let open = |more| rustix::fs::openat(&self.fd, name, flags | more, mode);
        match open(OFlags::empty()).map(File::from) {
            Ok(file) if self.is_own(&file)? => return Ok(file),
            Ok(file) if is_locked(&file) => return Err(is_taken()),
            Ok(_) | Err(rustix::io::Errno::LOOP | rustix::io::Errno::ACCESS) => self.remove(name),
            Err(rustix::io::Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        match open(OFlags::CREATE | OFlags::EXCL) {
            // Another session has made it meanwhile.
            Err(rustix::io::Errno::EXIST) => match File::from(open(OFlags::empty())?) {
                file if self.is_own(&file)? => Ok(file),
                _ => Err(rustix::io::Errno::EXIST.into()),
            },
            made => Ok(made?.into()),
        }
    }

    /// Opens `name`, which this process or one before it has made.
    pub(crate) fn read(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?);
        if self.is_own(&file)? {
            Ok(file)
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    /// Whether `file` is a plain one that this user may have made here, by no other name.
    pub(super) fn is_own(&self, file: &File) -> io::Result<bool> {
        let about = file.metadata()?;
        let is_ours = || {
            about.uid() == rustix::process::geteuid().as_raw()
                || self.owner().is_ok_and(|owner| owner == about.uid())
        };
        Ok(about.is_file() && about.nlink() == 1 && is_ours())
    }

    /// Whose a file is that this process makes here: some file systems say for all who that is (FAT, CIFS, an NFS server that
    /// squashes users).
    fn owner(&self) -> io::Result<u32> {
        let name = format!(".{}{OWNER}{PART}", std::process::id());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let made = rustix::fs::openat(&self.fd, &name, flags, Mode::RUSR)?;
        self.remove(&name);
        Ok(rustix::fs::fstat(made)?.st_uid)
    }

    /// What is left of the mode of a file that is made here.
    pub(crate) fn permitted(&self) -> u32 {
        permitted(&self.fd)
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let flags = RenameFlags::empty();
        Ok(rustix::fs::renameat_with(
            &self.fd, from, &self.fd, to, flags,
        )?)
    }

    /// Puts `file`, whose name is `from`, at `to`, where something else may be: but for what this process has put
    /// there under another name.
    ///
    /// # Errors
    /// `AlreadyExists` for that; where `from` is another file by now; what renaming gives.
    pub(crate) fn publish(&self, file: &File, from: &str, to: &str) -> io::Result<()> {
        let root = &self.tree.0;
        let path = match &*self.path {
            "" => to.to_owned(),
            folder => format!("{folder}/{to}"),
        };
        let own = file.metadata()?;
        // Nobody comes in between.
        let mut placed = root.placed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(there) = rustix::fs::statat(&self.fd, to, AtFlags::SYMLINK_NOFOLLOW)
            // A file that really has two names keeps the other one.
            && there.st_nlink == 1
            && let Some(other) = placed.path((there.st_dev, there.st_ino))
            && other != path
            && let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC
            && let Ok(found) = beneath(self.tree.root(), other, flags)
            && let Ok(found) = rustix::fs::fstat(&found)
            && (found.st_dev, found.st_ino) == (there.st_dev, there.st_ino)
        {
            let why = format!("`{other}`, which has just come, is in the same place there");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        self.rename_file(file, from, to)?;
        placed.put((own.dev(), own.ino()), path);
        Ok(())
    }

    /// Renames `from` to `to` if it is `file`. Others may take names away and give them to files of their own: first it gets
    /// a name that nobody else uses, and is looked at there.
    fn rename_file(&self, file: &File, from: &str, to: &str) -> io::Result<()> {
        if !self.is_at(file, from) {
            return Err(is_gone());
        }
        let own = format!(".{}{OWN}{PART}", file.metadata()?.ino());
        let rename = |from: &str, to: &str| {
            rustix::fs::renameat_with(&self.fd, from, &self.fd, to, RenameFlags::NOREPLACE)
        };
        match rename(from, &own) {
            Ok(()) => {}
            // A file system that knows only the plain rename: the last look was a moment ago.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
                return self.rename(from, to);
            }
            Err(errno) => return Err(errno.into()),
        }
        let renamed = if self.is_at(file, &own) {
            self.rename(&own, to)
        } else {
            Err(is_gone())
        };
        if renamed.is_err() {
            // Where the name was taken meanwhile, what has this one is removed in a week.
            let _ = rename(&own, from);
        }
        renamed
    }

    /// Removes `name` if it is `file`.
    pub(crate) fn remove_file(&self, file: &File, name: &str) {
        if self.is_at(file, name) {
            self.remove(name);
        }
    }

    pub(crate) fn remove(&self, name: &str) {
        // It may not be there, and whoever removes has no better use for an error.
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// Whether `name` is the open `file`.
    pub(crate) fn is_at(&self, file: &File, name: &str) -> bool {
        let found = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        match (found, rustix::fs::fstat(file)) {
            (Ok(found), Ok(own)) => (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino),
            _ => false,
        }
    }

    pub(crate) fn is_directory(&self, name: &str) -> bool {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    /// Puts what was done in this directory on the disk, and the way to it from the tree.
    pub(crate) fn sync(&self) -> io::Result<()> {
        sync(&self.fd)?;
        let ends = self.path.match_indices('/').map(|(at, _)| at);
        for end in ends.chain((!self.path.is_empty()).then_some(self.path.len())) {
            let path = &self.path[..end];
            if self.tree.lasting().contains(path) {
                continue;
            }
            let parent = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
            match beneath(self.tree.root(), parent, OFlags::RDONLY | DIRECTORY) {
                Ok(parent) => sync(parent)?,
                // Somebody has taken it away since, with what is in it: that is there, elsewhere.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
            let mut lasting = self.tree.lasting();
            if lasting.len() >= MOST_LASTING {
                lasting.clear();
            }
            lasting.insert(path.to_owned());
        }
        Ok(())
    }

    pub(crate) fn room(&self) -> io::Result<u64> {
        room(&self.fd)
    }

    /// What is promised of the file systems of the tree, and which one this directory is on.
    pub(crate) fn reservations(&self) -> io::Result<(&Reservations, u64)> {
        Ok((
            &self.tree.0.reservations,
            rustix::fs::fstat(&self.fd)?.st_dev,
        ))
    }
}

/// Whether somebody else has `file` locked.
fn is_locked(file: &File) -> bool {
    let locked = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    locked == Err(rustix::io::Errno::WOULDBLOCK)
}

pub(crate) fn is_taken() -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, "another transfer is writing it")
}

/// What a session says whose part somebody has taken away: what is written to it goes nowhere.
pub(crate) fn is_gone() -> io::Error {
    io::Error::other(
        "its hidden part was removed or replaced by somebody else (one server to a directory); try again",
    )
}
