//! Studies: runs every point of a study on all cores, keeps results across interruptions, and makes the tables and
//! figures of the papers from them.
//!
//! A study ([`bentpipe_scenario::Study`]) is expanded point by point. [`run()`] measures each one by a
//! function it is given (for the simulator: [`simulate`]) and appends a line to the results folder;
//! what stands there already is not run again; [`merge()`] makes one folder of those of [`Shard`]s, [`read()`] reads a finished one, and [`read_so_far()`] one that fills. In memory it keeps the measures that the study names
//! ([`Samples`]) and no more. [`cells()`] lays them out as tables, beside the paper's values and those of
//! a reference; [`lines()`] makes the lines of a figure, and [`judge`] puts a paper's statements to the
//! test. [`Drawn`] is a figure with all that stands around its lines, for reports and for Python. [`Comparison`] holds a flow's runs
//! on the kernel against the simulator's.
//!
//! It leaves out how a point is run, which is the simulator's and the lab's. Begin with [`run()`].
#![forbid(unsafe_code)]

mod agree;
mod beside;
mod capture;
mod cells;
mod collector;
mod comparison;
mod drawn;
mod error;
mod figure;
mod folder;
mod gaps;
mod load;
mod measure;
mod merge;
mod points;
mod row;
mod run;
mod samples;
mod session;
mod shard;
mod sizes;
mod statement;
mod trace;

pub use agree::{Reference, Stats};
pub use beside::ReferenceValues;
pub use capture::{capture_folder, captured, captures};
pub use cells::{Cell, cells};
pub use comparison::{Comparison, Ratio, Ratios, Side, Summary};
pub use drawn::{COLOURS, Drawn, summary};
pub use error::StudyError;
pub use figure::{Line, lines};
pub use gaps::{Gap, gaps};
pub use load::{Loaded, Names, load, parse, read_profiles};
pub use measure::{measures, simulate, simulate_captured};
pub use merge::merge;
pub use row::{Measures, Row};
pub use run::{Options, Progress, Results, read, read_so_far, run};
pub use samples::{Samples, single};
pub use session::Session;
pub use shard::{ParseShardError, Shard};
pub use sizes::{share_within, sizes};
pub use statement::{Judged, judge};
pub use trace::{Trace, time_sequence};

/// Most points that are run without being asked twice.
pub const MOST_POINTS: u64 = 1_000_000;
