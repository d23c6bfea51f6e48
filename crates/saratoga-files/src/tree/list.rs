//! The list of a directory, within the memory that there is for lists.

use super::{DIRECTORY, Tree, beneath, ours};
use crate::list_room::{List, ListShare};
use crate::{Error, path};
use bentpipe_wire::saratoga::{Entry, EntryKind, Time, Width};
use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

/// Octets of an entry beside its name, at most: properties, a size as the file system has it, two times, and NUL.
const FIELDS: usize = 2 + 8 + 8 + 1;

/// The names in a directory, in few blocks, for there may be a million.
#[derive(Default)]
struct Names {
    octets: Vec<u8>,
    /// Where each begins, and how long it is.
    places: Vec<(u32, u16)>,
}

impl Names {
    /// Those in `folder`, sorted.
    fn read(folder: &OwnedFd, share: &mut ListShare) -> io::Result<Self> {
        let mut names = Self::default();
        for entry in Dir::read_from(folder)? {
            names.push(entry?.file_name().to_bytes(), share)?;
        }
        let mut places = core::mem::take(&mut names.places);
        places.sort_unstable_by(|one, other| names.at(*one).cmp(names.at(*other)));
        names.places = places;
        names.octets.shrink_to_fit();
        Ok(names)
    }

    fn push(&mut self, name: &[u8], share: &mut ListShare) -> io::Result<()> {
        let capacity = self.capacity();
        self.octets.reserve(name.len());
        self.places.reserve(1);
        // What has grown takes its memory when it is filled.
        if self.capacity() > capacity {
            share.set(self.capacity())?;
        }
        let (at, len) = (self.octets.len(), name.len());
        let place = (u32::try_from(at).ok()).zip(u16::try_from(len).ok());
        self.places.push(place.ok_or(io::ErrorKind::FileTooLarge)?);
        self.octets.extend_from_slice(name);
        Ok(())
    }

    /// Octets of memory.
    const fn capacity(&self) -> usize {
        self.octets.capacity() + self.places.capacity() * size_of::<(u32, u16)>()
    }

    fn at(&self, (at, len): (u32, u16)) -> &[u8] {
        &self.octets[at as usize..][..usize::from(len)]
    }
}

impl Tree {
    /// What is in the directory at `path` (the tree itself when empty), as the content of a
    /// directory record: sizes too great for `widest` are left out, as are links and what arrives. It takes memory of `share`.
    ///
    /// # Errors
    /// What the kernel says; a list for which there is no memory, or not now.
    pub fn list(&self, path: &str, widest: Width, mut share: ListShare) -> Result<List, Error> {
        let path = &*path::normal(path)?;
        let listed = || -> io::Result<List> {
            let folder = match path {
                "" => self.root().try_clone_to_owned()?,
                path => beneath(self.root(), path, OFlags::RDONLY | DIRECTORY)?,
            };
            let names = Names::read(&folder, &mut share)?;
            let room = names.octets.len() + names.places.len() * FIELDS;
            share.set(names.capacity() + room)?;
            let mut content = Vec::with_capacity(room);
            for place in &names.places {
                let name = OsStr::from_bytes(names.at(*place));
                if let Some(entry) = entry_of(&folder, name, widest) {
                    // What does not fit an entry cannot be asked for either.
                    let _ = entry.emit(&mut content);
                }
                // What stands for octets that are no UTF-8 is longer than they are.
                if content.capacity() > room {
                    share.set(names.capacity() + content.capacity())?;
                }
            }
            drop(names);
            share.list(content)
        };
        listed().map_err(Error::file("list", path))
    }
}

/// The entry of `name` in `folder`; none for what is left out. A file or directory whose name is not UTF-8 cannot
/// be named in Saratoga: it is listed as a special one, with what can be read of its name, so that it is
/// missed. So is what cannot be looked at, such as a file system whose program has died, or an inode that the disk has lost.
fn entry_of(folder: &OwnedFd, name: &OsStr, widest: Width) -> Option<Entry> {
    let (path, named) = match name.to_str() {
        Some("." | "..") => return None,
        Some(name) if ours(name) => return None,
        Some(name) => (name.to_owned(), true),
        None => (name.to_string_lossy().into_owned(), false),
    };
    let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        // It has just gone.
        Err(Errno::NOENT) => return None,
        Err(error) => {
            tracing::info!(name = path.escape_debug().to_string(), %error, "cannot be looked at");
            return Some(Entry {
                kind: EntryKind::SpecialFile,
                ..Entry::file(&path, 0)
            });
        }
    };
    let (kind, size) = match (FileType::from_raw_mode(stat.st_mode), named) {
        (FileType::RegularFile, true) => (EntryKind::File, stat.st_size as u128),
        (FileType::Directory, true) => (EntryKind::Directory, 0),
        (FileType::RegularFile, false) => (EntryKind::SpecialFile, 0),
        (FileType::Directory, false) => (EntryKind::SpecialDirectory, 0),
        _ => return None,
    };
    let width = Width::holding(size);
    (width <= widest).then(|| Entry {
        kind,
        width,
        unreliable: false,
        size,
        modified: Time::from_posix(stat.st_mtime),
        created: Time::from_posix(stat.st_ctime),
        path,
    })
}
