//! A directory that peers may see into, and nothing outside it.
//!
//! Every path is opened by openat2(2) beneath the directory's own descriptor, without following symbolic links. Check
//! and use are one system call, so that nobody can change the path between them.

mod folder;
mod list;

pub use folder::Folder;
pub(crate) use folder::{is_gone, is_taken};

use crate::leased;
use crate::original::{Original, is_going};
use crate::permissions::reach;
use crate::placed::Placed;
use crate::quick_check::Stamp;
use crate::reservation::Reservations;
use crate::task::Cancel;
use crate::{Error, path};
use bentpipe_wire::saratoga::Time;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How the files begin and end in which something arrives: `.NAME.saratoga-part`.
pub(crate) const PART: &str = ".saratoga-part";
/// The record beside it.
pub(crate) const RECORD: &str = ".saratoga-record";
/// Before the ending of one that is about to get its name.
const OWN: &str = ".whole";

/// A served directory. Clones share it.
#[derive(Clone, Debug)]
pub struct Tree(Arc<Root>);

#[derive(Debug)]
struct Root {
    fd: OwnedFd,
    /// Where it was opened, for messages.
    path: String,
    /// Directories in it whose names are on the disk.
    lasting: Mutex<BTreeSet<String>>,
    reservations: Reservations,
    placed: Mutex<Placed>,
    /// A quick check will look for the copies in it.
    checked_later: bool,
}

/// Directories of which it is remembered that their names are on the disk at most.
const MOST_LASTING: usize = 4096;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

impl Tree {
    /// The directory at `path`.
    ///
    /// # Errors
    /// What opening it gives.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_for(path, false)
    }

    /// The same, where a quick check will look for the copies in it if `checked_later`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_for(path: &Path, checked_later: bool) -> Result<Self, Error> {
        rustix::fs::open(path, OFlags::RDONLY | DIRECTORY, Mode::empty())
            .map(|fd| {
                Self(Arc::new(Root {
                    fd,
                    path: path.display().to_string(),
                    lasting: Mutex::default(),
                    reservations: Reservations::default(),
                    placed: Mutex::default(),
                    checked_later,
                }))
            })
            .map_err(|errno| {
                Error::file("open the directory", path.display().to_string())(errno.into())
            })
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// That the directory is still there. One that was removed can be looked into, and has nothing in it; one over which something
    /// is mounted has what nobody else sees.
    ///
    /// # Errors
    /// One that was removed, or mounted over; what the kernel says.
    pub fn is_there(&self) -> Result<(), Error> {
        // One that was renamed is not under its path.
        let is_elsewhere = |stat: &rustix::fs::Stat| {
            rustix::fs::stat(&*self.0.path).is_ok_and(|there| there.st_dev != stat.st_dev)
        };
        let found = match rustix::fs::fstat(self.root()) {
            Ok(stat) if stat.st_nlink > 0 && is_elsewhere(&stat) => io::Error::other(
                "another file system is there now (mounted or unmounted since); start the server again",
            ),
            Ok(stat) if stat.st_nlink > 0 => return Ok(()),
            Ok(_) => io::Error::other("it was removed; make it again, and start the server again"),
            Err(errno) => errno.into(),
        };
        Err(Error::file("serve", &*self.0.path)(found))
    }

    fn lasting(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // The table is valid even if another thread panicked while it held the lock.
        let lasting = self.0.lasting.lock();
        lasting.unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, fd: OwnedFd, path: &str) -> Folder {
        Folder {
            fd,
            tree: self.clone(),
            path: path.to_owned(),
            made: Vec::new(),
        }
    }

    /// The file at `path`, to be read, and what it is.
    pub fn file(&self, path: &str) -> Result<(File, Metadata), Error> {
        self.file_within(path, Duration::ZERO, &Cancel::default())
    }

    /// The same, in a thread that may wait for another process that has a lease on it: no longer than `patience`.
    pub fn file_within(
        &self,
        path: &str,
        patience: Duration,
        cancel: &Cancel,
    ) -> Result<(File, Metadata), Error> {
        let path = &*check(path)?;
        let found = || {
            let file = leased::open(patience, cancel, |flags| beneath(self.root(), path, flags))?;
            let metadata = file.metadata()?;
            if metadata.is_file() {
                Ok((file, metadata))
            } else {
                Err(io::Error::from(io::ErrorKind::IsADirectory))
            }
        };
        found().map_err(Error::file("read", path))
    }

    /// Whether a copy of `original` is at `path` already, which this process has not put there under another name.
    pub fn has_copy(&self, path: &str, original: &Stamp) -> bool {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = |path: &str| {
            File::from(beneath(self.root(), path, flags).ok()?)
                .metadata()
                .ok()
        };
        let Ok(path) = check(path) else {
            return false;
        };
        let Some(there) =
            found(&path).filter(|there| there.is_file() && Stamp::from(there).is_copy_of(original))
        else {
            return false;
        };
        let inode = (there.dev(), there.ino());
        let mut placed = self.0.placed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_another =
            there.nlink() == 1 && placed.path(inode).is_some_and(|other| other != path);
        if !is_another {
            placed.put(inode, path);
        }
        !is_another
    }

    /// What of its mode the directories here leave to the file at `path`.
    pub fn reach(&self, path: &str) -> u16 {
        reach(Path::new(path), |folder| {
            let folder = folder.to_str().unwrap_or_default();
            beneath(self.root(), folder, OFlags::PATH | DIRECTORY)
        })
    }

    /// `file` at `path`, which was opened as what `was` says and may be deleted later.
    pub fn original(&self, path: &str, file: &File, was: &Metadata) -> Result<Original, Error> {
        let (folder, name) = self.place(path, false)?;
        let file = file.try_clone().map_err(Error::file("read", path))?;
        Original::new(folder.fd, name.as_ref(), file, was.clone(), path)
    }

    /// The directory that `path` lies in and its name there; with `create`, made where missing.
    pub fn place(&self, path: &str, create: bool) -> Result<(Folder, String), Error> {
        let path = &*check(path)?;
        let (folder, name) = match path.rsplit_once('/') {
            Some((folder, name)) => (Some(folder), name),
            None => (None, path),
        };
        let opened = match folder {
            Some(folder) if create => self.make(folder),
            Some(folder) => beneath(self.root(), folder, OFlags::RDONLY | DIRECTORY)
                .map(|fd| self.folder(fd, folder)),
            None => self
                .root()
                .try_clone_to_owned()
                .map(|fd| self.folder(fd, "")),
        };
        let folder = opened.map_err(Error::file("open the directory of", path))?;
        Ok((folder, name.to_owned()))
    }

    fn make(&self, path: &str) -> io::Result<Folder> {
        if path.split('/').count() > path::MAX_DIRECTORIES {
            let most = path::MAX_DIRECTORIES;
            let why = format!("it lies in more than {most} directories");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let mut folder = self.folder(self.root().try_clone_to_owned()?, path);
        let mut at = 0;
        let mut step = |name: &str| -> io::Result<()> {
            at += name.len();
            match rustix::fs::mkdirat(&folder.fd, name, Mode::from_bits_truncate(0o777)) {
                Ok(()) => {
                    self.lasting().remove(&path[..at]);
                    folder.made.push(path[..at].to_owned());
                }
                Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            at += 1;
            folder.fd = beneath(&folder.fd, name, OFlags::RDONLY | DIRECTORY)?;
            Ok(())
        };
        let done = path.split('/').try_for_each(&mut step);
        if done.is_err() {
            folder.unmake();
        }
        done.map(|()| folder)
    }

    /// Deletes the file at `path`; one that is not there is as good as deleted.
    pub fn remove(&self, path: &str) -> Result<(), Error> {
        let (folder, name) = match self.place(path, false) {
            Ok(place) => place,
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        match rustix::fs::unlinkat(&folder.fd, &name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::file("delete", path)(errno.into())),
        }
    }

    /// Where other file systems are mounted in it: paths from it on.
    pub fn mounts_below(&self) -> Vec<String> {
        let own = format!("/proc/self/fd/{}", self.root().as_raw_fd());
        let list = std::fs::read_to_string("/proc/self/mountinfo");
        let (Ok(own), Ok(list)) = (std::fs::read_link(own), list) else {
            return Vec::new();
        };
        let own = own.display().to_string();
        let below = |line: &str| {
            // What would part the words of a line is written in octal.
            let place = line.split(' ').nth(4)?;
            let place = [
                ("\\040", " "),
                ("\\011", "\t"),
                ("\\012", "\n"),
                ("\\134", "\\"),
            ]
            .iter()
            .fold(place.to_owned(), |place, (code, char)| {
                place.replace(code, char)
            });
            let rest = place.strip_prefix(own.trim_end_matches('/'))?;
            let rest = rest.strip_prefix('/')?;
            (!rest.is_empty()).then(|| rest.to_owned())
        };
        list.lines().filter_map(below).collect()
    }

    /// Asks the file system of the directory at `path` something that only itself can answer, as long as that takes.
    pub fn ask(&self, path: &str) {
        let opened = beneath(
            self.root(),
            path,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        );
        // An error is an answer.
        let _ = opened.and_then(room);
    }

    /// Octets that may still be written.
    ///
    /// # Errors
    /// What the kernel says; `Unsupported` of a file system that does not tell it.
    pub fn room(&self) -> io::Result<u64> {
        room(self.root())
    }
}

/// Octets that may still be written to the file system of `fd`.
///
/// # Errors
/// What the kernel says; `Unsupported` of a file system that does not tell it, and so has no blocks.
pub(crate) fn room(fd: impl AsFd) -> io::Result<u64> {
    let stat = rustix::fs::fstatvfs(fd)?;
    if stat.f_blocks == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Puts `file` on the disk, where it is what can be there: nobody knows what becomes of a pipe, and of directories some file
/// systems (CIFS) say that there is nothing to be done.
pub(crate) fn sync(file: impl AsFd) -> io::Result<()> {
    match rustix::fs::fsync(file) {
        Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn beneath(root: impl AsFd, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(
        root,
        path,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

/// Whether a file of this name is of a transfer that goes on or was interrupted, at its beginning or at its end.
#[must_use]
pub fn is_of_a_part(name: &OsStr) -> bool {
    name.to_str().is_some_and(ours)
}

/// Whether a file is one of those in which something arrives, or under whose name one is deleted.
fn ours(name: &str) -> bool {
    name.starts_with('.') && (name.ends_with(PART) || name.ends_with(RECORD))
        || is_going(name.as_ref())
}

/// The normal form of `path`, which is refused unless it is of a file inside a tree. The kernel would refuse it
/// too; this says why.
fn check(path: &str) -> Result<String, Error> {
    let path = path::normal(path)?;
    let why = if path.is_empty() {
        "is the directory itself"
    } else if path.split('/').any(ours) {
        "has the name of a file that arrives, or is being deleted"
    } else {
        return Ok(path);
    };
    Err(Error::Path { path, why })
}

/// Who may read, write and execute a file, as METADATA says it.
pub fn mode(metadata: &Metadata) -> u16 {
    (metadata.mode() & 0o777) as u16
}

/// Times of last change and (for want of better) of the last change of the inode, as Saratoga counts.
pub fn posix_times(metadata: &Metadata) -> (Time, Time) {
    (
        Time::from_posix(metadata.mtime()),
        Time::from_posix(metadata.ctime()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_room::ListShare;
    use bentpipe_wire::saratoga::Width;
    use std::os::unix::fs::symlink;

    /// Who waits for files may take a whole directory away.
    #[test]
    fn what_was_moved_away_at_once_is_there_all_the_same() {
        let place = tempfile::tempdir().unwrap();
        let tree = Tree::open(place.path()).unwrap();
        let (folder, _) = tree.place("in/x/file", true).unwrap();
        std::fs::rename(place.path().join("in"), place.path().join("away")).unwrap();
        folder.sync().unwrap();
    }

    #[test]
    fn nothing_outside_is_reached() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        let inside = tempfile::tempdir().unwrap();
        let root = inside.path();
        std::fs::create_dir(root.join("sub")).unwrap();
        std::fs::write(root.join("sub/file"), "x").unwrap();
        symlink(outside.path(), root.join("way")).unwrap();
        symlink(outside.path().join("secret"), root.join("link")).unwrap();
        symlink("sub/file", root.join("inner")).unwrap();
        let tree = Tree::open(root).unwrap();
        for path in ["sub/file", "sub//file", "./sub/file", "sub/./file/"] {
            assert!(tree.file(path).is_ok(), "{path:?}");
        }
        for path in [
            "../secret",
            "sub/../../x",
            "/etc/passwd",
            "way/secret",
            "link",
            "inner",
            "",
            "./",
            "sub",
            ".x.saratoga-part",
        ] {
            assert!(tree.file(path).is_err(), "{path:?} was read");
        }
        for path in ["../new", "way/new", "/tmp/new", "sub/.a.saratoga-record"] {
            assert!(tree.place(path, true).is_err(), "{path:?} could be made");
        }
        let _listens = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        for path in ["way/secret", "socket", "sub"] {
            let code = tree.file(path).unwrap_err().code();
            assert_eq!(code, bentpipe_wire::saratoga::Code::DENIED, "{path}");
        }
        assert!(tree.remove("way/secret").is_err());
        assert!(outside.path().join("secret").exists());
        // A link itself may be deleted; what it points to stays.
        tree.remove("link").unwrap();
        assert!(outside.path().join("secret").exists() && !root.join("link").exists());
        tree.remove("never/was").unwrap();
        let content = tree.list("", Width::Bits64, ListShare::ample()).unwrap();
        for path in [".", "./", "sub/..", "sub/", "./sub"] {
            let listed = tree.list(path, Width::Bits64, ListShare::ample());
            assert_eq!(listed.is_ok(), path != "sub/..", "{path:?}");
        }
        let names = bentpipe_wire::saratoga::entries(&content).map(|entry| entry.unwrap().path);
        assert_eq!(names.collect::<Vec<_>>(), ["sub"]);
    }

    /// Where a file system ignores case, one file answers to two names.
    #[test]
    fn a_copy_is_that_of_one_name_only() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::write(path("X"), "content").unwrap();
        let file = File::options().write(true).open(path("X")).unwrap();
        let now = file.metadata().unwrap().modified().unwrap();
        file.set_modified(now - Duration::from_secs(1000)).unwrap();
        let stamp = Stamp::from(&file.metadata().unwrap());
        symlink("X", path("link")).unwrap();
        let tree = Tree::open(root.path()).unwrap();
        let has = |name: &str| tree.has_copy(name, &stamp);
        assert_eq!(
            ["X", "X", "x", "link", ""].map(has),
            [true, true, false, false, false]
        );
        std::fs::rename(path("X"), path("x")).unwrap();
        assert!(!has("x"));
        // One that has two names is a copy by either.
        std::fs::hard_link(path("x"), path("y")).unwrap();
        assert_eq!(["x", "y"].map(has), [true, true]);
    }

    /// As of CIFS's directories.
    #[test]
    fn that_nothing_can_be_put_on_the_disk_is_no_error() {
        let directory = File::open("/proc").unwrap();
        assert_eq!(rustix::fs::fsync(&directory), Err(rustix::io::Errno::INVAL));
        sync(&directory).unwrap();
    }

    #[test]
    fn what_somebody_else_has_put_in_place_of_a_part_gives_way() {
        let root = tempfile::tempdir().unwrap();
        let (folder, _) = Tree::open(root.path()).unwrap().place("x", true).unwrap();
        let path = |name: &str| root.path().join(name);
        std::fs::write(path("precious"), "protected").unwrap();
        let part = ".x.saratoga-part";
        let places: [&dyn Fn(); 3] = [
            &|| std::fs::hard_link(path("precious"), path(part)).unwrap(),
            &|| symlink(path("precious"), path(part)).unwrap(),
            &|| {
                let fifo = std::process::Command::new("mkfifo")
                    .arg(path(part))
                    .status();
                assert!(fifo.unwrap().success());
            },
        ];
        for put in places {
            put();
            assert!(folder.read(part).is_err());
            let file = folder.create(part).unwrap();
            file.set_len(0).unwrap();
            assert!(folder.is_own(&file).unwrap() && folder.is_at(&file, part));
            assert_eq!(std::fs::read(path("precious")).unwrap(), b"protected");
            // Its own it opens again.
            assert!(folder.is_at(&folder.create(part).unwrap(), part));
            folder.remove(part);
        }
    }

    #[test]
    fn the_way_to_a_file_is_put_on_the_disk_once_and_again_when_it_is_made_again() {
        let root = tempfile::tempdir().unwrap();
        let tree = Tree::open(root.path()).unwrap();
        let lasting = || tree.lasting().iter().cloned().collect::<Vec<_>>();
        let (folder, _) = tree.place("a/b/c", true).unwrap();
        assert_eq!(lasting(), [""; 0]);
        folder.sync().unwrap();
        assert_eq!(lasting(), ["a", "a/b"]);
        std::fs::remove_dir(root.path().join("a/b")).unwrap();
        let (folder, _) = tree.place("a/b/c", true).unwrap();
        assert_eq!(lasting(), ["a"]);
        folder.sync().unwrap();
        assert_eq!(lasting(), ["a", "a/b"]);
        tree.place("x", true).unwrap().0.sync().unwrap();
        assert_eq!(lasting(), ["a", "a/b"]);
    }
}
