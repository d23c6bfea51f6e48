//! Makes the checksum of a file of what is read to be sent, so that the file is read once.

use crate::checksum::Sum;
use crate::task::{FairSemaphore, Task, spawn};
use bentpipe_wire::saratoga::Checksum;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;

/// See the file's head.
#[derive(Debug)]
pub struct ChecksumOnRead {
    state: State,
    /// The turns in which threads read the rest, and the peer for which they do.
    turns: (FairSemaphore, SocketAddr),
}

#[derive(Debug)]
enum State {
    /// Over what was read in order.
    Follows(Sum),
    /// The peer had some of it, which was never read: a thread reads it.
    Rest(Task<io::Result<Checksum>>),
    /// It was told.
    Told,
}

impl ChecksumOnRead {
    /// What is read goes on with `sum`; the rest is read in `turns`, for the peer at `whom`.
    pub const fn new(sum: Sum, turns: FairSemaphore, whom: SocketAddr) -> Self {
        Self {
            state: State::Follows(sum),
            turns: (turns, whom),
        }
    }

    /// `octets` of the file were read, from `offset` on.
    pub(crate) fn follow(&mut self, offset: u64, octets: &[u8]) {
        if let State::Follows(sum) = &mut self.state
            && let Some(known) = sum.upto().checked_sub(offset)
            && let Some(new) = octets.get(known as usize..)
        {
            sum.update(new);
        }
    }

    /// The checksum over the `len` octets of `file`, of which the peer has or was sent the first `sent`;
    /// once, when it is known.
    ///
    /// # Errors
    /// What reading gives, or the start of a thread.
    pub(crate) fn checksum(
        &mut self,
        file: &File,
        len: u64,
        sent: u64,
    ) -> Option<io::Result<Checksum>> {
        let known = match &mut self.state {
            State::Follows(sum) if sum.upto() == len => Ok(sum.clone().finish()),
            State::Follows(sum) if sum.upto() < sent => {
                let sum = sum.clone();
                let (turns, whom) = self.turns.clone();
                let rest = |file: File| {
                    spawn("sum", move |cancel| {
                        let whole = sum.rest_in_turns((&turns, whom), cancel, &file, len)?;
                        Ok(whole.finish())
                    })
                };
                match file.try_clone().and_then(rest) {
                    Ok(rest) => {
                        self.state = State::Rest(rest);
                        return None;
                    }
                    Err(error) => Err(error),
                }
            }
            State::Follows(_) | State::Told => return None,
            State::Rest(rest) => match rest.try_recv() {
                Err(mpsc::TryRecvError::Empty) => return None,
                Err(gone) => Err(io::Error::other(gone)),
                Ok(known) => known,
            },
        };
        self.state = State::Told;
        Some(known)
    }

    /// Whether a thread works on it.
    pub(crate) const fn reads(&self) -> bool {
        matches!(self.state, State::Rest(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Algorithm;
    use std::io::Write as _;

    const CONTENT: &[u8] = b"123456789";

    fn late() -> ChecksumOnRead {
        let whom = "10.0.0.1:7".parse().unwrap();
        ChecksumOnRead::new(Sum::new(Algorithm::Crc32c), FairSemaphore::new(1), whom)
    }

    fn asked(late: &mut ChecksumOnRead, sent: u64) -> Option<Checksum> {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(CONTENT).expect("it can be written");
        let len = CONTENT.len() as u64;
        let mut known = late.checksum(&file, len, sent);
        while late.reads() {
            known = late.checksum(&file, len, sent);
        }
        known.map(|known| known.expect("it can be read"))
    }

    #[test]
    fn what_is_read_in_order_is_summed_up_on_the_way() {
        let whole = Algorithm::Crc32c.sum_octets(CONTENT);
        let mut late = late();
        late.follow(0, &CONTENT[..6]);
        // A repair.
        late.follow(2, &CONTENT[2..6]);
        assert_eq!(asked(&mut late, 6), None);
        // The packet before this one ended within it.
        late.follow(5, &CONTENT[5..]);
        assert_eq!(asked(&mut late, 9), Some(whole));
        assert_eq!(asked(&mut late, 9), None, "it is told once");
    }

    #[test]
    fn what_the_peer_had_is_read_for_the_sum() {
        let whole = Algorithm::Crc32c.sum_octets(CONTENT);
        let mut late = late();
        late.follow(0, &CONTENT[..2]);
        late.follow(4, &CONTENT[5..]);
        assert_eq!(asked(&mut late, 9), Some(whole));
    }
}
