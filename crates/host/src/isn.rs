//! Initial sequence numbers (RFC 6528): a clock of 4 µs a tick, and for each connection a distance that only this
//! host knows. The next connection of the same four numbers begins beyond the last one; nobody else can tell where.

use crate::Tuple;
use crate::secret::{Purpose, Secret};
use bentpipe_base::{Instant, Seq};

/// RFC 6528, section 3.
const TICK_NANOS: u64 = 4_000;

/// The number of a SYN of `tuple` that leaves at `now`.
pub(crate) fn initial(secret: &Secret, tuple: &Tuple, now: Instant) -> Seq {
    let distance = secret.of_tuple(Purpose::SequenceNumber, tuple, &[]) as u32;
    Seq(distance) + (now.as_nanos() / TICK_NANOS) as u32
}

/// What the timestamp clock of `tuple` is ahead of the host's, in milliseconds: another for each connection (RFC 7323,
/// section 7.1), and the same for all that have the same four numbers, one after the other, so that it never goes back.
pub(crate) fn clock_offset(secret: &Secret, tuple: &Tuple) -> u32 {
    secret.of_tuple(Purpose::Clock, tuple, &[]) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn tuple(port: u16) -> Tuple {
        Tuple {
            local: ([10, 0, 0, 1], port).into(),
            remote: ([10, 0, 0, 2], 80).into(),
        }
    }

    #[test]
    fn a_number_grows_by_one_in_four_microseconds() {
        let secret = Secret::new([7; 16]);
        let first = initial(&secret, &tuple(1), Instant::ZERO);
        let later = initial(&secret, &tuple(1), Instant::ZERO + Duration::from_millis(1));
        assert_eq!(later.offset_from(first), 250);
    }

    #[test]
    fn another_connection_or_key_has_another_number() {
        let secret = Secret::new([7; 16]);
        let one = initial(&secret, &tuple(1), Instant::ZERO);
        assert_ne!(one, initial(&secret, &tuple(2), Instant::ZERO));
        let other = Secret::new([8; 16]);
        assert_ne!(one, initial(&other, &tuple(1), Instant::ZERO));
    }
}
