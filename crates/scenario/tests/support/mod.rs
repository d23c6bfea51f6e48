//! What the studies of the tests may name.

use bentpipe_scenario::Known;
use bentpipe_scenario::study::{KnownMeasure, Part};

const fn measure(name: &str, part: Option<Part>) -> KnownMeasure<'_> {
    KnownMeasure { name, part }
}

pub(crate) const KNOWN: Known<'_> = Known {
    variants: &["tahoe", "reno"],
    controls: &[],
    apps: &["saratoga", "scp"],
    measures: &[
        measure("segments", Some(Part::Flow)),
        measure("goodput", Some(Part::Flow)),
        measure("drops", Some(Part::Link)),
        measure("local", Some(Part::Pep)),
        measure("jain", None),
    ],
    renamed: &[("drops_space", "drops(space)")],
};
