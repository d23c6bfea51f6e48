//! A scenario written back as TOML, complete: every default stands there.

use crate::model::{
    AckFilter, Amount, BufferRange, Change, Direction, EcnMode, Endpoint, Flow, FlowKind, Gateway,
    Ip, Link, Pep, PepKind, Queue, QueueLimit, Scenario, Snoop, TcpSettings, Traffic,
    TrafficSource,
};
use bentpipe_base::Bytes;
use bentpipe_link::Burst;
use bentpipe_link::channel::{ChannelSpec, Form, REGISTRY};
use bentpipe_link::keys::{Value, Values};
use core::fmt::{self, Write};
use core::time::Duration;

impl Scenario {
    /// The TOML text of this scenario: `Scenario::parse` of it gives the same scenario, if this one
    /// is valid. Nothing is left to a default.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "name = \"{}\"", self.name)?;
        writeln!(out, "seed = {}", self.seed)?;
        writeln!(out, "time_limit = \"{}\"", time(self.time_limit))?;
        let ip = match self.ip {
            Ip::V4 => 4,
            Ip::V6 => 6,
        };
        writeln!(out, "ip = {ip}")?;
        for (name, host) in &self.hosts {
            writeln!(out, "\n[hosts.{name}]\nsack = {}", host.tcp.sack)?;
            if host.tcp.ecn != EcnMode::default() {
                writeln!(out, "ecn = \"{}\"", host.tcp.ecn.name())?;
            }
            tcp(out, &host.tcp)?;
            endpoint(out, &format!("hosts.{name}"), &host.endpoint)?;
        }
        for name in self.routers.keys() {
            writeln!(out, "\n[routers.{name}]")?;
        }
        for (name, node) in &self.gateways {
            gateway(out, name, node)?;
        }
        for (name, node) in &self.peps {
            pep(out, name, node)?;
        }
        for (name, node) in &self.links {
            link(out, name, node)?;
        }
        self.flows.iter().try_for_each(|node| flow(out, node))?;
        self.traffic.iter().try_for_each(|node| traffic(out, node))
    }
}

fn traffic(out: &mut String, traffic: &Traffic) -> fmt::Result {
    let [a, b] = &traffic.between;
    writeln!(out, "\n[traffic]\nbetween = [\"{a}\", \"{b}\"]")?;
    if let Some(variant) = &traffic.variant {
        writeln!(out, "variant = \"{variant}\"")?;
    }
    match &traffic.source {
        TrafficSource::Model { model, flows } => {
            writeln!(out, "model = \"{}\"\nflows = {flows}", model.kind.name())
        }
        TrafficSource::Profile { file, .. } => {
            let file = toml::Value::String(file.clone());
            writeln!(out, "profile = {file}")
        }
    }
}

fn gateway(out: &mut String, name: &str, gateway: &Gateway) -> fmt::Result {
    writeln!(out, "\n[gateways.{name}]")?;
    writeln!(out, "sat = \"{}\"\nlan = \"{}\"", gateway.sat, gateway.lan)?;
    tcp(out, &gateway.tcp)?;
    writeln!(out, "enabled = {}", gateway.enabled)?;
    endpoint(out, &format!("gateways.{name}"), &gateway.endpoint)?;
    let Some(split) = &gateway.split else {
        return Ok(());
    };
    // Nested by hand, so that its own tables get their full titles.
    let nest = |key: &str, table: toml::Table| {
        toml::Table::from_iter([(key.to_owned(), toml::Value::Table(table))])
    };
    let nested = nest(
        "gateways",
        nest(name, nest("split", split.written().clone())),
    );
    write!(out, "\n{nested}")
}

fn tcp(out: &mut String, tcp: &TcpSettings) -> fmt::Result {
    let range = |range: &BufferRange| {
        let BufferRange { min, default, max } = range;
        format!("[\"{min}\", \"{default}\", \"{max}\"]")
    };
    writeln!(out, "receive_buffer = {}", range(&tcp.receive_buffer))?;
    writeln!(out, "send_buffer = {}", range(&tcp.send_buffer))?;
    writeln!(out, "congestion_control = \"{}\"", tcp.congestion_control)
}

/// What a preset decides stays with the preset: only what was said otherwise is written.
fn endpoint(out: &mut String, path: &str, endpoint: &Endpoint) -> fmt::Result {
    writeln!(out, "preset = \"{}\"", endpoint.preset.name())?;
    let size = |key, size: Option<Bytes>| size.map(|size| format!("{key} = \"{size}\""));
    let span = |key, span: Option<Duration>| span.map(|span| format!("{key} = \"{}\"", time(span)));
    let flag = |key, flag: Option<bool>| flag.map(|flag| format!("{key} = {flag}"));
    let window = endpoint.initial_window;
    let quick_acks = endpoint.quick_acks;
    let recovery = endpoint.recovery.as_ref();
    let slow_start = endpoint.slow_start;
    let lines: Vec<String> = [
        recovery.map(|name| format!("recovery = \"{name}\"")),
        slow_start.map(|kind| format!("slow_start = \"{}\"", kind.name())),
        size("mss", endpoint.mss),
        window.map(|segments| format!("initial_window = {segments}")),
        span("delayed_ack", endpoint.delayed_ack),
        quick_acks.map(|count| format!("quick_acks = {count}")),
        span("initial_rto", endpoint.initial_rto),
        span("min_rto", endpoint.min_rto),
        span("rto_variance", endpoint.rto_variance),
        span("timer_tick", endpoint.timer_tick),
        span("max_rto", endpoint.max_rto),
        flag("handshake", endpoint.handshake),
        flag("first_is_syn", endpoint.first_is_syn),
        flag("limited_transmit", endpoint.limited_transmit),
        flag("dsack", endpoint.dsack),
        flag("linux_sack", endpoint.linux_sack),
        flag("frto", endpoint.frto),
        flag("eifel", endpoint.eifel),
        flag("timestamps", endpoint.timestamps),
        flag("nagle", endpoint.nagle),
        size("receive_window", endpoint.receive_window),
        size("data_header", endpoint.data_header),
        size("ack_header", endpoint.ack_header),
        size("syn_length", endpoint.syn_length),
    ]
    .into_iter()
    .flatten()
    .collect();
    match lines.as_slice() {
        [] => Ok(()),
        lines => writeln!(out, "[{path}.tcp]\n{}", lines.join("\n")),
    }
}

fn pep(out: &mut String, name: &str, pep: &Pep) -> fmt::Result {
    writeln!(out, "\n[peps.{name}]\nkind = \"{}\"", pep.kind.name())?;
    writeln!(out, "node = \"{}\"\nlink = \"{}\"", pep.node, pep.link)?;
    writeln!(out, "enabled = {}", pep.enabled)?;
    match &pep.kind {
        PepKind::AckFilter(AckFilter { packets }) => match packets {
            Some(packets) => writeln!(out, "packets = {packets}"),
            None => Ok(()),
        },
        PepKind::Snoop(settings) => snoop(out, settings),
    }
}

fn snoop(out: &mut String, snoop: &Snoop) -> fmt::Result {
    writeln!(out, "preset = \"{}\"", snoop.preset.name())?;
    if let Some(cache) = snoop.cache {
        writeln!(out, "cache = {{ {} }}", limit(cache))?;
    }
    if let Some(least) = snoop.min_timeout {
        writeln!(out, "min_timeout = \"{}\"", time(least))?;
    }
    match snoop.max_retransmissions {
        Some(most) => writeln!(out, "max_retransmissions = {most}"),
        None => Ok(()),
    }
}

fn link(out: &mut String, name: &str, link: &Link) -> fmt::Result {
    let [a, b] = &link.ends;
    writeln!(out, "\n[links.{name}]\nends = [\"{a}\", \"{b}\"]")?;
    writeln!(out, "mtu = \"{}\"", link.mtu)?;
    if !link.is_emulated() {
        return Ok(());
    }
    // Said of both directions or of none: a reverse direction takes the forward one's.
    let before = link.forward.errors_before_queue || link.reverse.errors_before_queue;
    let bursts = link.forward.burst.is_some() || link.reverse.burst.is_some();
    let jitter = !(link.forward.jitter.is_zero() && link.reverse.jitter.is_zero());
    direction(out, &link.forward, (before, bursts, jitter))?;
    writeln!(out, "[links.{name}.reverse]")?;
    direction(out, &link.reverse, (before, bursts, jitter))
}

/// With the place of its channels, with its bursts and with its jitter, or without.
fn direction(
    out: &mut String,
    direction: &Direction,
    (before, bursts, jitter): (bool, bool, bool),
) -> fmt::Result {
    match direction.rate {
        None => writeln!(out, "rate = \"unlimited\"")?,
        Some(rate) => {
            writeln!(out, "rate = \"{rate}\"")?;
            writeln!(out, "queue = {{ {} }}", queue(&direction.queue))?;
        }
    }
    match direction.burst {
        Some(Burst { bytes, ceiling }) => {
            writeln!(
                out,
                "burst = {{ bytes = \"{bytes}\", ceiling = \"{ceiling}\" }}"
            )?;
        }
        None if bursts => writeln!(out, "burst = {{ bytes = \"0B\" }}")?,
        None => {}
    }
    writeln!(out, "delay = \"{}\"", time(direction.delay))?;
    if jitter {
        writeln!(out, "jitter = \"{}\"", time(direction.jitter))?;
    }
    for spec in REGISTRY {
        writeln!(out, "{} = {}", spec.key, channels(direction, spec))?;
    }
    if before {
        let said = direction.errors_before_queue;
        writeln!(out, "errors_before_queue = {said}")?;
    }
    let changes: Vec<String> = direction.changes.iter().map(change).collect();
    writeln!(out, "changes = [{}]", changes.join(", "))?;
    writeln!(out, "overhead = \"{}\"", direction.overhead)
}

fn change(change: &Change) -> String {
    let rate = change.rate.map(|rate| format!("rate = \"{rate}\""));
    let delay = change
        .delay
        .map(|delay| format!("delay = \"{}\"", time(delay)));
    let at = format!("at = \"{}\"", time(change.at));
    let parts: Vec<String> = [Some(at), rate, delay].into_iter().flatten().collect();
    format!("{{ {} }}", parts.join(", "))
}

fn limit(limit: QueueLimit) -> String {
    match limit {
        QueueLimit::Bytes(bytes) => format!("bytes = \"{bytes}\""),
        QueueLimit::Packets(packets) => format!("packets = {packets}"),
    }
}

fn queue(queue: &Queue) -> String {
    let limit = queue.limit();
    let mut text = format!("kind = \"{}\", {}", queue.spec().name, self::limit(limit));
    let keys = keys_to_toml(queue.values(), matches!(limit, QueueLimit::Bytes(_)));
    if !keys.is_empty() {
        text += &format!(", {keys}");
    }
    text
}

/// The keys of a queue beside its kind and size, as an inline table has them; `in_bytes`: its size is in bytes.
pub fn keys_to_toml(values: &Values, in_bytes: bool) -> String {
    let keys = { values.iter() }.map(|(key, said)| format!("{key} = {}", value(said, in_bytes)));
    keys.collect::<Vec<_>>().join(", ")
}

/// What stands under the key of `spec`; also that there is no such channel, or a reverse direction would take the forward
/// one's.
fn channels(direction: &Direction, spec: &ChannelSpec) -> String {
    let mut these = direction.channels.under(spec.key);
    let table = |values: &Values| {
        let keys = { values.iter() }.map(|(key, said)| format!("{key} = {}", value(said, false)));
        format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
    };
    match spec.form {
        Form::Bare => {
            let default = Values::examples(&spec.ways.concat());
            let said = these.next().unwrap_or(&default).get(spec.key);
            said.map_or_else(String::new, |said| value(said, false))
        }
        Form::Table => these.next().map_or_else(|| "\"none\"".to_owned(), table),
        Form::List => format!("[{}]", these.map(table).collect::<Vec<_>>().join(", ")),
    }
}

/// As a scenario says it of a queue that is measured in bytes, or not.
pub(crate) fn value(value: &Value, in_bytes: bool) -> String {
    match value {
        Value::Chance(chance) => format!("\"{chance}\""),
        Value::Time(span) => format!("\"{}\"", time(*span)),
        Value::Size(size) => format!("\"{size}\""),
        Value::Number(number) => format!("{number:?}"),
        Value::Flag(flag) => flag.to_string(),
        Value::Length(length) if in_bytes => format!("\"{}\"", Bytes(*length)),
        Value::Length(length) => length.to_string(),
        Value::Numbers(numbers) => format!("{numbers:?}"),
    }
}

fn flow(out: &mut String, flow: &Flow) -> fmt::Result {
    let kind = flow.kind.name();
    writeln!(
        out,
        "\n[[flows]]\nname = \"{}\"\nkind = \"{kind}\"",
        flow.name
    )?;
    writeln!(out, "from = \"{}\"\nto = \"{}\"", flow.from, flow.to)?;
    writeln!(out, "opened_by = \"{}\"", flow.opened_by)?;
    writeln!(out, "start = \"{}\"", time(flow.start))?;
    match &flow.kind {
        FlowKind::Bulk => {}
        FlowKind::RequestResponse {
            request,
            response,
            think,
        } => {
            writeln!(out, "request = \"{request}\"\nresponse = \"{response}\"")?;
            writeln!(out, "think = \"{}\"", time(*think))?;
        }
        FlowKind::OnOff {
            on,
            off,
            rate,
            exponential,
        } => {
            writeln!(out, "on = \"{}\"\noff = \"{}\"", time(*on), time(*off))?;
            if let Some(rate) = rate {
                writeln!(out, "rate = \"{rate}\"")?;
            }
            writeln!(out, "exponential = {exponential}")?;
        }
    }
    if let Some(app) = &flow.app {
        writeln!(out, "app = \"{app}\"")?;
    }
    match flow.amount {
        Amount::Segments(segments) => writeln!(out, "segments = {segments}")?,
        Amount::Bytes(bytes) => writeln!(out, "bytes = \"{bytes}\"")?,
        Amount::Duration(duration) => writeln!(out, "duration = \"{}\"", time(duration))?,
    }
    if let Some(control) = &flow.congestion_control {
        writeln!(out, "congestion_control = \"{control}\"")?;
    }
    if let Some(variant) = &flow.variant {
        writeln!(out, "variant = \"{variant}\"")?;
    }
    match flow.path_rate {
        Some(rate) => writeln!(out, "path_rate = \"{rate}\""),
        None => Ok(()),
    }
}

/// A duration in the largest unit that keeps it whole.
fn time(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.iter().find(|(scale, _)| nanos.is_multiple_of(*scale)) {
        Some((scale, unit)) => format!("{}{unit}", nanos / scale),
        None => format!("{nanos}ns"),
    }
}
