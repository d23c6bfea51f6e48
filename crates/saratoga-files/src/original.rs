//! The file that `give` or `take` deletes once its copy has arrived: exactly what was sent, or nothing.
//!
//! It stays open from the first octet read to the end, so that its inode number is not used again. It is deleted only
//! if the name still refers to this inode, size and time are as when it was opened, its checksum is the one that the
//! peer has verified, and nobody has it open for writing. If any of this is in doubt the file stays, and the error says
//! why. Where this kernel does not know it (what other hosts change) nothing is sent.

use crate::checksum::{Algorithm, Sum};
use crate::{Error, LocalFile};
use bentpipe_os::lease::ReadLease;
use bentpipe_wire::saratoga::Checksum;
use rustix::fs::{AtFlags, FlockOperation, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// See the file's head.
#[derive(Debug)]
pub struct Original {
    folder: OwnedFd,
    name: OsString,
    file: File,
    was: Metadata,
    /// Its path, for messages.
    path: String,
}

/// Why a file stays that somebody wants to write to.
const WANTED: &str = "is about to be written to";

/// How the name ends under which a file lies between the last look at it and its end, a moment ([`name_going`]). What a kill
/// leaves there is for [`crate::leftovers`].
const GOING: &str = ".saratoga-going";
/// How long those who had found the name before take until they meet the lease, about.
const MOMENT: Duration = Duration::from_millis(1);
/// So many moments another name of the same file may take for its end.
const TURNS: u32 = 1000;
/// Why a file stays that somebody has written to.
const CHANGED: &str = "changed after it was sent";
/// Why a file stays of which the kernel does not say who writes to it.
const OF_ANOTHER: &str = "belongs to another user, and may be open for writing";

/// Why a file stays whose name may be another file's, of which this kernel hears later.
const SHARED: &str = "lies on a network or FUSE file system, where it may be replaced unseen: copy it with `put` or `get`, look whether that is what is there, then delete it";
/// Why a file stays where there is no safe name for its last moment.
const NO_RENAME: &str = "lies on a file system that knows no rename without replacing (ZFS before 2.2): what takes its name just now might be deleted; look, then delete it";

/// The types of file systems (statfs(2)) that other hosts, or a program, change: what was under a name a while ago is still found there.
const SHARED_TYPES: [u32; 18] = [
    0x6573_5546, // FUSE, and virtiofs
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0102_1997, // 9P
    0x5346_414f, // AFS (OpenAFS)
    0x6b41_4653, // AFS (the kernel's)
    0x00c3_6400, // Ceph
    0x7375_7245, // Coda
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x2003_0528, // OrangeFS
    0xaad7_aaea, // PanFS
    0x786f_4256, // VirtualBox's shared folders
    0xbacb_acbc, // VMware's
    0x7c7c_6673, // Parallels'
];

/// Whether what is in `folder` may be replaced without this kernel's knowledge. What does not tell its type may be a program of FUSE.
fn is_shared(folder: &OwnedFd) -> bool {
    let about = rustix::fs::fstatfs(folder);
    about.map_or(true, |about| SHARED_TYPES.contains(&(about.f_type as u32)))
}

/// The name under which a file that `was` so when it was sent is deleted: its inode, size and time, by which it is known again.
pub(crate) fn name_going(was: &Metadata) -> OsString {
    let (inode, size) = (was.ino(), was.size());
    let (seconds, nanos) = (was.mtime(), was.mtime_nsec());
    format!(".{inode}.{size}.{seconds}.{nanos}{GOING}").into()
}

/// Whether `name` is such a name.
pub(crate) fn is_going(name: &OsStr) -> bool {
    let numbers = name
        .to_str()
        .and_then(|name| name.strip_prefix('.')?.strip_suffix(GOING));
    let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
    numbers.is_some_and(|numbers| !numbers.is_empty() && numbers.chars().all(digits))
}

/// Whether only the file's owner may ask what `error` was the answer to.
fn is_of_another(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

impl Original {
    /// `file`, which was opened as `name` in `folder` and then was what `was` says.
    pub(crate) fn new(
        folder: OwnedFd,
        name: &OsStr,
        file: File,
        was: Metadata,
        path: &str,
    ) -> Result<Self, Error> {
        let original = Self {
            folder,
            name: name.to_owned(),
            file,
            was,
            path: path.to_owned(),
        };
        // Better said before than when all has been sent.
        if is_shared(&original.folder) {
            return Err(original.kept(SHARED));
        }
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        if rustix::fs::accessat(&original.folder, ".", access, AtFlags::EACCESS).is_err() {
            return Err(original.kept("lies in a directory that cannot be written"));
        }
        let lease = ReadLease::take(original.file.as_fd());
        if lease.is_err_and(|error| is_of_another(&error)) {
            return Err(original.kept(OF_ANOTHER));
        }
        Ok(original)
    }

    /// `file`, as which `local` was opened.
    pub fn at(local: &LocalFile, file: File, was: Metadata) -> Result<Self, Error> {
        let path = local.path().display().to_string();
        let place = local
            .place()
            .map_err(|error| Error::file("open the directory of", &*path)(error))?;
        let Some((folder, name)) = place else {
            let why = "has no name";
            return Err(Error::Kept { path, why });
        };
        let original = Self::new(folder, name, file, was, &path)?;
        if original.is_at(name) {
            Ok(original)
        } else {
            Err(original.kept("is a symbolic link (give the file itself), or was just replaced"))
        }
    }

    fn kept(&self, why: &'static str) -> Error {
        Error::Kept {
            path: self.path.clone(),
            why,
        }
    }

    /// Deletes it, if it is what arrived: content that sums up to `arrived`. Takes as long as reading it.
    pub(crate) fn delete(self, arrived: &Checksum) -> Result<(), Error> {
        let cannot = |error: io::Error| Error::file("delete what arrived", &*self.path)(error);
        let lease = match ReadLease::take(self.file.as_fd()) {
            Ok(lease) => lease,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(self.kept("is open for writing"));
            }
            Err(error) if is_of_another(&error) => return Err(self.kept(OF_ANOTHER)),
            Err(error) => return Err(cannot(error)),
        };
        // Whoever wants to write waits for the lease.
        let is_wanted = || lease.as_ref().is_some_and(|lease| !lease.is_whole());
        self.check(arrived, is_wanted).map_err(cannot)??;
        if !self.is_at(&self.name) {
            return Err(self.kept("was replaced or renamed while it was sent"));
        }
        if is_wanted() {
            return Err(self.kept(WANTED));
        }
        self.unlink(is_wanted).map_err(cannot)?
    }

    /// Whether the open file is what it was, and what arrived. Ends early where it `is_wanted`.
    fn check(
        &self,
        arrived: &Checksum,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Result<(), Error>> {
        let changed = Ok(Err(self.kept(CHANGED)));
        if !self.has_stayed()? {
            return changed;
        }
        let was = &self.was;
        let same = match Algorithm::of(arrived).filter(|by| *by != Algorithm::None) {
            Some(algorithm) => {
                let sum = Sum::new(algorithm);
                let sum = sum.rest_until(&self.file, was.len(), || Ok(is_wanted()))?;
                if sum.upto() < was.len() {
                    return Ok(Err(self.kept(WANTED)));
                }
                sum.finish() == *arrived
            }
            // Without a checksum the time of the inode's last change must do.
            None => {
                let is = self.file.metadata()?;
                (is.ctime(), is.ctime_nsec()) == (was.ctime(), was.ctime_nsec())
            }
        };
        if same { Ok(Ok(())) } else { changed }
    }

    /// Whether its size and time are as when it was opened.
    fn has_stayed(&self) -> io::Result<bool> {
        let stamp = |about: &Metadata| (about.len(), about.mtime(), about.mtime_nsec());
        Ok(stamp(&self.file.metadata()?) == stamp(&self.was))
    }

    /// Whether what is called `name` is the open file.
    fn is_at(&self, name: &OsStr) -> bool {
        self.inode_at(name) == Some(self.inode())
    }

    /// What is called `name`.
    fn inode_at(&self, name: &OsStr) -> Option<(u64, u64)> {
        let found = rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|found| (found.st_dev, found.st_ino))
    }

    fn inode(&self) -> (u64, u64) {
        (self.was.dev(), self.was.ino())
    }

    /// Takes the name away. Renamed first, it is looked at where nobody replaces it any more, and no writer finds it.
    fn unlink(&self, is_wanted: impl Fn() -> bool) -> io::Result<Result<(), Error>> {
        // Meanwhile nobody is to take it for what a kill has left. Where another has locked it, that one's lock says so too.
        let _ = rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive);
        let ended = self.rename_and_unlink(is_wanted);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        ended
    }

    fn rename_and_unlink(&self, is_wanted: impl Fn() -> bool) -> io::Result<Result<(), Error>> {
        let going = name_going(&self.was);
        let rename = |from: &OsStr, to: &OsStr| {
            let flags = RenameFlags::NOREPLACE;
            rustix::fs::renameat_with(&self.folder, from, &self.folder, to, flags)
        };
        let unlink = |name: &OsStr| rustix::fs::unlinkat(&self.folder, name, AtFlags::empty());
        let mut renamed = rename(&self.name, &going);
        for _ in 0..TURNS {
            let is_others = || {
                self.inode_at(&going)
                    .is_some_and(|inode| inode != self.inode())
            };
            if renamed != Err(Errno::EXIST) || is_others() {
                break;
            }
            // Another name of the same file is in its last moment, or was.
            std::thread::sleep(MOMENT);
            renamed = rename(&self.name, &going);
        }
        match renamed {
            Ok(()) => {}
            // A file system that knows only the plain rename.
            Err(Errno::INVAL | Errno::NOSYS) => return Ok(Err(self.kept(NO_RENAME))),
            Err(errno) => return Err(errno.into()),
        }
        let stays = if self.is_at(&going) {
            std::thread::sleep(MOMENT);
            // Who had found the name before has met the lease by now, or has written.
            match self.has_stayed() {
                _ if is_wanted() => Ok(self.kept(WANTED)),
                Ok(false) => Ok(self.kept(CHANGED)),
                Ok(true) => match unlink(&going) {
                    Ok(()) => return Ok(Ok(())),
                    Err(errno) => Err(errno.into()),
                },
                Err(error) => Err(error),
            }
        } else {
            Ok(self.kept("was replaced while it was sent"))
        };
        match rename(&going, &self.name) {
            Ok(()) => stays.map(Err),
            Err(_) => Ok(Err(self.kept(
                "is `.*.saratoga-going` now, for its name was taken when it could not be deleted",
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;
    use std::process::{Child, Command};
    use std::time::Instant;
    use tempfile::TempDir;

    /// A file `a` and its original.
    fn opened() -> (TempDir, PathBuf, Original) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "what was sent").unwrap();
        let file = File::open(&path).unwrap();
        let was = file.metadata().unwrap();
        let original = Original::at(&LocalFile::named(path.clone()), file, was).unwrap();
        (folder, path, original)
    }

    fn arrived() -> Checksum {
        Algorithm::Crc32c.sum_octets(b"what was sent")
    }

    fn stays(original: Original, arrived: &Checksum) -> &'static str {
        match original.delete(arrived) {
            Err(Error::Kept { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    /// All go at once, each a name of the same file.
    #[test]
    fn names_of_one_file_are_deleted_one_after_the_other() {
        let (folder, path, _) = opened();
        let names: Vec<_> = (0..20).map(|i| folder.path().join(i.to_string())).collect();
        for name in &names {
            fs::hard_link(&path, name).unwrap();
        }
        let originals = names.iter().map(|name| {
            let file = File::open(name).unwrap();
            let was = file.metadata().unwrap();
            Original::at(&LocalFile::named(name.clone()), file, was).unwrap()
        });
        let originals: Vec<_> = originals.collect();
        std::thread::scope(|scope| {
            for original in originals {
                scope.spawn(|| original.delete(&arrived()).unwrap());
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::read(&path).unwrap(), b"what was sent");
    }

    #[test]
    fn what_arrived_is_deleted_and_leaves_nothing() {
        for arrived in [arrived(), Checksum::None] {
            let (folder, _, original) = opened();
            original.delete(&arrived).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    #[test]
    fn what_was_appended_stays() {
        let (_folder, path, original) = opened();
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b", and more").unwrap();
        drop(file);
        assert_eq!(stays(original, &arrived()), "changed after it was sent");
        assert_eq!(fs::read(&path).unwrap(), b"what was sent, and more");
    }

    #[test]
    fn other_content_of_the_same_size_and_time_stays() {
        let (_folder, path, original) = opened();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        (&file).write_all(b"WHAT").unwrap();
        file.set_modified(modified).unwrap();
        drop(file);
        assert_eq!(stays(original, &arrived()), "changed after it was sent");
        let (_folder, path, original) = opened();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        (&file).write_all(b"WHAT").unwrap();
        file.set_modified(original.was.modified().unwrap()).unwrap();
        drop(file);
        assert_eq!(
            stays(original, &Checksum::None),
            "changed after it was sent"
        );
        assert_eq!(fs::read(&path).unwrap(), b"WHAT was sent");
    }

    #[test]
    fn what_took_its_name_stays() {
        let (folder, path, original) = opened();
        let fresh = folder.path().join("fresh");
        fs::write(&fresh, "what was sent").unwrap();
        fs::rename(&fresh, &path).unwrap();
        assert!(stays(original, &arrived()).contains("replaced"));
        assert!(path.exists());
        // Between the last look and the rename.
        let (folder, path, original) = opened();
        let fresh = folder.path().join("fresh");
        fs::write(&fresh, "new").unwrap();
        fs::rename(&fresh, &path).unwrap();
        assert!(original.unlink(|| false).unwrap().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// By one who had found the name before that was taken away.
    #[test]
    fn what_is_written_to_at_the_last_moment_stays() {
        let (folder, path, original) = opened();
        let append = |path: &PathBuf| {
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b", and more").unwrap();
        };
        let why =
            |original: &Original, is_wanted: &dyn Fn() -> bool| match original.unlink(is_wanted) {
                Ok(Err(Error::Kept { why, .. })) => why,
                other => panic!("{other:?}"),
            };
        let lease = ReadLease::take(original.file.as_fd()).unwrap();
        let lease = lease.expect("the file system has leases");
        let writer = path.clone();
        let writer = std::thread::spawn(move || append(&writer));
        while lease.is_whole() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(why(&original, &|| !lease.is_whole()), WANTED);
        drop(lease);
        writer.join().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"what was sent, and more");
        // Or where there are no leases.
        let (_folder, path, original) = opened();
        append(&path);
        assert_eq!(why(&original, &|| false), CHANGED);
        assert_eq!(fs::read(&path).unwrap(), b"what was sent, and more");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    /// Nobody but its owner and root can know whether somebody writes to it.
    #[test]
    fn what_belongs_to_another_user_stays() {
        bentpipe_os::need!(Root);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "what was sent").unwrap();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), open).unwrap();
        let all = || {
            let file = File::open(&path).unwrap();
            let was = file.metadata().unwrap();
            Original::at(&LocalFile::named(path.clone()), file, was)
        };
        let before = all().unwrap();
        let as_nobody = || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            // Of this thread alone, with the capabilities that root has.
            rustix::thread::set_thread_uid(nobody).unwrap();
            (all(), before.delete(&arrived()))
        };
        let (begun, ended) = std::thread::scope(|scope| scope.spawn(as_nobody).join().unwrap());
        for refused in [begun.map(|_| ()), ended] {
            assert!(
                matches!(
                    refused,
                    Err(Error::Kept {
                        why: OF_ANOTHER,
                        ..
                    })
                ),
                "{refused:?}"
            );
        }
        assert!(path.exists());
    }

    /// A file system that knows only the plain rename.
    struct Plain(Child, PathBuf);

    impl Plain {
        /// With a file `a` there; `None` where the kernel has no FUSE.
        fn mount(at: PathBuf) -> Option<Self> {
            let program = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../cli/tests/support/foreign_owner.py"
            );
            let mount = "exec 3<>/dev/fuse && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none \"$0\" && exec python3 \"$1\"";
            let mut child = Command::new("sh");
            let child = child.args(["-c", mount]).arg(&at).arg(program).spawn();
            let mut mounted = Self(child.unwrap(), at);
            let before = fs::metadata(mounted.1.parent().unwrap()).unwrap().dev();
            let until = Instant::now() + Duration::from_secs(20);
            while fs::metadata(&mounted.1).is_ok_and(|about| about.dev() == before) {
                if mounted.0.try_wait().unwrap().is_some() {
                    return None;
                }
                assert!(Instant::now() < until, "it is not mounted");
                std::thread::sleep(Duration::from_millis(20));
            }
            fs::write(mounted.1.join("a"), "what was sent").unwrap();
            Some(mounted)
        }
    }

    impl Drop for Plain {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.1).status();
        }
    }

    #[test]
    fn what_a_rename_could_replace_stays() {
        bentpipe_os::need!(Root, Program("python3"));
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("plain");
        fs::create_dir(&at).unwrap();
        let Some(plain) = Plain::mount(at) else {
            let _ = std::io::stderr().write_all(b"SKIPPED: no FUSE here\n");
            return;
        };
        let path = plain.1.join("a");
        let file = File::open(&path).unwrap();
        let original = Original {
            folder: File::open(&plain.1).unwrap().into(),
            name: "a".into(),
            was: file.metadata().unwrap(),
            file,
            path: path.display().to_string(),
        };
        let why = stays(original, &arrived());
        assert_eq!(why, NO_RENAME);
        assert_eq!(fs::read(&path).unwrap(), b"what was sent");
    }

    #[test]
    fn what_somebody_writes_to_and_what_is_a_link_stay() {
        let (_folder, path, original) = opened();
        let writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(stays(original, &arrived()), "is open for writing");
        drop(writer);
        let (folder, path, _) = opened();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = File::open(&link).unwrap();
        let was = file.metadata().unwrap();
        let refused = Original::at(&LocalFile::named(link.clone()), file, was)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("is a symbolic link"), "{refused}");
        assert!(path.exists() && link.exists());
    }
}
