//! What a run found, whichever engine ran it, and the one table of measures that is made of it.
//!
//! The simulator and the lab each turn what they saw into a [`Run`]: flows, samples of them, directions of links, proxies. What an
//! engine cannot see is `None` there, never a guess. [`MEASURES`] names every figure that studies, tables and reports
//! may ask for, each with its unit, its definition and the function that takes it; [`Named`] is a measure as studies
//! write it, `goodput` or `goodput(download)`. A new measure is one entry of the table. [`Run::document`] is the one JSON of both engines.
//!
//! What is not here: means over runs, intervals and tables, which are the study's.
//!
//! Begin with [`Run`].
#![forbid(unsafe_code)]

mod flows;
mod json;
mod links;
mod live;
mod measure;
mod proxies;
mod run;
mod sample;
mod sums;

pub use json::{Document, SCHEMA};
pub use live::{FlowLook, LegName, LinkLook, LinkName, Look, Outline, TcpLook};
pub use measure::{MEASURES, Measure, Named, RENAMED, Subject, Unknown, find};
pub use run::{End, Engine, Flow, Leg, Mean, Proxy, Run, SimplexLink, Traffic};
pub use sample::{Point, Sample, TcpState};
pub use sums::jain;
