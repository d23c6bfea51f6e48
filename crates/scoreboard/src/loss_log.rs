//! Which segments were found lost, for a congestion control that is told of each.

use crate::{Order, Scoreboard, SentRun};
use std::mem;

/// The places in the order of sending of the segments found lost since it was last asked; `None`: nobody asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct LossLog(Option<Box<Lost>>);

#[derive(Clone, Debug, Default)]
struct Lost(Vec<Order>);

impl LossLog {
    /// `sent`, a single segment, was found lost.
    #[inline]
    pub(crate) fn note(&mut self, sent: &SentRun) {
        if let Some(lost) = &mut self.0 {
            lost.0.push((sent.at, sent.to()));
        }
    }
}

impl Scoreboard {
    /// Keeps a log of the segments found lost, or none.
    pub fn log_losses(&mut self, keeps: bool) {
        self.losses = LossLog(keeps.then(Box::default));
    }

    /// The segments found lost since it was last called, by their places in the order of sending.
    pub fn take_losses(&mut self) -> Vec<Order> {
        let lost = self.losses.0.as_mut();
        lost.map_or_else(Vec::new, |lost| mem::take(&mut lost.0))
    }

    /// Whether a segment is taken for lost and not sent again since.
    pub fn has_lost(&self) -> bool {
        self.lost_out > self.again_out
    }
}
