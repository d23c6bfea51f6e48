//! The UDP socket of a driver: datagrams between it and the endpoint.

use crate::driver::{Driver, DriverError, UDP, kernel};
use bentpipe_base::Instant;
use bentpipe_quic::{Datagram, is_repair};
use bentpipe_sockets::epoll::Interest;
use bentpipe_sockets::udp::{BATCH, SEGMENTS, Udp};
use bytes::BytesMut;
use std::io;

/// Puts datagrams into batches that each leave by one call, where the stack gives them one by one, as it does with forward error
/// correction. Repairs are longer than packets, and leave behind the batch of those between which they were made.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    repairs: Option<Datagram>,
    /// What went with neither.
    next: Option<Datagram>,
}

impl Batches {
    /// The next datagram or batch of what `transmit` gives.
    pub(crate) fn next(
        &mut self,
        mut transmit: impl FnMut() -> Option<Datagram>,
    ) -> Option<Datagram> {
        if let Some(repairs) = self.repairs.take() {
            return Some(repairs);
        }
        let mut batch = self.next.take().or_else(&mut transmit)?;
        let length = batch.data.len();
        if batch.segment.is_some() {
            return Some(batch);
        }
        while let Some(next) = transmit() {
            // The last one alone may be shorter.
            let is_last = next.data.len() < length;
            let left = match join(&mut batch, next) {
                Some(left) if left.data.len() > length && is_repair(&left.data) => {
                    self.put_aside(left)
                }
                left => left,
            };
            if is_last || left.is_some() {
                self.next = left;
                break;
            }
        }
        Some(batch)
    }

    /// Keeps a repair with those before it; gives it back where it is for another peer, or too much for one call.
    fn put_aside(&mut self, repair: Datagram) -> Option<Datagram> {
        match &mut self.repairs {
            Some(repairs) => join(repairs, repair),
            repairs => {
                *repairs = Some(repair);
                None
            }
        }
    }
}

/// Puts `next` behind `batch`; gives it back where it is for another peer, longer, or too much for one call.
fn join(batch: &mut Datagram, next: Datagram) -> Option<Datagram> {
    let held = batch.data.len();
    let segment = batch.segment.unwrap_or(held);
    let fits = next.segment.is_none()
        && (next.peer, next.local) == (batch.peer, batch.local)
        && (1..=segment).contains(&next.data.len())
        && held + next.data.len() <= BATCH
        && held < segment * SEGMENTS;
    if !fits {
        return Some(next);
    }
    if batch.segment.is_none() {
        batch.data.reserve(BATCH - held);
        batch.segment = Some(segment);
    }
    batch.data.extend_from_slice(&next.data);
    None
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

    fn repair(length: usize, port: u16) -> Datagram {
        let mut repair = datagram(length, port);
        repair.data[0] = 0x0d;
        repair
    }

    /// Lengths and segments of the batches that `datagrams` become.
    fn batched<const N: usize>(datagrams: [Datagram; N]) -> Vec<(usize, Option<usize>)> {
        let mut datagrams = datagrams.into_iter();
        let mut batches = Batches::default();
        core::iter::from_fn(|| batches.next(|| datagrams.next()))
            .map(|batch| (batch.data.len(), batch.segment))
            .collect()
    }

    #[test]
    fn repairs_leave_behind_the_packets_between_which_they_were_made() {
        let source = || datagram(1458, 1);
        let (fixed, tail) = (|| repair(1464, 1), || datagram(80, 1));
        let long = [
            source(),
            source(),
            fixed(),
            source(),
            fixed(),
            source(),
            tail(),
            source(),
        ];
        let together = [
            (4 * 1458 + 80, Some(1458)),
            (2 * 1464, Some(1464)),
            (1458, None),
        ];
        assert_eq!(batched(long), together);
        // One that is due at once is not kept for the end.
        let together = [(1464 + 1458, Some(1464)), (1458, None)];
        assert_eq!(batched([fixed(), source(), source()]), together);
        // What is no repair overtakes nothing, and nothing overtakes it.
        let longer = [datagram(80, 1), source(), datagram(80, 1)];
        assert_eq!(batched(longer), [(80, None), (1458 + 80, Some(1458))]);
    }

    #[test]
    fn a_batch_is_for_one_peer_and_no_longer_than_the_kernel_takes() {
        let two = [datagram(1200, 1), datagram(1200, 2), datagram(1200, 2)];
        assert_eq!(batched(two), [(1200, None), (2400, Some(1200))]);
        let short = batched([(); 65].map(|()| datagram(100, 1)));
        assert_eq!(short, [(6400, Some(100)), (100, None)]);
        let long = batched([(); 8].map(|()| datagram(9000, 1)));
        assert_eq!(long, [(63_000, Some(9000)), (9000, None)]);
        let mut of_the_stack = datagram(3000, 1);
        of_the_stack.segment = Some(1500);
        let kept = batched([datagram(1500, 1), of_the_stack, datagram(1500, 1)]);
        assert_eq!(kept, [(1500, None), (3000, Some(1500)), (1500, None)]);
        let repairs = [
            datagram(100, 1),
            repair(110, 1),
            repair(110, 2),
            repair(110, 2),
        ];
        let apart = [(100, None), (110, None), (220, Some(110))];
        assert_eq!(batched(repairs), apart);
    }
}
