//! Frames on their way out: those of one length to one peer leave in one call.

use bentpipe_os::udp::{BATCH, SEGMENTS, Udp};
use std::io;
use std::net::SocketAddr;

/// Datagrams that have not left yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    octets: Vec<u8>,
    /// Octets of each datagram; the last may be shorter.
    segment: usize,
    count: usize,
    to: Option<SocketAddr>,
    /// The last was shorter: no more fit behind it.
    closed: bool,
}

impl Batch {
    /// Whether a datagram of `len` octets to `to` can leave with the others.
    pub(crate) fn takes(&self, len: usize, to: SocketAddr) -> bool {
        self.count == 0
            || !self.closed
                && self.to == Some(to)
                && len <= self.segment
                && len > 0
                && self.count < SEGMENTS
                && self.octets.len() + len <= BATCH
    }

    /// Adds a datagram that [`Self::takes`] allows.
    pub(crate) fn push(&mut self, datagram: &[u8], to: SocketAddr) {
        if self.count == 0 {
            self.segment = datagram.len();
            self.to = Some(to);
        }
        self.closed = datagram.len() < self.segment;
        self.octets.extend_from_slice(datagram);
        self.count += 1;
    }

    /// Sends all; `false` when the socket has no room and they must wait.
    pub(crate) fn flush(&mut self, udp: &Udp) -> io::Result<bool> {
        let Some(to) = self.to.filter(|_| self.count > 0) else {
            return Ok(true);
        };
        match udp.send(&self.octets, self.segment, to) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // A way that is gone for the moment is a loss like others: repair mends it.
            Err(error) => tracing::debug!(%error, %to, "datagrams were not sent"),
            Ok(()) => {}
        }
        self.octets.clear();
        self.count = 0;
        self.closed = false;
        Ok(true)
    }
}
