//! What `bentpipe demo` measures: what a satellite link does to TCP, and what the gateway gives back.
//!
//! [`plan`] names the rows, the loss rates and the runs that they take; [`cell::Bench`] makes one run in the lab;
//! [`results`] puts the runs together to rows, which [`table`] and [`report`] show; [`contrast`] is what is shown
//! first and judged last, and [`time_budget`] says what there is time for. The command with its options, the order in time and the progress bar are in `bentpipe-cli`.
//! Begin with [`plan::VARIANTS`].
#![forbid(unsafe_code)]

pub mod cell;
pub mod contrast;
pub mod plan;
pub mod report;
pub mod results;
pub mod table;
pub mod time_budget;

/// What a pool of the demo's runs tells.
pub type Event<'a> = bentpipe_lab::pool::Event<'a, plan::Cell, results::Figures>;
