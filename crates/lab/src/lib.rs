//! The lab: runs one scenario on real Linux TCP, in network namespaces, over emulated links.
//!
//! [`run()`] reads a [`bentpipe_scenario::Scenario`] and makes a namespace for each node, a wire or an emulated link
//! for each link, and starts the real gateway where one splits; then it lets the flows run on kernel TCP, takes
//! everything down, and returns a [`RunResult`] (and writes a result folder). All TCP settings of every node are set,
//! none is inherited, and all are read back into the manifest. Begin with `run.rs`, then `stage.rs` (the network),
//! [`emulator`] (links) and `flow.rs` (transfers). What a scenario means is in `bentpipe-scenario` and `bentpipe-plan`,
//! and the machines that the emulator drives are in `bentpipe-link`.
#![forbid(unsafe_code)]

mod app;
mod capture;
mod collect;
mod controls;
mod emulate;
pub mod emulator;
mod error;
mod flow;
mod folder;
mod gateway;
mod legs;
mod live;
mod pair;
mod plan;
pub mod pool;
mod result;
mod run;
mod settings;
mod simulated;
mod stage;
mod traffic;

pub use app::{APPS, App, Ways, app_names};
pub use controls::Controls;
pub use error::LabError;
pub use live::outline;
pub use result::{Manifest, Measured, RunResult};
pub use run::{OnLook, OnProgress, Phase, Progress, RunOptions, run};
