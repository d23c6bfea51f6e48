//! What brings new connections to a gateway, and lets them pass without it: nft tables, routing rules and marks.
//!
//! [`Ruleset`] is the gateway's table as text, and says in its head which way a packet goes; [`Interception`] puts it
//! into the kernel with the queues for SYNs and the routes to this machine, and its thread keeps it there; [`AdmissionSwitch`] is
//! the switch by which new connections are split or pass; [`Marks`] are how packets, sockets and rules know each
//! other. The packets themselves are not handled here, nor are listeners and dials: `bentpipe-gateway` does that.
//! Begin with the head of `ruleset.rs`.
#![forbid(unsafe_code)]

mod admission_switch;
mod decoy_listener;
pub mod forwarding;
mod intercept;
mod listen_addresses;
mod loopback_probe;
mod mark;
mod nat_detection;
mod ruleset;
mod table_thread;

pub use admission_switch::AdmissionSwitch;
pub use decoy_listener::DecoyListener;
pub use intercept::{InterceptError, Interception, PassCounters};
pub use listen_addresses::ListenAddresses;
pub use loopback_probe::{ProbeError, lost_over_loopback};
pub use mark::{Marks, WORKERS};
pub use ruleset::{Ingress, Limit, PassReason, Ruleset};
pub use table_thread::TableEvent;
