//! Starting a gateway.

use super::{Connections, Gateway, Meter};
use crate::budget::budget;
use crate::config::Config;
use crate::control::{ControlError, Supply};
use crate::counters::Counters;
use crate::intercept::{InterceptError, Interception};
use crate::legs::{Prepared, Which};
use crate::listen::{self, ListenError, Listener};
use crate::mark::Marks;
use crate::ruleset::Crossing;
use crate::shared::{Shared, Stage};
use crate::worker::{Plan, Worker};
use bentpipe_os::diag::Diag;
use bentpipe_os::need::{Missing, Need};
use bentpipe_os::neighbour::Neighbours;
use bentpipe_os::netlink::{Netlink, NetlinkError};
use bentpipe_os::owner::{Owner, OwnerError};
use bentpipe_os::{limits, sched, sweep};
use std::io;
use std::sync::Arc;
use std::thread;
use thiserror::Error;

/// A gateway could not start; nothing is left behind.
#[derive(Debug, Error)]
pub enum StartError {
    /// The machine lacks something.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The configuration names no interface for a leg.
    #[error(
        "no interface is given for the {leg} leg: use --{leg} IF or `interface` in [{leg}]; there are {there}"
    )]
    NoInterface {
        /// Which leg.
        leg: &'static str,
        /// What interfaces there are.
        there: String,
    },
    /// A leg's interface does not exist.
    #[error("there is no interface `{name}` for the {leg} leg: there are {there}")]
    UnknownInterface {
        /// Which leg.
        leg: &'static str,
        /// What was asked for.
        name: String,
        /// What interfaces there are.
        there: String,
    },
    /// Both legs on one interface.
    #[error("both legs are on interface `{0}`: a split needs two")]
    SameInterface(String),
    /// A leg insists on a congestion control that is not to be had.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A listening socket could not be made.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Interception could not be set up.
    #[error(transparent)]
    Intercept(#[from] InterceptError),
    /// The kernel does not tell about interfaces.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Our own process is unknown.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// Not one flow would fit.
    #[error(
        "{available} descriptors carry no flow ({used} are in use already): raise `descriptors` in [limits] or LimitNOFILE"
    )]
    TooFewDescriptors {
        /// What there is.
        available: usize,
        /// What is open.
        used: usize,
    },
    /// The kernel refused something small.
    #[error("cannot {doing} ({source}): see the kernel's reason")]
    System {
        /// What.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Turns an I/O error into a [`StartError`] that says what was being done.
fn system(doing: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::System { doing, source }
}

impl Gateway {
    /// Starts a gateway in the network namespace of the calling thread: sweeps what killed
    /// processes left, opens listeners, starts workers, and last intercepts. When this returns, new
    /// connections are split.
    ///
    /// # Errors
    /// Everything made so far is undone.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        Need::NetAdmin.check()?;
        let (lan, sat) = interfaces(config)?;
        for line in sweep::sweep().to_string().lines() {
            tracing::info!("{line}");
        }
        let marks = Marks::new(Owner::current()?);
        let mut supply = Supply::for_legs([&config.lan, &config.sat]);
        let legs = Arc::new([
            supply.prepare(Which::Lan, &config.lan, marks.lan())?,
            supply.prepare(Which::Sat, &config.sat, marks.sat())?,
        ]);
        let threads = match config.threads {
            Some(threads) => threads,
            None => sched::allowed_cpus()
                .map_err(system("count the processors"))?
                .len(),
        };
        let (crossings, listeners) = doors(config, &legs, threads, (&lan, &sat))?;
        let connections = Connections {
            diag: Diag::open().map_err(system("ask for connections"))?,
            marks,
        };
        let neighbours = Neighbours::watch().map_err(system("watch the neighbours"))?;
        // Before any worker: a suspended interception takes nothing, and most that can fail is here.
        let mut interception = Interception::new(marks, crossings).map_err(explain)?;
        let (shared, meter, workers) = spawn(config, legs, listeners, threads)?;
        let on = interception.resume();
        let gateway = Self {
            interception,
            workers,
            shared,
            meter,
            connections,
            neighbours,
            supply,
            drain: config.drain,
        };
        on?;
        tracing::info!(lan, sat, threads, "ready");
        Ok(gateway)
    }
}

/// The interfaces of both legs, which exist.
fn interfaces(config: &Config) -> Result<(String, String), StartError> {
    let links = Netlink::open()?.link_names()?;
    let names: Vec<&str> = links
        .iter()
        .map(String::as_str)
        .filter(|name| *name != "lo")
        .collect();
    let there = || match names.as_slice() {
        [] => "none but lo".to_owned(),
        names => format!("`{}`", names.join("`, `")),
    };
    let find = |which: Which, name: &Option<String>| match name {
        Some(name) if names.contains(&name.as_str()) => Ok(name.clone()),
        Some(name) => Err(StartError::UnknownInterface {
            leg: which.name(),
            name: name.clone(),
            there: there(),
        }),
        None => Err(StartError::NoInterface {
            leg: which.name(),
            there: there(),
        }),
    };
    let lan = find(Which::Lan, &config.lan_interface)?;
    let sat = find(Which::Sat, &config.sat_interface)?;
    if lan == sat {
        return Err(StartError::SameInterface(lan));
    }
    Ok((lan, sat))
}

type Doors = (Vec<Crossing>, Vec<Vec<Listener>>);

/// Opens the listeners, one list a worker, and says what is to be intercepted into them.
fn doors(
    config: &Config,
    legs: &[Prepared; 2],
    threads: usize,
    (lan, sat): (&str, &str),
) -> Result<Doors, StartError> {
    let mut crossings = Vec::new();
    let mut listeners: Vec<Vec<Listener>> = (0..threads).map(|_| Vec::new()).collect();
    for (leg, from, to) in [(Which::Lan, lan, sat), (Which::Sat, sat, lan)] {
        if !config.intercept.includes(leg) {
            continue;
        }
        let port = match config.port {
            0 => 0,
            first => first + leg as u16,
        };
        let (doors, lists) = listen::open(leg, &legs[leg as usize], port, threads)?;
        crossings.push(Crossing {
            from: from.to_owned(),
            to: to.to_owned(),
            doors,
        });
        for (worker, list) in listeners.iter_mut().zip(lists) {
            worker.extend(list);
        }
    }
    Ok((crossings, listeners))
}

type Workers = Vec<thread::JoinHandle<io::Result<()>>>;

fn spawn(
    config: &Config,
    legs: Arc<[Prepared; 2]>,
    listeners: Vec<Vec<Listener>>,
    threads: usize,
) -> Result<(Arc<Shared>, Meter, Workers), StartError> {
    let available = limits::raise_descriptors().map_err(system("raise the limit on open files"))?;
    let open = limits::open_descriptors().map_err(system("count the open files"))?;
    // Bells, and an epoll set for each worker and the gateway.
    let used = open + threads + 5;
    let budget = budget(&config.limits, available, used, threads)
        .ok_or(StartError::TooFewDescriptors { available, used })?;
    let shared = Arc::new(Shared::new(budget.bounds, threads).map_err(system("make an eventfd"))?);
    let counters: Arc<[Arc<Counters>]> = (0..threads).map(|_| Arc::default()).collect();
    let meter = Meter {
        counters: Arc::clone(&counters),
        own: Arc::default(),
        shared: Arc::clone(&shared),
    };
    let plans = listeners.into_iter().zip(counters.iter()).enumerate().map(
        |(number, (listeners, counters))| Plan {
            number,
            listeners,
            legs: Arc::clone(&legs),
            shared: Arc::clone(&shared),
            counters: Arc::clone(counters),
            pipes: budget.pipes,
            pipe_size: config.limits.pipe.0 as usize,
        },
    );
    let mut workers = Workers::new();
    for plan in plans {
        match hire(plan) {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                shared.enter(Stage::Stopped);
                for worker in workers {
                    // It was told to end at once; how it ended does not matter any more.
                    let _ = worker.join();
                }
                return Err(error);
            }
        }
    }
    Ok((shared, meter, workers))
}

/// Wakes the gateway when a worker ends, also by a panic.
struct AtEnd(Arc<Shared>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.gateway_bell().ring();
    }
}

fn hire(plan: Plan) -> Result<thread::JoinHandle<io::Result<()>>, StartError> {
    let number = plan.number;
    let bell = AtEnd(Arc::clone(&plan.shared));
    let worker = Worker::new(plan).map_err(system("make an epoll set"))?;
    thread::Builder::new()
        .name(format!("split-{number}"))
        .spawn(move || {
            let _bell = bell;
            worker.run()
        })
        .map_err(system("start a thread"))
}

/// Names what the machine lacks, where that is why interception failed.
fn explain(error: InterceptError) -> StartError {
    match Need::check_all(&[Need::Nft, Need::Tproxy]) {
        Err(missing) => StartError::Missing(missing),
        Ok(()) => StartError::Intercept(error),
    }
}
