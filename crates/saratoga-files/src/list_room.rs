//! The memory of the lists that a server makes and sends: all together have a bound, whoever asks for them.
//!
//! A list counts from its first name on until nobody is sent it any more. While it is made its names count too, so that one alone, which
//! may have all then, leaves almost half when it is there; who has several has no more than is left for others. Who has none and finds
//! no room comes before those who have some.

use bentpipe_base::Instant;
use bentpipe_sockets::timer;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Who found no room and does not ask again within this time has gone: clients do within 5 s, and a round trip.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the file's head. Clones share it.
#[derive(Clone, Debug)]
pub struct ListRoom(Arc<Mutex<Held>>);

#[derive(Debug)]
struct Held {
    most: usize,
    /// Each list that is made or held: for whom, and its octets.
    lists: Vec<(IpAddr, usize)>,
    /// Who has none and found no room, and when last.
    waits: Option<(IpAddr, Instant)>,
}

/// What one list takes, until it is dropped.
#[derive(Debug)]
pub struct ListShare {
    room: ListRoom,
    whom: IpAddr,
    octets: usize,
}

/// A list in memory.
#[derive(Debug)]
pub struct List {
    octets: Vec<u8>,
    _share: ListShare,
}

impl ListRoom {
    /// For lists that take `most` octets together.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(Held {
            most,
            lists: Vec::new(),
            waits: None,
        })))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The share of a list that `whom` asks for.
    ///
    /// # Errors
    /// Where others wait for room, or he has as much as is left: of the kind that passes.
    pub fn begin(&self, whom: IpAddr) -> io::Result<ListShare> {
        self.begin_at(whom, timer::now())
    }

    fn begin_at(&self, whom: IpAddr, now: Instant) -> io::Result<ListShare> {
        let mut held = self.held();
        let own = held.own(whom);
        if own > 0 && (held.another_waits(whom, now) || own > held.left()) {
            return Err(no_room());
        }
        held.lists.push((whom, 0));
        Ok(ListShare {
            room: self.clone(),
            whom,
            octets: 0,
        })
    }
}

#[cfg(test)]
impl ListShare {
    /// One that is enough for the lists of tests.
    pub(crate) fn ample() -> Self {
        let here = IpAddr::from([127, 0, 0, 1]);
        ListRoom::new(64 << 20)
            .begin(here)
            .expect("there is no other")
    }
}

impl Held {
    fn own(&self, whom: IpAddr) -> usize {
        let own = self.lists.iter().filter(|(other, _)| *other == whom);
        own.map(|(_, octets)| octets).sum()
    }

    fn left(&self) -> usize {
        let all: usize = self.lists.iter().map(|(_, octets)| octets).sum();
        self.most.saturating_sub(all)
    }

    fn another_waits(&self, whom: IpAddr, now: Instant) -> bool {
        let waits = |(other, at): (IpAddr, Instant)| other != whom && now.since(at) < PATIENCE;
        self.waits.is_some_and(waits)
    }

    /// The place of a list.
    fn place(&mut self, list: (IpAddr, usize)) -> Option<&mut (IpAddr, usize)> {
        self.lists.iter_mut().find(|one| **one == list)
    }
}

impl ListShare {
    /// The list takes `octets` from now on.
    ///
    /// # Errors
    /// Where there is no room for it just now, of the kind that passes, or never.
    pub(crate) fn set(&mut self, octets: usize) -> io::Result<()> {
        self.set_at(octets, timer::now())
    }

    fn set_at(&mut self, octets: usize, now: Instant) -> io::Result<()> {
        let mut held = self.room.held();
        if octets > self.octets {
            if octets > held.most {
                let why = format!(
                    "its list takes more than the {} MiB that the server's memory has for all lists; raise the limit of its cgroup \
                     (MemoryMax= of its unit), or name directories or files in it instead",
                    held.most >> 20
                );
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            let others = held.own(self.whom) - self.octets;
            let free = held.left() + self.octets;
            let left = free.saturating_sub(octets);
            if octets > free || others > 0 && others + octets > left {
                if others == 0 && !held.another_waits(self.whom, now) {
                    held.waits = Some((self.whom, now));
                }
                return Err(no_room());
            }
        }
        if let Some(place) = held.place((self.whom, self.octets)) {
            place.1 = octets;
        }
        self.octets = octets;
        Ok(())
    }

    /// `octets` are the whole list.
    pub(crate) fn list(mut self, mut octets: Vec<u8>) -> io::Result<List> {
        octets.shrink_to_fit();
        self.set(octets.capacity())?;
        let mut held = self.room.held();
        if held.waits.is_some_and(|(whom, _)| whom == self.whom) {
            held.waits = None;
        }
        drop(held);
        Ok(List {
            octets,
            _share: self,
        })
    }
}

impl Drop for ListShare {
    fn drop(&mut self) {
        let mut held = self.room.held();
        let own = (self.whom, self.octets);
        if let Some(at) = held.lists.iter().position(|one| *one == own) {
            held.lists.swap_remove(at);
        }
    }
}

impl Deref for List {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets
    }
}

/// Who asks again finds out whether there is.
fn no_room() -> io::Error {
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        "the lists that are on their way have as much memory as there is for them",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Instant = Instant::ZERO;

    fn whom(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// As many lists of `octets` as there is room for.
    fn fill(room: &ListRoom, who: IpAddr, octets: usize) -> Vec<ListShare> {
        let made = || {
            let mut share = room.begin_at(who, AT)?;
            share.set_at(octets, AT).map(|()| share)
        };
        std::iter::repeat_with(made)
            .map_while(io::Result::ok)
            .collect()
    }

    #[test]
    fn all_lists_together_have_a_bound_and_nobody_has_it_all() {
        let room = ListRoom::new(1600);
        let first = fill(&room, whom(1), 100);
        let second = fill(&room, whom(2), 100);
        assert_eq!((first.len(), second.len()), (8, 4));
        assert_eq!(room.held().left(), 400);
        // A list that becomes shorter leaves room.
        let mut long = room.begin_at(whom(3), AT).unwrap();
        long.set_at(400, AT).unwrap();
        assert!(fill(&room, whom(4), 1).is_empty());
        long.set_at(10, AT).unwrap();
        assert_eq!(fill(&room, whom(4), 1).len(), 195);
        drop((first, second, long));
        assert_eq!(room.held().left(), 1600);
        assert!(room.held().lists.is_empty());
    }

    #[test]
    fn one_list_has_room_while_there_is_no_other() {
        let room = ListRoom::new(1600);
        let mut long = room.begin_at(whom(1), AT).unwrap();
        long.set_at(1600, AT).unwrap();
        let never = long.set_at(1601, AT).unwrap_err();
        assert_eq!(never.kind(), io::ErrorKind::FileTooLarge);
        let list = long.list(vec![7; 1000]).unwrap();
        assert_eq!((list.len(), room.held().left()), (1000, 600));
        let passes = room.begin_at(whom(1), AT).unwrap_err();
        assert_eq!(passes.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(fill(&room, whom(2), 300).len(), 1);
    }

    #[test]
    fn who_found_no_room_comes_before_those_who_have_some() {
        let room = ListRoom::new(1600);
        let mut first = fill(&room, whom(1), 100);
        let long = |now| {
            let mut share = room.begin_at(whom(2), now).unwrap();
            share.set_at(1200, now).map(|()| share)
        };
        assert!(long(AT).is_err());
        first.truncate(4);
        let again = |seconds| room.begin_at(whom(1), AT + Duration::from_secs(seconds));
        assert!(again(9).is_err());
        // Who does not come again keeps nobody waiting.
        assert!(again(10).is_ok());
        let list = long(AT).unwrap().list(vec![0; 100]).unwrap();
        assert!(again(9).is_ok());
        drop(list);
    }
}
