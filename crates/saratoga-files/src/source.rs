//! The source of a session: a file, memory, or standard input.

use crate::Error;
use crate::checksum_on_read::ChecksumOnRead;
use crate::gather::Gather;
use crate::list_room::List;
use crate::tree;
use crate::unnamed::temporary_folder;
use bentpipe_wire::saratoga::Checksum;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Octets around a repair that are read with it.
const AROUND: usize = 32 << 10;
/// The most octets of a stream that wait for their arrival.
const MOST_SPOOLED: u64 = 256 << 20;
/// Octets of a stream that are read at once.
const BLOCK: usize = 64 << 10;
/// How long others may have the disk full where a stream waits that has begun: it comes once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Octets that a stream leaves to others where it waits.
const SPARED: u64 = 1 << 20;

/// See the file's head.
#[derive(Debug)]
pub enum Source {
    /// A file, as it was when it was opened.
    File {
        /// The file.
        file: File,
        /// What it was.
        was: Box<Metadata>,
        /// What was read ahead, and around the last repair.
        ahead: [Gather; 2],
        /// Its checksum, when that comes last.
        late: Option<Box<ChecksumOnRead>>,
    },
    /// Memory: a list.
    Memory(Arc<List>),
    /// Standard input, kept in a file without a name until it has arrived.
    Pipe(Arc<Spool>),
}

/// What a thread has read of standard input.
#[derive(Debug)]
pub struct Spool {
    file: File,
    /// Octets read.
    read: AtomicU64,
    /// Octets that have arrived and are not needed any more.
    released: AtomicU64,
    /// Octets among these that take no room any more, and cannot be read again.
    punched: AtomicU64,
    /// How reading ended.
    ended: OnceLock<io::Result<()>>,
}

impl Source {
    /// `file`, which was what `was` says when it was opened; its checksum comes last where `late` makes it.
    pub fn file(file: File, was: Metadata, late: Option<Box<ChecksumOnRead>>) -> Self {
        Self::File {
            file,
            was: Box::new(was),
            ahead: Default::default(),
            late,
        }
    }

    /// Standard input, read by a thread from now on.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn stdin(spool: File) -> io::Result<Self> {
        let spool = Arc::new(Spool {
            file: spool,
            read: AtomicU64::new(0),
            released: AtomicU64::new(0),
            punched: AtomicU64::new(0),
            ended: OnceLock::new(),
        });
        let filled = Arc::clone(&spool);
        let work = move || {
            let _ = filled.ended.set(filled.fill());
        };
        std::thread::Builder::new()
            .name("stdin".to_owned())
            .spawn(work)
            .map_err(crate::task::no_thread)?;
        Ok(Self::Pipe(spool))
    }

    /// Appends `len` octets from `offset` to `out`.
    ///
    /// # Errors
    /// A file that changed since it was opened, or cannot be read.
    pub(crate) fn read(
        &mut self,
        offset: u64,
        len: usize,
        path: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        match self {
            Self::Memory(memory) => {
                let from = offset as usize;
                out.extend_from_slice(&memory[from..from + len]);
                Ok(())
            }
            Self::Pipe(spool) => {
                if offset < spool.punched.load(Ordering::Acquire) {
                    let gone = "the server had it and has forgotten it, and it is gone here: send it again";
                    return Err(Error::file("read again", path)(io::Error::other(gone)));
                }
                let start = out.len();
                out.resize(start + len, 0);
                let read = spool.file.read_exact_at(&mut out[start..], offset);
                read.map_err(Error::file("read what was kept of", path))
            }
            Self::File {
                file,
                was,
                ahead,
                late,
            } => {
                // A repair leaves what is read ahead alone.
                let [fresh, again] = ahead;
                let beyond = offset + len as u64 > fresh.end();
                let (block, most) = if beyond || fresh.get(offset, len).is_some() {
                    (fresh, usize::MAX)
                } else {
                    (again, AROUND)
                };
                if block.get(offset, len).is_none() {
                    block.octets.clear();
                    let most = block.most().min(most).max(len);
                    read_block(file, was, offset, most, path, block)?;
                    if let Some(late) = late {
                        late.follow(block.from, &block.octets);
                    }
                }
                match block.get(offset, len) {
                    Some(octets) => out.extend_from_slice(octets),
                    None => {
                        return Err(Error::file("read", path)(
                            io::ErrorKind::UnexpectedEof.into(),
                        ));
                    }
                }
                Ok(())
            }
        }
    }

    /// How many octets of a stream can be sent, and whether the stream has ended there.
    pub(crate) fn available(&self) -> Option<Result<(u64, bool), Error>> {
        let Self::Pipe(spool) = self else {
            return None;
        };
        let ended = spool.ended.get();
        let read = spool.read.load(Ordering::Acquire);
        Some(match ended {
            Some(Err(error)) => {
                let errno = error.raw_os_error().map(io::Error::from_raw_os_error);
                let error =
                    errno.unwrap_or_else(|| io::Error::new(error.kind(), error.to_string()));
                Err(Error::file("read", "standard input")(error))
            }
            ended => Ok((read, ended.is_some())),
        })
    }

    /// The checksum that comes last, once it is known, when all below `sent` is at the peer or under way.
    pub(crate) fn checksum(&mut self, sent: u64, path: &str) -> Option<Result<Checksum, Error>> {
        let Self::File {
            file, was, late, ..
        } = self
        else {
            return None;
        };
        let known = late
            .as_mut()?
            .checksum(file, was.len(), sent)?
            .map_err(Error::file("sum up", path));
        // The sum is of what was read, which may be a bit of both.
        Some(known.and_then(|known| unchanged(file, was, path).map(|()| known)))
    }

    /// Whether a thread works on the checksum.
    pub(crate) const fn sums(&self) -> bool {
        matches!(self, Self::File { late: Some(late), .. } if late.reads())
    }

    /// Everything below `arrived` has arrived.
    pub(crate) fn release(&self, arrived: u64) {
        if let Self::Pipe(spool) = self {
            spool.released.store(arrived, Ordering::Release);
        }
    }
}

/// Whether `file` has the size that `was` says. One that is made when it is read, as all in /proc, says 0.
///
/// # Errors
/// When it has more, or what reading gives.
pub fn known_size(file: &File, was: &Metadata) -> io::Result<()> {
    let more = "it does not tell its size beforehand; send what it holds through a pipe: `cat FILE | bentpipe saratoga put SERVER - --as NAME`";
    if was.len() == 0 && file.read_at(&mut [0], 0)? > 0 {
        Err(io::Error::other(more))
    } else {
        Ok(())
    }
}

/// Whether `file` is still what it was.
fn unchanged(file: &File, was: &Metadata, path: &str) -> Result<(), Error> {
    let is = file.metadata().map_err(Error::file("read", path))?;
    let same =
        is.len() == was.len() && is.mtime() == was.mtime() && is.mtime_nsec() == was.mtime_nsec();
    if same {
        Ok(())
    } else {
        Err(Error::Changed {
            path: path.to_owned(),
        })
    }
}

/// Fills `block` with `file` from `offset` on, `most` octets at most, if it is still what it was.
fn read_block(
    file: &File,
    was: &Metadata,
    offset: u64,
    most: usize,
    path: &str,
    block: &mut Gather,
) -> Result<(), Error> {
    unchanged(file, was, path)?;
    block.from = offset;
    block.octets.resize(
        was.len().saturating_sub(offset).min(most as u64) as usize,
        0,
    );
    file.read_exact_at(&mut block.octets, offset)
        .map_err(Error::file("read", path))
}

/// Whether `error` is for want of room or quota.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

impl Spool {
    fn fill(&self) -> io::Result<()> {
        let mut input = io::stdin().lock();
        let mut block = vec![0; BLOCK];
        let (mut at, mut freed) = (0, 0);
        loop {
            let len = input.read(&mut block)?;
            if len == 0 {
                return Ok(());
            }
            let begun = Instant::now();
            while !self.keeps(&block[..len], at, begun.elapsed())? {
                std::thread::sleep(Duration::from_millis(20));
                freed = self.free(freed, 0);
            }
            at += len as u64;
            self.read.store(at, Ordering::Release);
            freed = self.free(freed, MOST_SPOOLED / 4);
        }
    }

    /// Keeps `block`, read at `at`; `false` while what is there has to arrive first, or others have filled the disk, where it has waited
    /// for so long.
    fn keeps(&self, block: &[u8], at: u64, waited: Duration) -> io::Result<bool> {
        let waits = at - self.released.load(Ordering::Acquire).min(at);
        if waits > MOST_SPOOLED {
            return Ok(false);
        }
        let room = tree::room(&self.file).unwrap_or(u64::MAX);
        let kept = if room < block.len() as u64 + SPARED {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            self.file.write_all_at(block, at)
        };
        match kept {
            Err(error) if is_full(&error) && (waits > 0 || at > 0 && waited < PATIENCE) => {
                Ok(false)
            }
            Err(error) => {
                let folder = temporary_folder();
                let why = format!(
                    "it cannot be kept in {} until it has arrived ({error}); TMPDIR names another folder",
                    folder.display()
                );
                Err(io::Error::new(error.kind(), why))
            }
            Ok(()) => Ok(true),
        }
    }

    /// What has arrived takes no more room, as soon as it is more than `least`; where that cannot be, it does. Returns how far, where
    /// that was `freed` before.
    fn free(&self, freed: u64, least: u64) -> u64 {
        let released = self.released.load(Ordering::Acquire);
        if released <= freed + least {
            return freed;
        }
        use rustix::fs::FallocateFlags as Flags;
        let flags = Flags::PUNCH_HOLE | Flags::KEEP_SIZE;
        self.punched.store(released, Ordering::Release);
        let _ = rustix::fs::fallocate(&self.file, flags, freed, released - freed);
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_of_a_stream_is_not_sent_as_zeros() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        let mut source = Source::Pipe(Arc::new(Spool {
            file,
            read: AtomicU64::new(100),
            released: AtomicU64::new(60),
            punched: AtomicU64::new(50),
            ended: OnceLock::new(),
        }));
        let mut out = Vec::new();
        for (offset, is_there) in [(0, false), (49, false), (50, true), (60, true)] {
            assert_eq!(source.read(offset, 10, "x", &mut out).is_ok(), is_there);
        }
        assert_eq!(out, [7; 20]);
    }
}
