//! The schema of one experiment: hosts, routers, gateways, links and flows, read from TOML with
//! units, written back as TOML, and the paths that follow from them.
//!
//! Text in, typed value out; nothing here opens a file. [`Scenario::parse`] collects every problem it can find and
//! names file, line, what was expected and the nearest valid name ([`Problems`](bentpipe_config::Problems)). The reader
//! under it is the crate `config`. Begin with [`Scenario`], then `parse.rs`; a study of many points is in [`Study`].
//! What the engines make of a scenario is not here but in `bentpipe-plan`.
//!
//! ```
//! use bentpipe_scenario::Scenario;
//! let text = r#"
//! name = "geo"
//! [hosts.terminal]
//! [hosts.server]
//! [links.space]
//! ends = ["server", "terminal"]
//! rate = "10Mbit/s"
//! delay = "300ms"
//! [[flows]]
//! from = "server"
//! to = "terminal"
//! bytes = "2MB"
//! "#;
//! let geo = Scenario::parse("geo.toml", text)?;
//! assert_eq!(geo.links["space"].forward.rate.unwrap().mbps(), 10.0);
//! let wrong = Scenario::parse("geo.toml", &text.replace("rate", "raet")).unwrap_err();
//! assert!(wrong.to_string().starts_with("geo.toml:7:1: unknown key `raet` in [links.space]"));
//! # Ok::<(), bentpipe_config::Problems>(())
//! ```
#![forbid(unsafe_code)]

mod emit;
mod model;
mod names;
mod parse;
mod set;
pub mod study;
mod topology;

pub use emit::keys_to_toml;
pub use model::{
    AckFilter, Amount, BufferRange, Change, Channel, Channels, Direction, EcnMode, Endpoint, Flow,
    FlowKind, Gateway, Host, Ip, Link, Pep, PepKind, Preset, Queue, QueueLimit, Router, SARATOGA,
    Scenario, Snoop, SnoopPreset, Split, TcpSettings, Traffic, TrafficSource, UnreadProfile,
};
pub use names::unsaid_name;
pub use parse::Known;
pub use study::Study;
pub use topology::{Hop, Path, Topology};
