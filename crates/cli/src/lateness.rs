//! The option that says how far behind the emulators of a run may fall.

use bentpipe_base::parse_duration;
use std::time::Duration;

/// Part of every command that runs scenarios in the lab.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Lateness {
    /// In the lab: a run is no result when an emulator delivers 1% of the packets later than this
    /// [default: 5ms, or 1/20 of the link's delay where that is more]
    #[arg(long = "lateness-limit", value_name = "TIME", value_parser = parse_duration)]
    pub(crate) limit: Option<Duration>,
}
