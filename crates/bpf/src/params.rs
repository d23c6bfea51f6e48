use bentpipe_base::Rate;
use std::time::Duration;

/// How a link is shared at the moment: what [`Controls::share`](crate::Controls::share) reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkShare {
    /// Flows that had data acknowledged in the last second or so.
    pub flows: u32,
    /// Flows among these that had more to send than their share.
    pub hungry: u32,
    /// What the link carried in the last epoch of 0.54 s, on the wire, as acknowledged.
    pub carried: Rate,
    /// The mean delay above the smallest round-trip time in that epoch.
    pub delay: Duration,
    /// The rate that the guard allows, while it follows the link.
    pub guard: Option<Rate>,
}
