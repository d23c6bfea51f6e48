//! What only a near end does: it asks.

use crate::driver::{Driver, Part};
use crate::flow::Phase;
use bentpipe_sockets::socket;
use bentpipe_tunnel::OpenError;

impl Driver {
    /// Near: asks for a tunnel for each socket that waits.
    pub(crate) fn open_waiting(&mut self) {
        loop {
            let Part::Near {
                waiting,
                connection: Some(connection),
                ready: true,
                ..
            } = &mut self.part
            else {
                return;
            };
            let connection = *connection;
            let Some((socket, target)) = waiting.pop_front() else {
                return;
            };
            match self.side.open(connection, &target) {
                Ok(tunnel) => {
                    if self.admit(socket, tunnel, Phase::Asking).is_err() {
                        self.side.reset(tunnel);
                    }
                }
                Err(OpenError::Limited) => {
                    if let Part::Near { waiting, .. } = &mut self.part {
                        waiting.push_front((socket, target));
                    }
                    return;
                }
                Err(OpenError::NotReady | OpenError::GoingAway) => {
                    let _ = socket::abort_on_close(&socket, true);
                }
            }
        }
    }
}
