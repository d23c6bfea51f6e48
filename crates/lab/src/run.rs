//! One run from beginning to end: build, run, take down, write down.

use crate::capture::Captures;
use crate::collect::{self, Watched};
use crate::controls::{Controls, Mark};
use crate::emulator::{Emulator, Report};
use crate::flow::{EndPlan, FileEnds, Pattern, Prepared, Ready, Running, SocketSettings, Sockets};
use crate::gateway::{GatewayProcess, Program, StoppedGateway};
use crate::legs::{Trace, Watch};
use crate::live::Counting;
use crate::pair::Ends;
use crate::plan::{FlowPlan, Plan};
use crate::result::{Manifest, RunResult};
use crate::stage::Stage;
use crate::{LabError, emulate, folder, traffic};
use bentpipe_base::{Bytes, Instant};
use bentpipe_bpf::LinkParams;
use bentpipe_os::diag::Diag;
use bentpipe_os::need::Need;
use bentpipe_outcome::{Look, Traffic};
use bentpipe_plan::gateway as splitting;
use bentpipe_plan::rates::Bottleneck;
use bentpipe_scenario::{Amount, Flow, Known, Link, Scenario};
use bentpipe_sockets::timer;
use bentpipe_traffic::Profile;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// How a run is to be made.
#[derive(Clone, Default)]
pub struct RunOptions {
    /// The folder for the results, made if it is not there; `None` writes nothing.
    pub out: Option<PathBuf>,
    /// The folder for captures at both ends of every link, made if it is not there: `LINK-NODE.pcapng`, as the simulator
    /// names them. dumpcap makes them.
    pub pcap: Option<PathBuf>,
    /// The program whose `gateway run` splits and whose `saratoga` moves files; `None` is the running
    /// one.
    pub program: Option<PathBuf>,
    /// The run is no result when more than 1% of a link's packets are later than this; `None` is the
    /// limit of each link: 5 ms, or a twentieth of its shorter delay where that is more.
    pub lateness_limit: Option<Duration>,
    /// Our own congestion controls; keep one of these as long as more runs are to come.
    pub controls: Controls,
    /// Raise it to end the run early: it is taken down and ends as [`LabError::Cancelled`].
    pub cancel: Arc<AtomicBool>,
    /// Told about ten times a second how far the run is.
    pub progress: Option<Arc<OnProgress>>,
    /// Shown about ten times a second how the flows and links stand.
    pub watch: Option<Arc<OnLook>>,
}

/// Whoever watches a run.
pub type OnLook = dyn Fn(&Look) + Send + Sync;

/// Whoever is told of a run's progress.
pub type OnProgress = dyn Fn(&Progress) + Send + Sync;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// Since the flows began.
    pub elapsed: Duration,
    /// How long the flows take at most.
    pub at_most: Duration,
    /// Payload received by all flows together.
    pub received: Bytes,
}

/// The phases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Namespaces, links and gateways are being made.
    Building,
    /// The flows run.
    Running,
    /// All is being taken down.
    Ending,
}

const TICK: Duration = Duration::from_millis(20);
/// What the threads of flows get beyond the time limit, to look at their clocks.
const GRACE: Duration = Duration::from_secs(1);

/// Runs `scenario` once on real kernel TCP, and writes its results where the options say.
///
/// Many runs may be made at a time, from several threads; they share nothing but the machine. Needs
/// root. Everything made in the system is gone when this returns, and what earlier runs that were
/// killed left behind is swept at the beginning.
///
/// # Errors
/// Fails when the run cannot be made or carried through; a flow that breaks is a result.
pub fn run(scenario: &Scenario, options: &RunOptions) -> Result<RunResult, LabError> {
    let profile = traffic::profile(scenario)?;
    // What was built in code is checked as if it had been read, and defaults are written out.
    let whole = folder::self_contained(scenario);
    let text = whole.to_toml();
    let apps = crate::app_names();
    let known = Known {
        apps: &apps,
        ..Known::default()
    };
    let mut scenario = Scenario::parse_knowing("scenario.toml", &text, known)?;
    // What was read from beside the scenario is not in its text.
    scenario.traffic.clone_from(&whole.traffic);
    crate::simulated::refuse(&scenario)?;
    Need::Root.check()?;
    if scenario.links.values().any(Link::is_emulated) {
        Need::Tun.check()?;
    }
    let _held = options.out.as_deref().map(folder::prepare).transpose()?;
    let swept = bentpipe_os::sweep::sweep();
    if !swept.is_empty() {
        tracing::info!("swept what a killed run left:\n{swept}");
    }
    let run = Run {
        plan: Plan::new(&scenario)?,
        scenario: &scenario,
        profile,
        options,
    };
    let result = run.whole(text);
    // Who asks to stop may have asked our programs too, as Ctrl-C does: that they ended is no failure then.
    run.go_on()?;
    let result = result?;
    let out = options.out.as_deref();
    match out.map_or(Ok(()), |out| folder::write(out, &scenario, &result)) {
        Ok(()) => Ok(result),
        Err(source) => Err(LabError::Unwritten {
            result: Box::new(result),
            source: Box::new(source),
        }),
    }
}

struct Run<'a> {
    scenario: &'a Scenario,
    plan: Plan,
    /// The first transfers of its traffic, if it has any.
    profile: Option<Profile>,
    options: &'a RunOptions,
}

impl Run<'_> {
    fn whole(&self, text: String) -> Result<RunResult, LabError> {
        let started = SystemTime::now();
        self.tell(Phase::Building, Duration::ZERO, 0);
        self.controls()?;
        let marks = self.marks()?;
        // Dropped in the reverse order: gateways, emulators, then what they stand on.
        let mut stage = Stage::build(self.scenario, &self.plan)?;
        let emulators = self.links(&mut stage)?;
        let mut gateways = self.gateways(&stage)?;
        let settings = stage.settings()?;
        self.go_on()?;
        let flows = self.flows(&stage, &marks)?;
        let traffic = self.traffic(&stage, &marks)?;
        let pcap = self.options.pcap.as_deref();
        let captures = pcap.map(|folder| Captures::start(folder, self.scenario, &stage));
        let captures = captures.transpose()?;
        let watch = self.watch(&stage)?;
        let begin = timer::now();
        emulators
            .values()
            .for_each(|emulator| emulator.begin(begin));
        let counting = Counting::new(self.scenario, &emulators, watch.latest());
        let flows = self.flow(flows, traffic, (begin, &counting), &mut gateways);
        // Captures are made in the hosts' namespaces, where all programs are ended.
        for gap in captures.map(Captures::stop).unwrap_or_default() {
            tracing::warn!("{gap}");
        }
        stage.end_programs(self.scenario);
        let (flows, traffic) = flows?;
        self.tell(Phase::Ending, timer::now() - begin, 0);
        let looks = watch.stop();
        let links = reports(emulators)?;
        let gateways = ended(gateways);
        let unfit = unfit(&links, &gateways);
        let said = gateways
            .iter()
            .map(|(name, ended)| (name.clone(), ended.stderr_tail.clone()));
        let manifest = Manifest {
            scenario: text,
            name: self.scenario.name.clone(),
            seed: self.scenario.seed,
            version: env!("CARGO_PKG_VERSION"),
            kernel: kernel(),
            processors: bentpipe_process::sched::allowed_cpus().map_or(0, |cpus| cpus.len()),
            started,
            settings,
            gateways: said.collect(),
        };
        let watched = Watched {
            ended: flows,
            gateways,
            looks,
            links,
            traffic,
        };
        let measured = collect::measured(self.scenario, &self.plan, begin, watched);
        Ok(RunResult {
            manifest,
            unfit,
            measured,
        })
    }

    /// Makes sure of every congestion control that is named.
    fn controls(&self) -> Result<(), LabError> {
        let controls = &self.options.controls;
        for (name, host) in &self.scenario.hosts {
            controls.ensure(&host.tcp.congestion_control, &format!("host `{name}`"))?;
        }
        for (name, gateway) in &self.scenario.gateways {
            controls.ensure(
                &gateway.tcp.congestion_control,
                &format!("gateway `{name}`"),
            )?;
        }
        for flow in &self.scenario.flows {
            let of_kernel = flow.congestion_control.as_ref();
            if let Some(control) = of_kernel.filter(|_| !flow.is_saratoga()) {
                controls.ensure(control, &format!("flow `{}`", flow.name))?;
            }
        }
        Ok(())
    }

    /// A mark for each link whose rate senders are told.
    fn marks(&self) -> Result<BTreeMap<Bottleneck, Mark>, LabError> {
        let mut marks = BTreeMap::new();
        for (flow, plan) in self.plan.all(self.scenario) {
            let Some(bottleneck) = &plan.bottleneck else {
                continue;
            };
            if marks.contains_key(bottleneck) {
                continue;
            }
            let mut params = LinkParams::default();
            bottleneck.tell(&mut params);
            let mark = self
                .options
                .controls
                .mark(&params)
                .map_err(|source| LabError::Mark {
                    flow: flow.name.clone(),
                    source,
                })?;
            marks.insert(bottleneck.clone(), mark);
        }
        Ok(marks)
    }

    fn links(&self, stage: &mut Stage) -> Result<BTreeMap<String, Emulator>, LabError> {
        let mut emulators = BTreeMap::new();
        for (name, link) in &self.scenario.links {
            self.go_on()?;
            if link.is_emulated() {
                let emulator = self.emulate(stage, name, link)?;
                emulators.insert(name.clone(), emulator);
            } else {
                stage.lay(name, link, self.scenario.ip)?;
            }
            stage.address(name, link, &self.plan.addresses[name])?;
        }
        stage.route(&self.plan.nodes)?;
        Ok(emulators)
    }

    fn emulate(&self, stage: &Stage, name: &str, link: &Link) -> Result<Emulator, LabError> {
        let mut spec = emulate::spec(name, link, self.scenario.seed)?;
        if let Some(limit) = self.options.lateness_limit {
            spec.lateness_limit = limit;
        }
        emulate::start(stage, link, spec)
    }

    fn gateways(&self, stage: &Stage) -> Result<BTreeMap<String, GatewayProcess>, LabError> {
        let mut started = BTreeMap::new();
        let cancel = &self.options.cancel;
        let splitting: Vec<_> = { self.scenario.gateways.iter() }
            .filter_map(|(name, gateway)| Some((name, gateway, splitting::split(gateway)?)))
            .collect();
        if splitting.is_empty() {
            return Ok(started);
        }
        let program = self.program()?;
        let ends = Ends::new(self.scenario, &program)?;
        for (name, gateway, split) in splitting {
            let netns = stage.node(name);
            let (what, config) = match ends.far(name, &split.keys) {
                Some(config) => (Program::Proxy, config),
                None => (Program::Gateway(gateway), ends.near(name, split.keys)),
            };
            let process = GatewayProcess::start(name, what, &config, netns, &program, cancel)?;
            started.insert(name.clone(), process);
        }
        for (name, process) in &mut started {
            if ends.is_near(name) {
                process.await_far_end(cancel)?;
            }
        }
        Ok(started)
    }

    fn program(&self) -> Result<PathBuf, LabError> {
        match &self.options.program {
            Some(program) => Ok(program.clone()),
            None => std::env::current_exe().map_err(LabError::OwnPath),
        }
    }

    fn flows(
        &self,
        stage: &Stage,
        marks: &BTreeMap<Bottleneck, Mark>,
    ) -> Result<Vec<Ready>, LabError> {
        let pattern = Arc::new(Pattern::new());
        let flows = self.scenario.flows.iter().zip(&self.plan.flows);
        flows
            .map(|(flow, plan)| {
                self.go_on()?;
                if let Some(app) = &flow.app {
                    let ends = FileEnds {
                        opener: stage.node(&flow.opened_by),
                        acceptor: stage.node(flow.acceptor()),
                        program: &self.program()?,
                    };
                    let file = Prepared::prepare((flow, app), plan, &ends, &pattern)?;
                    return Ok(Ready::File(Box::new(file)));
                }
                let end = |host: &str| EndPlan {
                    netns: stage.node(host),
                    settings: self.settings(flow, plan, host, marks),
                };
                let (opener, acceptor) = (end(&flow.opened_by), end(flow.acceptor()));
                let sockets = Sockets::prepare(flow, plan, &opener, &acceptor, &pattern)?;
                Ok(Ready::Sockets(Box::new(sockets)))
            })
            .collect()
    }

    /// What the socket of `flow` at `host` is given.
    fn settings(
        &self,
        flow: &Flow,
        plan: &FlowPlan,
        host: &str,
        marks: &BTreeMap<Bottleneck, Mark>,
    ) -> SocketSettings {
        let sends = host == flow.from;
        let own = self.scenario.hosts[host].tcp.congestion_control.as_str();
        let control = match flow.congestion_control.as_deref() {
            Some(of_flow) if sends => of_flow,
            _ => own,
        };
        let mark = plan.bottleneck.as_ref().and_then(|own| marks.get(own));
        SocketSettings {
            control: control.to_owned(),
            mark: mark.filter(|_| sends).map(Mark::value),
        }
    }

    fn traffic<'s>(
        &'s self,
        stage: &'s Stage,
        marks: &BTreeMap<Bottleneck, Mark>,
    ) -> Result<Option<traffic::Ready<'s>>, LabError> {
        let (Some(profile), Some(directions)) = (&self.profile, &self.plan.traffic) else {
            return Ok(None);
        };
        let directions = directions
            .each_ref()
            .map(|(flow, plan)| traffic::TrafficDirection {
                plan,
                sender: stage.node(&flow.from),
                sends: self.settings(flow, plan, &flow.from, marks),
                receiver: stage.node(&flow.to),
                receives: self.settings(flow, plan, &flow.to, marks),
            });
        traffic::Ready::prepare(profile, self.scenario.seed, directions).map(Some)
    }

    /// Begins to watch the legs of all gateways that split.
    fn watch(&self, stage: &Stage) -> Result<Watch, LabError> {
        let flow_error = |source| LabError::Flow {
            flow: "all".to_owned(),
            doing: "watch the gateways' legs",
            source,
        };
        let splitting = self.scenario.gateways.iter();
        let gateways = splitting
            .filter(|(_, gateway)| gateway.splits().is_some())
            .map(|(name, _)| {
                let opened = stage.node(name).run(Diag::open);
                let diag = opened.unwrap_or_else(|e| Err(io::Error::other(e)))?;
                Ok((name.clone(), diag))
            })
            .collect::<io::Result<_>>()
            .map_err(flow_error)?;
        let flows = self.scenario.flows.iter().zip(&self.plan.flows);
        let traces = flows.map(|(flow, plan)| Trace {
            port: plan.to.port(),
            receiver: self.plan.addresses_of(self.scenario, &flow.to),
        });
        Watch::start(gateways, traces.collect()).map_err(flow_error)
    }

    /// Lets the flows, and the traffic beside them, run until the last flow is over.
    fn flow(
        &self,
        flows: Vec<Ready>,
        traffic: Option<traffic::Ready<'_>>,
        (begin, counting): (Instant, &Counting<'_>),
        gateways: &mut BTreeMap<String, GatewayProcess>,
    ) -> Result<(Vec<crate::flow::FinishedFlow>, Option<Traffic>), LabError> {
        let stop = Arc::new(AtomicBool::new(false));
        // Whichever way this ends, the threads of the flows end with it.
        let _raised = StopOnDrop(Arc::clone(&stop));
        let limit = begin + self.scenario.time_limit;
        let running: Vec<Running> = flows
            .into_iter()
            .map(|flow| flow.start(begin, limit, &stop))
            .collect::<Result<_, _>>()?;
        let started = traffic.map(|traffic| traffic.start(begin, &stop));
        let crossing = started.transpose()?;
        let show = |now| {
            if let Some(watch) = &self.options.watch {
                watch(&counting.look(now - begin, &running));
            }
        };
        let over = self.over(&running, crossing.as_ref(), (begin, &show), &stop, gateways);
        if over.is_err() {
            stop.store(true, Ordering::Relaxed);
        }
        let ended = running.into_iter().map(Running::join).collect();
        stop.store(true, Ordering::Relaxed);
        let crossed = crossing.map(traffic::Running::join).transpose();
        over.and_then(|()| Ok((ended, crossed?)))
    }

    /// Waits for the flows; tells them to stop when their time is up.
    fn over(
        &self,
        running: &[Running],
        traffic: Option<&traffic::Running>,
        (begin, show): (Instant, &dyn Fn(Instant)),
        stop: &AtomicBool,
        gateways: &mut BTreeMap<String, GatewayProcess>,
    ) -> Result<(), LabError> {
        let limit = begin + self.scenario.time_limit;
        let mut last_report = begin;
        let mut all_received = None;
        while !running.iter().all(Running::is_over) {
            self.go_on()?;
            gateways.values_mut().try_for_each(GatewayProcess::check)?;
            let now = timer::now();
            if now - last_report >= 5 * TICK {
                last_report = now;
                let received = running.iter().map(Running::received).sum();
                self.tell(Phase::Running, now - begin, received);
                show(now);
            }
            // The senders' last acknowledgements are worth a few round trips, not the whole rest of
            // the time limit.
            if all_received.is_none() && running.iter().all(Running::is_received) {
                all_received = Some(now + self.longest_round_trip() * 3 + GRACE);
            }
            let alone = traffic.is_some_and(traffic::Running::has_failed);
            if alone || now > limit + GRACE || all_received.is_some_and(|until| now > until) {
                stop.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    fn longest_round_trip(&self) -> Duration {
        let trips = self.plan.flows.iter().map(|flow| flow.round_trip);
        trips.max().unwrap_or_default()
    }

    fn go_on(&self) -> Result<(), LabError> {
        if self.options.cancel.load(Ordering::Relaxed) {
            return Err(LabError::Cancelled);
        }
        Ok(())
    }

    fn tell(&self, phase: Phase, elapsed: Duration, received: u64) {
        let Some(tell) = &self.options.progress else {
            return;
        };
        let limit = self.scenario.time_limit;
        let ends = self.scenario.flows.iter().map(|flow| match flow.amount {
            Amount::Duration(duration) => flow.start + duration,
            Amount::Bytes(_) | Amount::Segments(_) => limit,
        });
        tell(&Progress {
            phase,
            elapsed,
            at_most: ends.max().unwrap_or_default(),
            received: Bytes(received),
        });
    }
}

/// Raises a flag when dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the emulators; what they say.
fn reports(emulators: BTreeMap<String, Emulator>) -> Result<BTreeMap<String, Report>, LabError> {
    let ended = emulators.into_iter().map(|(link, emulator)| {
        let report = emulator.stop().map_err(|error| LabError::Emulator {
            link: link.clone(),
            why: error.to_string(),
        })?;
        Ok((link, report))
    });
    ended.collect()
}

/// Why the run is no result, if it is none.
fn unfit(
    links: &BTreeMap<String, Report>,
    gateways: &BTreeMap<String, StoppedGateway>,
) -> Vec<String> {
    let late = links.iter().flat_map(|(link, report)| {
        let reasons = report.reasons.iter();
        reasons.map(move |reason| format!("emulator of link `{link}`: {reason}"))
    });
    let hung = gateways.iter().filter_map(|(gateway, ended)| {
        let Some(status) = &ended.status else {
            return Some(format!("gateway `{gateway}` did not answer at the end"));
        };
        let passed = status.unattended();
        if passed == 0 {
            return None;
        }
        Some(format!(
            "gateway `{gateway}` had no processor when connections began: {passed} SYNs passed unsplit"
        ))
    });
    late.chain(hung).collect()
}

/// Ends the gateways; what each said and counted.
fn ended(gateways: BTreeMap<String, GatewayProcess>) -> BTreeMap<String, StoppedGateway> {
    // All are asked how they stand before the first of them ends: the ends of a leg over QUIC tell of each other's end.
    let asked: Vec<_> = { gateways.into_iter() }
        .map(|(name, mut process)| (name, process.status(), process))
        .collect();
    let ended = { asked.into_iter() }.map(|(name, status, process)| (name, process.stop(status)));
    ended.collect()
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
