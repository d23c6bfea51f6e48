//! The far end of legs over QUIC, as a program: `bentpipe proxy`.
//!
//! Near gateways ask it for TCP connections by connect-tcp on HTTP/3, over one authenticated connection each; it dials them where its
//! policies allow, and carries their bytes. What carries them is in `bentpipe-tunnel-sockets`; here is what an operator has of it:
//! [keys](Command::Keys), [configuration](Config), limits, control socket, metrics, reload and drain.
//!
//! Begin with [`run`].
#![forbid(unsafe_code)]

mod certificate;
mod command;
mod config;
mod metrics;
mod reload;
mod return_paths;
mod server;
mod status;

pub use command::{Command, Failure, run};
pub use config::{Config, ConfigError, Limits};
pub use return_paths::ReturnPathError;
pub use server::{Ending, Proxy, StartError};
pub use status::Status;
