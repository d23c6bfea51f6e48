//! The page for Prometheus.

use crate::status::Status;
use bentpipe_management::openmetrics::{Kind, Page};
use std::fmt;

/// A scrape of a proxy with this status.
pub(crate) fn text(status: &Status) -> Result<String, fmt::Error> {
    let mut page = Page::default();
    let tunnels = &status.tunnels;
    let counters = &tunnels.counters;
    let by_tcp = { tunnels.connections.iter() }.filter(|one| one.carrier == "http2");
    let by_tcp = by_tcp.count();
    for (name, help, value) in [
        ("uptime_seconds", "Time since the start.", status.uptime),
        (
            "proxy_serves",
            "1 while tunnels are taken, 0 while it drains.",
            f64::from(u8::from(tunnels.up)),
        ),
        (
            "proxy_connections",
            "Connections of clients.",
            tunnels.connections.len() as f64,
        ),
        (
            "proxy_http2_connections",
            "Of these, those over TCP.",
            by_tcp as f64,
        ),
        (
            "proxy_flows",
            "Flows, those that are dialled included.",
            tunnels.flows as f64,
        ),
        (
            "proxy_dialling",
            "Flows whose server has not answered.",
            tunnels.dialling as f64,
        ),
        (
            "proxy_udp_policed",
            "1 while UDP is policed on the way to a client.",
            f64::from(u8::from(tunnels.udp_policed)),
        ),
        ("proxy_udp_flows", "UDP flows.", tunnels.udp.flows as f64),
    ] {
        page.gauge(name, help, value)?;
    }
    for (name, help, value) in [
        (
            "proxy_connected",
            "Connections that stood.",
            counters.connected,
        ),
        (
            "proxy_lost",
            "Connections that were lost, or never stood.",
            counters.lost,
        ),
        (
            "proxy_asked",
            "Tunnels that were asked for.",
            counters.asked,
        ),
        (
            "proxy_from_clients",
            "Dials from clients' own addresses.",
            counters.from_clients,
        ),
        (
            "proxy_opened",
            "Tunnels whose dial succeeded.",
            counters.opened,
        ),
        (
            "proxy_ended",
            "Flows of which both sides said their end.",
            counters.ended,
        ),
        (
            "proxy_reset",
            "Flows that were reset after their dial had succeeded.",
            counters.reset,
        ),
    ] {
        page.counter(name, help, value)?;
    }
    let help = "Bytes carried, by direction.";
    let bytes = [
        ("to_clients", counters.bytes_in),
        ("from_clients", counters.bytes_out),
    ];
    page.family(
        ("proxy_carried_bytes", Kind::Counter, help),
        "direction",
        &bytes,
    )?;
    let help = "UDP datagrams carried, by direction.";
    let datagrams = [
        ("to_clients", tunnels.udp.into),
        ("from_clients", tunnels.udp.out),
    ];
    page.family(
        ("proxy_udp_datagrams", Kind::Counter, help),
        "direction",
        &datagrams,
    )?;
    let help = "UDP datagrams dropped, by reason.";
    let dropped: Vec<_> = { tunnels.udp.dropped.iter() }
        .map(|(&why, &count)| (why, count))
        .collect();
    page.family(
        ("proxy_udp_dropped", Kind::Counter, help),
        "reason",
        &dropped,
    )?;
    let help = "UDP flows that this end ended, by reason.";
    let ended = [
        ("unreachable", tunnels.udp.unreachable),
        ("idle", tunnels.udp.idle),
    ];
    page.family(("proxy_udp_ended", Kind::Counter, help), "reason", &ended)?;
    let fec = &counters.fec;
    let help = "Datagrams sent with forward error correction, by kind.";
    let sent = [("source", fec.sources), ("repair", fec.repairs)];
    page.family(("proxy_fec_sent", Kind::Counter, help), "kind", &sent)?;
    let help = "Packets lost on the way here, by what repairs could do.";
    let lost = [("recovered", fec.recovered), ("unrepaired", fec.unrepaired)];
    page.family(("proxy_fec_lost", Kind::Counter, help), "fate", &lost)?;
    let help = "Dials that failed, by reason (RFC 9209).";
    let failures: Vec<_> = { counters.failures.iter() }
        .map(|(&why, &count)| (why, count))
        .collect();
    page.family(("proxy_failed", Kind::Counter, help), "reason", &failures)?;
    Ok(page.finish())
}
