//! Makes the METADATA by which a client announces what it sends.

use crate::checksum::{Algorithm, Sum};
use crate::quick_check::rest_of_second;
use crate::source::known_size;
use crate::task::Cancel;
use crate::tree::{mode, posix_times};
use crate::{Error, LocalFile};
use bentpipe_wire::saratoga::{Checksum, Entry, EntryKind, Kind, Metadata, Time, Width};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The widest descriptor that this side uses.
pub const WIDEST: Width = Width::Bits64;

/// How often a file is opened again that changed in the very second, at most.
const TRIES: u32 = 3;

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
    let opened = || {
        let file = local.open(cancel)?;
        let was = file.metadata()?;
        Ok::<_, std::io::Error>((file, was))
    };
    let rest_of_second = |was: &std::fs::Metadata| {
        { local.is_checked_later() }.then(|| rest_of_second(was.mtime()))?
    };
    let read = || {
        let (mut file, mut was) = opened()?;
        for _ in 0..TRIES {
            let Some(rest) = rest_of_second(&was) else {
                break;
            };
            std::thread::sleep(rest);
            cancel.check()?;
            (file, was) = opened()?;
        }
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
    let mut entry = entry(remote, &was, &checksum);
    if rest_of_second(&was).is_some() {
        // It changes all the time.
        entry.modified.0 = entry.modified.0.saturating_sub(1);
    }
    let metadata = Metadata {
        mode: Some(mode(&was) & local.reach()),
        checksum,
        ..Metadata::new(id, Kind::File, entry)
    };
    Ok((metadata, file, was, begun))
}

/// What METADATA says of a file that `was` so when it was opened, and goes as `path`. Without a checksum nothing but the time of the
/// inode's last change tells a file from another of its length and time, and seconds are too coarse: what is there instead of
/// them is a sum over all of it.
pub fn entry(path: &str, was: &std::fs::Metadata, checksum: &Checksum) -> Entry {
    let (modified, mut created) = posix_times(was);
    if *checksum == Checksum::None {
        let changed = [was.ctime(), was.ctime_nsec()].map(i64::to_be_bytes);
        let digest = Sha256::digest(changed.as_flattened());
        created = Time(u32::from_be_bytes([
            digest[0], digest[1], digest[2], digest[3],
        ]));
    }
    Entry {
        modified,
        created,
        ..Entry::file(path, was.len())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What of the one has arrived would be gone on with by the other.
    #[test]
    fn files_of_one_length_and_second_differ_without_a_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let of_now = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            let second = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
            file.set_modified(second).unwrap();
            let was = file.metadata().unwrap();
            let [none, sum] = [Checksum::None, Algorithm::Crc32c.later()];
            (entry("a", &was, &none), entry("a", &was, &sum), was.ctime())
        };
        let first = of_now(b"one");
        std::thread::sleep(std::time::Duration::from_millis(20));
        let second = of_now(b"two");
        assert_ne!(first.0, second.0);
        // Unless another second has begun meanwhile.
        assert_eq!(first.1 == second.1, first.2 == second.2);
    }
}
