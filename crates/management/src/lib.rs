//! The operator's side of a program that runs for long, gateway or proxy, apart from what it does: a control socket, metrics
//! for Prometheus, the request to end.
//!
//! Everything here runs on threads of its own, at a lower priority, with bounds on clients, lines and time: a client that hangs
//! or floods costs its own slot ([`BoundedServer`]) and nothing of the flows. The requests' language is
//! [`bentpipe_gateway_config::request`]; what a request does is the program's.
//!
//! Begin with [`control_socket`] and [`metrics_server`].
#![forbid(unsafe_code)]

mod bounded_server;
pub mod control_protocol;
pub mod control_socket;
mod deadline_stream;
pub mod metrics_server;
pub mod openmetrics;
mod shutdown_request;
mod socket_file;

pub use bounded_server::BoundedServer;
pub use shutdown_request::{Shutdown, SignalError};
pub use socket_file::{PendingSocketFile, SocketFile};
