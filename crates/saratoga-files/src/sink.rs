//! The sink of a session: a part of a file, memory, or standard output.

use crate::Error;
use crate::checksum::{Algorithm, Sum};
use crate::list_memory::{ListMemory, MOST_LIST};
use crate::part::{Part, verify};
use crate::reservation::Reservations;
use crate::stdout::{Stdout, StdoutQueue};
use crate::tree::room;
use crate::unnamed::temporary_folder;
use bentpipe_base::Ranges;
use bentpipe_wire::saratoga::Metadata;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// See the file's head.
#[derive(Debug)]
pub enum Sink {
    /// A file of a tree.
    Part(Box<Part>),
    /// Memory: a list.
    Memory(ListMemory),
    /// Standard output, in order; what is out of order waits in a file without a name.
    Pipe(Stdout),
}

/// Why nothing begins anew that goes to standard output.
pub fn passed_on() -> io::Error {
    io::Error::other(
        "the server began anew, and the beginning has gone to standard output; run it again",
    )
}

impl Sink {
    pub(crate) fn write(&mut self, offset: u64, octets: &[u8]) -> io::Result<()> {
        match self {
            Self::Part(part) => part.write(offset, octets),
            Self::Pipe(pipe) => pipe.spool().write_all_at(octets, offset),
            Self::Memory(list) => list.write(offset, octets),
        }
    }

    /// Passes on what has arrived in order, `[0, arrived)`.
    pub(crate) fn pass_on(&self, arrived: u64) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => pipe.pass_on(arrived),
            Self::Part(_) | Self::Memory(_) => Ok(()),
        }
    }

    /// Where it goes at the pace of its reader, if it does.
    pub(crate) fn output(&self) -> Option<Arc<StdoutQueue>> {
        match self {
            Self::Pipe(pipe) => Some(pipe.output()),
            Self::Part(_) | Self::Memory(_) => None,
        }
    }

    /// What is written goes nowhere.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Part(part) if !part.is_in_place())
    }

    /// What was written did not get to the disk.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::Part(part) if part.is_lost())
    }

    /// What an interrupted session should leave behind.
    pub(crate) fn save(&mut self, metadata: Option<&Metadata>, have: &Ranges) -> io::Result<()> {
        match (self, metadata) {
            (Self::Part(part), Some(metadata)) => part.save(metadata, have),
            _ => Ok(()),
        }
    }

    /// As [`Self::save`], and nothing more will come.
    pub(crate) fn save_last(
        &mut self,
        metadata: Option<&Metadata>,
        have: &Ranges,
    ) -> io::Result<()> {
        match (self, metadata) {
            (Self::Part(part), Some(metadata)) => part.save_last(metadata, have),
            _ => Ok(()),
        }
    }

    /// Nothing counts of what an interrupted session has left, but for what came in this one already.
    ///
    /// # Errors
    /// That something else was passed on.
    pub(crate) fn begin_anew(&mut self, have: &Ranges) -> io::Result<()> {
        match self {
            Self::Part(part) => part.begin_anew(have),
            Self::Pipe(pipe) if pipe.has_begun() => return Err(passed_on()),
            Self::Pipe(_) | Self::Memory(_) => {}
        }
        Ok(())
    }

    /// Removes leftovers of an ended session that no later session can use.
    pub(crate) fn tidy(&self) {
        if let Self::Part(part) = self {
            part.tidy();
        }
    }

    /// Throws away what has come.
    pub(crate) fn discard(&self) {
        if let Self::Part(part) = self {
            part.discard();
            part.unmake();
        }
    }

    /// Octets that may still be written.
    pub(crate) fn room(&self) -> io::Result<u64> {
        match self {
            Self::Part(part) => part.room(),
            Self::Memory(_) => Ok(MOST_LIST),
            Self::Pipe(pipe) => room(pipe.spool()),
        }
    }

    /// That there is `room` alone for the `size` octets of `path`.
    pub(crate) fn lacks_room(&self, path: &str, size: u64, room: u64) -> Error {
        let path = path.to_owned();
        let place = match self {
            Self::Memory(_) => {
                return Error::ListTooLong {
                    path,
                    size,
                    most: room,
                };
            }
            Self::Part(_) => String::new(),
            Self::Pipe(_) => format!(
                " in {}, where it waits for standard output (TMPDIR names another folder)",
                temporary_folder().display()
            ),
        };
        Error::NoRoom {
            path,
            size,
            room,
            place,
        }
    }

    /// What is promised of the disk it is on, and which one that is; nothing for what nobody else writes beside it.
    pub(crate) fn reservations(&self) -> io::Result<Option<(&Reservations, u64)>> {
        match self {
            Self::Part(part) => part.reservations().map(Some),
            Self::Memory(_) | Self::Pipe(_) => Ok(None),
        }
    }

    /// All has arrived: verifies it, over whose beginning a sum may have `begun`, and gives a part its
    /// name. Memory is given back.
    pub(crate) fn finish(
        self,
        size: u64,
        metadata: &Metadata,
        begun: Option<Sum>,
        path: &str,
    ) -> Result<Vec<u8>, Error> {
        match self {
            Self::Part(part) => part.finish(size, metadata, begun).map(|()| Vec::new()),
            Self::Pipe(pipe) => {
                let right = verify(pipe.spool(), size, &metadata.checksum, begun);
                if right.map_err(Error::file("verify", path))? {
                    Ok(Vec::new())
                } else {
                    Err(Error::Checksum {
                        path: path.to_owned(),
                    })
                }
            }
            Self::Memory(list) => {
                let memory = list.finish(size).map_err(Error::file("hold", path))?;
                let algorithm = Algorithm::of(&metadata.checksum);
                match algorithm.map(|algorithm| algorithm.sum_octets(&memory)) {
                    Some(sum) if sum != metadata.checksum => Err(Error::Checksum {
                        path: path.to_owned(),
                    }),
                    _ => Ok(memory),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_too_long_is_no_matter_of_a_disk() {
        let sink = Sink::Memory(ListMemory::default());
        let error = sink.lacks_room("d", 76_500_000, MOST_LIST).to_string();
        let expected = "the list of `d` has 76500000 bytes, and 67108864 at most are taken: name directories or files in it instead";
        assert_eq!(error, expected);
    }
}
