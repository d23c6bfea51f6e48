//! When a client's SYN is answered.
//!
//! End to end: the SYN is held in a queue of the kernel while the far side is dialled. Has that
//! accepted, the SYN goes on to a listener of ours, and the connection accepted there is paired with
//! the dialled one. Has it refused, or is it unreachable, the SYN goes on unsplit, so that the
//! client hears the true answer from the true host. Is it silent, so are we.
//!
//! Early: the SYN goes to a listener at once, which saves a round trip over the far leg, and a far side
//! that refuses becomes a reset.
//!
//! A SYN may be forged. What it can make is bounded, a source prefix and a destination have a share of that
//! ([`Quotas`]), no listener gets more of them than it answers without SYN cookies ([`SynBacklogLimit`]), and those whose
//! answered connections their clients do not confirm are answered early from then on: a forger proves nothing,
//! and the far side never hears of it.

mod quotas;
mod syn_backlog_limit;
mod table;

pub(crate) use quotas::Quotas;
pub(crate) use syn_backlog_limit::LONGEST as LONGEST_BACKLOG;
pub use syn_backlog_limit::SynBacklogLimit;
pub use table::HandshakeTable;
pub(crate) use table::{AcceptedFar, HeldSyn, QueuedPacket, SynStatus};
