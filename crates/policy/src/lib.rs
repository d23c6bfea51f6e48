//! What an operator says to a gateway, and what a client's SYN says: the configuration with its
//! policies, the requests of the control socket and of scrapers, and the SYN that policies and
//! handshakes go by.
//!
//! All of it is read from texts and packets, without an operating system, so that it can be fuzzed
//! without one; `bentpipe-gateway` does what is read here.
//!
//! ```
//! use bentpipe_policy::Config;
//! let text = "[sat]\ninterface = \"eth1\"\nrate = \"10Mbit/s\"\n";
//! assert_eq!(Config::parse("gateway.toml", text)?.sat_interfaces, ["eth1"]);
//! let wrong = Config::parse("gateway.toml", &text.replace("rate", "raet")).unwrap_err();
//! assert!(wrong.to_string().starts_with("gateway.toml:3:1: unknown key `raet` in [sat]"));
//! # Ok::<(), bentpipe_config::Problems>(())
//! ```
#![forbid(unsafe_code)]

mod config;
pub mod http;
mod leg;
mod policy;
pub mod request;
mod syn;

pub use config::{Config, Control, Handshake, Intercept, Limits, Profile, Which};
pub use leg::Leg;
pub use policy::{Action, Doubt, Interface, Policy, Quic};
pub use syn::{Ends, Service, Syn};
