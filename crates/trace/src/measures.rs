//! The counts of a direction by name: one table for text, JSON and CSV.

use crate::{Connection, Direction, Statistics};
use serde::Serialize;

/// What is counted or measured of a direction.
pub struct Measure {
    /// Its name in JSON and CSV.
    pub key: &'static str,
    /// What tcptrace calls it.
    pub label: &'static str,
    /// Its unit, if it has one.
    pub unit: &'static str,
    /// Its value for one direction of a connection.
    pub value: fn(&Connection, &Direction) -> Value,
}

/// A value of a measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A figure, and how many decimals it is printed with.
    #[serde(serialize_with = "bare")]
    Real(f64, usize),
    /// Words.
    Text(String),
    /// It is not known.
    Absent,
}

fn bare<S: serde::Serializer>(figure: &f64, _: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*figure)
}

fn milliseconds(nanos: f64) -> Value {
    Value::Real(nanos / 1e6, 1)
}

fn known(count: Option<u64>) -> Value {
    count.map_or(Value::Absent, Value::Count)
}

fn yes(flag: bool) -> &'static str {
    if flag { "Y" } else { "N" }
}

const fn count(
    key: &'static str,
    label: &'static str,
    unit: &'static str,
    value: fn(&Connection, &Direction) -> Value,
) -> Measure {
    Measure {
        key,
        label,
        unit,
        value,
    }
}

/// Defines a measure whose value is a count of a direction.
macro_rules! counts {
    ($key:literal, $label:literal, $unit:literal, $one:ident => $value:expr) => {
        count($key, $label, $unit, |_, $one| {
            Value::Count(u64::from($value))
        })
    };
}

macro_rules! times {
    ($key:literal, $label:literal, $of:expr, $what:expr) => {
        count($key, $label, "ms", |_, one| {
            let of: fn(&Direction) -> &Statistics = $of;
            let what: fn(&Statistics) -> f64 = $what;
            milliseconds(what(of(one)))
        })
    };
}

/// Every measure, in tcptrace's order.
pub const MEASURES: &[Measure] = &[
    counts!("total_packets", "total packets", "", one => one.packets),
    counts!("resets_sent", "resets sent", "", one => one.resets),
    counts!("ack_pkts_sent", "ack pkts sent", "", one => one.acks),
    counts!("pure_acks_sent", "pure acks sent", "", one => one.pure_acks),
    counts!("sack_pkts_sent", "sack pkts sent", "", one => one.sacks),
    counts!("dsack_pkts_sent", "dsack pkts sent", "", one => one.dsacks),
    counts!("max_sack_blks_per_ack", "max sack blks/ack", "", one => one.most_sack_blocks),
    counts!("unique_bytes_sent", "unique bytes sent", "", one => one.unique_bytes),
    counts!("actual_data_pkts", "actual data pkts", "", one => one.data_packets),
    counts!("actual_data_bytes", "actual data bytes", "", one => one.data_bytes),
    counts!("rexmt_data_pkts", "rexmt data pkts", "", one => one.retransmitted_packets),
    counts!("rexmt_data_bytes", "rexmt data bytes", "", one => one.retransmitted_bytes),
    counts!("zwnd_probe_pkts", "zwnd probe pkts", "", one => one.window_probes),
    counts!("zwnd_probe_bytes", "zwnd probe bytes", "", one => one.window_probe_bytes),
    counts!("outoforder_pkts", "outoforder pkts", "", one => one.out_of_order),
    counts!("pushed_data_pkts", "pushed data pkts", "", one => one.pushed),
    count("syn_fin_pkts_sent", "SYN/FIN pkts sent", "", |_, one| {
        Value::Text(format!("{}/{}", one.syns, one.fins))
    }),
    count("req_1323_ws_ts", "req 1323 ws/ts", "", |_, one| {
        let (scale, stamps) = (one.requests_window_scale, one.requests_timestamps);
        Value::Text(format!("{}/{}", yes(scale), yes(stamps)))
    }),
    counts!("adv_wind_scale", "adv wind scale", "", one => one.window_scale),
    count("req_sack", "req sack", "", |_, one| {
        Value::Text(yes(one.permits_sack).to_owned())
    }),
    counts!("urgent_data_pkts", "urgent data pkts", "pkts", one => one.urgent_packets),
    counts!("urgent_data_bytes", "urgent data bytes", "bytes", one => one.urgent_bytes),
    counts!("mss_requested", "mss requested", "bytes", one => one.mss),
    counts!("max_segm_size", "max segm size", "bytes", one => one.longest),
    counts!("min_segm_size", "min segm size", "bytes", one => one.shortest),
    count("avg_segm_size", "avg segm size", "bytes", |_, one| {
        Value::Count(one.data_bytes.checked_div(one.data_packets).unwrap_or(0))
    }),
    counts!("max_win_adv", "max win adv", "bytes", one => one.windows.max),
    counts!("min_win_adv", "min win adv", "bytes", one => one.windows.min),
    counts!("zero_win_adv", "zero win adv", "times", one => one.windows.zero),
    counts!("avg_win_adv", "avg win adv", "bytes", one => one.windows.mean()),
    counts!("max_outstanding", "max outstanding", "bytes", one => one.outstanding.max),
    counts!("avg_outstanding", "avg outstanding", "bytes", one => one.outstanding.mean()),
    counts!("initial_window_bytes", "initial window", "bytes", one => one.initial_window_bytes),
    counts!("initial_window_pkts", "initial window", "pkts", one => one.initial_window_packets),
    count(
        "ttl_stream_length",
        "ttl stream length",
        "bytes",
        |_, one| known(one.stream_length()),
    ),
    count("missed_data", "missed data", "bytes", |_, one| {
        known(one.missed())
    }),
    counts!("truncated_data", "truncated data", "bytes", one => one.truncated_bytes),
    counts!("truncated_packets", "truncated packets", "pkts", one => one.truncated_packets),
    count("data_xmit_time", "data xmit time", "secs", |_, one| {
        let times = one.data_times.map(|(first, last)| last.nanos_since(first));
        Value::Real(times.unwrap_or(0) as f64 / 1e9, 3)
    }),
    count("idletime_max", "idletime max", "ms", |_, one| {
        match one.packets {
            0 => Value::Absent,
            _ => milliseconds(one.longest_idle as f64),
        }
    }),
    count("throughput", "throughput", "Bps", |whole, one| {
        let throughput = whole.throughput(one);
        throughput.map_or(Value::Absent, |rate| Value::Real(rate, 0))
    }),
    counts!("rtt_samples", "RTT samples", "", one => one.rtt.samples.count),
    times!("rtt_min", "RTT min", |one| &one.rtt.samples, |it| it.min
        as f64),
    times!("rtt_max", "RTT max", |one| &one.rtt.samples, |it| it.max
        as f64),
    times!(
        "rtt_avg",
        "RTT avg",
        |one| &one.rtt.samples,
        Statistics::mean
    ),
    times!(
        "rtt_stdev",
        "RTT stdev",
        |one| &one.rtt.samples,
        Statistics::deviation
    ),
    count("rtt_from_3whs", "RTT from 3WHS", "ms", |_, one| {
        milliseconds(one.rtt.handshake as f64)
    }),
    counts!("post_loss_acks", "post-loss acks", "", one => one.rtt.after_loss),
    counts!("ambiguous_acks", "ambiguous acks", "", one => one.rtt.ambiguous.count),
    times!(
        "rtt_min_last",
        "RTT min (last)",
        |one| &one.rtt.ambiguous,
        |it| it.min as f64
    ),
    times!(
        "rtt_max_last",
        "RTT max (last)",
        |one| &one.rtt.ambiguous,
        |it| it.max as f64
    ),
    times!(
        "rtt_avg_last",
        "RTT avg (last)",
        |one| &one.rtt.ambiguous,
        Statistics::mean
    ),
    times!(
        "rtt_sdv_last",
        "RTT sdv (last)",
        |one| &one.rtt.ambiguous,
        Statistics::deviation
    ),
    counts!("segs_cum_acked", "segs cum acked", "", one => one.rtt.cumulative),
    counts!("duplicate_acks", "duplicate acks", "", one => one.rtt.duplicate),
    counts!("triple_dupacks", "triple dupacks", "", one => one.rtt.triple),
    counts!("max_retrans", "max # retrans", "", one => one.rtt.most_retransmissions),
    times!(
        "min_retr_time",
        "min retr time",
        |one| &one.rtt.retransmissions,
        |it| it.min as f64
    ),
    times!(
        "max_retr_time",
        "max retr time",
        |one| &one.rtt.retransmissions,
        |it| it.max as f64
    ),
    times!(
        "avg_retr_time",
        "avg retr time",
        |one| &one.rtt.retransmissions,
        Statistics::mean
    ),
    times!(
        "sdv_retr_time",
        "sdv retr time",
        |one| &one.rtt.retransmissions,
        Statistics::deviation
    ),
];
