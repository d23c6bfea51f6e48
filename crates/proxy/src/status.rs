//! The status of a proxy, for people and scripts.

use bentpipe_tunnel_sockets as tunnels;
use serde::Serialize;
use serde_json::Value;
use std::net::SocketAddr;

/// A proxy at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The program's version.
    pub version: &'static str,
    /// Its process.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime: f64,
    /// `serving` or `draining`.
    pub state: &'static str,
    /// Its UDP address.
    pub listen: SocketAddr,
    /// Its public key.
    pub key: String,
    /// What carries the connections.
    #[serde(flatten)]
    pub tunnels: tunnels::Status,
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or(0.0)
}

fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

/// A status, as the control socket gives it, for people.
pub(crate) fn page(status: &Value) -> String {
    let of = |path: &str| number(status, path);
    let failures = {
        status["counters"]["failures"]
            .as_object()
            .into_iter()
            .flatten()
    }
    .filter(|(_, count)| count.as_f64() > Some(0.0))
    .map(|(why, count)| format!("{why} {count}"));
    let dropped = { status["udp"]["dropped"].as_object().into_iter().flatten() }
        .filter_map(|(_, count)| count.as_u64())
        .sum::<u64>();
    let mut lines = vec![
        format!(
            "bentpipe {}, process {}, up {:.0} s: {} at {}",
            text(status, "/version"),
            of("/pid"),
            of("/uptime"),
            text(status, "/state"),
            text(status, "/listen"),
        ),
        format!("key      {}", text(status, "/key")),
        format!(
            "flows    {}, of which {} are dialled; {} opened so far, {} reset",
            of("/flows"),
            of("/dialling"),
            of("/counters/opened"),
            of("/counters/reset"),
        ),
        format!("failed   {}", failures.collect::<Vec<_>>().join(", ")),
        format!(
            "carried  {} bytes to the clients, {} from them",
            of("/counters/bytes_in"),
            of("/counters/bytes_out"),
        ),
        format!(
            "udp      {} flows; {} datagrams to the clients, {} from them, {} dropped",
            of("/udp/flows"),
            of("/udp/into"),
            of("/udp/out"),
            dropped,
        ),
    ];
    if of("/counters/fec/sources") > 0.0 {
        lines.push(format!(
            "fec      {} packets and {} repairs sent; of those lost on the way here {} recovered, {} not",
            of("/counters/fec/sources"),
            of("/counters/fec/repairs"),
            of("/counters/fec/recovered"),
            of("/counters/fec/unrepaired"),
        ));
    }
    let lost = text(status, "/last_loss");
    if !lost.is_empty() {
        lines.push(format!(
            "lost     {}; the last: {lost}",
            of("/counters/lost")
        ));
    }
    let connections = status["connections"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    lines.push(match connections {
        [] => "no client is connected".to_owned(),
        _ => format!(
            "\n{:<24} {:<5} {:>7} {:>7} {:>9} {:>9}  KEY",
            "CLIENT", "BY", "UP s", "TUNNELS", "RTT ms", "LOST"
        ),
    });
    lines.extend(connections.iter().map(|one| {
        format!(
            "{:<24} {:<5} {:>7.0} {:>7} {:>9.1} {:>9}  {}",
            text(one, "/peer"),
            text(one, "/carrier"),
            number(one, "/uptime"),
            number(one, "/tunnels"),
            number(one, "/rtt") * 1e3,
            number(one, "/lost"),
            text(one, "/key"),
        )
    }));
    lines.join("\n")
}
