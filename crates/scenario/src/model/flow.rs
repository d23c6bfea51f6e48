//! The flows of a scenario: which host sends how much to which, and how.

use bentpipe_base::{Bytes, Rate};
use core::time::Duration;

/// One transfer: over TCP, or of a file by a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its name; default `flow1`, `flow2`, ... by its place in the file.
    pub name: String,
    /// What it sends.
    pub kind: FlowKind,
    /// The program that moves it as a file, such as `saratoga` or `scp`: the opener runs the client,
    /// the other end the server. Default none: plain TCP.
    pub app: Option<String>,
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// Which of the two connects. Default the sender.
    pub opened_by: String,
    /// When it connects, from the start of the run. Default at once.
    pub start: Duration,
    /// How much it sends.
    pub amount: Amount,
    /// The sender's congestion control; default that of its host. Saratoga's, which is `none` by
    /// default or `tfrc`; other programs take their host's.
    pub congestion_control: Option<String>,
    /// A TCP of the papers by name, a congestion control and a loss recovery at once; excludes
    /// `congestion_control`. Only the simulator knows them.
    pub variant: Option<String>,
    /// What a sender by Saratoga, `bentpipe_hybla` or `bentpipe_rate` is told of the rate of its path.
    /// Default: Saratoga and `bentpipe_rate`, which work only where they own the link, are told the rate of
    /// the slowest link on the way; `bentpipe_hybla`, as a host that knows nothing of its path, nothing.
    pub path_rate: Option<Rate>,
}

/// What a flow sends. Only the simulator has on-off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowKind {
    /// Bytes without pause.
    #[default]
    Bulk,
    /// The receiver asks, the sender answers, over and over on one connection, until the answers
    /// sum up to the flow's amount or its time is over.
    RequestResponse {
        /// Size of a request. Default 200 B.
        request: Bytes,
        /// Size of an answer.
        response: Bytes,
        /// Pause between the end of an answer and the next request. Default none.
        think: Duration,
    },
    /// Bytes for a time, then none for a time, over and over.
    OnOff {
        /// How long it sends, in the mean.
        on: Duration,
        /// How long it pauses, in the mean.
        off: Duration,
        /// How much it writes while it sends; `None` as much as passes.
        rate: Option<Rate>,
        /// Whether times are drawn from an exponential distribution, rather than all alike.
        /// Default no.
        exponential: bool,
    },
}

/// The program that the simulator knows too.
pub const SARATOGA: &str = "saratoga";

impl Flow {
    /// Whether it is a file by Saratoga.
    pub fn is_saratoga(&self) -> bool {
        self.app.as_deref() == Some(SARATOGA)
    }

    /// The congestion controls that Saratoga has, by name, the default first.
    pub const SARATOGA_CONTROLS: [&str; 2] = ["none", "tfrc"];

    /// The congestion control of a file that Saratoga moves.
    pub fn saratoga_control(&self) -> &str {
        let control = self.congestion_control.as_deref();
        control.unwrap_or(Self::SARATOGA_CONTROLS[0])
    }

    /// The end that does not connect.
    pub fn acceptor(&self) -> &str {
        if self.opened_by == self.from {
            &self.to
        } else {
            &self.from
        }
    }
}

impl FlowKind {
    /// As scenarios write it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::RequestResponse { .. } => "request-response",
            Self::OnOff { .. } => "on-off",
        }
    }
}

/// How much a flow sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So many bytes, then an orderly close.
    Bytes(Bytes),
    /// So many full segments, then an orderly close. Only the simulator counts them.
    Segments(u64),
    /// As much as passes in this time from connect(), then a reset.
    Duration(Duration),
}
