//! A full TCP endpoint without I/O: segments and the time go in, segments, events and a deadline
//! come out. The simulator runs it in virtual time, crates `host` and `driver` on real packets.
#![forbid(unsafe_code)]

mod buffer;
pub mod config;
mod connection;
mod established;
mod host_calls;
mod info;
mod input;
mod min_rtt;
pub mod ns2;
mod output;
mod receiver;
pub mod recovery;
mod rto;
mod scoreboard;
mod segment;
mod sender;
mod state;
pub mod variants;

pub use config::{Config, PRESETS, Preset};
pub use connection::Connection;
pub use established::EstablishedState;
pub use host_calls::TimeWaitState;
pub use info::{Counters, Gauges};
pub use segment::{Options, Segment};
pub use state::{Cause, Event, State};
pub use variants::{UnknownVariant, VARIANTS, Variant};
