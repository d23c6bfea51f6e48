//! Loss by what is held beyond: RFC 6675 (`sack`), and M. Mathis, J. Mahdavi, "Forward
//! acknowledgement: refining TCP congestion control", SIGCOMM 1996 (`fack`).
//!
//! ```text
//! sack: lost is what has 3 segments, or 3 separate stretches, held above it
//! fack: lost is what lies 3 segments below the highest byte held
//! ```
//!
//! Deviation of `fack`: the window halves at once; the paper's rampdown and overdamping are left
//! out.

use super::sack_recovery::Detect;
use super::{AckSample, RecoveryContext};

/// RFC 6675.
#[derive(Debug)]
pub(super) struct Sack;

impl Detect for Sack {
    const NAME: &'static str = "sack";

    fn detect(&mut self, tx: &mut RecoveryContext<'_>, _arrival: &AckSample) -> u32 {
        match tx.board().lost_edge(tx.dupthresh(), tx.mss()) {
            Some(edge) => tx.board_mut().judge(edge),
            None => 0,
        }
    }
}

/// Forward acknowledgement.
#[derive(Debug)]
pub(super) struct Fack;

impl Detect for Fack {
    const NAME: &'static str = "fack";

    fn detect(&mut self, tx: &mut RecoveryContext<'_>, _arrival: &AckSample) -> u32 {
        let Some((_, highest)) = tx.board().sacked.last() else {
            return 0;
        };
        let beyond = tx.bytes(tx.dupthresh());
        tx.board_mut().judge(highest.saturating_sub(beyond))
    }
}
