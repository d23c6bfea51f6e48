//! Carries the satellite leg of split connections by our own TCP on packets, as SCPS-TP, in the place of the kernel's
//! (`carrier = "scps"`).
//!
//! The gateway splits a connection as always: the kernel's sockets, held SYNs, pumps. But the packets of the socket on the
//! satellite's side do not leave: they wait in a queue of the output hook for a proxy of ours, [`bentpipe_pep::split::Split`], which
//! ends this connection within the machine and goes on over the link by SCPS-TP, with the same addresses, ports and numbers. What comes
//! from space waits in a queue of the prerouting hook.
//!
//! ```text
//!  client ── socket ── pumps ── socket ┄┄ queue ─> ground leg ── space leg ─> raw socket ── satellite
//!                                 ^                                  ^
//!                                 └── lo <─ raw socket               └─ queue <── satellite
//! ```
//!
//! Handshakes pass, so that the far end is who answers; the proxy adds the offer of SCPS-TP to them. With a far end that does not take it
//! the space leg is TCP with SACK at the same rate. Both connections have the same numbers: when this process is killed, the kernel's
//! sockets reset the far end too.
//!
//! Begin with `carrier.rs`.
#![forbid(unsafe_code)]

mod carrier;
mod handle;
mod memory;
mod outgoing;
mod packet;

pub use carrier::{Carrier, CarrierError};
pub use handle::CarrierHandle;
