//! A file without a name, for what is on its way through: standard input until it has arrived, and what arrives until it is read.

use crate::Error;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Names that are tried where a file must have one for a moment.
const TRIES: u32 = 100;

/// A file without a name.
///
/// # Errors
/// Where it cannot be made, and how another place for it is named.
pub fn unnamed_file() -> Result<File, Error> {
    let folder = temporary_folder();
    unnamed_in(&folder).map_err(|errno| {
        let why = format!("{}; TMPDIR names another folder", io::Error::from(errno));
        let error = io::Error::new(io::Error::from(errno).kind(), why);
        Error::file("make a file in", folder.display().to_string())(error)
    })
}

/// Where such files lie.
pub(crate) fn temporary_folder() -> PathBuf {
    let folder = std::env::temp_dir();
    // As other programs have it.
    if folder.as_os_str().is_empty() {
        PathBuf::from("/tmp")
    } else {
        folder
    }
}

fn unnamed_in(folder: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_bits_truncate(0o600);
    match rustix::fs::open(folder, flags | OFlags::TMPFILE, mode) {
        // NFS, FAT and many programs of FUSE know no file without a name.
        Err(Errno::OPNOTSUPP) => {}
        made => return made.map(File::from),
    }
    for attempt in 0..TRIES {
        let name = folder.join(format!(".bentpipe-{}-{attempt}", std::process::id()));
        match rustix::fs::open(&name, flags | OFlags::CREATE | OFlags::EXCL, mode) {
            Err(Errno::EXIST) => {}
            made => {
                let file = made?;
                rustix::fs::unlink(&name)?;
                return Ok(file.into());
            }
        }
    }
    Err(Errno::EXIST)
}
