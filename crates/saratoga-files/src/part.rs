//! A part is a file that is still arriving: it is hidden beside its place until it is whole and verified.

use crate::Error;
use crate::checksum::{Algorithm, Sum};
use crate::quick_check::{self, time_of_copy};
use crate::record::{self, Record};
use crate::reservation::Reservations;
use crate::task::{Task, Thread};
use crate::tree::{Folder, PART, RECORD, is_gone, is_taken};
use bentpipe_base::Ranges;
use bentpipe_saratoga::receiver::Kept;
use bentpipe_wire::saratoga::{Checksum, Metadata, Time};
use notes::Notes;
use rustix::fs::{FlockOperation, Mode, Timestamps};
use rustix::time::Timespec;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;

/// How often a part that others put under its name meanwhile is opened at most.
const TRIES: u32 = 100;
/// Octets of a record that are read at most: far more than the stretches a receiver keeps.
const MOST_RECORD: u64 = 8 << 20;

/// See the file's head. Locked, so that no two sessions write it.
#[derive(Debug)]
pub struct Part {
    folder: Arc<Folder>,
    name: String,
    /// How the names of its hidden files begin.
    stem: String,
    file: File,
    /// Its path, for messages.
    path: String,
    /// What comes is under a key.
    sealed: bool,
    /// The stretches of the content that are on the disk.
    on_disk: Ranges,
    /// What is, when a thread that puts it there is done.
    syncing: Option<(Task<io::Result<()>>, Ranges)>,
    /// A thread that writes down what there is.
    noting: Option<Task<io::Result<()>>>,
    notes: Notes,
    /// Something of the rest could not be written there, and the kernel has thrown it away.
    lost: bool,
    /// What was recorded last.
    recorded: Option<Record>,
    /// When it was opened: before that nothing is asked for.
    opened: Time,
}

impl Part {
    /// The part of `name` in `folder`, and what an earlier session has left of it: where what comes is `sealed` by a key, one
    /// that was so too.
    ///
    /// # Errors
    /// A directory that has the name; what opening gives.
    pub fn open(
        folder: Folder,
        name: String,
        path: &str,
        sealed: bool,
    ) -> Result<(Self, Option<Kept>), Error> {
        if folder.is_directory(&name) {
            let error = io::Error::from(io::ErrorKind::IsADirectory);
            return Err(Error::file("write over the directory", path)(error));
        }
        let stem = stem(&name);
        let file = locked(&folder, &format!("{stem}{PART}")).map_err(Error::file("write", path))?;
        let folder = Arc::new(folder);
        let mut part = Self {
            notes: Notes::new(Arc::clone(&folder), &stem),
            folder,
            name,
            stem,
            file,
            path: path.to_owned(),
            sealed,
            on_disk: Ranges::default(),
            syncing: None,
            noting: None,
            lost: false,
            recorded: None,
            opened: quick_check::now(),
        };
        let record = part.load();
        let kept = record.as_ref().map(Record::kept);
        part.on_disk = record.map(|record| record.on_disk).unwrap_or_default();
        Ok((part, kept))
    }

    /// What the record says; nothing when there is none, or it cannot be read.
    fn load(&self) -> Option<Record> {
        let file = self.folder.read(&self.record()).ok()?;
        let mut text = String::new();
        file.take(MOST_RECORD).read_to_string(&mut text).ok()?;
        let record = Record::read(&text, self.file.metadata().ok()?.len(), &record::boot());
        record.filter(|record| record.sealed || !self.sealed)
    }

    /// What is written from now on, and what was of `have`, is another content than what was kept. That takes no room
    /// from it any more.
    pub(crate) fn begin_anew(&mut self, have: &Ranges) {
        // Where it cannot be cut what comes is written over it.
        let _ = self.file.set_len(have.last().map_or(0, |(_, to)| to));
        self.on_disk.clear();
        self.syncing = None;
        self.noting = None;
        self.recorded = None;
        self.notes.end();
        self.notes = Notes::new(Arc::clone(&self.folder), &self.stem);
        self.remove_record();
    }

    /// Has written down what is stored, so that a later session can go on, and put on the disk, by threads: the disk may be slow, and
    /// what it is busy with, such as the second, is waited for by the first. An error is what came of writing it down the last time.
    pub(crate) fn save(&mut self, metadata: &Metadata, have: &Ranges) -> io::Result<()> {
        if have.is_empty() {
            // Who announces and sends nothing costs no writes either.
            return Ok(());
        }
        let kept = self.look();
        if let Some(record) = self.record_of(metadata, have)?
            && self.noting.is_none()
        {
            match Thread::start("record") {
                Ok(thread) => {
                    let (notes, noted, file) = (self.notes.clone(), record.clone(), self.again()?);
                    self.noting = Some(thread.work(move |_| notes.write(&file, &noted)));
                }
                Err(_) => self.notes.write(&self.file, &record)?,
            }
            self.recorded = Some(record);
        }
        // Where there may be no thread more, the next record finds one, or the end of the session does it.
        if self.syncing.is_none()
            && self.on_disk != *have
            && let Ok(thread) = Thread::start("write-back")
        {
            let file = self.again()?;
            self.syncing = Some((thread.work(move |_| file.sync_data()), have.clone()));
        }
        kept
    }

    /// The file, opened anew: a duplicate would keep the lock when the session is over.
    fn again(&self) -> io::Result<File> {
        let by_number = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        by_number.or_else(|_| self.opened_by_name())
    }

    /// Writes down what is stored, for the last time.
    pub(crate) fn save_last(&mut self, metadata: &Metadata, have: &Ranges) -> io::Result<()> {
        let kept = self.look();
        if self.noting.is_some() {
            // The thread may not have come to it.
            self.recorded = None;
        }
        if !have.is_empty()
            && let Some(record) = self.record_of(metadata, have)?
        {
            self.notes.write(&self.file, &record)?;
        }
        self.notes.end();
        kept
    }

    /// The record that `have` is stored; `None` where it is written: a peer that only talks costs no writes.
    ///
    /// # Errors
    /// Something is lost, and then nothing stays; or the part has its name no more, and the record is of another session.
    fn record_of(&self, metadata: &Metadata, have: &Ranges) -> io::Result<Option<Record>> {
        if self.lost {
            // The file system may not have kept what it said before that it had, either, such as where in it the file is.
            self.give_up();
            return Err(is_lost());
        }
        if !self.is_in_place() {
            return Err(is_gone());
        }
        let record = Record {
            metadata: metadata.clone(),
            sealed: self.sealed,
            on_disk: self.on_disk.clone(),
            written: have.clone(),
        };
        Ok(Some(record).filter(|record| self.recorded.as_ref() != Some(record)))
    }

    /// Takes note of what the last threads have done: what came of writing down.
    fn look(&mut self) -> io::Result<()> {
        if let Some((task, put)) = self.syncing.take() {
            match task.try_recv() {
                Ok(Ok(())) => self.on_disk = put,
                Ok(Err(_)) => self.lost = true,
                Err(TryRecvError::Empty) => self.syncing = Some((task, put)),
                Err(TryRecvError::Disconnected) => {}
            }
        }
        let Some(task) = self.noting.take() else {
            return Ok(());
        };
        let noted = match task.try_recv() {
            Err(TryRecvError::Empty) => {
                self.noting = Some(task);
                return Ok(());
            }
            Err(TryRecvError::Disconnected) => None,
            Ok(noted) => Some(noted),
        };
        if !matches!(noted, Some(Ok(()))) {
            self.recorded = None;
        }
        noted.unwrap_or(Ok(()))
    }

    /// The part, opened anew where there is no /proc.
    fn opened_by_name(&self) -> io::Result<File> {
        let file = self.folder.read(&self.part())?;
        let [is, was] = [file.metadata()?, self.file.metadata()?];
        if (is.dev(), is.ino()) == (was.dev(), was.ino()) {
            Ok(file)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }

    pub(crate) fn write(&self, offset: u64, octets: &[u8]) -> io::Result<()> {
        self.file.write_all_at(octets, offset)
    }

    /// Octets that may still be written where the part lies.
    pub(crate) fn room(&self) -> io::Result<u64> {
        self.folder.room()
    }

    /// What is promised of the disk it lies on, and which one that is.
    pub(crate) fn reservations(&self) -> io::Result<(&Reservations, u64)> {
        self.folder.reservations()
    }

    /// Verifies what has arrived, puts it on the disk, and only then under its name.
    pub(crate) fn finish(
        mut self,
        size: u64,
        metadata: &Metadata,
        begun: Option<Sum>,
    ) -> Result<(), Error> {
        self.notes.end();
        self.file
            .set_len(size)
            .map_err(Error::file("cut to its size", self.path.clone()))?;
        if !verify(&self.file, size, &metadata.checksum, begun)
            .map_err(Error::file("verify", self.path.clone()))?
        {
            self.discard();
            let path = self.path.clone();
            return Err(Error::Checksum { path });
        }
        let published = self.publish(metadata);
        if matches!(&published, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
            // The part is removed, because another file of this process has this place, and a later attempt would be
            // refused too.
            self.discard();
        } else if published.is_err() {
            self.tidy();
        }
        published.map_err(Error::file("put under its name", self.path.clone()))
    }

    fn publish(&mut self, metadata: &Metadata) -> io::Result<()> {
        let mut modified = metadata.entry.modified;
        if self.folder.is_checked_later() {
            modified = time_of_copy(modified, self.opened);
        }
        let modified = Timespec {
            tv_sec: modified.posix(),
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: modified,
            last_modification: modified,
        };
        // Until now only the owner could read the file. The mode that the peer sends is applied as for a new file.
        let mode = u32::from(metadata.mode.unwrap_or(0o666)) & self.folder.permitted();
        let mode = Mode::from_bits_truncate(mode);
        if !mode.contains(Mode::WUSR) {
            // A part that its owner cannot open for writing is not gone on with after a kill, so that it is one for a moment only.
            self.sync()?;
        }
        self.change_mode(mode)?;
        as_owner(rustix::fs::futimens(&self.file, &times))?;
        let synced = self.sync();
        let place = |()| self.folder.publish(&self.file, &self.part(), &self.name);
        let renamed = synced.and_then(place);
        if renamed.is_err() {
            // Such as over a directory that is there by now: it stays its owner's alone.
            self.change_mode(Mode::RUSR | Mode::WUSR)?;
        }
        renamed?;
        self.notes.remove();
        self.folder.sync()
    }

    fn change_mode(&self, mode: Mode) -> io::Result<()> {
        as_owner(rustix::fs::fchmod(&self.file, mode))
    }

    /// Puts all of it on the disk. What the kernel could not put there it has thrown away, and it says so once: nobody goes on
    /// with that.
    fn sync(&mut self) -> io::Result<()> {
        let synced = self.file.sync_all();
        self.lost |= synced.is_err();
        if self.lost {
            self.give_up();
            return synced.and(Err(is_lost()));
        }
        Ok(())
    }

    /// Whether something of it could not be put on the disk.
    pub(crate) const fn is_lost(&self) -> bool {
        self.lost
    }

    /// Leaves nothing behind where nothing has come, such as of a name that the peer does not have, nor what nobody can go on
    /// with, for there is no record of it, such as on a disk that became full before the first.
    pub(crate) fn tidy(&self) {
        let is_empty = self.file.metadata().is_ok_and(|about| about.len() == 0);
        if is_empty || self.is_unrecorded() {
            self.give_up();
        }
    }

    fn is_unrecorded(&self) -> bool {
        let record = self.folder.read(&self.record());
        record.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Throws away what has arrived, and the directories that were made for it.
    fn give_up(&self) {
        self.discard();
        self.unmake();
    }

    /// Removes the directories that were made for it and have nothing in them.
    pub(crate) fn unmake(&self) {
        self.folder.unmake();
    }

    /// Throws away what has arrived.
    pub(crate) fn discard(&self) {
        self.notes.end();
        self.remove_record();
        self.folder.remove_file(&self.file, &self.part());
    }

    fn remove_record(&self) {
        if self.is_in_place() {
            self.notes.remove();
        }
    }

    /// Whether it has its name still: somebody else may have removed it, and another session have made its own.
    pub(crate) fn is_in_place(&self) -> bool {
        self.folder.is_at(&self.file, &self.part())
    }

    fn part(&self) -> String {
        format!("{}{PART}", self.stem)
    }

    fn record(&self) -> String {
        format!("{}{RECORD}", self.stem)
    }

    /// From now on nothing can be written.
    #[cfg(test)]
    pub(crate) fn break_off(&mut self) {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        self.file = File::open(path).expect("it is open");
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Before it is unlocked.
        self.notes.end();
    }
}

/// What a session says when all has come whose part a disk did not keep, as it said before.
fn is_lost() -> io::Error {
    io::Error::other("its disk did not keep what was written to it; try again")
}

/// What only its owner may do to a file: where the file system says that it is another's, it stays as that has it.
fn as_owner(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Err(rustix::io::Errno::PERM) => Ok(()),
        done => Ok(done?),
    }
}

/// Opens or makes `name` in `folder`, so that no other session writes it.
fn locked(folder: &Folder, name: &str) -> io::Result<File> {
    for _ in 0..TRIES {
        let file = folder.create(name)?;
        if lock(folder, &file, name)? {
            return Ok(file);
        }
    }
    Err(is_taken())
}

/// Locks `file`, which was opened as `name`; whether it still has that name. Who had it locked until now may have
/// put it under its own name since, or thrown it away: then the next one is another file.
fn lock(folder: &Folder, file: &File, name: &str) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(folder.is_at(file, name)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(is_taken()),
        Err(errno) => Err(errno.into()),
    }
}

/// Octets of a name with which the names of its hidden files are not too long, either: 255.
const MOST_NAME: usize = 255 - ".".len() - 2 * RECORD.len() - NEW.len();
/// What is between two endings of a record that is being written.
const NEW: &str = ".new";
/// Octets that are kept of a longer name.
const KEPT: usize = 180;

/// How the names of the hidden files of `name` begin: `.NAME`, or where that would be too long, the beginning
/// of the name and a sum over all of it.
fn stem(name: &str) -> String {
    if name.len() <= MOST_NAME {
        return format!(".{name}");
    }
    let kept = (0..=KEPT).rev().find(|at| name.is_char_boundary(*at));
    let digest = Sha256::digest(name);
    let sum: String = digest[..8]
        .iter()
        .map(|octet| format!("{octet:02x}"))
        .collect();
    format!(".{}~{sum}", &name[..kept.unwrap_or(0)])
}

/// Whether the first `size` octets of `file`, over whose beginning a sum may have `begun`, sum up to
/// `checksum`; one of an unknown kind is passed over, as the draft says. A sum over more than that is none of them.
pub(crate) fn verify(
    file: &File,
    size: u64,
    checksum: &Checksum,
    begun: Option<Sum>,
) -> io::Result<bool> {
    let begun = begun.filter(|sum| sum.upto() <= size);
    let Some(sum) = begun.or_else(|| Algorithm::of(checksum).map(Sum::new)) else {
        return Ok(true);
    };
    Ok(sum.rest(file, size)?.finish() == *checksum)
}

#[cfg(test)]
mod lossy;
mod notes;
#[cfg(test)]
mod tests;
