//! A full TCP endpoint without I/O: segments and the time go in, segments, events and a deadline
//! come out. The simulator runs it in virtual time, the gateway's packet plane on real packets.
#![forbid(unsafe_code)]

mod segment;

pub use segment::{Options, Segment};
