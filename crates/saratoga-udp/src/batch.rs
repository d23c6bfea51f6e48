//! Gathers frames on their way out, so that those of one length to one peer leave in one system call.

use crate::reachability::{LocalAddresses, Refusals};
use bentpipe_sockets::udp::{BATCH, SEGMENTS, Udp};
use std::io;
use std::net::SocketAddr;

/// Datagrams that have not left yet.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    octets: Vec<u8>,
    /// Of these, how many are whole datagrams.
    ended: usize,
    /// Octets of each datagram; the last may be shorter.
    segment: usize,
    count: usize,
    to: Option<SocketAddr>,
    /// The last was shorter: no more fit behind it.
    closed: bool,
    /// A datagram for which there was no room.
    waiting: Option<(Vec<u8>, SocketAddr)>,
    pub(crate) local_addresses: LocalAddresses,
    pub(crate) refusals: Refusals,
}

impl Batch {
    /// Where a frame is written: [`Self::end`] it before the next.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.octets
    }

    /// What was written since the last call is a datagram to `to`; what it cannot leave with is sent
    /// before. `false` when the socket has no room: the datagram then waits.
    pub(crate) fn end(&mut self, to: SocketAddr, udp: &Udp) -> io::Result<bool> {
        let len = self.octets.len() - self.ended;
        if self.count > 0 && !self.takes(len, to) {
            let datagram = self.octets.split_off(self.ended);
            let sent = self.flush(udp);
            if !matches!(sent, Ok(true)) {
                self.waiting = Some((datagram, to));
                return sent;
            }
            self.octets.extend_from_slice(&datagram);
        }
        self.add(len, to);
        Ok(true)
    }

    /// Whether a datagram of `len` octets to `to` can leave with the others.
    fn takes(&self, len: usize, to: SocketAddr) -> bool {
        !self.closed
            && self.to == Some(to)
            && len <= self.segment
            && len > 0
            && self.count < SEGMENTS
            && self.ended + len <= BATCH
    }

    fn add(&mut self, len: usize, to: SocketAddr) {
        if self.count == 0 {
            self.segment = len;
            self.to = Some(to);
        }
        self.closed = len < self.segment;
        self.ended += len;
        self.count += 1;
    }

    /// Sends all; `false` when the socket has no room and they must wait.
    pub(crate) fn flush(&mut self, udp: &Udp) -> io::Result<bool> {
        let Some(to) = self.to.filter(|_| self.count > 0) else {
            return Ok(true);
        };
        let from = self.local_addresses.to(to);
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
        if let Some((datagram, to)) = self.waiting.take() {
            self.octets.extend_from_slice(&datagram);
            self.add(datagram.len(), to);
        }
        Ok(true)
    }
}
