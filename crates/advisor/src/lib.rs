//! What would a PEP buy on this link? A link in a few numbers becomes scenarios of the simulator, and their results
//! become an answer: times first, then throughput, a sentence on what holds the link back and one on what helps.
//!
//! A [`Question`] is what the sliders of the page say. Each [`Alternative`] (end to end, a split, Snoop, SCPS-TP) and
//! each [`Measure`] (a page, 100 kB, 2 MB, 100 MB) has a scenario, which is text as a user would write it:
//! [`scenario()`]. [`measure()`] runs that text, so that every [`Figure`] is one that `bentpipe sim run` prints of the file
//! that is shown beside it. [`advise`] puts all figures into words, and [`gateway_config()`] is the file for the gateway.
//!
//! Nothing here reads a clock or a file: the page runs this crate as WebAssembly (`web/wasm/advisor`), tests run
//! it natively, and both have the same figures, bit for bit. Begin with [`Question`], then `scenario_text.rs`.
#![forbid(unsafe_code)]

mod advice;
mod alternative;
mod gateway_config;
mod link_presets;
mod question;
mod scenario_text;
mod simulated_figure;

pub use advice::{Advice, Answers, advise};
pub use alternative::{Alternative, Measure};
pub use gateway_config::gateway_config;
pub use link_presets::{PRESETS, Preset};
pub use question::{Activity, Losses, Question, RANGES, Range, Refused, Sliders};
pub use scenario_text::scenario;
pub use simulated_figure::{Evidence, Figure, MeasureError, Point, measure};
