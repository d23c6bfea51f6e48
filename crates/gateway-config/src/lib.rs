//! What is said to a gateway, and read without an operating system: by an operator (the [configuration](Config) with
//! its legs and policies, [requests](request) of the control socket), by a scraper ([`http`]), and by a client's SYN
//! ([`Syn`]).
//!
//! It is apart from `bentpipe-gateway`, which does what is read here, so that it can be fuzzed without a kernel, and so
//! that the simulated split has the same [`Leg`] as the deployed one. Begin with [`Config`].
//!
//! ```
//! use bentpipe_gateway_config::Config;
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
pub mod quic;
pub mod request;
mod snoop;
mod syn;
mod warning;

pub use config::{Config, ControlSocket, Handshake, Intercept, LegId, Limits, Profile};
pub use leg::{Carrier, Leg, LossCause, SconeRates};
pub use policy::{Action, Interface, Policy, Quic};
pub use quic::{CarriedUdp, OwnCertificate, QuicCarrier, QuicEnd, QuicPath};
pub use snoop::{Snoop, Toward};
pub use syn::{Ends, Syn, SynOptions, lower_mss};
pub use warning::ConfigWarning;
