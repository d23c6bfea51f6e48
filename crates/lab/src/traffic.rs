//! Cross traffic on the kernel's TCP: `[traffic]` of a scenario.
//!
//! A thread in the namespace of each of the two hosts opens the connections of what that host sends, and reads
//! what the other sends. Each transfer is a connection of its own; when it is over its flow pauses, draws a
//! size and begins the next, so that the load holds. Under one seed every flow draws the same sizes and
//! pauses as in the simulator.

mod host;

use crate::LabError;
use crate::flow::SocketSettings;
use crate::plan::FlowPlan;
use bentpipe_base::Instant;
use bentpipe_os::netns::Netns;
use bentpipe_outcome::Traffic;
use bentpipe_scenario::{Scenario, UnreadProfile};
use bentpipe_sockets::socket;
use bentpipe_traffic::{Profile, Source, Transfer};
use host::{Flow, Host};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// Most flows: each has a descriptor at either host, in one process.
const MOST_FLOWS: usize = 2_000;

/// The first transfers of the traffic of `scenario`, if it has any.
///
/// # Errors
/// Its profile was not read, or has more flows than the lab carries.
pub(crate) fn profile(scenario: &Scenario) -> Result<Option<Profile>, LabError> {
    let Some(traffic) = &scenario.traffic else {
        return Ok(None);
    };
    let profile = traffic
        .profile(scenario.seed)
        .map_err(|UnreadProfile(file)| LabError::Profile(file))?;
    match profile.transfers.len() {
        flows if flows > MOST_FLOWS => Err(LabError::Traffic {
            flows,
            most: MOST_FLOWS,
        }),
        _ => Ok(Some(profile)),
    }
}

/// One direction of the traffic.
pub(crate) struct TrafficDirection<'a> {
    pub(crate) plan: &'a FlowPlan,
    /// Where its sender is.
    pub(crate) sender: &'a Netns,
    pub(crate) sends: SocketSettings,
    /// Where its receiver is.
    pub(crate) receiver: &'a Netns,
    pub(crate) receives: SocketSettings,
}

/// Traffic whose listeners stand, and that has not begun.
pub(crate) struct Ready<'a> {
    hosts: Vec<(&'a Netns, Host)>,
}

/// Traffic under way.
pub(crate) struct Running {
    threads: Vec<JoinHandle<io::Result<Traffic>>>,
}

fn error(doing: &'static str) -> impl Fn(io::Error) -> LabError {
    move |source| LabError::Flow {
        flow: "traffic".to_owned(),
        doing,
        source,
    }
}

impl<'a> Ready<'a> {
    /// Makes the listeners of `directions`, forward and reverse, for the flows of `profile` in a run with `seed`.
    pub(crate) fn prepare(
        profile: &Profile,
        seed: u64,
        directions: [TrafficDirection<'a>; 2],
    ) -> Result<Self, LabError> {
        let flows = |forward: bool| {
            let flows = profile.transfers.iter().enumerate();
            let own = flows.filter(|(_, first)| is_forward(first) == forward);
            own.map(|(index, first)| Flow::new(Source::new(profile.model, seed, index), first))
                .collect()
        };
        let [forward, reverse] = &directions;
        let ends = [(forward, reverse, true), (reverse, forward, false)];
        let started = ends.map(|(out, back, is_forward)| {
            let listener = back.listener(profile.transfers.len())?;
            let host = Host::new(listener, out.plan.to, out.sends.clone(), flows(is_forward))?;
            Ok((out.sender, host))
        });
        let hosts = started.into_iter().collect::<io::Result<_>>();
        Ok(Self {
            hosts: hosts.map_err(error("listen"))?,
        })
    }

    /// Begins, in a run that began at `begin`; ends when `stop` is raised.
    pub(crate) fn start(self, begin: Instant, stop: &Arc<AtomicBool>) -> Result<Running, LabError> {
        let threads = self.hosts.into_iter().map(|(netns, host)| {
            let stop = Arc::clone(stop);
            let spawned = netns.spawn_thread("traffic", move || host.run(begin, &stop));
            spawned.map_err(|why| error("start its threads")(io::Error::other(why)))
        });
        Ok(Running {
            threads: threads.collect::<Result<_, _>>()?,
        })
    }
}

fn is_forward(transfer: &Transfer) -> bool {
    transfer.direction == bentpipe_traffic::Direction::Forward
}

impl TrafficDirection<'_> {
    /// What its receiver accepts at, with room for `most` at once.
    fn listener(&self, most: usize) -> io::Result<std::os::fd::OwnedFd> {
        let to = self.plan.to;
        let made = self.receiver.run(|| {
            let listener = self.receives.socket(to)?;
            // What is accepted inherits it: the end of the run ends all.
            socket::abort_on_close(&listener, true)?;
            socket::bind(&listener, to)?;
            socket::listen(&listener, most as u32)?;
            Ok(listener)
        });
        made.unwrap_or_else(|e| Err(io::Error::other(e)))
    }
}

impl Running {
    /// Whether a thread gave up.
    pub(crate) fn has_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits for both hosts, which the caller has told to stop.
    pub(crate) fn join(self) -> Result<Traffic, LabError> {
        let mut whole = Traffic::default();
        for thread in self.threads {
            let joined = thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
            whole += joined.map_err(error("go on"))?;
        }
        Ok(whole)
    }
}
