//! Removes parts and records of interrupted transfers that nobody has gone on with for a week, and ends deletions that a kill has
//! interrupted.

use crate::original::{is_going, name_going};
use crate::tree::{Tree, is_of_a_part};
use bentpipe_os::lease::ReadLease;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

/// How long an interrupted transfer may be gone on with.
const KEEP: Duration = Duration::from_secs(7 * 86_400);
/// Between two looks at what is there.
pub const PAUSE: Duration = Duration::from_secs(3600);

/// Removes in `tree` what nobody has gone on with, in a thread: `None` where there may be none.
pub fn remove_in_background(tree: &Tree) -> Option<JoinHandle<()>> {
    let tree = tree.clone();
    let work = move || match remove(&tree, SystemTime::now() - KEEP) {
        Ok(0) => {}
        Ok(count) => tracing::info!(
            count,
            "files of transfers that nobody went on with were removed"
        ),
        Err(error) => tracing::warn!(%error, "what nobody went on with cannot be looked for"),
    };
    // What fails now is tried again an hour later.
    let builder = std::thread::Builder::new().name("leftovers".to_owned());
    builder.spawn(work).ok()
}

/// Directories one in another that are looked through at most.
const DEEPEST: usize = 256;

/// Removes parts and records in `tree` that nothing has changed since `before` and that belong to no session, and
/// the directories that are empty then; how many files that were.
///
/// # Errors
/// A tree that cannot be read at all. What cannot be read in it stays.
fn remove(tree: &Tree, before: SystemTime) -> io::Result<usize> {
    let before = before
        .duration_since(SystemTime::UNIX_EPOCH)
        .ok()
        .map_or(0, |since| since.as_secs() as i64);
    let mut removed = 0;
    look(
        tree.root().try_clone_to_owned()?,
        before,
        DEEPEST,
        &mut removed,
    )?;
    Ok(removed)
}

/// Looks through `folder`: whether something was removed there and nothing else is in it.
fn look(folder: OwnedFd, before: i64, deep: usize, removed: &mut usize) -> io::Result<bool> {
    let (mut others, mut own) = (0, 0);
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        let stat = rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
        let gone = match kind {
            Ok(FileType::Directory) if deep > 0 => {
                // One that cannot be looked through stays.
                below(&folder, name)
                    .and_then(|below| look(below, before, deep - 1, removed))
                    .unwrap_or(false)
                    && rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR).is_ok()
            }
            Ok(FileType::RegularFile) if is_of_a_part(name) => {
                let gone = if is_going(name) {
                    end_or_tell(&folder, name)
                } else {
                    remove_one(&folder, name, before).unwrap_or(false)
                };
                *removed += usize::from(gone);
                gone
            }
            _ => false,
        };
        if gone { own += 1 } else { others += 1 }
    }
    Ok(own > 0 && others == 0)
}

fn below(folder: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
    Ok(rustix::fs::openat2(
        folder,
        name,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

/// Removes `name` if it is old and no session has it locked.
fn remove_one(folder: &OwnedFd, name: &OsStr, before: i64) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    // The inode's change time counts, because the content's time is that of the original file once the part is
    // complete.
    let old = rustix::fs::fstat(file.as_fd())?.st_ctime < before;
    if old {
        rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(old)
}

/// Why a file stays whose deletion was interrupted.
pub const STAYS: &str = "stays: it took the name of a file that was being deleted, or was changed since (rename or delete it)";

/// Ends the deletion of `name`, unless it goes on. None: what is called so is not what was to be deleted.
///
/// A deletion looks at content, time and lease first, and then renames, which makes the inode's time of change later than that of
/// its content. Whoever writes afterwards makes them equal, or sets another time; the name tells size and time of what was sent.
fn end(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<()>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?);
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let _unwritten = ReadLease::take(file.as_fd())?;
    let is = file.metadata()?;
    let (written, changed) = ((is.mtime(), is.mtime_nsec()), (is.ctime(), is.ctime_nsec()));
    if name_going(&is) != name || written >= changed {
        return Ok(None);
    }
    rustix::fs::unlinkat(folder, name, AtFlags::empty())?;
    Ok(Some(()))
}

/// The same for a server, whose log tells what stays; says whether it is gone.
fn end_or_tell(folder: &OwnedFd, name: &OsStr) -> bool {
    let ended = end(folder, name);
    if let Ok(None) = ended {
        let place = std::fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let path = place.unwrap_or_default().join(name);
        tracing::warn!(path = %path.to_string_lossy().escape_debug(), "{STAYS}");
    }
    matches!(ended, Ok(Some(())))
}

/// Ends the deletions that were interrupted in the directories of `files`; returns what stays there, see [`STAYS`].
pub fn end_deletions<'a>(files: impl Iterator<Item = &'a Path>) -> Vec<PathBuf> {
    let folders: BTreeSet<&Path> = files.filter_map(Path::parent).collect();
    let mut stay = Vec::new();
    for path in folders {
        let open = if path == Path::new("") {
            Path::new(".")
        } else {
            path
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory that cannot be read is reported where its files are.
        let Ok(folder) = rustix::fs::open(open, flags, Mode::empty()) else {
            continue;
        };
        for entry in Dir::read_from(&folder).into_iter().flatten().flatten() {
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if is_going(&name)
                && let Ok(None) = end(&folder, &name)
            {
                stay.push(path.join(name));
            }
        }
    }
    stay
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_old_and_nobodys_goes_with_its_directories_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let tree = Tree::open(root).unwrap();
        let make = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            File::create(path).unwrap()
        };
        for path in [
            "a/b/.x.saratoga-part",
            "a/b/.x.saratoga-record",
            "c/.y.saratoga-part",
            "c/file",
            "e/.locked.saratoga-part",
            "x.saratoga-part",
            ".hidden",
        ] {
            make(path);
        }
        fs::create_dir(root.join("empty")).unwrap();
        let outside = tempfile::tempdir().unwrap();
        let far = outside.path().join(".far.saratoga-part");
        File::create(&far).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.join("way")).unwrap();
        let held = File::open(root.join("e/.locked.saratoga-part")).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        // Times are looked at in whole seconds.
        std::thread::sleep(Duration::from_millis(1100));
        let now = SystemTime::now();
        // All of it is here, of a file that is old.
        let young = make("d/.z.saratoga-part");
        young.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(remove(&tree, now).unwrap(), 3);
        let stays = |path: &str| root.join(path).exists();
        assert!(!stays("a") && !stays("c/.y.saratoga-part"));
        for path in [
            "c/file",
            "d/.z.saratoga-part",
            "e/.locked.saratoga-part",
            "x.saratoga-part",
            ".hidden",
            "empty",
            "way",
        ] {
            assert!(stays(path), "{path}");
        }
        assert!(far.exists(), "nothing outside");
    }

    /// What `give` or `take` was killed over goes; what is not that, is written to or was changed since, stays.
    #[test]
    fn an_interrupted_deletion_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let tree = Tree::open(root).unwrap();
        let make = |number: u32| {
            let path = root.join(number.to_string());
            fs::write(&path, "what arrived").unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let going = root.join(name_going(&fs::metadata(&path).unwrap()));
            fs::rename(&path, &going).unwrap();
            going
        };
        let [arrived, changed, locked, written, copied] = [1, 2, 3, 4, 6].map(make);
        fs::write(&changed, "since").unwrap();
        // As `cp -p` does.
        fs::write(&copied, "another file").unwrap();
        let into = File::options().write(true).open(&copied).unwrap();
        into.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        drop(into);
        let locked_by = File::open(&locked).unwrap();
        rustix::fs::flock(&locked_by, FlockOperation::LockExclusive).unwrap();
        let writer = fs::OpenOptions::new().append(true).open(&written).unwrap();
        let other = root.join(".1.saratoga-going");
        fs::rename(make(5), &other).unwrap();
        assert!(
            tree.list(
                "",
                bentpipe_wire::saratoga::Width::Bits64,
                crate::list_room::ListShare::ample()
            )
            .unwrap()
            .is_empty()
        );
        assert_eq!(remove(&tree, SystemTime::UNIX_EPOCH).unwrap(), 1);
        assert!(!arrived.exists());
        for stays in [&changed, &copied, &locked, &written, &other] {
            assert!(stays.exists(), "{stays:?}");
        }
        drop((locked_by, writer));
        let mut stay = end_deletions([root.join("a").as_path()].into_iter());
        stay.sort();
        let mut expected = vec![changed, copied, other];
        expected.sort();
        assert_eq!(stay, expected);
        assert!(!locked.exists() && !written.exists());
    }
}
