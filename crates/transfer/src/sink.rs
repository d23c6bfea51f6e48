//! Where what arrives goes.

use crate::Error;
use crate::checksum::{Algorithm, Sum};
use crate::part::{Part, verify};
use bentpipe_base::Ranges;
use bentpipe_wire::saratoga::Metadata;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// A directory list longer than this is not believed.
const MOST_LIST: u64 = 64 << 20;

/// See the file's head.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A file of a tree.
    Part(Part),
    /// Memory: a list.
    Memory(Vec<u8>),
    /// Standard output, in order; what is out of order waits in a file without a name.
    Pipe { spool: File, written: u64 },
}

impl Sink {
    pub(crate) fn write(&mut self, offset: u64, octets: &[u8]) -> io::Result<()> {
        match self {
            Self::Part(part) => part.write(offset, octets),
            Self::Pipe { spool, .. } => spool.write_all_at(octets, offset),
            Self::Memory(memory) => {
                let end = offset.saturating_add(octets.len() as u64);
                if end > MOST_LIST {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                if memory.len() < end as usize {
                    memory.resize(end as usize, 0);
                }
                memory[offset as usize..end as usize].copy_from_slice(octets);
                Ok(())
            }
        }
    }

    /// Passes on what has arrived in order, `[0, arrived)`.
    pub(crate) fn pass_on(&mut self, arrived: u64) -> io::Result<()> {
        let Self::Pipe { spool, written } = self else {
            return Ok(());
        };
        let mut out = io::stdout().lock();
        let mut block = vec![0; 64 << 10];
        while *written < arrived {
            let want = (arrived - *written).min(block.len() as u64) as usize;
            spool.read_exact_at(&mut block[..want], *written)?;
            out.write_all(&block[..want])?;
            *written += want as u64;
        }
        out.flush()
    }

    /// What an interrupted session should leave behind.
    pub(crate) fn save(&self, metadata: Option<&Metadata>, have: &Ranges) -> io::Result<()> {
        match (self, metadata) {
            (Self::Part(part), Some(metadata)) => part.save(metadata, have),
            _ => Ok(()),
        }
    }

    /// Takes away what an ended session leaves of which nobody has any use.
    pub(crate) fn tidy(&self) {
        if let Self::Part(part) = self {
            part.tidy();
        }
    }

    /// Octets that may still be written.
    pub(crate) fn room(&self) -> io::Result<u64> {
        match self {
            Self::Part(part) => part.room(),
            Self::Memory(_) => Ok(MOST_LIST),
            Self::Pipe { spool, .. } => {
                let stat = rustix::fs::fstatvfs(spool)?;
                Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
            }
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
            Self::Pipe { spool, .. } => {
                let right = verify(&spool, size, &metadata.checksum, begun);
                match right.map_err(Error::file("verify", path))? {
                    true => Ok(Vec::new()),
                    false => Err(Error::Checksum {
                        path: path.to_owned(),
                    }),
                }
            }
            Self::Memory(mut memory) => {
                memory.resize(size as usize, 0);
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
