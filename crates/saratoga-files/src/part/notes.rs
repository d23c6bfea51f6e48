//! Writes the record of a part, by which a later session can go on.

use super::NEW;
use crate::record::{self, Record};
use crate::tree::{Folder, PART, RECORD, is_gone};
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// See the file's head. Clones write the same record, one after the other: a thread, for a disk that is busy makes who creates a file
/// wait, and at the end of a session its loop.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    folder: Arc<Folder>,
    /// How the names of the part's hidden files begin.
    stem: String,
    /// Whether it may be written still. Held while it is.
    open: Arc<Mutex<bool>>,
}

impl Notes {
    pub(super) fn new(folder: Arc<Folder>, stem: &str) -> Self {
        Self {
            folder,
            stem: stem.to_owned(),
            open: Arc::new(Mutex::new(true)),
        }
    }

    /// Writes `record` of `part`.
    ///
    /// # Errors
    /// A part that has its name no more, and so a record of another session; what writing gives.
    pub(super) fn write(&self, part: &File, record: &Record) -> io::Result<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !*open || !self.folder.is_at(part, &format!("{}{PART}", self.stem)) {
            return Err(is_gone());
        }
        let text = record.write(&record::boot()).map_err(io::Error::other)?;
        let [name, fresh] = self.names();
        let written = self.folder.create(&fresh).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(text.as_bytes())?;
            self.folder.rename(&fresh, &name)
        });
        if written.is_err() {
            self.folder.remove(&fresh);
        }
        written
    }

    /// The names of the record, and of the next one while it is written.
    fn names(&self) -> [String; 2] {
        let name = format!("{}{RECORD}", self.stem);
        let fresh = format!("{name}{NEW}{RECORD}");
        [name, fresh]
    }

    /// Takes it away, and what a kill has left of the next one.
    pub(super) fn remove(&self) {
        for name in self.names() {
            self.folder.remove(&name);
        }
    }

    /// Nobody writes it from now on: the part is another's, or is no more.
    pub(super) fn end(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}
