//! The page for Prometheus in the OpenMetrics text format 1.0, made for each scrape from the counters and the kernel's
//! list of connections.

use crate::command_handle::Handle;
use crate::status::{LegStatus, Status};
use bentpipe_gateway_config::LegId;
use bentpipe_management::openmetrics::{Kind, Page};
use bentpipe_relay::{AdmissionMode, Distribution};
use std::fmt;

const LEGS: [LegId; 2] = [LegId::Lan, LegId::Sat];

/// A scrape of the gateway.
pub(super) fn text(handle: &Handle) -> Result<String, fmt::Error> {
    let mut page = Page::default();
    counters(handle, &mut page)?;
    times(handle, &mut page)?;
    match handle.status() {
        Ok(status) => status_families(&status, &mut page)?,
        // The counters are there still.
        Err(error) => tracing::warn!(%error, "the metrics lack the flows"),
    }
    Ok(page.finish())
}

/// All counters by their own names; bytes by where they go.
fn counters(handle: &Handle, page: &mut Page) -> fmt::Result {
    let counters = handle.counters();
    for entry in counters.entries() {
        if !entry.name.starts_with("bytes_to_") {
            page.counter(entry.name, entry.what, entry.value)?;
        }
    }
    page.family(
        (
            "carried_bytes",
            Kind::Counter,
            "Bytes carried, by the leg they go out by.",
        ),
        "leg",
        &[
            ("lan", counters.bytes_to_lan),
            ("sat", counters.bytes_to_sat),
        ],
    )
}

fn distribution(page: &mut Page, name: &str, labels: &str, times: &Distribution) -> fmt::Result {
    page.distribution(name, labels, &times.buckets, times.sum)
}

fn times(handle: &Handle, page: &mut Page) -> fmt::Result {
    let name = "connect_seconds";
    let help = "From a client's SYN (early: its connection) until both legs stand.";
    page.head(name, Kind::Histogram, help)?;
    distribution(page, name, "", &handle.meter.connect_times())?;
    let name = "rtt_seconds";
    let help = "Smoothed round-trip times: of flows that end, and of standing ones every 10 s.";
    page.head(name, Kind::Histogram, help)?;
    for leg in LEGS {
        let labels = format!("leg=\"{}\"", leg.name());
        distribution(page, name, &labels, &handle.meter.round_trips(leg))?;
    }
    Ok(())
}

/// The metrics that come from the status.
fn status_families(status: &Status, page: &mut Page) -> fmt::Result {
    let flows = &status.flows;
    page.family(
        ("flows", Kind::Gauge, "Flows by state."),
        "state",
        &[
            ("handshake", flows.handshake),
            ("dialling", flows.dialling),
            ("established", flows.established),
            ("half_closed", flows.half_closed),
            ("closing", flows.closing),
            ("unpaired", flows.unpaired),
        ],
    )?;
    page.gauge("open", "Flows in the gateway's books.", flows.open as f64)?;
    page.gauge(
        "flow_limit",
        "Flows from which on new ones pass unsplit.",
        status.limits.flows as f64,
    )?;
    page.gauge(
        "buffered_bytes",
        "What waits in buffers and pipes, the kernel's overhead included.",
        status.buffered as f64,
    )?;
    page.gauge(
        "buffered_limit_bytes",
        "From that on new flows pass unsplit.",
        status.limits.buffered as f64,
    )?;
    page.gauge(
        "splits",
        "1 while new connections are split, 0 while they pass.",
        f64::from(u8::from(status.admission == AdmissionMode::Serving)),
    )?;
    page.gauge("uptime_seconds", "Time since the start.", status.uptime)?;
    let unsplit = status.unsplit.iter();
    let packets: Vec<_> = unsplit
        .clone()
        .map(|unsplit| (unsplit.reason.as_str(), unsplit.packets))
        .collect();
    let bytes: Vec<_> = unsplit
        .map(|unsplit| (unsplit.reason.as_str(), unsplit.bytes))
        .collect();
    page.family(
        (
            "unsplit_packets",
            Kind::Counter,
            "What passed unsplit, by reason; of connections, their SYNs.",
        ),
        "reason",
        &packets,
    )?;
    page.family(
        ("unsplit_bytes", Kind::Counter, "What passed unsplit."),
        "reason",
        &bytes,
    )?;
    if let Some(scone) = status.scone {
        page.family(
            (
                "scone_packets",
                Kind::Counter,
                "SCONE packets that crossed the satellite link, by whether what they advised was lowered.",
            ),
            "advice",
            &[
                ("lowered", scone.lowered),
                ("kept", scone.seen.saturating_sub(scone.lowered)),
            ],
        )?;
    }
    if let Some(tunnels) = &status.tunnels {
        tunnel_families(tunnels, page)?;
    }
    let legs = [("lan", &status.lan), ("sat", &status.sat)];
    let each = |of: fn(&LegStatus) -> u64| legs.map(|(leg, status)| (leg, of(status)));
    page.family(
        ("connections", Kind::Gauge, "Connections of flows, by leg."),
        "leg",
        &each(|leg| leg.connections),
    )?;
    page.family(
        (
            "waiting_bytes",
            Kind::Gauge,
            "Bytes held to be sent or acknowledged, by leg.",
        ),
        "leg",
        &each(|leg| leg.waiting),
    )?;
    page.family(
        (
            "retransmitted_segments",
            Kind::Counter,
            "Segments sent again, by leg.",
        ),
        "leg",
        &each(|leg| leg.retransmitted_ever),
    )
}

/// The metrics of tunnels over QUIC.
fn tunnel_families(tunnels: &bentpipe_tunnel_sockets::Status, page: &mut Page) -> fmt::Result {
    let counters = &tunnels.counters;
    for (name, help, value) in [
        (
            "tunnels_up",
            "1 while the far end takes tunnels, 0 while new connections do without.",
            u64::from(tunnels.up),
        ),
        (
            "tunnels_udp_policed",
            "1 while UDP is policed on the way to the far end or from it.",
            u64::from(tunnels.udp_policed),
        ),
        (
            "tunnels_udp_blocked",
            "1 while the far end answers by TCP and not by UDP, so that new tunnels are on HTTP/2.",
            u64::from(tunnels.udp_blocked),
        ),
        (
            "tunnel_flows",
            "Connections on tunnels.",
            tunnels.flows as u64,
        ),
        (
            "tunnels_dialling",
            "Tunnels whose far end has not answered.",
            tunnels.dialling as u64,
        ),
    ] {
        page.gauge(name, help, value as f64)?;
    }
    for (name, help, value) in [
        (
            "tunnel_connects",
            "How often the far end was reached.",
            counters.connected,
        ),
        (
            "tunnel_losses",
            "How often it was lost, or not reached.",
            counters.lost,
        ),
        (
            "tunnel_fall_backs",
            "How often UDP was found blocked.",
            counters.fall_backs,
        ),
        (
            "tunnels_early",
            "Tunnels that were asked for in a first flight.",
            counters.early,
        ),
        (
            "tunnels_opened",
            "Tunnels whose far end has dialled.",
            counters.opened,
        ),
        (
            "tunnels_reset",
            "Tunnels that were reset after that.",
            counters.reset,
        ),
    ] {
        page.counter(name, help, value)?;
    }
    let help = "Bytes carried on tunnels, by direction.";
    let bytes = [
        ("to_sat", counters.bytes_in),
        ("to_lan", counters.bytes_out),
    ];
    page.family(("tunnel_bytes", Kind::Counter, help), "direction", &bytes)?;
    udp_families(&tunnels.udp, page)?;
    let fec = &counters.fec;
    let help = "Datagrams sent with forward error correction, by kind.";
    let sent = [("source", fec.sources), ("repair", fec.repairs)];
    page.family(("tunnel_fec_sent", Kind::Counter, help), "kind", &sent)?;
    let help = "Packets lost on the way here, by what repairs could do.";
    let lost = [("recovered", fec.recovered), ("unrepaired", fec.unrepaired)];
    page.family(("tunnel_fec_lost", Kind::Counter, help), "fate", &lost)?;
    let help = "Dials of the far end that failed, by reason (RFC 9209).";
    let failures: Vec<_> = { counters.failures.iter() }
        .map(|(&why, &count)| (why, count))
        .collect();
    page.family(
        ("tunnel_failures", Kind::Counter, help),
        "reason",
        &failures,
    )
}

/// The metrics of clients' UDP on tunnels.
fn udp_families(udp: &bentpipe_tunnel_sockets::UdpStatus, page: &mut Page) -> fmt::Result {
    page.gauge(
        "tunnel_udp_flows",
        "UDP flows on tunnels.",
        udp.flows as f64,
    )?;
    let help = "UDP datagrams of clients, by what became of them, and answers to them.";
    let datagrams = [
        ("carried", udp.into),
        ("answered", udp.out),
        ("without_tunnel", udp.passed),
    ];
    page.family(
        ("tunnel_udp_datagrams", Kind::Counter, help),
        "what",
        &datagrams,
    )?;
    let help = "UDP datagrams that were dropped, by reason.";
    let dropped: Vec<_> = { udp.dropped.iter() }
        .map(|(&why, &count)| (why, count))
        .collect();
    page.family(
        ("tunnel_udp_dropped", Kind::Counter, help),
        "reason",
        &dropped,
    )
}
