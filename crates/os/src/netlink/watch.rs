//! Watches the rules and routes of a [`super::Diversion`], which others may remove: `ip rule flush`, a network manager
//! that restarts and removes what it does not know, or an interface that goes down, whose routes go without a
//! notification.

use super::Table;
use bentpipe_sockets::netlink_message::{attributes, message, open, u32_at};
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The messages (linux/rtnetlink.h) about changes that may remove a rule or route of ours. A first IPv6 address tells
/// that IPv6 was switched on again, before which there could be no route of ours.
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWRULE: u16 = 32;
const RTM_DELRULE: u16 = 33;
/// RTNLGRP_LINK, IPV4_IFADDR, IPV4_ROUTE, IPV4_RULE, IPV6_IFADDR, IPV6_ROUTE and IPV6_RULE.
const GROUPS: [u32; 7] = [1, 5, 7, 8, 9, 11, 19];
/// The length of `struct rtmsg`, and RTA_TABLE.
const BODY: usize = 12;
const TABLE: u16 = 15;
/// Messages read at once. Where more wait, much changes, and ours is looked at.
const MOST: usize = 512;

/// A watch on the rules, routes, addresses and interfaces of a namespace; readable when one changed.
#[derive(Debug)]
pub struct Watch {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Watch {
    /// Watches the calling thread's namespace, from now on.
    ///
    /// # Errors
    /// Without descriptors.
    pub fn open() -> io::Result<Self> {
        let groups = GROUPS.iter().fold(0, |mask, group| mask | 1 << (group - 1));
        Ok(Self {
            socket: open(None, groups)?,
            buffer: vec![0; 64 * 1024],
        })
    }

    /// Whether rules or routes of `table` may have gone since the last time. When in doubt, they may:
    /// where the kernel had to drop messages, for one.
    pub fn may_have_lost(&mut self, table: Table) -> bool {
        let mut lost = false;
        for _ in 0..MOST {
            let length = match recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => length,
                Err(rustix::io::Errno::AGAIN) => return lost,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => {
                    lost = true;
                    continue;
                }
            };
            let mut rest = &self.buffer[..length];
            while let Some((kind, body, next)) = message(rest) {
                lost |= concerns(kind, body, table);
                rest = next;
            }
        }
        true
    }
}

fn concerns(kind: u16, body: &[u8], table: Table) -> bool {
    match kind {
        // A new rule may stand before ours, and a removed one may leave room for ours to move up.
        RTM_NEWLINK | RTM_DELLINK | RTM_NEWADDR | RTM_DELADDR | RTM_NEWRULE | RTM_DELRULE => true,
        RTM_DELROUTE => {
            let mut attributes = attributes(body.get(BODY..).unwrap_or_default());
            attributes
                .any(|(kind, value)| kind == TABLE && u32_at(value, 0) == Some(table.number()))
        }
        _ => false,
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
