//! A scenario written back as TOML, complete: every default stands there.

use crate::model::{
    Amount, BufferRange, Direction, Flow, FlowKind, Gateway, Ip, Link, Queue, QueueLimit, Scenario,
    TcpSettings,
};
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
            writeln!(out, "\n[hosts.{name}]")?;
            tcp(out, &host.tcp)?;
        }
        for name in self.routers.keys() {
            writeln!(out, "\n[routers.{name}]")?;
        }
        for (name, node) in &self.gateways {
            gateway(out, name, node)?;
        }
        for (name, node) in &self.links {
            link(out, name, node)?;
        }
        self.flows.iter().try_for_each(|node| flow(out, node))
    }
}

fn gateway(out: &mut String, name: &str, gateway: &Gateway) -> fmt::Result {
    writeln!(out, "\n[gateways.{name}]")?;
    writeln!(out, "sat = \"{}\"\nlan = \"{}\"", gateway.sat, gateway.lan)?;
    tcp(out, &gateway.tcp)?;
    let Some(split) = &gateway.split else {
        return Ok(());
    };
    // Nested by hand, so that its own tables get their full titles.
    let nest = |key: &str, table: toml::Table| {
        toml::Table::from_iter([(key.to_owned(), toml::Value::Table(table))])
    };
    let nested = nest("gateways", nest(name, nest("split", split.clone())));
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

fn link(out: &mut String, name: &str, link: &Link) -> fmt::Result {
    let [a, b] = &link.ends;
    writeln!(out, "\n[links.{name}]\nends = [\"{a}\", \"{b}\"]")?;
    writeln!(out, "mtu = \"{}\"", link.mtu)?;
    if !link.is_emulated() {
        return Ok(());
    }
    direction(out, &link.forward)?;
    writeln!(out, "[links.{name}.reverse]")?;
    direction(out, &link.reverse)
}

fn direction(out: &mut String, direction: &Direction) -> fmt::Result {
    match direction.rate {
        None => writeln!(out, "rate = \"unlimited\"")?,
        Some(rate) => {
            let Queue::DropTail(limit) = direction.queue;
            let limit = match limit {
                QueueLimit::Bytes(bytes) => format!("bytes = \"{bytes}\""),
                QueueLimit::Packets(packets) => format!("packets = {packets}"),
            };
            writeln!(out, "rate = \"{rate}\"")?;
            writeln!(out, "queue = {{ kind = \"drop-tail\", {limit} }}")?;
        }
    }
    writeln!(out, "delay = \"{}\"", time(direction.delay))?;
    writeln!(
        out,
        "packet_error_rate = \"{}\"",
        direction.packet_error_rate
    )?;
    writeln!(out, "bit_error_rate = \"{}\"", direction.bit_error_rate)?;
    writeln!(out, "overhead = \"{}\"", direction.overhead)
}

fn flow(out: &mut String, flow: &Flow) -> fmt::Result {
    let kind = match flow.kind {
        FlowKind::Bulk => "bulk",
    };
    writeln!(
        out,
        "\n[[flows]]\nname = \"{}\"\nkind = \"{kind}\"",
        flow.name
    )?;
    writeln!(out, "from = \"{}\"\nto = \"{}\"", flow.from, flow.to)?;
    writeln!(out, "opened_by = \"{}\"", flow.opened_by)?;
    writeln!(out, "start = \"{}\"", time(flow.start))?;
    match flow.amount {
        Amount::Bytes(bytes) => writeln!(out, "bytes = \"{bytes}\"")?,
        Amount::Duration(duration) => writeln!(out, "duration = \"{}\"", time(duration))?,
    }
    if let Some(control) = &flow.congestion_control {
        writeln!(out, "congestion_control = \"{control}\"")?;
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
