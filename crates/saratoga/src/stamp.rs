//! The timestamp of a DATA frame: when and as which it was sent, and a secret of the session.
//!
//! A STATUS echoes it. The secret (`nonce`) makes the echo a proof that the peer has received DATA of the session:
//! nobody else can know it, and so keep a session alive or report in the peer's name.
//!
//! | octets | what |
//! |---|---|
//! | 0 to 5 | microseconds of the sender's clock: 8.9 years |
//! | 6 to 10 | the packet's number: 10^12 packets |
//! | 11 to 14 | the nonce |
//! | 15 | 0, the layout "local" |

use bentpipe_base::Instant;
use bentpipe_wire::saratoga::Timestamp;

/// The timestamp of packet `number`, sent at `now`.
pub(crate) fn write(number: u64, now: Instant, nonce: u32) -> Timestamp {
    let mut own = [0; 15];
    own[..6].copy_from_slice(&(now.as_nanos() / 1000).to_be_bytes()[2..]);
    own[6..11].copy_from_slice(&number.to_be_bytes()[3..]);
    own[11..].copy_from_slice(&nonce.to_be_bytes());
    Timestamp::local(own)
}

/// Number and time of sending, if `stamp` is one with this `nonce`.
pub(crate) fn read(stamp: Timestamp, nonce: u32) -> Option<(u64, Instant)> {
    let (mut time, mut number) = ([0; 8], [0; 8]);
    time[2..].copy_from_slice(&stamp.0[..6]);
    number[3..].copy_from_slice(&stamp.0[6..11]);
    let own = stamp.0[11..15] == nonce.to_be_bytes() && stamp.0[15] == 0;
    let nanos = u64::from_be_bytes(time).saturating_mul(1000);
    own.then(|| (u64::from_be_bytes(number), Instant::from_nanos(nanos)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stamp_of_the_session_is_read() {
        let now = Instant::from_nanos(1_234_567_000);
        let stamp = write(99, now, 0xdead_beef);
        assert_eq!(read(stamp, 0xdead_beef), Some((99, now)));
        assert_eq!(read(stamp, 0xdead_bee0), None);
        let mut other = stamp;
        other.0[15] = 1;
        assert_eq!(read(other, 0xdead_beef), None);
    }
}
