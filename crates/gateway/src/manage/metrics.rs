//! The page for Prometheus in the OpenMetrics text format 1.0, made for each scrape from the counters and the kernel's
//! list of connections.

use crate::handle::Handle;
use crate::status::{LegStatus, Status};
use bentpipe_gateway_config::LegId;
use bentpipe_relay::{AdmissionMode, Distribution};
use std::fmt::{self, Write as _};

const LEGS: [LegId; 2] = [LegId::Lan, LegId::Sat];

/// A scrape of the gateway.
pub(super) fn text(handle: &Handle) -> Result<String, fmt::Error> {
    let mut page = Page(String::new());
    counters(handle, &mut page)?;
    times(handle, &mut page)?;
    match handle.status() {
        Ok(status) => status_families(&status, &mut page)?,
        // The counters are there still.
        Err(error) => tracing::warn!(%error, "the metrics lack the flows"),
    }
    page.0.push_str("# EOF\n");
    Ok(page.0)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The text so far.
struct Page(String);

impl Page {
    /// The lines before a metric's values.
    fn head(&mut self, name: &str, kind: Kind, help: &str) -> fmt::Result {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        writeln!(self.0, "# TYPE bentpipe_{name} {kind}")?;
        writeln!(self.0, "# HELP bentpipe_{name} {help}")
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.head(name, Kind::Counter, help)?;
        writeln!(self.0, "bentpipe_{name}_total {value}")
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.head(name, Kind::Gauge, help)?;
        writeln!(self.0, "bentpipe_{name} {value}")
    }

    /// One metric with a value for each label.
    fn family(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        label: &str,
        values: &[(&str, u64)],
    ) -> fmt::Result {
        self.head(name, kind, help)?;
        let suffix = if kind == Kind::Counter { "_total" } else { "" };
        for (of, value) in values {
            writeln!(
                self.0,
                "bentpipe_{name}{suffix}{{{label}=\"{of}\"}} {value}"
            )?;
        }
        Ok(())
    }

    /// The values of a histogram; `labels` as `leg="sat"`, or empty.
    fn distribution(&mut self, name: &str, labels: &str, times: &Distribution) -> fmt::Result {
        let mut count = 0;
        let comma = if labels.is_empty() { "" } else { "," };
        for (bound, more) in &times.buckets {
            count += more;
            write!(self.0, "bentpipe_{name}_bucket{{{labels}{comma}le=\"")?;
            match *bound {
                f64::MAX => self.0.push_str("+Inf"),
                // A canonical number has a point.
                bound => write!(self.0, "{bound:?}")?,
            }
            writeln!(self.0, "\"}} {count}")?;
        }
        let labels = match labels {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        writeln!(self.0, "bentpipe_{name}_sum{labels} {}", times.sum)?;
        writeln!(self.0, "bentpipe_{name}_count{labels} {count}")
    }
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

fn times(handle: &Handle, page: &mut Page) -> fmt::Result {
    let name = "connect_seconds";
    let help = "From a client's SYN (early: its connection) until both legs stand.";
    page.head(name, Kind::Histogram, help)?;
    page.distribution(name, "", &handle.meter.connect_times())?;
    let name = "rtt_seconds";
    let help = "Smoothed round-trip times: of flows that end, and of standing ones every 10 s.";
    page.head(name, Kind::Histogram, help)?;
    for leg in LEGS {
        let labels = format!("leg=\"{}\"", leg.name());
        page.distribution(name, &labels, &handle.meter.round_trips(leg))?;
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
