//! What receivers say of a link, and whom of them the guard believes. The functions are the twins of those in
//! `crates/bpf/src/bpf/guard.h`.

use super::{Echo, Guard};

/// The least delays of a slot, in microseconds; [`RTT_MAX_US`]: none was seen. `struct bp_delays`.
///
/// [`RTT_MAX_US`]: crate::fixed_point::RTT_MAX_US
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// The least delay of all flows that have no more to send than they may.
    pub modest_us: u32,
    /// The least delay of the other flows, which one receiver reports.
    pub least_us: u32,
    /// The least delay that another receiver reports for them.
    pub second_us: u32,
    /// The receiver that reports `least_us`; 0: none.
    pub least_by: u32,
    /// The receiver that reports `second_us`; 0: none.
    pub second_by: u32,
    /// 1 when there was a third receiver.
    pub more: u32,
}

/// A receiver reports a delay. The two least of different receivers are kept.
pub(super) fn report(d: &mut Delays, by: u32, delay_us: u32) {
    if by == 0 {
        d.modest_us = d.modest_us.min(delay_us);
    } else if d.least_by == 0 || by == d.least_by {
        d.least_by = by;
        d.least_us = d.least_us.min(delay_us);
    } else if delay_us < d.least_us {
        d.more |= u32::from(d.second_by != 0 && by != d.second_by);
        d.second_us = d.least_us;
        d.second_by = d.least_by;
        d.least_us = delay_us;
        d.least_by = by;
    } else if d.second_by == 0 || by == d.second_by {
        d.second_by = by;
        d.second_us = d.second_us.min(delay_us);
    } else {
        d.more = 1;
        if delay_us < d.second_us {
            d.second_us = delay_us;
            d.second_by = by;
        }
    }
}

/// What a receiver of which more is waiting to be sent has not got.
pub(super) fn lose(g: &mut Guard, e: &Echo) {
    if e.receiver == 0 || e.lost == 0 {
        return;
    }
    if g.lost_by == 0 {
        g.lost_by = e.receiver;
    }
    if g.lost_by == e.receiver {
        g.lost = g.lost.wrapping_add(e.lost);
    } else {
        g.lost_else = g.lost_else.wrapping_add(e.lost);
    }
}

/// Whether an eighth of what was sent was lost, or more; of several receivers no single one is believed.
pub(super) fn is_lossy(g: &Guard) -> bool {
    let lost = g.lost.wrapping_add(g.lost_else);
    lost > g.bytes.wrapping_add(lost) >> 3 && (g.delays.second_by == 0 || g.lost_else >= lost >> 2)
}

/// What the receivers of a slot agree upon: the delay that all see, and that any sees, but for one of three.
pub(super) fn agree(d: &Delays) -> (u32, u32) {
    let least_us = if d.least_by == 0 {
        d.modest_us
    } else {
        d.least_us
    };
    let delay_us = if d.second_by == 0 {
        least_us
    } else {
        d.second_us
    };
    (if d.more == 0 { least_us } else { delay_us }, delay_us)
}
