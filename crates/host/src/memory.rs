//! Bounds the memory of all connections of a host together.

use crate::host::Host;
use crate::table::ConnectionId;
use bentpipe_tcp::Connection;

/// Room that each connection keeps when all hold too much, in segments.
const FEW_SEGMENTS: u64 = 4;

impl Host {
    /// Counts what the connection holds, and where all hold too much, has it offer its peer no more room than for a few
    /// segments, so that who holds nothing goes on.
    pub(crate) fn weigh(&mut self, id: ConnectionId) {
        let most = self.config.buffered.0;
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        let connection = &mut entry.connection;
        let buffered = connection.buffered();
        self.buffered = self.buffered - entry.buffered + buffered;
        entry.buffered = buffered;
        if self.buffered > most {
            if !entry.pressed {
                entry.pressed = true;
                press(connection);
                self.pressed.push(id);
            }
        } else if self.buffered <= most - most / 4 {
            for id in std::mem::take(&mut self.pressed) {
                if let Some(entry) = self.table.get_mut(id) {
                    entry.pressed = false;
                    entry.connection.limit_window(u64::MAX);
                    self.wake(id);
                }
            }
        }
    }

    /// All connections together hold too much.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.buffered > self.config.buffered.0
    }
}

/// Has `connection` offer its peer no more room than for a few segments.
pub(crate) fn press(connection: &mut Connection) {
    let few = FEW_SEGMENTS * u64::from(connection.config().mss);
    connection.limit_window(few);
}
