//! The values of the maps as the C side lays them out (`control.h`, `share.h`): encoded and decoded
//! by hand, field by field, in the order of the C structures.

use crate::LinkParams;
use crate::params::LinkShare;
use bentpipe_base::Rate;
use bentpipe_cc::fixed_point::Params;
use std::time::Duration;

/// `sizeof(struct bp_params)`.
pub(crate) const PARAMS: usize = 32;
/// `sizeof(struct bp_link)`: lock, padding, `struct bp_share` and `struct bp_receiver`.
pub(crate) const LINK: usize = 8 + SHARE + RECEIVER;
const SLOT: usize = 48;
const GUARD: usize = 168;
const RECEIVER: usize = 32;
const SHARE: usize = 2 * SLOT + GUARD;
const EPOCH_SHIFT: u32 = 29;

pub(crate) fn encode(link: &LinkParams) -> [u8; PARAMS] {
    let params = Params::from(link);
    let words = [
        params.rtt0_us,
        params.pace_q16,
        params.guard_us,
        u32::try_from(link.overhead.0).unwrap_or(u32::MAX),
        params.flags,
        params.windows,
    ];
    let mut bytes = [0; PARAMS];
    bytes[..8].copy_from_slice(&params.rate.to_ne_bytes());
    for (at, word) in bytes[8..].chunks_exact_mut(4).zip(words) {
        at.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// The state of a link, from a `struct bp_link`.
pub(crate) fn share(bytes: &[u8]) -> Option<LinkShare> {
    let (now, past) = (8, 8 + SLOT);
    let carried = (u128::from(long(bytes, past + 24)?) * 1_000_000_000) >> EPOCH_SHIFT;
    let samples = u64::from(word(bytes, past + 12)?.max(1));
    let cap = long(bytes, 8 + 2 * SLOT)?;
    let wire = |bytes: u64| Rate::from_bits_per_sec(bytes.saturating_mul(8));
    Some(LinkShare {
        flows: word(bytes, now + 4)?.max(word(bytes, past + 4)?),
        hungry: word(bytes, now + 8)?.max(word(bytes, past + 8)?),
        carried: wire(u64::try_from(carried).unwrap_or(u64::MAX)),
        delay: Duration::from_micros(long(bytes, past + 16)? / samples),
        guard: (cap > 0).then(|| wire(cap)),
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(four))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_ne_bytes(eight))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sockets whose mark is not configured get the program's own RTT0, which is that of everybody else.
    #[test]
    fn the_programs_rtt0_is_the_default_of_links() {
        let micros = LinkParams::default().rtt0.as_micros();
        let defined = format!("#define BP_RTT0_US {micros}u\n");
        assert!(
            include_str!("bpf/hybla.bpf.c").contains(&defined),
            "{defined}"
        );
    }
}
