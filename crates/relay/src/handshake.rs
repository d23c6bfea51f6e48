//! When a client's SYN is answered.
//!
//! End to end: the SYN is held in a queue of the kernel while the far side is dialled. If that accepts, the SYN goes on
//! to a listener of ours, and the connection accepted there is paired with the dialled one. If it refuses or is
//! unreachable, the SYN goes on unsplit, so that the client gets the true answer from the true host. If it is silent,
//! the client gets no answer either.
//!
//! Early: the SYN goes to a listener at once, which saves a round trip over the far leg, and a far side
//! that refuses becomes a reset.
//!
//! A SYN may be forged, so there are three defences. The number of half-open connections is bounded, and a source
//! prefix and a destination each have a share of it ([`Quotas`]); what comes at once beyond that waits for a moment ([`WaitingSyns`]). No listener gets more SYNs than it answers without
//! SYN cookies ([`SynBacklogLimit`]). And when many connections are not confirmed by their clients, further SYNs to
//! destinations that accept are answered early: a forger cannot confirm, so that the far side is never dialled for it.

mod descriptor_reserve;
mod embryonic_resets;
mod quotas;
mod syn_backlog_limit;
mod table;
mod waiting_syns;

pub use descriptor_reserve::DescriptorReserve;
pub(crate) use embryonic_resets::embryonic_resets;
pub(crate) use quotas::{Quota, Quotas};
pub(crate) use syn_backlog_limit::LONGEST as LONGEST_BACKLOG;
pub use syn_backlog_limit::SynBacklogLimit;
pub use table::HandshakeTable;
pub(crate) use table::{AcceptedFar, HeldSyn, LetIn, QueuedPacket, Room, SynStatus};
pub(crate) use waiting_syns::{WaitingSyn, WaitingSyns};
