//! The switch in the gateway's table by which new connections are split or pass end to end.
//!
//! It is a set of nft whose element lives for 0.8 s ([`Switch`]). The gateway changes it by a datagram, without nft
//! and without waiting, and the watchdog keeps the element alive while all is well. When nobody does so any more,
//! because the gateway hangs or has died, new connections pass.

use crate::ruleset::{QueueReader, SwitchPosition};
use bentpipe_os::nft::Switch;
use std::sync::{Mutex, PoisonError};

/// The switch and the position that the gateway wants it in. `set` throws it at once;
/// [`AdmissionSwitch::hold`] keeps it there for a moment more.
#[derive(Debug)]
pub struct AdmissionSwitch {
    switch: Switch,
    /// `None` until the gateway is ready.
    wanted: Mutex<Option<SwitchPosition>>,
}

impl AdmissionSwitch {
    pub(crate) fn new(switch: Switch) -> Self {
        Self {
            switch,
            wanted: Mutex::new(None),
        }
    }

    /// New connections are treated so from now on.
    pub(crate) fn set(&self, position: SwitchPosition) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = wanted.replace(position);
        // The new position is taken before the old one is left, so that the switch is always in one. Whether the
        // table is there at all is for the watchdog to find out.
        self.switch.hold(position.number());
        if let Some(before) = before.filter(|before| *before != position) {
            self.switch.leave(before.number());
        }
    }

    /// Holds the switch in its position for a moment more. Says whether the table is there.
    pub fn hold(&self) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.is_none_or(|position| self.switch.hold(position.number()))
    }

    /// Packets wait for `reader` for a moment more. Where they do not, for want of the table, they go on.
    pub fn hold_queue(&self, reader: QueueReader) {
        if let Some(position) = reader.position() {
            self.switch.hold(position);
        }
    }

    /// What the switch adds to the table.
    pub(crate) fn body(&self) -> String {
        self.switch.body()
    }
}
