//! From TOML to [`Config`].

mod leg;
mod policy;
mod snoop;

use super::{Config, ControlSocket, Handshake, Intercept, Limits};
use bentpipe_base::Bytes;
use bentpipe_config::network::{AbsolutePath, Buffered, Idle, Metrics, Whole, sized, time};
use bentpipe_config::{Document, Problems, Table, Value, Wrong};
use std::time::Duration;
use toml::de::DeValue;

/// Whose keys are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// Those that a gateway understands.
    Gateway,
    /// Also those that only the legs of a simulated gateway have.
    Scenario,
}

pub(super) fn file(file: &str, text: &str) -> Result<Config, Problems> {
    let document = Document::new(file, text);
    if document.is_broken() {
        return document.finish(None);
    }
    let config = config(document.root(), Keys::Gateway);
    document.finish(Some(config))
}

/// What `root` says; problems are recorded in its document.
pub(super) fn config(mut root: Table<'_, '_>, keys: Keys) -> Config {
    let mut config = Config::default();
    config.port = root.or("port", Whole::<0, 65_520>(0)).0 as u16;
    config.intercept = root.or("intercept", config.intercept);
    config.handshake = root.or("handshake", config.handshake);
    config.threads = root
        .optional("threads")
        .map(|Whole::<1, 1024>(threads)| threads as usize);
    config.drain = root.or("drain", config.drain);
    config.retire = root.or("retire", config.retire);
    config.control = root.or("control", config.control);
    config.metrics = root
        .optional("metrics")
        .and_then(|Metrics(address)| address);
    config.flow_log = root
        .optional("flow_log")
        .and_then(|AbsolutePath(path)| path);
    if let Some(table) = root.table("lan") {
        (config.lan_interfaces, config.lan) = leg::leg(table, super::LegId::Lan, &[], keys);
    }
    if let Some(table) = root.table("sat") {
        let taken = &config.lan_interfaces;
        (config.sat_interfaces, config.sat) = leg::leg(table, super::LegId::Sat, taken, keys);
    }
    if let Some(table) = root.table("limits") {
        config.limits = limits(table);
    }
    config.quic = root.or("quic", config.quic);
    if let Some(table) = root.table("snoop") {
        config.snoop = snoop::snoop(table);
    }
    config.profiles = leg::profiles(&mut root, [&config.lan, &config.sat], keys);
    one_far_end(&root, &config);
    config.policies = policy::list(&mut root, &config.profiles);
    far_end(&root, &config);
    root.finish();
    config
}

/// The far end of a scenario's leg over QUIC splits nothing.
fn far_end(root: &Table<'_, '_>, config: &Config) {
    let end = config.sat.quic_end.as_ref();
    if end.is_none_or(|end| end.proxy.is_some()) {
        return;
    }
    let plain = Config {
        sat: config.sat.clone(),
        sat_interfaces: config.sat_interfaces.clone(),
        ..Config::default()
    };
    if *config != plain {
        let what = "more than [sat] of a far end of QUIC, which splits nothing";
        let expected = "[sat] alone; or `proxy` in it, the gateway that is the far end";
        root.problem("sat", Wrong::new(what, expected));
    }
}

/// All legs over QUIC lead to one far end, by one connection.
fn one_far_end(root: &Table<'_, '_>, config: &Config) {
    let variants = config.profiles.iter().map(|profile| &profile.leg);
    let mut ends = [&config.sat]
        .into_iter()
        .chain(variants)
        .filter_map(|leg| leg.quic.as_ref());
    if let Some(first) = ends.next()
        && ends.any(|other| other != first)
    {
        let what = "legs with `carrier = \"quic\"` of more than one far end";
        let expected = "one far end: the keys of QUIC in [sat], or in one [leg.NAME]";
        root.problem("leg", Wrong::new(what, expected));
    }
}

fn limits(mut table: Table<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    if let Some(Whole::<1, 10_000_000>(flows)) = table.optional("flows") {
        limits.flows = flows as usize;
    }
    if let Some(Whole::<1, 65_536>(half_open)) = table.optional("half_open") {
        limits.half_open = half_open as usize;
    }
    if let Some(Idle(idle)) = table.optional("idle") {
        limits.idle = idle;
    }
    if let Some(Span(stalled)) = table.optional("stalled") {
        limits.stalled = stalled;
    }
    if let Some(Span(keepalive)) = table.optional("keepalive") {
        limits.keepalive = keepalive;
    }
    limits.descriptors = table
        .optional("descriptors")
        .map(|Whole::<100, 1_000_000_000>(count)| count as usize);
    limits.buffered = table
        .optional("buffered")
        .map(|Buffered(size)| size)
        .or(limits.buffered);
    limits.client_buffered = table.optional("client_buffered").map(|Buffered(size)| size);
    if let Some(Pipe(size)) = table.optional("pipe") {
        limits.pipe = size;
    }
    if let Some(Whole::<0, 1_000_000>(pipes)) = table.optional("pipes") {
        limits.pipes = pipes as usize;
    }
    if let Some(Buffered(size)) = table.optional("snoop_cache") {
        limits.snoop_cache = size;
    }
    if let Some(Whole::<1, 1_000_000>(flows)) = table.optional("snoop_flows") {
        limits.snoop_flows = flows as usize;
    }
    table.finish();
    limits
}

impl Value for Intercept {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match text.as_str() {
            "lan" => Ok(Self::Lan),
            "sat" => Ok(Self::Sat),
            "both" => Ok(Self::Both),
            other => {
                let what = format!("`{other}` is no side to intercept");
                Err(Wrong::name(what, other, &["lan", "sat", "both"]))
            }
        }
    }
}

impl Value for Handshake {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match text.as_str() {
            "end-to-end" => Ok(Self::EndToEnd),
            "early" => Ok(Self::Early),
            other => {
                let what = format!("`{other}` is no way to answer a SYN");
                Err(Wrong::name(what, other, &["end-to-end", "early"]))
            }
        }
    }
}

impl Value for ControlSocket {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        match AbsolutePath::read(value, source) {
            Ok(AbsolutePath(None)) => Ok(Self::Off),
            // The kernel's `sun_path` holds 107 bytes and a zero.
            Ok(AbsolutePath(Some(path))) if path.as_os_str().len() <= 100 => Ok(Self::At(path)),
            Ok(AbsolutePath(Some(path))) => {
                let what = format!("`{}` is too long for a socket", path.display());
                Err(Wrong::new(what, "a path of at most 100 bytes"))
            }
            Err(wrong) => Err(wrong),
        }
    }
}

/// A time that the kernel, too, takes for the pause before its keep-alive probes.
struct Span(Duration);

impl Value for Span {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        time(
            value,
            source,
            1..=32_767,
            "a time from 1s to 9 hours, such as \"180s\"",
        )
        .map(Self)
    }
}

/// The size of a pipe.
struct Pipe(Bytes);

impl Value for Pipe {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        sized(
            value,
            source,
            64 << 10,
            1 << 20,
            "from 64KiB to 1MiB, such as \"1MiB\"",
        )
        .map(Self)
    }
}
