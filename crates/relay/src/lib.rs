//! Splits connections and relays their bytes: the data plane of the gateway.
//!
//! A [`Worker`] is a thread with one epoll set. Clients' SYNs wait in its queue while it dials on ([`SynQueue`],
//! [`HandshakeTable`]), or are answered at once; what its listeners accept is paired with what it dialled, and makes a flow: two
//! sockets and, for each direction, a pump that copies or splices. Workers share the limits, the counters and the
//! stage of the gateway's life ([`Shared`]), and nothing else.
//!
//! What brings connections here is `bentpipe-interception`; starting, watching, reloading and ending it all, and
//! whatever an operator sees, is `bentpipe-gateway`. Begin with `worker.rs`, then `flow.rs` and `pump.rs`.
#![forbid(unsafe_code)]

mod client_flows;
mod client_identity;
mod counters;
mod deferred_slab;
mod dial;
mod flow;
mod flow_guard;
mod flow_limit;
pub mod flow_log;
mod flow_stats;
mod handshake;
pub mod listen;
pub mod memory_pressure;
mod pump;
mod recent_answers;
mod socket_policy;
mod tunnel;
mod unanswered_dials;
mod worker;
mod worker_coordination;
mod worker_freeze;

/// What [`flow_limit`] shares; its tests put loom's in their place.
mod sync {
    pub(crate) use std::sync::atomic::{AtomicUsize, Ordering, fence};
}

pub use counters::{Counter, Counters, NamedCounter, Snapshot};
pub use flow_limit::FlowBounds;
pub use flow_stats::{Distribution, FlowRecord, FlowStats, FlowTimes, Histogram};
pub use handshake::{DescriptorReserve, HandshakeTable, SynBacklogLimit};
pub use listen::{ListenError, Listener, Listeners};
pub use socket_policy::{LegPolicies, SocketPolicy};
pub use tunnel::{Answer, Keep, NoTunnel, Tunnel, TunnelPlan, Tunnels};
pub use worker::{SynQueue, Worker, WorkerParts};
pub use worker_coordination::{AdmissionMode, Impairment, Lifecycle, Settings, Shared};
