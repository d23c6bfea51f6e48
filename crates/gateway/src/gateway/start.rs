//! Starts a gateway: checks the legs, opens listeners, starts the threads, and last begins to intercept. What fails undoes
//! what was made before.

mod carrier;
mod readers;
mod tunnels;

use super::thread_set::{Role, ThreadSet};
use super::{Connections, DrainTimes, Gateway, Meter, Schedule, buffered};
use crate::command_handle::{Handle, StartSettings};
use crate::congestion::{CongestionControls, CongestionError};
use crate::descriptor_budget::{Descriptors, RefusalPause, budget};
use crate::liveness_watchdog::{self, Watchdog};
use crate::operator_interface::protocol::{self, Request};
use crate::scone::Scone;
use crate::status::{StartFacts, StatusCollector};
use bentpipe_carrier::{CarrierError, CarrierHandle};
use bentpipe_gateway_config::{Config, Handshake, Interface, LegId};
use bentpipe_interception::{
    CarrierPlace, DecoyListener, Ingress, InterceptError, Interception, Marks, PassReason, Ruleset,
    WORKERS, forwarding,
};
use bentpipe_os::diag::Diag;
use bentpipe_os::need::{Missing, Need};
use bentpipe_os::neighbour::Neighbours;
use bentpipe_os::netlink::{Netlink, NetlinkError};
use bentpipe_os::owner::OwnerError;
use bentpipe_os::sweep;
use bentpipe_process::{Process, limits, sched};
use bentpipe_quic_carrier::{PortParts, QuicCarrier};
use bentpipe_relay::{
    AdmissionMode, Counters, DescriptorReserve, FlowStats, HandshakeTable, LegPolicies,
    ListenError, Listener, Listeners, Settings, Shared, SynBacklogLimit, SynQueue, Worker,
    WorkerParts, flow_log, listen,
};
use bentpipe_sockets::timer;
use readers::{READERS, Readers};
use std::collections::HashSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak, mpsc};
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
    /// A leg's interface is in a VRF.
    #[error(
        "interface `{0}` is in a VRF, by whose table the gateway cannot dial: run it in a network namespace of its own in place of the VRF"
    )]
    InVrf(String),
    /// The predecessor works in another network namespace, where nobody would split after it.
    #[error(
        "the gateway at {} is one of another network namespace: start this one with a `control` of its own, without `--replace`", .0.display()
    )]
    Elsewhere(PathBuf),
    /// A leg's interface is a port of a bridge, or the like.
    #[error(
        "interface `{port}` is a port of `{of}`, by which its packets come: name that one instead"
    )]
    Port {
        /// The interface.
        port: String,
        /// What it is a port of.
        of: String,
    },
    /// One interface for both legs, or twice for one.
    #[error("interface `{0}` is named twice: each is of one leg, and a split needs two legs")]
    SameInterface(String),
    /// A leg insists on a congestion control that is not to be had.
    #[error(transparent)]
    Control(#[from] CongestionError),
    /// A listening socket could not be made.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A leg has a carrier that it cannot have here.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// A leg cannot be carried over QUIC.
    #[error(transparent)]
    Tunnels(#[from] bentpipe_quic_carrier::CarrierError),
    /// Interception could not be set up.
    #[error(transparent)]
    Intercept(#[from] InterceptError),
    /// The kernel does not tell about interfaces.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Our own process is unknown.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// The flow log cannot be opened.
    #[error("cannot write the flow log {} ({source}): choose another `flow_log`, or \"off\"", .path.display())]
    FlowLog {
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
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
        Self::begin(config, false)
    }

    /// As [`Gateway::start`], in the place of the gateway whose control socket is at `predecessor`, whom
    /// [`crate::Manager::start`] has retire: where the operator has that one out of the way, this one is too.
    ///
    /// # Errors
    /// As [`Gateway::start`].
    pub fn succeed(config: &Config, predecessor: &Path) -> Result<Self, StartError> {
        // A predecessor that does not answer is reported when it is asked to retire.
        let status = protocol::ask(predecessor, &Request::Status);
        let bypassed = status.is_ok_and(|answer| answer["status"]["admission"] == "bypassed");
        if bypassed {
            tracing::warn!(
                "new flows pass unsplit, as before: `bentpipe gateway bypass off` ends that"
            );
        }
        let process = UnixStream::connect(predecessor).and_then(Process::peer);
        // A predecessor in another pid namespace is not ended by this process.
        let process = process.ok().flatten();
        if process.as_ref().and_then(Process::shares_network) == Some(false) {
            return Err(StartError::Elsewhere(predecessor.to_owned()));
        }
        let mut gateway = Self::begin(config, bypassed)?;
        gateway.predecessor = process;
        Ok(gateway)
    }

    fn begin(config: &Config, bypassed: bool) -> Result<Self, StartError> {
        Need::NetAdmin.check()?;
        let interfaces = interfaces(config)?;
        for line in sweep::sweep().to_string().lines() {
            tracing::info!("{line}");
        }
        let marks = Marks::of_this_process()?;
        let mut congestion_controls = CongestionControls::default();
        let legs = congestion_controls.prepare_all(config, marks)?;
        let tunnels = tunnels::open(config, marks, &mut congestion_controls)?;
        let threads = worker_threads(config)?;
        let (ingresses, listeners) = open_listeners(config, &legs, threads)?;
        let connections = Connections {
            diag: Diag::open().map_err(system("ask for connections"))?,
            marks,
        };
        let facts = StartFacts {
            interfaces: [config.lan_interfaces.clone(), config.sat_interfaces.clone()],
            marks,
            began: timer::now(),
            lacks: Vec::new(),
            scone: Weak::new(),
            tunnels: None,
        };
        let mut collector = StatusCollector::new(facts).map_err(system("ask for connections"))?;
        let neighbours = Neighbours::watch().map_err(system("watch the neighbours"))?;
        // The interception is made before any worker. It is suspended and takes nothing yet, and most failures happen
        // here.
        let decoy = DecoyListener::open().map_err(listen::no_decoy)?;
        let rules = Ruleset {
            marks,
            workers: threads,
            queued: true,
            seed: seed(),
            decoy: decoy.addresses,
            interfaces,
            ingresses,
            policies: config.policies.clone(),
            quic: config.quic,
            mss: [config.lan.mss, config.sat.mss],
            snoop_flows: config.limits.snoop_flows,
            thins_acks: config.sat.ack_rate.is_some(),
            carrier: config.carried_leg().map(|_| CarrierPlace::free()),
            early: config.handshake == Handshake::Early,
            udp_ports: tunnels::udp_ports(config),
        };
        let entrances: Vec<_> = rules
            .entrances()
            .map(|(leg, profile, _)| (leg, profile))
            .collect();
        crate::config_file::warn(config, &rules.interfaces);
        let (mut interception, queues) =
            Interception::new(rules, decoy, config.limits.half_open).map_err(explain)?;
        let backlog_limit = SynBacklogLimit::measure();
        let syn_queue = |queues| SynQueue {
            queues,
            entrances: entrances.clone(),
            carries: config.carried_leg().is_some(),
            handshake: config.handshake,
            marks,
            backlog_limit: backlog_limit.clone(),
            table: HandshakeTable::new(threads),
            reserve: DescriptorReserve::default(),
            workers: threads,
            looked: timer::now(),
        };
        let syn_queues = queues.into_iter().map(syn_queue).collect();
        let descriptors = descriptors(threads, config.tunnelled_leg().is_some())?;
        let (shared, meter, mut thread_set, carrier) = spawn(
            config,
            legs,
            listeners,
            syn_queues,
            &descriptors,
            (marks, &interception),
            tunnels,
        )?;
        collector.facts.tunnels.clone_from(&thread_set.tunnels);
        collector.facts.lacks = std::mem::take(&mut thread_set.lacks);
        let scone = Scone::start(config, &mut collector.facts.lacks).map(Arc::new);
        collector.facts.scone = scone.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let (commands, taken) = mpsc::channel();
        let handle = Handle {
            commands,
            shared: Arc::clone(&shared),
            meter: meter.clone(),
            collector: Arc::new(Mutex::new(collector)),
        };
        let scone_there = scone.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let watched = spawn_watchdog(&mut thread_set, &interception, scone_there, &shared);
        if bypassed {
            interception.suspend(PassReason::Bypassed);
            shared.set_mode(AdmissionMode::Bypassed);
        } else {
            interception.resume();
            shared.set_mode(AdmissionMode::Serving);
        }
        let gateway = Self {
            interception,
            thread_set,
            shared,
            meter,
            carrier,
            scone,
            connections,
            neighbours,
            congestion_controls,
            marks,
            handle,
            commands: taken,
            start_settings: StartSettings::of(config),
            descriptors,
            schedule: Schedule {
                next: timer::now(),
                retry: timer::now(),
                pause: RefusalPause::new(),
            },
            bypassed,
            reload: None,
            predecessor: None,
            drain_times: DrainTimes::of(config),
        };
        watched?;
        forwarding::warn([&config.lan_interfaces, &config.sat_interfaces]);
        let [lan, sat] = [&config.lan_interfaces, &config.sat_interfaces];
        tracing::info!(?lan, ?sat, threads, "ready");
        Ok(gateway)
    }
}

/// How many workers there are to be.
fn worker_threads(config: &Config) -> Result<usize, StartError> {
    let threads = match config.threads {
        Some(threads) => threads,
        None => sched::allowed_cpus()
            .map_err(system("count the processors"))?
            .len(),
    };
    // More workers are of no use, and marks could not tell their SYNs apart.
    Ok(threads.min(WORKERS))
}

/// The interfaces of both legs, which exist.
fn interfaces(config: &Config) -> Result<[Vec<Interface>; 2], StartError> {
    let netlink = Netlink::open()?;
    let (links, in_vrfs) = (netlink.vlans()?, netlink.in_vrfs()?);
    let names: Vec<&str> = links
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| *name != "lo")
        .collect();
    let there = || match names.as_slice() {
        [] => "none but lo".to_owned(),
        names => format!("`{}`", names.join("`, `")),
    };
    let find = |leg_id: LegId, wanted: &[String]| {
        if wanted.is_empty() {
            return Err(StartError::NoInterface {
                leg: leg_id.name(),
                there: there(),
            });
        }
        let found = wanted.iter().map(|name| {
            let link = links
                .iter()
                .find(|(other, _)| other == name && other != "lo");
            let (name, vlan) = link.ok_or_else(|| StartError::UnknownInterface {
                leg: leg_id.name(),
                name: name.clone(),
                there: there(),
            })?;
            Ok(Interface {
                name: name.clone(),
                vlan: *vlan,
            })
        });
        found.collect::<Result<Vec<_>, _>>()
    };
    let lan = find(LegId::Lan, &config.lan_interfaces)?;
    let sat = find(LegId::Sat, &config.sat_interfaces)?;
    let named = |one: &&Interface| in_vrfs.contains(&one.name);
    if let Some(one) = lan.iter().chain(&sat).find(named) {
        return Err(StartError::InVrf(one.name.clone()));
    }
    let named = |(port, _): &(String, String)| lan.iter().chain(&sat).any(|one| one.name == *port);
    if let Some((port, of)) = netlink.ports()?.into_iter().find(named) {
        return Err(StartError::Port { port, of });
    }
    let mut seen = HashSet::new();
    let mut all = lan.iter().chain(&sat);
    match all.find(|one| !seen.insert(&one.name)) {
        Some(twice) => Err(StartError::SameInterface(twice.name.clone())),
        None => Ok([lan, sat]),
    }
}

type Opened = (Vec<Ingress>, Vec<Vec<Listener>>);

/// Opens the listeners, one list a worker, and says what is to be intercepted into them.
fn open_listeners(
    config: &Config,
    legs: &LegPolicies,
    threads: usize,
) -> Result<Opened, StartError> {
    let mut ingresses = Vec::new();
    let mut listeners: Vec<Vec<Listener>> = (0..threads).map(|_| Vec::new()).collect();
    for leg in [LegId::Lan, LegId::Sat] {
        if !config.intercept.includes(leg) {
            continue;
        }
        let mut all = Vec::new();
        for profile in 0..=config.profiles.len() {
            let port = match config.port {
                0 => 0,
                first => first + leg as u16 + 2 * profile as u16,
            };
            let (addresses, lists) = listen::open(leg, (legs, profile), port, threads)?;
            all.push(addresses);
            for (worker, list) in listeners.iter_mut().zip(lists) {
                worker.extend(list);
            }
        }
        ingresses.push(Ingress {
            leg,
            addresses: all,
        });
    }
    Ok((ingresses, listeners))
}

/// The descriptors that the process may have, and those that are open before the workers start.
fn descriptors(workers: usize, is_tunnelled: bool) -> Result<Descriptors, StartError> {
    let available = limits::raise_descriptors().map_err(system("raise the limit on open files"))?;
    let open = limits::open_descriptors().map_err(system("count the open files"))?;
    // Their UDP port, waker and epoll set, and of clients' UDP the table, the queue and the raw sockets, with some room.
    let tunnels = if is_tunnelled { 10 } else { 0 };
    Ok(Descriptors {
        available,
        // These are those of the carrier: its queues, tables, raw sockets, epoll set and waker; and the wakers, an epoll set each
        // for the workers, the ACK thinner, the watchdog and the gateway,
        // the two tables, the queue and the epoll set of the filter chain skipper, and the table, the queue, the raw
        // sockets, the epoll set, the socket to routing, that to conntrack and that which is asked of IPsec of the snooper.
        used: open + workers + 30 + tunnels,
        workers,
    })
}

fn spawn(
    config: &Config,
    legs: LegPolicies,
    listeners: Vec<Vec<Listener>>,
    syn_queues: Vec<SynQueue>,
    descriptors: &Descriptors,
    (marks, interception): (Marks, &Interception),
    tunnels: Option<QuicCarrier>,
) -> Result<(Arc<Shared>, Meter, ThreadSet, Option<CarrierHandle>), StartError> {
    let Descriptors {
        available,
        used,
        workers: threads,
    } = *descriptors;
    let budget = budget(&config.limits, descriptors)
        .ok_or(StartError::TooFewDescriptors { available, used })?;
    let settings = Settings::new(legs, budget.pipes, &config.limits);
    let shared = Shared::new((budget.bounds, buffered(&config.limits)), settings, threads)
        .map_err(system("make an eventfd"))?;
    let shared = Arc::new(shared);
    // Those of the workers come first, then those of the readers.
    let counters: Arc<[Arc<Counters>]> = (0..threads + READERS).map(|_| Arc::default()).collect();
    let meter = Meter {
        counters: Arc::clone(&counters),
        own: Arc::default(),
        log: Arc::default(),
        times: (0..=threads).map(|_| Arc::default()).collect(),
        shared: Arc::clone(&shared),
        passed: interception.passed(),
    };
    let log = config.flow_log.as_ref().map(|path| {
        flow_log::open(path, Arc::clone(&meter.log)).map_err(|source| StartError::FlowLog {
            path: path.clone(),
            source,
        })
    });
    let log = log.transpose()?;
    // Without queues no worker holds SYNs.
    let syn_queues = syn_queues
        .into_iter()
        .map(Some)
        .chain(std::iter::repeat_with(|| None));
    let own = |list: Vec<Listener>| list.into_iter().map(Arc::new).collect();
    let listeners: Listeners = listeners.into_iter().map(own).collect();
    let plan = tunnels.as_ref().map(QuicCarrier::plan);
    let kept = syn_queues.zip(counters.iter().zip(meter.times.iter()));
    let plans = kept
        .enumerate()
        .take(threads)
        .map(|(number, (syn_queue, (counters, times)))| WorkerParts {
            number,
            listeners: Arc::clone(&listeners),
            syn_queue,
            translates: interception.translates(),
            shared: Arc::clone(&shared),
            counters: Arc::clone(counters),
            flow_stats: FlowStats {
                times: config.metrics.map(|_| Arc::clone(times)),
                log: log.clone(),
            },
            tunnels: plan.clone(),
        });
    let mut thread_set = ThreadSet::default();
    let parts = PortParts {
        marks,
        switch: interception.switch(),
        shared: Arc::clone(&shared),
    };
    let started = tunnels::spawn(&mut thread_set, parts, tunnels)
        .and_then(|()| spawn_workers(&mut thread_set, &shared, plans));
    let started = started.and_then(|()| {
        let readers = Readers {
            config,
            marks,
            interception,
            shared: &shared,
            thread_set: &mut thread_set,
        };
        readers.start(std::array::from_fn(|place| {
            Arc::clone(&counters[threads + place])
        }))
    });
    match started {
        Ok(carrier) => Ok((shared, meter, thread_set, carrier)),
        Err(error) => {
            // They were told to end at once; how they ended does not matter any more.
            let _ = thread_set.stop(&shared);
            Err(error)
        }
    }
}

/// A random seed for the hash that spreads SYNs over workers, so that nobody can send all of theirs to one.
fn seed() -> u32 {
    use std::hash::{BuildHasher as _, RandomState};
    // Each `RandomState` has random keys of the system's.
    RandomState::new().hash_one(0) as u32
}

/// Starts the workers.
fn spawn_workers(
    thread_set: &mut ThreadSet,
    shared: &Arc<Shared>,
    plans: impl Iterator<Item = WorkerParts>,
) -> Result<(), StartError> {
    let refused = || system("start a thread");
    for plan in plans {
        let number = plan.number;
        let worker = Worker::new(plan).map_err(system("make an epoll set"))?;
        let name = format!("split-{number}");
        thread_set
            .spawn(name, Role::Split(number), shared, move || worker.run())
            .map_err(refused())?;
    }
    Ok(())
}

/// Starts the watchdog.
fn spawn_watchdog(
    thread_set: &mut ThreadSet,
    interception: &Interception,
    scone: Weak<Scone>,
    shared: &Arc<Shared>,
) -> Result<(), StartError> {
    let (switch, diversion) = (interception.switch(), interception.diversion());
    let legs = liveness_watchdog::LegInterfaces::new(interception.interfaces())?;
    let watchdog = Watchdog::new(switch, diversion, legs, scone, Arc::clone(shared))
        .map_err(system("watch the rules and routes"))?;
    thread_set
        .spawn("watchdog".to_owned(), Role::Aids, shared, move || {
            watchdog.run();
            Ok(())
        })
        .map_err(system("start a thread"))
}

/// Names what the machine lacks, where that is why interception failed.
fn explain(error: InterceptError) -> StartError {
    // Other needs are not tried out, because that takes more rights than a gateway has.
    if Need::Root.check().is_err() {
        return StartError::Intercept(error);
    }
    match Need::check_all(&[Need::Nft, Need::Tproxy]) {
        Err(missing) => StartError::Missing(missing),
        Ok(()) => StartError::Intercept(error),
    }
}
