//! The UDP socket of a driver: datagrams between it and the endpoint.

use crate::driver::{Driver, DriverError, UDP, kernel};
use bentpipe_base::Instant;
use bentpipe_quic::Datagram;
use bentpipe_sockets::epoll::Interest;
use bentpipe_sockets::udp::{BATCH, SEGMENTS, Udp};
use bytes::BytesMut;
use std::io;

/// Puts datagrams into batches that each leave by one call, where the stack gives them one by one, as it does with forward error
/// correction.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    /// What did not fit the batch before.
    next: Option<Datagram>,
}

impl Batches {
    /// The next datagram or batch of what `transmit` gives, in its order.
    pub(crate) fn next(
        &mut self,
        mut transmit: impl FnMut() -> Option<Datagram>,
    ) -> Option<Datagram> {
        let mut batch = self.next.take().or_else(&mut transmit)?;
        let segment = batch.data.len();
        if batch.segment.is_some() || segment == 0 {
            return Some(batch);
        }
        for _ in 1..SEGMENTS.min(BATCH / segment) {
            let Some(next) = transmit() else {
                break;
            };
            let joins = next.segment.is_none()
                && (next.peer, next.local) == (batch.peer, batch.local)
                && (1..=segment).contains(&next.data.len());
            if !joins {
                self.next = Some(next);
                break;
            }
            if batch.segment.is_none() {
                let first = core::mem::replace(&mut batch.data, BytesMut::with_capacity(BATCH));
                batch.data.extend_from_slice(&first);
                batch.segment = Some(segment);
            }
            batch.data.extend_from_slice(&next.data);
            // The last one alone may be shorter.
            if next.data.len() < segment {
                break;
            }
        }
        Some(batch)
    }
}

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
            && let Some(datagram) = { &mut self.batches }.next(|| self.side.transmit(now))
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn datagram(length: usize, port: u16) -> Datagram {
        Datagram {
            peer: SocketAddr::from(([127, 0, 0, 1], port)),
            local: None,
            data: BytesMut::zeroed(length),
            segment: None,
        }
    }

    /// Lengths and segments of the batches that `datagrams` become.
    fn batched(datagrams: Vec<Datagram>) -> Vec<(usize, Option<usize>)> {
        let mut datagrams = datagrams.into_iter();
        let mut batches = Batches::default();
        core::iter::from_fn(|| batches.next(|| datagrams.next()))
            .map(|batch| (batch.data.len(), batch.segment))
            .collect()
    }

    #[test]
    fn sources_between_two_repairs_leave_together() {
        let lengths = [1458, 1458, 1458, 1464, 1458, 1458, 1458, 1464, 80];
        let frames = lengths.map(|length| datagram(length, 1)).to_vec();
        let together = [
            (3 * 1458, Some(1458)),
            // A repair is longer than what it follows, so that one packet ends its batch.
            (1464 + 1458, Some(1464)),
            (2 * 1458, Some(1458)),
            (1464 + 80, Some(1464)),
        ];
        assert_eq!(batched(frames), together);
    }

    #[test]
    fn a_batch_is_for_one_peer_and_no_longer_than_the_kernel_takes() {
        let frames = vec![datagram(1200, 1), datagram(1200, 2), datagram(1200, 2)];
        assert_eq!(batched(frames), [(1200, None), (2400, Some(1200))]);
        let short = batched(vec![datagram(100, 1); 65]);
        assert_eq!(short, [(6400, Some(100)), (100, None)]);
        let long = batched(vec![datagram(9000, 1); 8]);
        assert_eq!(long, [(63_000, Some(9000)), (9000, None)]);
        let mut of_the_stack = datagram(3000, 1);
        of_the_stack.segment = Some(1500);
        let kept = batched(vec![datagram(1500, 1), of_the_stack]);
        assert_eq!(kept, [(1500, None), (3000, Some(1500))]);
    }
}
