//! Makes the METADATA by which a client announces what it sends.

use crate::checksum::{Algorithm, Sum};
use crate::source::known_size;
use crate::task::Cancel;
use crate::tree::{mode, posix_times};
use crate::{Error, LocalFile};
use bentpipe_wire::saratoga::{Entry, EntryKind, Kind, Metadata, Time, Width};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

/// The widest descriptor that this side uses.
pub const WIDEST: Width = Width::Bits64;

/// The METADATA of the file `local`, that file, and what it was when it was opened. Where `late` becomes true before the
/// checksum is known, it is to come last, and goes on from the sum that has begun.
///
/// # Errors
/// What reading gives, and that nobody waits for it any more.
pub fn announce(
    local: &LocalFile,
    remote: &str,
    id: u32,
    algorithm: Algorithm,
    cancel: &Cancel,
    late: &AtomicBool,
) -> Result<(Metadata, File, std::fs::Metadata, Option<Sum>), Error> {
    let name = local.path().display().to_string();
    let read = || {
        let file = local.open()?;
        let was = file.metadata()?;
        if was.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        if !was.is_file() {
            let what = "it is neither a file nor a directory; `-` sends what comes through a pipe";
            return Err(std::io::Error::other(what));
        }
        known_size(&file, &was)?;
        let sum = Sum::new(algorithm).rest_until(&file, was.len(), || {
            cancel.check()?;
            Ok(late.load(Ordering::Relaxed))
        })?;
        Ok((file, was, sum))
    };
    let (file, was, sum) = read().map_err(Error::file("read", name))?;
    let begun = (algorithm != Algorithm::None && sum.upto() < was.len()).then(|| sum.clone());
    let checksum = match &begun {
        Some(_) => algorithm.later(),
        None => sum.finish(),
    };
    let (modified, created) = posix_times(&was);
    let entry = Entry {
        modified,
        created,
        ..Entry::file(remote, was.len())
    };
    let metadata = Metadata {
        mode: Some(mode(&was)),
        checksum,
        ..Metadata::new(id, Kind::File, entry)
    };
    Ok((metadata, file, was, begun))
}

/// The METADATA of a stream that is to be `remote` at the server.
pub fn stream(remote: &str, id: u32) -> Metadata {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = Time::from_posix(now.map_or(0, |time| time.as_secs() as i64));
    let entry = Entry {
        kind: EntryKind::SpecialFile,
        modified: now,
        created: now,
        ..Entry::file(remote, 0)
    };
    Metadata {
        width: WIDEST,
        ..Metadata::new(id, Kind::Stream, entry)
    }
}
