//! Interception: packets of new connections are taken from the forwarding path and given to our
//! listeners. The nft table goes with the process; rules and routes, inert without it, go with the
//! value or are swept by the next start.

use crate::mark::Marks;
use crate::ruleset::{self, Crossing};
use bentpipe_os::netlink::{Diversion, Family, Mark, Netlink, NetlinkError};
use bentpipe_os::nft::{NftError, OwnerTable, TableFamily};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use thiserror::Error;

/// Before the main table and most others' rules, after the local table.
const RULE_PRIORITY: u32 = 98;

/// Interception could not be set up or changed.
#[derive(Debug, Error)]
pub enum InterceptError {
    /// The routing half.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The nft half.
    #[error(transparent)]
    Nft(#[from] NftError),
}

/// The interception of one gateway: made suspended.
#[derive(Debug)]
pub(crate) struct Interception {
    // In this order: without the table, the rule has nothing to divert.
    table: OwnerTable,
    _diversion: Diversion,
    marks: Marks,
    crossings: Vec<Crossing>,
    on: bool,
}

impl Interception {
    pub(crate) fn new(marks: Marks, crossings: Vec<Crossing>) -> Result<Self, InterceptError> {
        let v6 = crossings.iter().any(|crossing| crossing.doors.v6.is_some());
        let families = if v6 { &Family::ALL[..] } else { &[Family::V4] };
        let mark = Mark::exact(marks.intercepted());
        let diversion = divert(&Netlink::open()?, families, mark)?;
        Ok(Self {
            table: load(marks)?,
            _diversion: diversion,
            marks,
            crossings,
            on: false,
        })
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// From now on new connections are split.
    pub(crate) fn resume(&mut self) -> Result<(), InterceptError> {
        self.switch(true)
    }

    /// From now on new connections pass end to end; those that stand are still delivered.
    pub(crate) fn suspend(&mut self) -> Result<(), InterceptError> {
        self.switch(false)
    }

    /// Makes the table again, in the calling thread's namespace, if the nft process that held it has
    /// ended and the table with it. Says whether that was so: until now new connections passed end to
    /// end, and packets of those that stand were not delivered.
    pub(crate) fn restore(&mut self) -> Result<bool, InterceptError> {
        if self.table.is_held() {
            return Ok(false);
        }
        self.table = load(self.marks)?;
        self.table.apply(&self.commands())?;
        Ok(true)
    }

    fn switch(&mut self, on: bool) -> Result<(), InterceptError> {
        self.on = on;
        match self.table.apply(&self.commands()) {
            // Whoever waits for that restores it, with the rules of `on`.
            Err(NftError::Ended { .. }) => Ok(()),
            result => Ok(result?),
        }
    }

    /// What gives the table the rules that it is to have now.
    fn commands(&self) -> String {
        let table = self.table.to_string();
        match self.on {
            true => ruleset::resume(&table, self.marks, &self.crossings),
            false => ruleset::suspend(&table),
        }
    }
}

impl AsFd for Interception {
    /// Readable when [`Interception::restore`] has something to do. Another descriptor after it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

fn load(marks: Marks) -> Result<OwnerTable, NftError> {
    OwnerTable::load(TableFamily::Inet, "gateway", &ruleset::table(marks))
}

/// Diverts by the first of this process's tables that no other gateway of it has taken.
fn divert(netlink: &Netlink, families: &[Family], mark: Mark) -> Result<Diversion, NetlinkError> {
    let mut slot = 0;
    loop {
        match netlink.divert(families, mark, RULE_PRIORITY, slot) {
            Err(NetlinkError::Refused { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists && slot < 3 =>
            {
                slot += 1;
            }
            result => return result,
        }
    }
}
