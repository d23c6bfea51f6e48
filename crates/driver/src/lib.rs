//! Drives a machine ([`bentpipe_base::Machine`]) on real packets: a TUN interface is its port, the monotonic clock its
//! time, a timer its deadline.
//!
//! [`Driver::turn`] is one round of the loop that every machine asks for. The caller owns the loop: what moves bytes
//! between connections and files stands beside it, in the same thread. A packet that the machine's crate cannot read
//! is dropped and counted, for behind a TUN there is nobody to pass it on to.
//!
//! [`Bridge`] is the same between two Ethernet interfaces (AF_PACKET), without being seen: there what cannot be read is passed on in its order.
//!
//! It leaves out what the machine is for (a host of TCP connections is one), and links: the lab's emulator
//! has a loop of its own, which puts real time on the links of a scenario.
//!
//! Begin with [`Driver::turn`].
#![forbid(unsafe_code)]

mod bridge;
mod capture;
mod driver;
mod segmentation;

pub use bridge::{Bridge, BridgeCounters, End, Frame};
pub use capture::Capture;
pub use driver::{Counters, Driver, DriverError};
