//! One epoll set: many descriptors, one wait. See epoll(7).
//!
//! Registered descriptors leave the set when their last copy is closed; the token given at
//! registration comes back with every event.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use std::io;
use std::ops::BitOr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What to wait for on a descriptor, and how. Combine with `|`.
///
/// Errors and hang-ups are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest(EventFlags);

impl Interest {
    /// Only errors and hang-ups.
    pub const NONE: Self = Self(EventFlags::empty());
    /// Data to read, or a connection to accept.
    pub const READ: Self = Self(EventFlags::IN);
    /// Room to write, or a dial that came to its end.
    pub const WRITE: Self = Self(EventFlags::OUT);
    /// The peer has shut down its sending side.
    pub const PEER_CLOSED: Self = Self(EventFlags::RDHUP);
    /// Report changes only, not states: read and write until `WouldBlock` before waiting again.
    pub const EDGE: Self = Self(EventFlags::ET);
    /// Report once, then nothing until [`Epoll::modify`].
    pub const ONCE: Self = Self(EventFlags::ONESHOT);
    /// Wake one of several waiting epoll sets, not all.
    pub const EXCLUSIVE: Self = Self(EventFlags::EXCLUSIVE);

    /// `self | other`, also in constants.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0.union(other.0))
    }
}

impl BitOr for Interest {
    type Output = Self;
    fn bitor(self, rhs: Self) -> Self {
        self.and(rhs)
    }
}

/// What happened to a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number given at registration.
    pub token: u64,
    flags: EventFlags,
}

impl Event {
    /// There is data, a connection, an end of stream or an error to read.
    pub fn readable(self) -> bool {
        self.flags
            .intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR)
    }

    /// There is room to write, or an error that a write will show.
    pub fn writable(self) -> bool {
        self.flags
            .intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR)
    }

    /// The peer has shut down its sending side.
    pub fn peer_closed(self) -> bool {
        self.flags.intersects(EventFlags::RDHUP | EventFlags::HUP)
    }

    /// Both directions are closed.
    pub fn hung_up(self) -> bool {
        self.flags.contains(EventFlags::HUP)
    }

    /// An error is pending: a reset, a refusal, a timeout.
    pub fn failed(self) -> bool {
        self.flags.contains(EventFlags::ERR)
    }
}

/// Room for the events of one [`Epoll::wait`].
pub struct Events {
    slots: Vec<epoll::Event>,
    filled: usize,
}

impl Events {
    /// Room for `capacity` events a wait; at least one.
    pub fn with_capacity(capacity: usize) -> Self {
        let empty = epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        Self {
            slots: vec![empty; capacity.max(1)],
            filled: 0,
        }
    }

    /// The events of the last wait, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.slots[..self.filled].iter().map(|raw| Event {
            token: raw.data.u64(),
            flags: raw.flags,
        })
    }

    /// Event number `index` of the last wait.
    pub fn at(&self, index: usize) -> Option<Event> {
        self.slots[..self.filled].get(index).map(|raw| Event {
            token: raw.data.u64(),
            flags: raw.flags,
        })
    }

    /// How many events the last wait found.
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the last wait found nothing.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
}

/// An epoll set.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            fd: epoll::create(CreateFlags::CLOEXEC)?,
        })
    }

    /// Adds `source`; its events carry `token`.
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(
            &self.fd,
            source,
            EventData::new_u64(token),
            interest.0,
        )?)
    }

    /// Changes token and interest of `source`. What is already true is reported again, also with
    /// [`Interest::EDGE`].
    pub fn modify(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(
            &self.fd,
            source,
            EventData::new_u64(token),
            interest.0,
        )?)
    }

    /// Takes `source` out of the set.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, source)?)
    }

    /// Waits for events for at most `timeout` (rounded up to a millisecond), forever when `None`.
    /// A signal ends the wait with no events.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.map(|limit| {
            // The kernel's oldest epoll_wait counts milliseconds in an i32: 24 days.
            let limit = limit.min(Duration::from_secs(86_400));
            Timespec {
                tv_sec: limit.as_secs() as i64,
                tv_nsec: i64::from(limit.subsec_nanos()) as _,
            }
        });
        events.filled = 0;
        match epoll::wait(&self.fd, events.slots.as_mut_slice(), timeout.as_ref()) {
            Ok(filled) => events.filled = filled,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(events.filled)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A descriptor by which one thread wakes others (eventfd(2)).
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    /// One that is not readable yet.
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        Ok(Self {
            fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Makes the descriptor readable; wakes every set that watches it, also edge-triggered ones.
    pub fn wake(&self) {
        // The only failure is a counter at its end: then it is readable anyway.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable; `true` when it was woken since the last time.
    pub fn drain(&self) -> bool {
        rustix::io::read(&self.fd, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn level_repeats_and_edge_does_not() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(b"x").unwrap();
        let mut events = Events::with_capacity(4);
        let soon = Some(Duration::from_millis(1));
        for (interest, second) in [(Interest::READ, 1), (Interest::READ | Interest::EDGE, 0)] {
            let epoll = Epoll::new().unwrap();
            epoll.add(&far, 7, interest).unwrap();
            assert_eq!(epoll.wait(&mut events, soon).unwrap(), 1);
            let event = events.at(0).unwrap();
            assert_eq!(
                (event.token, event.readable(), event.failed()),
                (7, true, false)
            );
            assert_eq!(epoll.wait(&mut events, soon).unwrap(), second);
        }
    }

    #[test]
    fn modify_reports_the_present_state_again() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(b"x").unwrap();
        let epoll = Epoll::new().unwrap();
        let mut events = Events::with_capacity(4);
        let soon = Some(Duration::from_millis(1));
        epoll.add(&far, 1, Interest::READ | Interest::EDGE).unwrap();
        assert_eq!(epoll.wait(&mut events, soon).unwrap(), 1);
        epoll
            .modify(&far, 2, Interest::READ | Interest::EDGE)
            .unwrap();
        assert_eq!(epoll.wait(&mut events, soon).unwrap(), 1);
        assert_eq!(events.at(0).unwrap().token, 2);
        epoll.remove(&far).unwrap();
        assert_eq!(epoll.wait(&mut events, soon).unwrap(), 0);
    }

    #[test]
    fn a_bell_wakes_every_set_each_time() {
        let waker = Waker::new().unwrap();
        let sets = [Epoll::new().unwrap(), Epoll::new().unwrap()];
        for set in &sets {
            set.add(&waker, 9, Interest::READ | Interest::EDGE).unwrap();
        }
        let mut events = Events::with_capacity(4);
        let soon = Some(Duration::from_millis(1));
        for _ in 0..2 {
            waker.wake();
            for set in &sets {
                assert_eq!(set.wait(&mut events, soon).unwrap(), 1);
                assert_eq!(set.wait(&mut events, soon).unwrap(), 0);
            }
        }
        assert!(waker.drain());
        assert!(!waker.drain());
    }
}
