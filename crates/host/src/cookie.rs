//! SYN cookies (RFC 4987, section 3.6 and appendix A): while too many handshakes are under way a listener keeps
//! nothing of a SYN. What it would have kept stands in the number of its answer, and in the timestamp that the client
//! echoes; the acknowledgement that comes back brings both.
//!
//! The number: 5 bits of a clock of 64 s, 3 bits that choose the segment size, 24 bits of a hash over the four numbers,
//! the client's own number, the clock and that size. A cookie is good for 64 to 128 s; one in 2^24 guesses is right in
//! each such time. The lowest 6 bits of the timestamp: the client's window scale (15: none) and whether it knows SACK.
//! A client without timestamps gets neither.

use crate::secret::{Purpose, Secret};
use crate::{Tuple, isn};
use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::{Config, Takeover};
use bentpipe_wire::{Flags, Segment, TcpOptions, Timestamps};
use std::time::Duration;

/// Segment sizes that a cookie can say: those that Ethernet, tunnels and jumbo frames leave, of either family.
const SIZES: [u16; 8] = [536, 1220, 1300, 1380, 1420, 1440, 1460, 8940];
const PERIOD: Duration = Duration::from_secs(64);
/// Bits of a timestamp that say what was agreed on.
const BITS: u32 = 6;
const NO_SCALE: u8 = 15;
const SACK: u32 = 1 << 4;

/// The number of the period of `now`.
fn period(now: Instant) -> u64 {
    now.as_nanos() / PERIOD.as_nanos() as u64
}

fn hash(secret: &Secret, tuple: &Tuple, irs: Seq, period: u64, size: usize) -> u32 {
    let mut more = [0; 13];
    more[..4].copy_from_slice(&irs.0.to_be_bytes());
    more[4..12].copy_from_slice(&period.to_be_bytes());
    // One of eight.
    more[12] = size as u8;
    secret.of_tuple(Purpose::Cookie, tuple, &more) as u32 & 0x00ff_ffff
}

/// The SYN-ACK for `syn`, of which nothing is kept.
pub(crate) fn answer(
    secret: &Secret,
    tuple: &Tuple,
    syn: &Segment,
    config: &Config,
    now: Instant,
) -> Segment {
    let offered = syn.options.as_deref();
    let mss = offered.and_then(|options| options.mss).unwrap_or(SIZES[0]);
    let size = SIZES.partition_point(|size| *size <= mss).saturating_sub(1);
    let period = period(now);
    let hash = hash(secret, tuple, syn.seq, period, size);
    let iss = Seq((period as u32 & 31) << 27 | (size as u32) << 24 | hash);
    let stamped = config.timestamps && syn.timestamps.is_some();
    let scale = offered
        .and_then(|options| options.window_scale)
        .filter(|_| stamped && config.window_scaling);
    let sack = offered.is_some_and(|options| options.sack_permitted);
    let sack = stamped && sack && config.sack_blocks > 0;
    let agreed = u32::from(scale.map_or(NO_SCALE, |scale| scale.min(14)));
    let agreed = agreed | if sack { SACK } else { 0 };
    Segment {
        seq: iss,
        ack: syn.seq + 1,
        flags: Flags::SYN | Flags::ACK,
        window: config.receive_buffer.0.min(65_535) as u16,
        timestamps: syn.timestamps.filter(|_| stamped).map(|stamp| Timestamps {
            value: stamp_of(clock(secret, tuple, now), agreed),
            echo: stamp.value,
        }),
        options: Some(Box::new(TcpOptions {
            mss: Some(config.mss),
            window_scale: scale.map(|_| config.window_scale()),
            sack_permitted: sack,
            ..TcpOptions::default()
        })),
        ..Segment::default()
    }
}

/// The timestamp clock of `tuple`.
fn clock(secret: &Secret, tuple: &Tuple, now: Instant) -> u32 {
    let milliseconds = (now.as_nanos() / 1_000_000) as u32;
    milliseconds.wrapping_add(isn::clock_offset(secret, tuple))
}

/// The latest reading of the clock up to `clock` whose lowest bits are `agreed`.
fn stamp_of(clock: u32, agreed: u32) -> u32 {
    let mask = (1 << BITS) - 1;
    let stamp = clock & !mask | agreed;
    if (stamp.wrapping_sub(clock) as i32) > 0 {
        stamp.wrapping_sub(1 << BITS)
    } else {
        stamp
    }
}

/// The handshake that `ack` ends, where it brings a cookie of ours back.
pub(crate) fn check(
    secret: &Secret,
    tuple: &Tuple,
    ack: &Segment,
    config: &Config,
    now: Instant,
) -> Option<Takeover> {
    let (iss, irs) = (ack.ack - 1, ack.seq - 1);
    let size = (iss.0 >> 24 & 7) as usize;
    let current = period(now);
    let age = (current as u32).wrapping_sub(iss.0 >> 27) & 31;
    let period = current.checked_sub(age.into()).filter(|_| age < 2)?;
    if hash(secret, tuple, irs, period, size) != iss.0 & 0x00ff_ffff {
        return None;
    }
    let stamps = ack.timestamps.filter(|_| config.timestamps);
    let agreed = stamps.map(|stamps| stamps.echo);
    let scale = agreed
        .map(|agreed| (agreed & 15) as u8)
        .filter(|scale| *scale != NO_SCALE && config.window_scaling);
    let scaled = u64::from(ack.window) << scale.unwrap_or(0);
    Some(Takeover {
        iss,
        irs,
        mss: SIZES[size],
        sack: agreed.is_some_and(|agreed| agreed & SACK != 0),
        // An answer with a cookie agrees to no ECN: there is no bit left to remember it by.
        ecn: false,
        clocks: stamps.map(|stamps| (clock(secret, tuple, now), stamps.value)),
        scales: scale.map(|scale| (config.window_scale(), scale)),
        window: scaled,
        scps: None,
        rtt: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tuple() -> Tuple {
        Tuple {
            local: ([10, 0, 0, 1], 80).into(),
            remote: ([10, 0, 0, 2], 4_000).into(),
        }
    }

    fn syn(mss: u16, scale: Option<u8>, sack: bool, stamp: Option<u32>) -> Segment {
        Segment {
            seq: Seq(123_456),
            flags: Flags::SYN,
            window: 64_000,
            timestamps: stamp.map(|value| Timestamps { value, echo: 0 }),
            options: Some(Box::new(TcpOptions {
                mss: Some(mss),
                window_scale: scale,
                sack_permitted: sack,
                ..TcpOptions::default()
            })),
            ..Segment::default()
        }
    }

    /// What a client sends when it got `answer`.
    fn reply(syn: &Segment, answer: &Segment) -> Segment {
        Segment {
            seq: syn.seq + 1,
            ack: answer.seq + 1,
            flags: Flags::ACK,
            window: 500,
            timestamps: answer.timestamps.map(|stamp| Timestamps {
                value: stamp.echo + 20,
                echo: stamp.value,
            }),
            ..Segment::default()
        }
    }

    proptest! {
        #[test]
        fn what_was_agreed_on_comes_back(
            mss in 1u16..,
            scale in proptest::option::of(0u8..=14),
            sack: bool,
            at in 0u64..1 << 50,
            later in 0u64..64_000_000_000,
        ) {
            let (secret, config) = (Secret::new([3; 16]), Config::rfc());
            let syn = syn(mss, scale, sack, Some(77));
            let now = Instant::from_nanos(at);
            let answer = answer(&secret, &tuple(), &syn, &config, now);
            let ack = reply(&syn, &answer);
            let then = now.plus_nanos(later);
            let found = check(&secret, &tuple(), &ack, &config, then).expect("a cookie of ours");
            prop_assert_eq!((found.irs, found.iss), (syn.seq, answer.seq));
            prop_assert!(found.mss <= mss.max(536));
            prop_assert_eq!(found.scales.map(|(_, peer)| peer), scale);
            prop_assert_eq!(found.sack, sack);
            prop_assert_eq!(found.window, 500 << scale.unwrap_or(0));
            // The clock that goes on is not behind the stamp that was echoed.
            let (ours, _) = found.clocks.expect("timestamps were agreed on");
            let echoed = ack.timestamps.map_or(0, |stamp| stamp.echo);
            prop_assert!(ours.wrapping_sub(echoed) as i32 >= 0);
        }

        #[test]
        fn what_is_not_ours_is_refused(ack: u32, seq: u32, at in 0u64..1 << 50) {
            let (secret, config) = (Secret::new([3; 16]), Config::rfc());
            let forged = Segment { seq: Seq(seq), ack: Seq(ack), flags: Flags::ACK, ..Segment::default() };
            // One in 2^24 is right by chance: none of these few is.
            prop_assert_eq!(check(&secret, &tuple(), &forged, &config, Instant::from_nanos(at)), None);
        }
    }

    #[test]
    fn a_cookie_is_good_for_one_to_two_periods() {
        let (secret, config) = (Secret::new([3; 16]), Config::rfc());
        let syn = syn(1460, Some(7), true, Some(77));
        let now = Instant::ZERO + Duration::from_secs(64 * 40 + 63);
        let answer = answer(&secret, &tuple(), &syn, &config, now);
        let ack = reply(&syn, &answer);
        let after = |seconds| {
            let then = now + Duration::from_secs(seconds);
            check(&secret, &tuple(), &ack, &config, then).is_some()
        };
        assert_eq!(
            [after(0), after(2), after(64), after(66)],
            [true, true, true, false]
        );
        assert!(!after(64 * 32), "the clock's bits come again");
    }

    #[test]
    fn without_timestamps_there_are_neither_scale_nor_sack() {
        let (secret, config) = (Secret::new([3; 16]), Config::rfc());
        let syn = syn(1460, Some(7), true, None);
        let answer = answer(&secret, &tuple(), &syn, &config, Instant::ZERO);
        let options = answer.options.as_deref().expect("a SYN has options");
        assert_eq!(
            (options.window_scale, options.sack_permitted),
            (None, false)
        );
        let found = check(
            &secret,
            &tuple(),
            &reply(&syn, &answer),
            &config,
            Instant::ZERO,
        )
        .expect("a cookie of ours");
        assert_eq!(
            (found.scales, found.sack, found.clocks),
            (None, false, None)
        );
    }
}
