//! epoll(7): sets of descriptors, with level and edge triggers.

use crate::errno::{Answer, Errno, Progress};
use crate::readiness::UNASKED;
use crate::socket::Edges;
use crate::stack::{State, descriptor};
use core::ffi::c_int;
use std::collections::BTreeMap;

/// One set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Epoll(BTreeMap<c_int, Interest>);

#[derive(Clone, Copy, Debug)]
struct Interest {
    events: u32,
    data: u64,
    /// What was told of, where edges are asked for.
    delivered: Option<Edges>,
    /// `EPOLLONESHOT`: told of once, and disabled until it is changed.
    spent: bool,
}

impl Epoll {
    pub(crate) fn forget(&mut self, fd: c_int) {
        self.0.remove(&fd);
    }
}

impl State {
    pub(crate) fn make_epoll(&mut self, size: c_int) -> Answer<c_int> {
        if size <= 0 {
            return Err(Errno(libc::EINVAL));
        }
        let fd = descriptor()?;
        self.epolls.insert(fd, Epoll::default());
        Ok(fd)
    }

    pub(crate) fn change_epoll(
        &mut self,
        set: c_int,
        operation: c_int,
        fd: c_int,
        wanted: Option<(u32, u64)>,
    ) -> Answer<()> {
        if !self.epolls.contains_key(&set) {
            return Err(Errno(libc::EINVAL));
        }
        self.socket(fd)?;
        let Some(Epoll(interests)) = self.epolls.get_mut(&set) else {
            return Err(Errno(libc::EBADF));
        };
        let there = interests.contains_key(&fd);
        match operation {
            libc::EPOLL_CTL_ADD if there => return Err(Errno(libc::EEXIST)),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !there => {
                return Err(Errno(libc::ENOENT));
            }
            libc::EPOLL_CTL_DEL => {
                interests.remove(&fd);
                return Ok(());
            }
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {}
            _ => return Err(Errno(libc::EINVAL)),
        }
        let (events, data) = wanted.ok_or(Errno(libc::EFAULT))?;
        interests.insert(
            fd,
            Interest {
                events,
                data,
                delivered: None,
                spent: false,
            },
        );
        Ok(())
    }

    /// What of the set is ready, at most `most`: events and data.
    pub(crate) fn wait_epoll(&mut self, set: c_int, most: usize) -> Progress<Vec<(u32, u64)>> {
        let Some(mut epoll) = self.epolls.get(&set).cloned() else {
            return Progress::error(libc::EINVAL);
        };
        if most == 0 {
            return Progress::error(libc::EINVAL);
        }
        let mut found = Vec::new();
        for (&fd, interest) in &mut epoll.0 {
            if found.len() == most {
                break;
            }
            let (ready, edges) = self.ready(fd);
            // The bits of epoll and poll are the same.
            let wanted = interest.events | UNASKED as u16 as u32;
            let events = u32::from(ready as u16) & wanted;
            let edge = interest.events & libc::EPOLLET as u32 != 0;
            let known = edge && interest.delivered == Some(edges);
            if events == 0 || interest.spent || known {
                continue;
            }
            interest.delivered = Some(edges);
            interest.spent = interest.events & libc::EPOLLONESHOT as u32 != 0;
            found.push((events, interest.data));
        }
        self.epolls.insert(set, epoll);
        if found.is_empty() {
            Progress::Pending
        } else {
            Progress::value(found)
        }
    }
}
