//! Whether new connections are split at present: the position of the switch in the gateway's table.

use crate::ruleset::Position;
use bentpipe_os::nft::Switch;
use std::sync::{Mutex, PoisonError};

/// The switch as the gateway wants it. Whoever changes that throws it at once, without nft and without
/// waiting; the watchdog holds it.
#[derive(Debug)]
pub struct Gate {
    switch: Switch,
    /// `None` until the gateway is ready.
    wanted: Mutex<Option<Position>>,
}

impl Gate {
    pub(crate) fn new(switch: Switch) -> Self {
        Self {
            switch,
            wanted: Mutex::new(None),
        }
    }

    /// New connections are treated so from now on.
    pub(crate) fn turn(&self, position: Position) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let before = wanted.replace(position);
        // A table that is missing is the watchdog's to find out. In this order the switch is always
        // somewhere.
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

    /// What the switch adds to the table.
    pub(crate) fn body(&self) -> String {
        self.switch.body()
    }
}
