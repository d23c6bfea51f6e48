//! The UDP socket of a driver: datagrams between it and the endpoint.

use crate::driver::{Driver, DriverError, UDP, kernel};
use bentpipe_base::Instant;
use bentpipe_quic::Datagram;
use bentpipe_sockets::epoll::Interest;
use bentpipe_sockets::udp::Udp;
use bytes::BytesMut;
use std::io;

/// Batches that a turn receives at most.
const RECEIVES: usize = 64;

impl Driver {
    pub(crate) fn receive(&mut self, now: Instant) {
        for _ in 0..RECEIVES {
            let received = match self.udp.receive(&mut self.buffer) {
                Ok(Some(received)) => received,
                Ok(None) => break,
                Err(error) => {
                    self.heard_error(&error, now);
                    continue;
                }
            };
            let datagram = Datagram {
                peer: received.from,
                local: received.at,
                data: BytesMut::from(&self.buffer[..received.len]),
                segment: Some(received.segment),
            };
            self.side.input(datagram, now);
        }
        if core::mem::take(&mut self.udp_failed) {
            self.udp.drop_errors();
        }
    }

    /// The kernel tells of some datagram.
    fn heard_error(&mut self, error: &io::Error, now: Instant) {
        self.udp_failed = true;
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.watch.is_refused(now);
        }
    }

    /// Hands what there is to send to the sockets.
    pub(crate) fn send(&mut self) {
        self.exchange_all();
        let now = self.now();
        while self.unsent.is_none()
            && let Some(datagram) = self.side.transmit(now)
        {
            self.send_one(datagram);
        }
    }

    fn send_one(&mut self, datagram: Datagram) {
        let segment = datagram.segment.unwrap_or(datagram.data.len());
        let send =
            |udp: &Udp| udp.send_from(&datagram.data, segment, datagram.peer, datagram.local);
        let sent = match send(&self.udp) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // It is of an earlier one, and this was not sent.
                let now = self.now();
                self.heard_error(&error, now);
                send(&self.udp)
            }
            sent => sent,
        };
        if sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            // Else it is lost, as any may be on the way.
            self.unsent = Some(datagram);
            let _ = { &self.epoll }.modify(&self.udp, UDP, Interest::READ | Interest::WRITE);
        }
    }

    pub(crate) fn send_again(&mut self) -> Result<(), DriverError> {
        if let Some(datagram) = self.unsent.take() {
            { &self.epoll }
                .modify(&self.udp, UDP, Interest::READ)
                .map_err(kernel("watch the UDP port"))?;
            self.send_one(datagram);
        }
        Ok(())
    }
}
