//! Makes the two ends of each flow from the hosts and flows of a scenario: configuration of TCP, application, congestion
//! control that is shared.

use crate::app::{Application, Bulk, OnOff, Pattern, Requester, Responder, Sink};
use crate::app_socket::Record;
use crate::flow_endpoint::{FlowEndpoint, PendingWork, Protocol, Tcp};
use crate::queueing_samples::QueueingSamples;
use crate::saratoga_endpoint::{Plan, SaratogaEndpoint};
use crate::{Controls, EndId, SimError};
use bentpipe_base::{Bytes, Instant, Seq, Stream, TimerWheel};
use bentpipe_cc::{self as cc, RateUse};
use bentpipe_gateway_config::Leg;
use bentpipe_plan::rates::{self, Bottleneck};
use bentpipe_saratoga::sender::Congestion;
use bentpipe_scenario::{
    self as scenario, Amount, Endpoint, Flow, FlowKind, Host, Ip, Path, Preset, Scenario, Topology,
};
use bentpipe_tcp::ns2::WireSize;
use bentpipe_tcp::{Config, EcnMode, recovery};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Makes the ends of flows, one flow after another.
pub(crate) struct EndpointBuilder<'s> {
    pub(crate) scenario: &'s Scenario,
    pub(crate) topology: &'s Topology<'s>,
    pub(crate) seed: u64,
    /// Whether packets carry real bytes, which the receiver checks.
    pub(crate) wire: bool,
    /// The shared state of flows by `bentpipe_rate` that are told the same of a link.
    pub(crate) shares: BTreeMap<Bottleneck, cc::rate_control::Link>,
    /// The caller's own congestion controls.
    pub(crate) controls: &'s Controls<'s>,
    /// The templates of the flows so far, the latest last.
    pub(crate) templates: Vec<Arc<FlowTemplate<'s>>>,
}

/// What flows share that differ in their names, times and amounts alone, as those of cross traffic do. Hundreds of
/// connections then read one configuration, which stays in the processor's cache.
pub(crate) struct FlowTemplate<'s> {
    /// The first flow of this template.
    first: Flow,
    path: Path<'s>,
    /// The configuration of the opener, then of the acceptor.
    configs: [Arc<Config>; 2],
    /// The connections begin with a handshake.
    handshakes: bool,
    /// The source closes the connections; ns-2 knows no FIN.
    closes: bool,
}

/// How many of the latest templates are searched for that of a new flow.
const RECENT: usize = 4;

impl FlowTemplate<'_> {
    fn has(&self, flow: &Flow) -> bool {
        let Flow {
            from,
            to,
            opened_by,
            congestion_control,
            variant,
            path_rate,
            ..
        } = &self.first;
        (from, to, opened_by) == (&flow.from, &flow.to, &flow.opened_by)
            && (congestion_control, variant) == (&flow.congestion_control, &flow.variant)
            && *path_rate == flow.path_rate
    }
}

impl<'s> EndpointBuilder<'s> {
    /// The two ends of `flow`, the opener first, and whether they are established from the start. Where they are and
    /// how they reach each other is not filled in.
    pub(crate) fn ends(&mut self, flow: &Flow) -> Result<([FlowEndpoint; 2], bool), SimError> {
        if let Some(app) = &flow.app {
            let path = self.path(&flow.from, &flow.to)?;
            return Ok((self.file(flow, app, &path)?, false));
        }
        let template = self.template(flow)?;
        let [near, far] = &template.configs;
        let payload = near.payload(far);
        let own = (self.controls)(&flow.name);
        let instead = own.or_else(|| self.share(flow, &template.path, near));
        let (source, sink) = self.applications(flow, payload, template.closes);
        let (opens, accepts) = if flow.opened_by == flow.from {
            (source, sink)
        } else {
            (sink, source)
        };
        let tcp = |config: &Arc<Config>, app| {
            Protocol::Tcp(Tcp {
                config: Arc::clone(config),
                instead: None,
                control: config.congestion.name,
                connection: None,
                app,
            })
        };
        let mut ends = [
            self.end(flow, tcp(near, opens), true),
            self.end(flow, tcp(far, accepts), false),
        ];
        if let Some(tcp) = ends[usize::from(flow.opened_by != flow.from)].tcp_mut() {
            tcp.control = { instead.as_ref() }.map_or(tcp.control, |own| own.name());
            tcp.instead = instead;
        }
        let sink = &mut ends[usize::from(flow.opened_by == flow.from)];
        sink.record.expects = match flow.amount {
            Amount::Bytes(bytes) => Some(bytes.0),
            Amount::Segments(segments) => Some((payload * segments).0),
            Amount::Duration(_) => None,
        }
        .filter(|all| *all > 0);
        if !template.handshakes {
            ends.iter_mut().for_each(|end| end.iss = Seq(0));
        }
        Ok((ends, !template.handshakes))
    }

    /// What `flow` has in common with others.
    fn template(&mut self, flow: &Flow) -> Result<Arc<FlowTemplate<'s>>, SimError> {
        let mut recent = self.templates.iter().rev().take(RECENT);
        if let Some(template) = recent.find(|template| template.has(flow)) {
            return Ok(Arc::clone(template));
        }
        let path = self.path(&flow.from, &flow.to)?;
        let host = |name: &str| &self.scenario.hosts[name];
        let hosts = [host(&flow.opened_by), host(flow.acceptor())];
        let [first, second] = hosts.each_ref().map(|host| {
            let Endpoint { preset, .. } = host.endpoint;
            (preset, host.endpoint.handshakes())
        });
        if first != second {
            let flow = flow.name.clone();
            return Err(SimError::Presets { flow });
        }
        let [near, far] = hosts.each_ref().map(|host| self.config(flow, host, &path));
        let mut configs = [near?, far?];
        if !first.1 {
            agree_without_handshake(&mut configs);
            // A split that saw no handshake does not know of ECN.
            if { self.scenario.gateways.values() }.any(|gateway| gateway.splits().is_some()) {
                configs.iter_mut().for_each(|it| it.ecn = EcnMode::Off);
            }
        }
        let template = Arc::new(FlowTemplate {
            first: flow.clone(),
            configs: configs.map(Arc::new),
            path,
            handshakes: first.1,
            closes: first.0 != Preset::Ns2,
        });
        self.templates.push(Arc::clone(&template));
        Ok(template)
    }

    /// The two ends of a file by Saratoga.
    fn file(&self, flow: &Flow, app: &str, path: &Path<'_>) -> Result<[FlowEndpoint; 2], SimError> {
        let (true, Amount::Bytes(size)) = (flow.is_saratoga(), flow.amount) else {
            return Err(SimError::App {
                flow: flow.name.clone(),
                app: app.to_owned(),
            });
        };
        let unrated = || SimError::Unrated {
            flow: flow.name.clone(),
        };
        let headers = self.scenario.ip.saratoga_header(size);
        if path.mtu() <= headers {
            return Err(SimError::Mtu {
                flow: flow.name.clone(),
                length: headers + Bytes(1),
                mtu: path.mtu(),
            });
        }
        let control = flow.saratoga_control();
        let unknown = || SimError::Control {
            flow: flow.name.clone(),
            control: control.to_owned(),
            known: Flow::SARATOGA_CONTROLS.join(", "),
        };
        let plan = Plan {
            size,
            rate: rates::of_file(flow, path).ok_or_else(unrated)?,
            packet: path.mtu(),
            overhead: self.scenario.ip.udp_header(),
            payload: path.mtu() - headers,
            congestion: Congestion::find(control).ok_or_else(unknown)?,
            puts: flow.opened_by == flow.from,
        };
        Ok([true, false].map(|opens| {
            let start = opens.then_some(Instant::ZERO + flow.start);
            let file = SaratogaEndpoint::new(plan.clone(), start);
            self.end(flow, Protocol::Saratoga(Box::new(file)), opens)
        }))
    }

    /// Why the base round trip of `flow` by Vegas comes from a SYN that is shorter than what follows it.
    pub(crate) fn short_syn(&mut self, flow: &Flow) -> Result<Option<String>, SimError> {
        if flow.app.is_some() {
            return Ok(None);
        }
        let template = self.template(flow)?;
        let source = &template.configs[usize::from(flow.opened_by != flow.from)];
        let control = (source.congestion.new)(&source.settings);
        if !control.judges_by_base_rtt() || !template.handshakes {
            return Ok(None);
        }
        let [near, far] = &template.configs;
        let full = near.payload(far) + Bytes(source.data_header().into());
        let bare = match source.ns2.wire_size {
            WireSize::Fixed { bare, .. } => bare,
            WireSize::True => source.data_header() - u32::from(source.options()),
        };
        let syn = source.syn_length.map_or(u64::from(bare), u64::from);
        Ok((syn < full.0).then(|| {
            format!(
                "flow `{}`: Vegas takes its base round trip from the SYN, which is shorter than its segments of {full}, so \
                 that on a slow link it sees a queue where there is none; `syn_length = \"{full}\"` in the `tcp` of \
                 its hosts makes both alike",
                flow.name
            )
        }))
    }

    /// The rate control of a flow on the slowest link of its path, where it uses that control.
    fn share(
        &mut self,
        flow: &Flow,
        path: &Path<'_>,
        config: &Config,
    ) -> Option<Box<dyn cc::Congestion>> {
        let control = config.congestion;
        if control.rate != RateUse::Shares {
            return None;
        }
        let link = self
            .shares
            .entry(rates::bottleneck(flow, control.rate, path)?);
        let mut receiver = DefaultHasher::new();
        flow.to.hash(&mut receiver);
        control.sharing(link.or_default(), receiver.finish(), &config.settings)
    }

    pub(crate) fn path(&self, from: &str, to: &str) -> Result<Path<'s>, SimError> {
        self.topology.path(from, to).ok_or_else(|| SimError::Path {
            from: from.to_owned(),
            to: to.to_owned(),
        })
    }

    fn end(&self, flow: &Flow, protocol: Protocol, opens: bool) -> FlowEndpoint {
        let start = Instant::ZERO + flow.start;
        let cut = match flow.amount {
            Amount::Duration(duration) => Some(start + duration),
            Amount::Bytes(_) | Amount::Segments(_) => None,
        };
        let source = opens == (flow.opened_by == flow.from);
        let role = if opens { "opener" } else { "acceptor" };
        let draw = Stream::new(self.seed, &format!("flow.{}.{role}", flow.name)).bits();
        FlowEndpoint {
            protocol,
            record: Record::new(cut.unwrap_or(Instant::MAX), self.wire),
            // Any 32 of the bits.
            iss: Seq(draw as u32),
            start,
            opens,
            cut: cut.filter(|_| source),
            done: None,
            queueing: QueueingSamples::NONE,
            link: 0,
            peer_host: 0,
            peer: EndId::opener(0),
            pending: PendingWork::default(),
        }
    }

    fn config(&self, flow: &Flow, host: &Host, path: &Path<'_>) -> Result<Config, SimError> {
        let endpoint = &host.endpoint;
        let mut config = preset(endpoint, self.scenario.ip);
        if endpoint.preset != Preset::Ns2 {
            config.receive_buffer = Leg::payload_of(host.tcp.receive_buffer.max);
        }
        if let Some(window) = endpoint.receive_window {
            config.receive_buffer = window;
        }
        self.sizes(flow, host, path, &mut config)?;
        let mut config = self.control(flow, host, path, config)?;
        if !host.tcp.sack {
            config.sack_blocks = 0;
        }
        config.ecn = match host.tcp.ecn {
            scenario::EcnMode::Off => EcnMode::Off,
            scenario::EcnMode::Accept => EcnMode::Accept,
            scenario::EcnMode::Ask => EcnMode::Ask,
        };
        Ok(config)
    }

    /// Segment and header sizes.
    fn sizes(
        &self,
        flow: &Flow,
        host: &Host,
        path: &Path<'_>,
        config: &mut Config,
    ) -> Result<(), SimError> {
        let endpoint = &host.endpoint;
        let (data, bare) = match config.ns2.wire_size {
            WireSize::Fixed { data, bare } => (data, bare),
            WireSize::True => (config.data_header(), config.data_header()),
        };
        let number = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as u32);
        if endpoint.data_header.is_some() || endpoint.ack_header.is_some() {
            config.ns2.wire_size = WireSize::Fixed {
                data: number(endpoint.data_header).unwrap_or(data),
                bare: number(endpoint.ack_header).unwrap_or(bare),
            };
        }
        let headers = Bytes(config.data_header().into());
        let mtu = path.mtu();
        let fits = mtu - headers;
        let payload = match (endpoint.mss, endpoint.preset) {
            (Some(mss), _) => mss,
            (None, Preset::Ns2) => Bytes(u64::from(config.mss)),
            (None, Preset::Rfc | Preset::Scps) => fits,
        };
        let syn = endpoint.syn_length.unwrap_or_default();
        if payload > fits || payload == Bytes(0) || syn > mtu {
            return Err(SimError::Mtu {
                flow: flow.name.clone(),
                length: syn.max(payload + headers),
                mtu,
            });
        }
        // The payload is shorter than an MTU, which is at most 65,535. The maximum segment size that is announced leaves out
        // options (RFC 6691).
        config.mss = payload.0 as u16 + config.options();
        Ok(())
    }

    /// The congestion control and loss recovery of `flow`, at both ends.
    fn control(
        &self,
        flow: &Flow,
        host: &Host,
        path: &Path<'_>,
        config: Config,
    ) -> Result<Config, SimError> {
        let mut config = match &flow.variant {
            Some(variant) => config.variant(variant).map_err(|why| SimError::Variant {
                flow: flow.name.clone(),
                why,
            })?,
            None => self.named_control(flow, host.endpoint.recovery.as_ref(), config)?,
        };
        if let Some(bottleneck) = rates::bottleneck(flow, config.congestion.rate, path) {
            bottleneck.tell(&mut config.settings.link);
        }
        Ok(config)
    }

    fn named_control(
        &self,
        flow: &Flow,
        recovery: Option<&String>,
        mut config: Config,
    ) -> Result<Config, SimError> {
        if let Some(name) = recovery {
            config.recovery = self::recovery(name, &flow.name)?;
        }
        let name = self
            .scenario
            .sender_control(flow)
            .expect("a flow of TCP that has no control of its own has its host's");
        config.congestion = cc::find(name).ok_or_else(|| {
            let known: Vec<&str> = cc::REGISTRY.iter().map(|variant| variant.name).collect();
            SimError::Control {
                flow: flow.name.clone(),
                control: name.to_owned(),
                known: known.join(", "),
            }
        })?;
        Ok(config)
    }

    /// The applications of the source and of the receiver.
    fn applications(&self, flow: &Flow, piece: Bytes, closes: bool) -> (Application, Application) {
        let amount = match flow.amount {
            Amount::Bytes(bytes) => Some(bytes),
            Amount::Segments(segments) => Some(piece * segments),
            Amount::Duration(_) => None,
        };
        let sink = || Application::Sink(Sink::default());
        match flow.kind {
            FlowKind::Bulk if !closes => (
                Application::Bulk(Bulk::without_close(amount)),
                Application::Sink(Sink::without_close(amount)),
            ),
            FlowKind::Bulk => (Application::Bulk(Bulk::new(amount)), sink()),
            FlowKind::RequestResponse {
                request,
                response,
                think,
            } => (
                Application::Responder(Responder::new(request, response, amount)),
                Application::Requester(Box::new(Requester::new(request, response, think, amount))),
            ),
            FlowKind::OnOff {
                on,
                off,
                rate,
                exponential,
            } => {
                let name = format!("flow.{}.on-off", flow.name);
                let pattern = Pattern {
                    on,
                    off,
                    rate,
                    chance: exponential.then(|| Stream::new(self.seed, &name)),
                    piece,
                };
                let source = OnOff::new(pattern, amount);
                (Application::OnOff(Box::new(source)), sink())
            }
        }
    }
}

/// The preset of `endpoint` over `ip`, with the keys that differ from it, but without segment sizes and congestion control.
pub(crate) fn preset(endpoint: &Endpoint, ip: Ip) -> Config {
    let mut config = match endpoint.preset {
        Preset::Rfc => Config::rfc(),
        Preset::Ns2 => Config::ns2(),
        Preset::Scps => Config::scps(),
    };
    let set = |to: &mut std::time::Duration, from: Option<std::time::Duration>| {
        *to = from.unwrap_or(*to);
    };
    set(&mut config.delayed_ack, endpoint.delayed_ack);
    set(&mut config.initial_rto, endpoint.initial_rto);
    set(&mut config.min_rto, endpoint.min_rto);
    set(&mut config.rto_variance, endpoint.rto_variance);
    set(&mut config.max_rto, endpoint.max_rto);
    if let Some(tick) = endpoint.timer_tick {
        config.timers = TimerWheel::new(tick);
    }
    let set = |to: &mut bool, from: Option<bool>| *to = from.unwrap_or(*to);
    set(&mut config.limited_transmit, endpoint.limited_transmit);
    set(&mut config.dsack, endpoint.dsack);
    set(&mut config.linux_sack, endpoint.linux_sack);
    set(&mut config.frto, endpoint.frto);
    set(&mut config.eifel, endpoint.eifel);
    set(&mut config.timestamps, endpoint.timestamps);
    set(&mut config.nagle, endpoint.nagle);
    config.ns2.first_is_syn = endpoint.first_is_syn();
    if let Some(slow_start) = endpoint.slow_start {
        config.settings.slow_start = slow_start;
    }
    // 20 or 40.
    config.ip_header = ip.header().0 as u16;
    // At most the longest packet.
    config.syn_length = endpoint.syn_length.map(|length| length.0 as u16);
    config.quick_acks = endpoint.quick_acks.unwrap_or(config.quick_acks);
    if let Some(segments) = endpoint.initial_window {
        config.initial_window = segments;
    }
    if let Some(window) = endpoint.receive_window {
        config.receive_buffer = window;
    }
    config
}

/// Leaves the opener and the acceptor what a handshake would have agreed on.
fn agree_without_handshake(configs: &mut [Config; 2]) {
    let [opener, acceptor] = configs;
    if opener.sack_blocks == 0 || acceptor.sack_blocks == 0 {
        (opener.sack_blocks, acceptor.sack_blocks) = (0, 0);
    }
    let agreed = match (opener.ecn, acceptor.ecn) {
        (EcnMode::Ask, EcnMode::Accept | EcnMode::Ask) => EcnMode::Ask,
        _ => EcnMode::Off,
    };
    (opener.ecn, acceptor.ecn) = (agreed, agreed);
}

/// The loss recovery called `name`, for `flow` or whatever else wants it.
pub(crate) fn recovery(name: &str, flow: &str) -> Result<&'static recovery::Algorithm, SimError> {
    recovery::find(name).ok_or_else(|| {
        let known: Vec<&str> = recovery::REGISTRY.iter().map(|one| one.name).collect();
        SimError::Recovery {
            flow: flow.to_owned(),
            recovery: name.to_owned(),
            known: known.join(", "),
        }
    })
}
