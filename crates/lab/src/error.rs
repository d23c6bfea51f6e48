use crate::result::RunResult;
use bentpipe_config::Problems;
use bentpipe_os::need::Missing;
use bentpipe_os::netlink::NetlinkError;
use bentpipe_os::netns::{NetnsError, SysctlError};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A run could not be made, or not be carried through. What a flow met on its way is no error but
/// its [`bentpipe_outcome::End`].
#[derive(Debug, Error)]
pub enum LabError {
    /// The scenario was built in code, and contradicts itself.
    #[error("the scenario contradicts itself (as written out by to_toml):\n{0}")]
    Scenario(#[from] Problems),
    /// Something that only the simulator has.
    #[error(
        "the lab runs the kernel's TCP and has not {0}: run this scenario with `bentpipe sim run`, \
         or leave that out"
    )]
    Simulated(String),
    /// The machine does not offer what is needed.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// More than one machine should carry.
    #[error("the scenario is too large for one machine: at most {links} links and {flows} flows")]
    TooLarge {
        /// Most links.
        links: usize,
        /// Most flows.
        flows: usize,
    },
    /// More cross traffic than one process has descriptors for.
    #[error(
        "[traffic] has {flows} flows, and the lab carries at most {most} on real sockets: lower `flows`, or run \
         this with `bentpipe sim run`"
    )]
    Traffic {
        /// How many there are.
        flows: usize,
        /// How many there may be.
        most: usize,
    },
    /// The scenario was built in code, and its profile not loaded.
    #[error("the profile `{0}` of the traffic was not read: load it before the run")]
    Profile(String),
    /// A flow's ends are not connected.
    #[error("no links lead from one end of flow `{0}` to the other: join them by routers")]
    NoPath(String),
    /// The kernel has no congestion control of that name.
    #[error(
        "{user} wants the congestion control `{name}`, which is not to be had ({why}); \
         this kernel offers {offered}{}",
        .suggestion.as_ref().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default()
    )]
    Control {
        /// Which host or flow.
        user: String,
        /// What it wants.
        name: String,
        /// Why not.
        why: String,
        /// What there is.
        offered: String,
        /// The nearest of these.
        suggestion: Option<String>,
    },
    /// A program cannot be told which congestion control to take, so its whole host is.
    #[error(
        "flow `{flow}` wants another congestion control than its host `{host}`, where a program moves files \
         to the same host by `{control}`: give both the same, or the program a host of its own"
    )]
    TwoControls {
        /// Which flow.
        flow: String,
        /// Its sender.
        host: String,
        /// The host's.
        control: String,
    },
    /// There is no program of that name.
    #[error("flow `{flow}` wants the program `{app}`; there are {known}")]
    App {
        /// Which flow.
        flow: String,
        /// What it wants.
        app: String,
        /// What there is.
        known: String,
    },
    /// This program cannot start itself as a gateway, or for Saratoga.
    #[error("this program's own path is unknown ({0}): is /proc mounted?")]
    OwnPath(#[source] io::Error),
    /// A program could not be made ready.
    #[error("flow `{flow}`: {what}")]
    Program {
        /// Which flow.
        flow: String,
        /// What happened.
        what: String,
    },
    /// A rate could not be told to `bentpipe_rate`.
    #[error("flow `{flow}`: {source}")]
    Mark {
        /// Which flow.
        flow: String,
        /// Why.
        source: bentpipe_bpf::ConfigureError,
    },
    /// A namespace could not be made.
    #[error("node `{node}`: {source}")]
    Namespace {
        /// Which node.
        node: String,
        /// Why.
        source: NetnsError,
    },
    /// A setting could not be made.
    #[error("node `{node}`: {source}")]
    Setting {
        /// Which node.
        node: String,
        /// Why.
        source: SysctlError,
    },
    /// A link could not be made.
    #[error("link `{link}`: {source}")]
    Wire {
        /// Which link.
        link: String,
        /// Why.
        source: NetnsError,
    },
    /// An address or a route could not be set.
    #[error("node `{node}`: {source}")]
    Route {
        /// Which node.
        node: String,
        /// Why.
        source: NetlinkError,
    },
    /// A link's emulator could not be started.
    #[error("cannot emulate link `{link}`: {why}")]
    Emulator {
        /// Which link.
        link: String,
        /// Why.
        why: String,
    },
    /// A capture could not be begun.
    #[error("cannot capture at the end of link `{link}` at node `{node}`: {what}")]
    Capture {
        /// Which link.
        link: String,
        /// Which end.
        node: String,
        /// What happened.
        what: String,
    },
    /// A gateway did not start, or ended before the run did.
    #[error("gateway `{gateway}` {what}{}", said(.stderr))]
    Gateway {
        /// Which gateway.
        gateway: String,
        /// What happened.
        what: String,
        /// The last lines of what it said.
        stderr: String,
    },
    /// A flow's sockets or threads could not be made.
    #[error("flow `{flow}`: cannot {doing} ({source})")]
    Flow {
        /// Which flow.
        flow: String,
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The result folder could not be written.
    #[error("cannot write {} ({source}): give a folder that can be written, with room", .path.display())]
    Output {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run came to its end, and its results could not be written.
    #[error("{source}")]
    Unwritten {
        /// What it found.
        result: Box<RunResult>,
        /// Why.
        source: Box<LabError>,
    },
    /// Another run has the result folder.
    #[error("another run writes its results to {}: give a folder of its own for these", .0.display())]
    Busy(PathBuf),
    /// The result folder holds something else.
    #[error(
        "{} is not of a run of the lab, and would be lost: give a folder of its own for the results",
        .path.display()
    )]
    Foreign {
        /// What is there.
        path: PathBuf,
    },
    /// The caller raised the cancel flag; everything made is undone.
    #[error("interrupted; nothing of the run is left behind")]
    Cancelled,
}

fn said(stderr: &str) -> String {
    match stderr.trim() {
        "" => " and said nothing".to_owned(),
        text => format!("; it said:\n{text}"),
    }
}
