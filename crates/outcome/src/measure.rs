//! The table of measures, and how studies write them.

use crate::proxies::Chosen;
use crate::run::{Flow, Run, SimplexLink};
use crate::{flows, links, proxies};
use core::fmt;

/// One measure by name.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its name in studies and tables.
    pub name: &'static str,
    /// Its unit; empty for a plain number.
    pub unit: &'static str,
    /// What it is, in one line. Where it may be asked of one flow, link or proxy, this is said of all together.
    pub summary: &'static str,
    take: Take,
}

/// What a measure is taken of.
#[derive(Clone, Copy, Debug)]
enum Take {
    /// The flows, always all of them.
    AllFlows(fn(&[&Flow]) -> Option<f64>),
    Flows(fn(&[&Flow]) -> Option<f64>),
    Links(fn(&Run, &[&SimplexLink]) -> Option<f64>),
    /// Of the proxies whose name is chosen.
    Proxies(fn(&Run, Chosen<'_>) -> Option<f64>),
    Run(fn(&Run) -> Option<f64>),
}

/// What may stand in brackets after a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A flow.
    Flow,
    /// A link, both of its directions.
    Link,
    /// A proxy.
    Proxy,
}

impl Subject {
    /// Its name in messages and in the documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::Link => "link",
            Self::Proxy => "proxy",
        }
    }
}

const fn measure(
    name: &'static str,
    unit: &'static str,
    summary: &'static str,
    take: Take,
) -> Measure {
    Measure {
        name,
        unit,
        summary,
        take,
    }
}

/// All of them: name, unit, definition.
#[rustfmt::skip]
pub const MEASURES: &[Measure] = &[
    measure("segments", "", "full segments received in order",
        Take::Flows(flows::segments)),
    measure("goodput", "Mbit/s", "payload received in order over the time until the last byte was received, or over the flow's time where it has none",
        Take::Flows(flows::goodput)),
    measure("jain", "", "Jain's index of the flows' goodput, from 1/n (one has all) to 1 (all have alike)",
        Take::AllFlows(flows::jain)),
    measure("retransmitted", "percent", "share of the sent payload that was sent again by the senders",
        Take::Flows(flows::retransmitted)),
    measure("timeouts", "", "expiries of the senders' retransmission timers",
        Take::Flows(flows::timeouts)),
    measure("recoveries", "", "fast retransmits: recoveries that the senders entered without a timeout",
        Take::Flows(flows::recoveries)),
    measure("completion", "s", "time from a flow's start until the last byte of the last one was received",
        Take::Flows(flows::completion)),
    measure("target", "s", "1.02 times the bytes over the limit of their path, and four round trips; the longest",
        Take::Flows(flows::target)),
    measure("of_target", "", "completion as a share of the target, the greatest of the flows",
        Take::Flows(flows::of_target)),
    measure("of_limit", "percent", "goodput as a share of what no TCP can exceed on the path, the least of the flows",
        Take::Flows(flows::of_limit)),
    measure("queueing", "ms", "by how much the senders' smoothed round-trip time exceeds propagation at the end, the mean of the flows",
        Take::Flows(flows::queueing)),
    measure("mean_queueing", "ms", "the same, on average over samples each 100 ms from 5 s after a flow's start on",
        Take::Flows(flows::mean_queueing)),
    measure("srtt", "ms", "the senders' smoothed round-trip time at the end, their mean",
        Take::Flows(flows::srtt)),
    measure("response", "ms", "time from a request until its answer was read whole, the median of all answers (request-response)",
        Take::Flows(|flows| flows::response(flows, 0.5))),
    measure("response_p95", "ms", "the same, the 95th percentile",
        Take::Flows(|flows| flows::response(flows, 0.95))),
    measure("response_max", "ms", "the same, the longest",
        Take::Flows(|flows| flows::response(flows, 1.0))),
    measure("kbps_sender", "kbit/s", "payload over the time until the sender knew that all had arrived",
        Take::Flows(flows::kbps_sender)),
    measure("kbps_receiver", "kbit/s", "payload over the time until the receiver sent the last acknowledgement, which the lab does not see",
        Take::Flows(flows::kbps_receiver)),
    measure("dropped", "packets", "packets dropped by queues",
        Take::Links(links::dropped)),
    measure("drops", "segments", "data segments of the scenario's flows, not of cross traffic, dropped by queues",
        Take::Links(links::drops)),
    measure("drop_rate", "percent", "share of the packets offered that queues dropped",
        Take::Links(links::drop_rate)),
    measure("corrupted", "packets", "packets corrupted or lost on the way",
        Take::Links(links::corrupted)),
    measure("errors_before_queue", "packets", "packets struck by errors before they reached the queue (`errors_before_queue` of a link)",
        Take::Links(links::errors_before_queue)),
    measure("marks", "packets", "packets that queues marked in place of dropping them (ECN)",
        Take::Links(links::marks)),
    measure("delivered", "packets", "packets that went over the link whole, those on their way at the end included",
        Take::Links(links::delivered)),
    measure("mean_queue", "packets", "packets that waited in queues, on average over the run, the one being sent not counted",
        Take::Links(links::mean_queue)),
    measure("local", "segments", "segments that proxies sent again themselves: a split towards the flows' receivers, its carrier over the link, Snoop upon acknowledgements and by its timer",
        Take::Proxies(proxies::local)),
    measure("suppressed", "", "duplicate acknowledgements that proxies kept from the senders",
        Take::Proxies(proxies::suppressed)),
    measure("held_max_kB", "kB", "most that a split held at once: received, and not seen acknowledged by the far end",
        Take::Proxies(proxies::held_max_kb)),
    measure("lateness", "ms", "how late the lab's emulators were, 99th percentile of the worst; 0 in the simulator",
        Take::Run(|run| Some(1e3 * run.lateness.as_secs_f64()))),
];

/// Names that measures had before they took the name of a link, and what to write now.
pub const RENAMED: &[(&str, &str)] = &[
    ("drops_internet", "drops(internet)"),
    ("drops_satellite", "drops(satellite)"),
    ("bottleneck_drop_rate", "drop_rate(internet)"),
];

impl Measure {
    /// What may stand in brackets after its name; `None`: nothing.
    pub const fn subject(&self) -> Option<Subject> {
        match self.take {
            Take::Flows(_) => Some(Subject::Flow),
            Take::Links(_) => Some(Subject::Link),
            Take::Proxies(..) => Some(Subject::Proxy),
            Take::AllFlows(_) | Take::Run(_) => None,
        }
    }

    /// Its value over the whole of `run`; `None` where it has no meaning.
    pub fn of(&self, run: &Run) -> Option<f64> {
        self.among(run, |_| true)
    }

    /// Its value of the flow, link or proxy called `name`; `None` where there is none, or it has no meaning.
    pub fn of_one(&self, run: &Run, name: &str) -> Option<f64> {
        self.subject()?;
        self.among(run, |own| own == name)
    }

    fn among(&self, run: &Run, chosen: impl Fn(&str) -> bool) -> Option<f64> {
        let flows = || -> Vec<&Flow> { run.flows.iter().filter(|it| chosen(&it.name)).collect() };
        let value = match self.take {
            Take::AllFlows(of) | Take::Flows(of) => some(&flows()).and_then(of),
            Take::Links(of) => {
                let links: Vec<&SimplexLink> =
                    run.links.iter().filter(|it| chosen(&it.link)).collect();
                some(&links).and_then(|links| of(run, links))
            }
            Take::Proxies(of) => of(run, &chosen),
            Take::Run(of) => of(run),
        };
        value.filter(|value| value.is_finite())
    }
}

/// `None` of an empty slice: of nothing there is no figure.
fn some<T>(all: &[T]) -> Option<&[T]> {
    (!all.is_empty()).then_some(all)
}

/// A measure as studies write it: `goodput`, or `goodput(download)`.
#[derive(Clone, Copy, Debug)]
pub struct Named<'n> {
    /// The measure.
    pub measure: &'static Measure,
    /// Whose; `None`: of the whole run.
    pub one: Option<&'n str>,
}

/// No measure is written so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// There is none of this name.
    Name,
    /// It has another form since measures take the name of a link: this one.
    Renamed(&'static str),
    /// The measure of this name takes nothing in brackets.
    Whole(&'static str),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => f.write_str("no measure has this name; `bentpipe list` has all"),
            Self::Renamed(now) => write!(f, "it is written `{now}` now"),
            Self::Whole(name) => write!(
                f,
                "`{name}` is of the whole run and takes no name in brackets"
            ),
        }
    }
}

/// Reads a measure as studies write it, such as `goodput(download)`.
///
/// # Errors
/// Why `text` is no measure. It is not checked whether the named flow, link or proxy exists.
pub fn find(text: &str) -> Result<Named<'_>, Unknown> {
    let (name, one) = match text.strip_suffix(')').and_then(|rest| rest.split_once('(')) {
        Some((name, one)) => (name, Some(one)),
        None => (text, None),
    };
    let Some(measure) = MEASURES.iter().find(|known| known.name == name) else {
        let renamed = RENAMED.iter().find(|(old, _)| *old == text);
        return Err(renamed.map_or(Unknown::Name, |(_, now)| Unknown::Renamed(now)));
    };
    if one.is_some() && measure.subject().is_none() {
        return Err(Unknown::Whole(measure.name));
    }
    Ok(Named { measure, one })
}

impl Named<'_> {
    /// Its value in `run`; `None` where it has no meaning, or what it names is not there.
    pub fn of(&self, run: &Run) -> Option<f64> {
        match self.one {
            Some(one) => self.measure.of_one(run, one),
            None => self.measure.of(run),
        }
    }
}
