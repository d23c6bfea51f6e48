//! The split-TCP gateway: it ends connections in the middle of the path, unseen, and carries their bytes over two legs,
//! each with the congestion control, buffers and pacing that suit it.
//!
//! The way of a connection: its SYN crosses from one leg's interface to the other's; nft holds it for a worker, which
//! dials on from the client's own address and port; when the far side has accepted, the SYN goes to a listener of the
//! same worker, and the worker then moves bytes both ways until both sides have ended or one has broken. Everything that
//! the two ends can observe (addresses, half-close, resets, back-pressure) stays as without the gateway;
//! `docs/contract.md` lists the promises and their tests.
//!
//! This crate starts, watches, reloads, drains and ends a gateway ([`Gateway`]), and serves its operator ([`Handle`],
//! [`Manager`]). What brings connections to it is in `bentpipe-interception`, what carries them in `bentpipe-relay`, and
//! what the configuration says in `bentpipe-gateway-config`. Begin with `gateway.rs` and `gateway/start.rs`.
//!
//! ```no_run
//! use bentpipe_gateway::{Gateway, Shutdown, load};
//! let config = load("/etc/bentpipe/gateway.toml")?.between("eth0", "eth1");
//! let shutdown = Shutdown::on_signals()?;
//! let gateway = Gateway::start(&config)?;
//! gateway.run_until(&shutdown)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod ack_thinning;
mod command_handle;
mod config_file;
mod congestion;
mod descriptor_budget;
mod filter_chain_skipper;
mod gateway;
mod liveness_watchdog;
mod memory_bound;
mod operator_interface;
mod reader_heartbeat;
mod scone;
mod snoop;
mod status;

pub use bentpipe_gateway_config::Leg;
pub use bentpipe_gateway_config::{
    Action, Config, ConfigWarning, ControlSocket, Handshake, Intercept, Interface, LegId, Limits,
    Policy, Profile, Quic,
};
pub use bentpipe_interception::{InterceptError, Limit, Marks, ProbeError, lost_over_loopback};
pub use bentpipe_management::{Shutdown, SignalError};
pub use bentpipe_relay::{AdmissionMode, ListenError, NamedCounter, Snapshot};
pub use command_handle::{CommandError, Handle};
pub use config_file::{ConfigError, load};
pub use congestion::CongestionError;
pub use gateway::{Ending, Gateway, Meter, RunError, StartError};
pub use operator_interface::protocol;
pub use operator_interface::{ConfigSource, ManageError, Manager};
pub use scone::SconeStatus;
pub use status::{
    FlowCounts, FlowLegStatus, FlowStatus, LegStatus, LimitsNow, Status, UnsplitCount,
};
