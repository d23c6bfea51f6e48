//! The runs that every simulator makes.

/// One run that every subject makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Name in the table, in JSON and for `--runs`.
    pub name: &'static str,
    pub(super) course: Course,
    /// Simulated time; at most, where the run ends with its transfer.
    pub(super) seconds: f64,
    /// How often a pair makes it, each time with another seed: short runs that chance makes long or short
    /// need more than those that take seconds and are all alike.
    pub(super) rounds: usize,
}

/// The network and its traffic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Course {
    /// One flow over a satellite link.
    Satellite {
        /// Bit-error rate of that link, on the data's way.
        bit_error_rate: &'static str,
        /// Whether Snoop stands before it.
        snoop: bool,
    },
    /// A transfer of 400 packets through a spoofer, beside 200 flows of cross traffic.
    Spoofing,
}

/// A run that does nothing on the satellite link: what it takes, each other there takes to start.
pub(super) const START_UP: Run = run("start-up", "0", false);

/// The same of the spoofing topology, for those that do not clock it themselves: to set up 200 flows takes
/// time of its own.
const SPOOFING_SET_UP: Run = spoofing("spoofing-200-set-up");

/// Those that are compared, in the order of the table.
const COMPARED: [Run; 5] = [
    run("loss-free", "0", false),
    run("1e-7", "1e-7", false).often(),
    run("loss-free-snoop", "0", true),
    run("1e-7-snoop", "1e-7", true),
    spoofing("spoofing-200").often(),
];

/// Rounds of the short ones.
const ROUNDS: usize = 4;
/// Simulated seconds of a quick run over the satellite link.
const QUICK: f64 = 30.0;
/// Simulated seconds of a run that does nothing.
const NOTHING: f64 = 0.001;

const fn run(name: &'static str, bit_error_rate: &'static str, snoop: bool) -> Run {
    Run {
        name,
        course: Course::Satellite {
            bit_error_rate,
            snoop,
        },
        seconds: 300.0,
        rounds: 1,
    }
}

const fn spoofing(name: &'static str) -> Run {
    Run {
        name,
        course: Course::Spoofing,
        seconds: 3000.0,
        rounds: 1,
    }
}

impl Run {
    const fn often(self) -> Self {
        Self {
            rounds: ROUNDS,
            ..self
        }
    }

    /// Whether it only tells what it takes to start.
    pub(super) fn starts_only(&self) -> bool {
        *self == self.start_up()
    }

    /// The run that does nothing on the same course.
    pub(super) const fn start_up(&self) -> Self {
        let run = match self.course {
            Course::Satellite { .. } => START_UP,
            Course::Spoofing => SPOOFING_SET_UP,
        };
        Self {
            seconds: NOTHING,
            ..run
        }
    }
}

/// The runs whose names are in `wanted` (all when it is empty), and before them those that only
/// start. `Err`: a name that is none.
pub(super) fn wanted(wanted: &[String], quick: bool) -> Result<Vec<Run>, &str> {
    let known = |name: &&String| COMPARED.iter().any(|run| run.name == **name);
    if let Some(unknown) = wanted.iter().find(|name| !known(name)) {
        return Err(unknown);
    }
    let asked = |run: &Run| wanted.is_empty() || wanted.iter().any(|name| name == run.name);
    let compared: Vec<Run> = COMPARED.into_iter().filter(asked).collect();
    let starts = [START_UP, SPOOFING_SET_UP].map(|run| run.start_up());
    let needed = |start: &Run| compared.iter().any(|run| run.start_up() == *start);
    let mut runs: Vec<Run> = starts.into_iter().filter(needed).collect();
    runs.extend(compared.iter().map(|run| match run.course {
        Course::Satellite { .. } if quick => Run {
            seconds: QUICK,
            rounds: 1,
            ..*run
        },
        Course::Spoofing if quick => Run { rounds: 1, ..*run },
        _ => *run,
    }));
    Ok(runs)
}

/// The names that `--runs` takes.
pub(super) fn names() -> String {
    COMPARED.map(|run| run.name).join(", ")
}
