//! What is simulated.

/// One run that every subject makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Name in the table, in JSON and for `--runs`.
    pub name: &'static str,
    /// Bit-error rate of the satellite link, on the data's way.
    pub(super) bit_error_rate: &'static str,
    /// Whether Snoop stands before the satellite link.
    pub(super) snoop: bool,
    /// Simulated time.
    pub(super) seconds: f64,
}

/// A run that does nothing: what it takes, each other takes to start.
pub(super) const START_UP: Run = run("start-up", "0", false);

/// Those that are compared, in the order of the table.
const COMPARED: [Run; 4] = [
    run("loss-free", "0", false),
    run("1e-7", "1e-7", false),
    run("loss-free-snoop", "0", true),
    run("1e-7-snoop", "1e-7", true),
];

/// Simulated seconds of a quick run.
const QUICK: f64 = 30.0;

const fn run(name: &'static str, bit_error_rate: &'static str, snoop: bool) -> Run {
    Run {
        name,
        bit_error_rate,
        snoop,
        seconds: 300.0,
    }
}

/// The runs whose names are in `wanted` (all when it is empty), and first the one that only starts.
/// `Err`: a name that is none.
pub(super) fn wanted(wanted: &[String], quick: bool) -> Result<Vec<Run>, &str> {
    let known = |name: &&String| COMPARED.iter().any(|run| run.name == **name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        return Err(unknown);
    }
    let asked = |run: &Run| wanted.is_empty() || wanted.iter().any(|name| name == run.name);
    let seconds = if quick { QUICK } else { 300.0 };
    let compared = COMPARED.into_iter().filter(asked);
    let compared = compared.map(|run| Run { seconds, ..run });
    let start_up = Run {
        seconds: 0.001,
        ..START_UP
    };
    Ok([start_up].into_iter().chain(compared).collect())
}

/// The names that `--runs` takes.
pub(super) fn names() -> String {
    COMPARED.map(|run| run.name).join(", ")
}
