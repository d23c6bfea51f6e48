//! What brings new connections to a gateway, and lets them pass without it: nft tables, routing rules and marks.
//!
//! [`Ruleset`] is the gateway's nft table as text; the head of its file describes the path of a packet. [`Interception`] puts
//! it into the kernel, with the queues for SYNs and the routes to this machine, and a thread keeps it there.
//! [`AdmissionSwitch`] is the switch by which new connections are split or pass. [`Marks`] are how packets, sockets and
//! rules recognise each other. Packets are not handled here, nor are listeners and dials: that is `bentpipe-relay`; who
//! throws the switch and when is decided in `bentpipe-gateway`. [`ReturnPath`] is another thing, for the far end of tunnels: it leads what
//! servers answer to dials from clients' addresses.
//! Begin with the head of `ruleset.rs`.
#![forbid(unsafe_code)]

mod admission_switch;
mod foreign_marks;
pub mod forwarding;
mod intercept;
mod ipsec_detection;
mod listen_addresses;
mod loopback_probe;
mod mark;
mod nat_detection;
mod return_path;
mod ruleset;
mod table_thread;
mod time_wait_decoy;

pub use admission_switch::AdmissionSwitch;
pub use foreign_marks::ForeignMarks;
pub use intercept::{InterceptError, Interception, PassCounters};
pub use listen_addresses::ListenAddresses;
pub use loopback_probe::{ProbeError, lost_over_loopback};
pub use mark::{Marks, WORKERS};
pub use return_path::ReturnPath;
pub use ruleset::{
    ACKS_PRIORITY, CLIENT_UDP_PRIORITY, CarrierPlace, Ingress, Limit, PassReason, QueueReader,
    Ruleset, SNOOP_PRIORITY,
};
pub use table_thread::TableEvent;
pub use time_wait_decoy::DecoyListener;
