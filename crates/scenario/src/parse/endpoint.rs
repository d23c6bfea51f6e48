//! `preset` and `tcp` of `[hosts.NAME]`: the simulator's TCP.

use super::LONGEST;
use crate::model::{Endpoint, Preset};
use crate::names::Word;
use bentpipe_base::Bytes;
use bentpipe_cc::SlowStart;
use bentpipe_config::{Table, Wrong, brief};
use core::time::Duration;

pub(super) fn endpoint(host: &mut Table<'_, '_>) -> Endpoint {
    let preset = preset(host);
    let Some(mut table) = host.table("tcp") else {
        return Endpoint {
            preset,
            ..Endpoint::default()
        };
    };
    let endpoint = Endpoint {
        preset,
        handshake: table.optional("handshake"),
        first_is_syn: table.optional("first_is_syn"),
        recovery: table.optional::<Word>("recovery").map(|word| word.0),
        slow_start: slow_start(&mut table),
        mss: sized(&mut table, "mss", 1..=65_495),
        initial_window: initial_window(&mut table),
        delayed_ack: time(&mut table, "delayed_ack"),
        quick_acks: quick_acks(&mut table),
        initial_rto: rto(&mut table, "initial_rto"),
        min_rto: rto(&mut table, "min_rto"),
        rto_variance: time(&mut table, "rto_variance"),
        timer_tick: time(&mut table, "timer_tick"),
        max_rto: rto(&mut table, "max_rto"),
        limited_transmit: table.optional("limited_transmit"),
        dsack: table.optional("dsack"),
        linux_sack: table.optional("linux_sack"),
        frto: table.optional("frto"),
        eifel: table.optional("eifel"),
        timestamps: table.optional("timestamps"),
        nagle: table.optional("nagle"),
        // A window scale of 14 is the most (RFC 7323, section 2.3).
        receive_window: sized(&mut table, "receive_window", 1..=65_535 << 14),
        data_header: sized(&mut table, "data_header", 0..=65_535),
        ack_header: sized(&mut table, "ack_header", 0..=65_535),
        syn_length: sized(&mut table, "syn_length", 1..=65_535),
    };
    if endpoint.min_rto > endpoint.max_rto && endpoint.max_rto.is_some() {
        let wrong = Wrong::new("a `min_rto` above `max_rto`", "the smaller of the two");
        table.problem("min_rto", wrong);
    }
    table.finish();
    endpoint
}

fn preset(host: &mut Table<'_, '_>) -> Preset {
    let Some(name) = host.optional::<String>("preset") else {
        return Preset::default();
    };
    let found = Preset::ALL.iter().find(|preset| preset.name() == name);
    found.copied().unwrap_or_else(|| {
        let what = format!("unknown preset `{}`", brief(&name));
        let names = Preset::ALL.map(Preset::name);
        host.problem("preset", Wrong::name(what, &name, &names));
        Preset::default()
    })
}

fn slow_start(table: &mut Table<'_, '_>) -> Option<SlowStart> {
    let name = table.optional::<String>("slow_start")?;
    let found = SlowStart::ALL.iter().find(|kind| kind.name() == name);
    if found.is_none() {
        let what = format!("unknown slow start `{}`", brief(&name));
        let names = SlowStart::ALL.map(SlowStart::name);
        table.problem("slow_start", Wrong::name(what, &name, &names));
    }
    found.copied()
}

pub(super) fn initial_window(table: &mut Table<'_, '_>) -> Option<u32> {
    let segments = table.optional::<u64>("initial_window")?;
    if (1..=1_000_000).contains(&segments) {
        return u32::try_from(segments).ok();
    }
    let what = format!("an initial window of {segments} segments");
    table.problem("initial_window", Wrong::new(what, "1 to 1000000"));
    None
}

fn quick_acks(table: &mut Table<'_, '_>) -> Option<u32> {
    let segments = table.optional::<u64>("quick_acks")?;
    if segments > 1_000_000 {
        let what = format!("{segments} quick acknowledgements");
        table.problem("quick_acks", Wrong::new(what, "0 to 1000000"));
    }
    u32::try_from(segments).ok()
}

pub(super) fn sized(
    table: &mut Table<'_, '_>,
    key: &'static str,
    range: core::ops::RangeInclusive<u64>,
) -> Option<Bytes> {
    let size = table.optional::<Bytes>(key)?;
    if range.contains(&size.0) {
        return Some(size);
    }
    let expected = format!("{}B to {}B", range.start(), range.end());
    table.problem(key, Wrong::new(format!("`{key}` of {size}"), expected));
    None
}

fn time(table: &mut Table<'_, '_>, key: &'static str) -> Option<Duration> {
    let time = table.optional::<Duration>(key)?;
    if time <= LONGEST {
        return Some(time);
    }
    let what = format!("`{key}` of more than a day");
    table.problem(
        key,
        Wrong::new(what, "at most a day (86400s), such as \"200ms\""),
    );
    None
}

pub(super) fn rto(table: &mut Table<'_, '_>, key: &'static str) -> Option<Duration> {
    let rto = time(table, key)?;
    if !rto.is_zero() {
        return Some(rto);
    }
    let what = format!("`{key}` of no time");
    table.problem(key, Wrong::new(what, "such as \"200ms\""));
    None
}
