//! One endpoint of one TCP connection, without I/O: segments and the time go in, segments, events and a deadline come
//! out. The simulator runs it in virtual time, the crates `host` and `driver` on real packets.
//!
//! It has the states of RFC 9293, SACK, timestamps and window scaling, the timers (retransmission, persist, keep-alive,
//! delayed acknowledgement, TIME-WAIT), flow control, pacing, and loss recoveries, one file each. Addresses, ports,
//! listeners and ICMP are the crate `host`'s business; congestion control is in `cc`, the format of headers in `wire`.
//! Urgent data is taken in order with the rest. It leaves out MPTCP. What exists for the sake of ns-2 alone is in [`ns2`], and off by
//! default.
//!
//! Begin with `connection.rs`, which applications and drivers call; then `input.rs` and `output.rs`, the ways of a
//! segment; `sender.rs`, the sending half of a connection (the receiving half is the crate `receiver`); and [`recovery`].
#![forbid(unsafe_code)]

pub mod config;
mod connection;
mod ecn;
mod fast_open;
mod icmp;
mod info;
mod input;
pub mod ns2;
mod output;
pub mod recovery;
mod rto;
pub mod scps;
mod sender;
mod state;
mod takeover;
mod time_wait;
mod timers;
mod user_timeout;
pub mod variants;

pub use config::{Config, PRESETS, Preset};
pub use connection::Connection;
pub use ecn::EcnMode;
pub use fast_open::{FastOpenResult, offered as fast_open_offered};
pub use info::{Counters, Gauges};
pub use scps::{LossCause, Outage, Scps, ScpsHandshake};
pub use state::{Cause, Event, State};
pub use takeover::Takeover;
pub use time_wait::TimeWaitState;
pub use variants::{UnknownVariant, VARIANTS, Variant};
