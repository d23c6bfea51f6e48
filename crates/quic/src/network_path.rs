//! What is known of the path of a connection, and what follows from it.

use bentpipe_base::{Bytes, Probability, Rate};
use core::time::Duration;
use thiserror::Error;

/// IPv4 and UDP headers.
const HEADERS_V4: u64 = 28;
/// IPv6 and UDP headers.
const HEADERS_V6: u64 = 48;
/// What no path of QUIC may be narrower than (RFC 9000, section 14).
pub(crate) const LEAST_PAYLOAD: u16 = 1200;
/// What waits of DATAGRAM frames, at the path's rate, and at least so much.
const DATAGRAM_WAIT: Duration = Duration::from_millis(100);
const DATAGRAMS_LEAST: Bytes = Bytes(64_000);
/// So many losses in a product of rate and delay may stay unrepaired for one more round trip.
const UNREPAIRED: f64 = 0.1;
/// The stack ends a connection of which one stream is in more than 1,024 pieces, those that it keeps apart to copy less
/// counted: with 520 gaps (500 Mbit/s, 600 ms, 2%) it did, with 268 (100 Mbit/s, 5%) it stood.
const GAPS_MAX: u64 = 300;

/// The path of a connection, as far as it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The rate of the bottleneck on the wire.
    pub rate: Rate,
    /// The round-trip time without any queue.
    pub round_trip: Duration,
    /// Packets that are lost each way.
    pub loss: Probability,
    /// The longest IP packet.
    pub mtu: Bytes,
    /// Bytes that the link adds to an IP packet.
    pub overhead: Bytes,
    /// Whether it is a path of IPv6.
    pub ipv6: bool,
}

/// More gaps at once than the stack stands.
#[derive(Clone, Debug, PartialEq, Error)]
#[error(
    "a stream at {rate} over {round_trip:?} with {loss} lost has about {gaps} gaps at once, and QUIC's stack may end a connection \
     beyond {GAPS_MAX}: divide the link among several connections, each with a lower rate, or have it lose less"
)]
pub struct TooManyGaps {
    rate: Rate,
    round_trip: Duration,
    loss: Probability,
    gaps: u64,
}

impl Path {
    /// Headers of IP and UDP and what the link adds.
    pub fn datagram_overhead(&self) -> Bytes {
        let headers = if self.ipv6 { HEADERS_V6 } else { HEADERS_V4 };
        Bytes(headers) + self.overhead
    }

    /// The payload of the longest UDP datagram.
    pub fn datagram_payload(&self) -> u16 {
        let headers = if self.ipv6 { HEADERS_V6 } else { HEADERS_V4 };
        let payload = u16::try_from(self.mtu.0.saturating_sub(headers)).unwrap_or(u16::MAX);
        payload.max(LEAST_PAYLOAD)
    }

    /// Rate times round-trip time, at least ten full packets.
    pub fn product(&self) -> Bytes {
        let least = u64::from(self.datagram_payload()) * 10;
        self.rate.over(self.round_trip).max(Bytes(least))
    }

    /// Full packets in a product.
    fn packets(&self) -> f64 {
        self.product().0 as f64 / (u64::from(self.datagram_payload()) as f64)
    }

    /// Bytes of DATAGRAM frames that may wait to be sent: so much as the path carries in a tenth of a second, at least 64 kB.
    pub(crate) fn datagram_queue(&self) -> usize {
        let bytes = self.rate.over(DATAGRAM_WAIT).max(DATAGRAMS_LEAST);
        usize::try_from(bytes.0).unwrap_or(usize::MAX)
    }

    /// Products that a stream's window holds: one in flight, and one for each round trip that what is in order waits for
    /// repairs. A loss is lost again with the same probability, so that of N packets N p^k wait longer than k round trips:
    /// k is the first that leaves fewer than 0.1. At 10 Mbit/s and 600 ms that gives 2, 3 and 4 at 0, 1 and 5%.
    pub fn products(&self) -> u64 {
        let loss = self.loss.value().min(0.5);
        let mut waiting = self.packets() * loss;
        let mut rounds = 1;
        while waiting >= UNREPAIRED {
            waiting *= loss;
            rounds += 1;
        }
        1 + rounds
    }

    /// The flow-control window of a stream, in bytes of its payload.
    pub fn stream_window(&self) -> Bytes {
        self.product() * self.products()
    }

    /// Checks that the stack stands the gaps that are to be expected in a stream that has the path to itself.
    ///
    /// # Errors
    /// [`TooManyGaps`].
    pub fn check(&self) -> Result<(), TooManyGaps> {
        let loss = self.loss.value().min(0.5);
        let gaps = (self.packets() * loss / (1.0 - loss)) as u64;
        if gaps <= GAPS_MAX {
            return Ok(());
        }
        Err(TooManyGaps {
            rate: self.rate,
            round_trip: self.round_trip,
            loss: self.loss,
            gaps,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(mbps: u64, loss: f64) -> Path {
        Path {
            rate: Rate::from_bits_per_sec(mbps * 1_000_000),
            round_trip: Duration::from_millis(600),
            loss: Probability::new(loss).unwrap(),
            mtu: Bytes(1500),
            overhead: Bytes(0),
            ipv6: false,
        }
    }

    /// The factors that a prototype was found to need, see the head of the crate.
    #[test]
    fn windows_hold_what_waits_for_repairs() {
        let products = [0.0, 0.01, 0.05].map(|loss| path(10, loss).products());
        assert_eq!(products, [2, 3, 4]);
        assert_eq!(path(10, 0.05).stream_window(), Bytes(4 * 750_000));
        assert_eq!(path(250, 0.01).products(), 4);
        // However bad, there is an end.
        assert!(path(10_000, 1.0).products() < 40);
    }

    #[test]
    fn what_the_stack_would_not_stand_is_told_before() {
        for (mbps, loss) in [(10, 0.05), (100, 0.05), (200, 0.01), (250, 0.01)] {
            assert_eq!(path(mbps, loss).check(), Ok(()), "{mbps} {loss}");
        }
        for (mbps, loss) in [(300, 0.05), (500, 0.02)] {
            let error = path(mbps, loss).check().unwrap_err().to_string();
            assert!(error.contains("gaps at once"), "{error}");
        }
    }

    #[test]
    fn datagrams_fill_the_packet() {
        let mut path = path(10, 0.0);
        assert_eq!(path.datagram_payload(), 1472);
        path.ipv6 = true;
        assert_eq!(path.datagram_payload(), 1452);
        path.mtu = Bytes(576);
        assert_eq!(path.datagram_payload(), 1200);
    }
}
