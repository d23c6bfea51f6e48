//! `[hosts.NAME]`, `[routers.NAME]`, `[gateways.NAME]`.

use super::{Places, named};
use crate::model::{BufferRange, EcnMode, Gateway, Host, Router, Split, TcpSettings};
use crate::names::{Control, Name};
use bentpipe_base::Bytes;
use bentpipe_config::{Place, Table, Wrong, brief};
use bentpipe_gateway_config::Config;
use std::collections::BTreeMap;

pub(super) fn hosts(
    root: &mut Table<'_, '_>,
    places: &mut Places,
) -> Option<BTreeMap<String, Host>> {
    named(root, "hosts", |name, place, mut table| {
        claim(&table, places, name, place);
        let control = table.place_of("congestion_control");
        places.controls.insert(name.to_owned(), control);
        let tcp = TcpSettings {
            sack: table.or("sack", true),
            ecn: ecn(&mut table),
            ..tcp(&mut table)
        };
        let endpoint = super::endpoint::endpoint(&mut table);
        table.finish();
        Some(Host { tcp, endpoint })
    })
}

pub(super) fn routers(
    root: &mut Table<'_, '_>,
    places: &mut Places,
) -> Option<BTreeMap<String, Router>> {
    named(root, "routers", |name, place, table| {
        claim(&table, places, name, place);
        table.finish();
        Some(Router {})
    })
}

pub(super) fn gateways(
    root: &mut Table<'_, '_>,
    places: &mut Places,
) -> Option<BTreeMap<String, Gateway>> {
    named(root, "gateways", |name, place, mut table| {
        claim(&table, places, name, place);
        let sat = table.required::<Name>("sat", "\"space\"");
        let lan = table.required::<Name>("lan", "\"ground\"");
        let legs = [table.place_of("sat"), table.place_of("lan")];
        places.legs.insert(name.to_owned(), legs);
        let tcp = tcp(&mut table);
        let endpoint = super::endpoint::endpoint(&mut table);
        let enabled = table.or("enabled", true);
        let written = table.opaque("split");
        let config = table.table("split").map(Config::of_scenario);
        table.finish();
        Some(Gateway {
            sat: sat?.0,
            lan: lan?.0,
            tcp,
            endpoint,
            enabled,
            split: { written.zip(config) }.map(|(written, config)| Split::new(written, config)),
        })
    })
}

/// Hosts, routers and gateways share one set of names: links refer to them by name alone.
fn claim(table: &Table<'_, '_>, places: &mut Places, name: &str, place: &Place) {
    let taken = places.nodes.insert(name.to_owned(), place.clone());
    if taken.is_some() {
        let what = format!("a second node named `{name}`");
        let expected = "names that differ among hosts, routers and gateways";
        table
            .document()
            .problem(place.clone(), Wrong::new(what, expected));
    }
}

fn tcp(table: &mut Table<'_, '_>) -> TcpSettings {
    let stock = TcpSettings::default();
    let control = table.optional::<Control>("congestion_control");
    TcpSettings {
        receive_buffer: buffer(table, "receive_buffer").unwrap_or(stock.receive_buffer),
        send_buffer: buffer(table, "send_buffer").unwrap_or(stock.send_buffer),
        congestion_control: control.map_or(stock.congestion_control, |control| control.0),
        sack: stock.sack,
        ecn: stock.ecn,
    }
}

fn ecn(table: &mut Table<'_, '_>) -> EcnMode {
    let Some(name) = table.optional::<String>("ecn") else {
        return EcnMode::default();
    };
    let found = EcnMode::ALL.iter().find(|mode| mode.name() == name);
    found.copied().unwrap_or_else(|| {
        let what = format!("unknown value `{}` of `ecn`", brief(&name));
        let names = EcnMode::ALL.map(EcnMode::name);
        table.problem("ecn", Wrong::name(what, &name, &names));
        EcnMode::default()
    })
}

fn buffer(table: &mut Table<'_, '_>, key: &'static str) -> Option<BufferRange> {
    let example = "[\"4096B\", \"131072B\", \"6291456B\"]";
    let [min, default, max] = table.array::<Bytes, 3>(key, example)?;
    // The kernel holds the three as positive 32-bit integers.
    let fits = min.0 > 0 && max.0 <= i32::MAX as u64;
    if min <= default && default <= max && fits {
        return Some(BufferRange { min, default, max });
    }
    let what = format!("{min}, {default}, {max} cannot be a buffer");
    let expected = "smallest, initial and largest size in this order, more than 0, below 2 GiB";
    table.problem(key, Wrong::new(what, expected));
    None
}
