//! Gathers frames on their way out, so that those of one length to one peer leave in one system call.

use crate::reachability::Refusals;
use bentpipe_sockets::udp::{BATCH, SEGMENTS, Udp};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Where datagrams go, and from which address of this host; `None`: the one that the route chooses.
pub(crate) type Way = (SocketAddr, Option<IpAddr>);

/// Datagrams that have not left yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    octets: Vec<u8>,
    /// Of these, how many are whole datagrams.
    ended: usize,
    /// Octets of each datagram; the last may be shorter.
    segment: usize,
    count: usize,
    way: Option<Way>,
    /// The last was shorter: no more fit behind it.
    closed: bool,
    /// A datagram for which there was no room.
    waiting: Option<(Vec<u8>, Way)>,
    pub(crate) refusals: Refusals,
}

impl Batch {
    /// Where a frame is written: [`Self::end`] it before the next.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.octets
    }

    /// What was written since the last call is a datagram that goes `way`; what it cannot leave with is sent
    /// before. `false` when the socket has no room: the datagram then waits.
    pub(crate) fn end(&mut self, way: Way, udp: &Udp) -> io::Result<bool> {
        let len = self.octets.len() - self.ended;
        if self.count > 0 && !self.takes(len, way) {
            let datagram = self.octets.split_off(self.ended);
            let sent = self.flush(udp);
            if !matches!(sent, Ok(true)) {
                self.waiting = Some((datagram, way));
                return sent;
            }
            self.octets.extend_from_slice(&datagram);
        }
        self.add(len, way);
        Ok(true)
    }

    /// Whether a datagram of `len` octets that goes `way` can leave with the others.
    fn takes(&self, len: usize, way: Way) -> bool {
        !self.closed
            && self.way == Some(way)
            && len <= self.segment
            && len > 0
            && self.count < SEGMENTS
            && self.ended + len <= BATCH
    }

    fn add(&mut self, len: usize, way: Way) {
        if self.count == 0 {
            self.segment = len;
            self.way = Some(way);
        }
        self.closed = len < self.segment;
        self.ended += len;
        self.count += 1;
    }

    /// Sends all; `false` when the socket has no room and they must wait.
    pub(crate) fn flush(&mut self, udp: &Udp) -> io::Result<bool> {
        let Some((to, from)) = self.way.filter(|_| self.count > 0) else {
            return Ok(true);
        };
        let send = || udp.send_from(&self.octets, self.segment, to, from);
        let mut sent = self.refusals.or_else(send());
        if let Ok(None) = sent {
            // It told of something sent earlier: this was not sent.
            sent = self.refusals.or_else(send());
        }
        match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            // A way that is gone for the moment is a loss like others: repair mends it.
            Err(error) => tracing::debug!(%error, %to, "datagrams were not sent"),
            Ok(_) => {}
        }
        self.octets.clear();
        self.ended = 0;
        self.count = 0;
        self.closed = false;
        if let Some((datagram, way)) = self.waiting.take() {
            self.octets.extend_from_slice(&datagram);
            self.add(datagram.len(), way);
        }
        Ok(true)
    }
}
