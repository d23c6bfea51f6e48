//! The comparisons: which subject with which rival, in which figures, and the ratio that is required.

use super::figure::Figure;
use super::subject::Subject;

/// Ours against one rival.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contest {
    pub(super) ours: Subject,
    pub(super) rival: Subject,
    /// Whose names begin so.
    figures: &'static [&'static str],
    /// The ratio ours/rival that ours has to reach: at least, or at most where less is better. `None`: it
    /// decides nothing.
    pub(super) asked: Option<f64>,
    /// The ratio that is aimed at, and told whether it is reached; it decides nothing.
    pub(super) aim: Option<f64>,
}

const fn contest(
    ours: Subject,
    rival: Subject,
    figures: &'static [&'static str],
    asked: Option<f64>,
) -> Contest {
    Contest {
        ours,
        rival,
        figures,
        asked,
        aim: None,
    }
}

/// Every comparison. A held SYN waits for the far side's answer and
/// passes through a queue, which HAProxy's does not: hence the run fails below 0.95, and with many at once below nothing. Aimed
/// at is 1.0 of both. What the way past the
/// chains costs is told of every figure, and
/// what Snoop costs beside plain forwarding, SCPS-TP between two gateways, and QUIC between them beside the kernel's TCP.
pub(super) const CONTESTS: &[Contest] = &[
    contest(
        Subject::Bentpipe,
        Subject::Haproxy,
        &["goodput", "cpu", "proxy_cpu", "round_trip", "idle"],
        Some(1.0),
    ),
    contest(
        Subject::Bentpipe,
        Subject::HaproxySpliceAuto,
        &["cpu"],
        Some(0.5),
    ),
    contest(
        Subject::Bentpipe,
        Subject::Haproxy,
        &["connects_1"],
        Some(0.95),
    )
    .towards(1.0),
    contest(Subject::Bentpipe, Subject::Haproxy, &["connects_50"], None).towards(1.0),
    contest(
        Subject::Bentpipe,
        Subject::Haproxy,
        &["proxy_cpu_connects", "path_cpu_connects"],
        None,
    ),
    contest(
        Subject::BentpipeEarly,
        Subject::Haproxy,
        &["connects"],
        Some(1.1),
    ),
    contest(
        Subject::BentpipeEarly,
        Subject::Haproxy,
        &["proxy_cpu_connects", "path_cpu_connects"],
        None,
    ),
    contest(
        Subject::Bentpipe,
        Subject::Kernel,
        &["crowd_jain"],
        Some(0.95),
    ),
    contest(Subject::BentpipePastChains, Subject::Bentpipe, &[""], None),
    contest(Subject::BentpipeSnoop, Subject::Kernel, &[""], None),
    contest(Subject::BentpipeScps, Subject::Kernel, &[""], None),
    contest(Subject::BentpipeQuic, Subject::BentpipeTwice, &[""], None),
];

impl Contest {
    const fn towards(self, aim: f64) -> Self {
        Self {
            aim: Some(aim),
            ..self
        }
    }

    /// Whether it is told on the line of `subject`: on ours, but for that with `splice-auto`, whose
    /// figures ours has another rival in.
    pub(super) fn stands_at(&self, subject: Subject) -> bool {
        match self.rival {
            Subject::HaproxySpliceAuto => subject == self.rival,
            _ => subject == self.ours,
        }
    }

    /// Whether it is about `figure`.
    pub(super) fn is_about(&self, figure: &Figure) -> bool {
        self.figures
            .iter()
            .any(|beginning| figure.name.starts_with(beginning))
    }
}
