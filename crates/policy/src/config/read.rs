//! From TOML to [`Config`].

mod policy;

use super::{Config, Control as Socket, Handshake, Intercept, Limits};
use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_pep::leg::Leg;
use bentpipe_scenario::Problems;
use bentpipe_scenario::read::{Document, Table, Value, Wrong};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeValue;

pub(super) fn config(file: &str, text: &str) -> Result<Config, Problems> {
    let document = Document::new(file, text);
    if document.is_broken() {
        return document.finish(None);
    }
    let mut root = document.root();
    let mut config = Config::default();
    config.port = root.or("port", Whole::<0, 65_534>(0)).0 as u16;
    config.intercept = root.or("intercept", config.intercept);
    config.handshake = root.or("handshake", config.handshake);
    config.threads = root
        .optional("threads")
        .map(|Whole::<1, 1024>(threads)| threads as usize);
    config.drain = root.or("drain", config.drain);
    config.control = root.or("control", config.control);
    config.metrics = root
        .optional("metrics")
        .and_then(|Metrics(address)| address);
    config.flow_log = root
        .optional("flow_log")
        .and_then(|AbsolutePath(path)| path);
    if let Some(table) = root.table("lan") {
        (config.lan_interface, config.lan) = leg(table, |_| Leg::terrestrial());
    }
    if let Some(table) = root.table("sat") {
        (config.sat_interface, config.sat) = leg(table, Leg::satellite);
    }
    if let Some(table) = root.table("limits") {
        config.limits = limits(table);
    }
    config.quic = root.or("quic", config.quic);
    config.policies = policy::list(&mut root);
    root.finish();
    document.finish(Some(config))
}

fn leg(mut table: Table<'_, '_>, defaults: impl Fn(Option<Rate>) -> Leg) -> (Option<String>, Leg) {
    let interface = table
        .optional("interface")
        .map(|Interface(interface)| interface);
    let rate = table.optional("rate").map(|LinkRate(rate)| rate);
    let mut leg = defaults(rate);
    leg.rate = rate;
    if let Some(Control(control)) = table.optional("congestion_control") {
        leg.congestion = Some(control);
    }
    leg.insist = table.or("insist", leg.insist);
    if leg.insist && leg.congestion.is_none() {
        table.problem(
            "insist",
            Wrong::new(
                "`insist` without a `congestion_control` to insist on",
                "both, or neither",
            ),
        );
    }
    let Pacing(pacing) = table.or("pacing", Pacing(leg.pacing));
    leg.pacing = pacing;
    let ReferenceTime(rtt0) = table.or("rtt0", ReferenceTime(leg.rtt0));
    leg.rtt0 = rtt0;
    leg.aggressive = table.or("aggressive", leg.aggressive);
    let Guard(guard) = table.or("guard", Guard(leg.guard));
    leg.guard = guard;
    let Overhead(overhead) = table.or("overhead", Overhead(leg.overhead));
    leg.overhead = overhead;
    let Buffer(send) = table.or("send_buffer", Buffer(leg.send_buffer));
    leg.send_buffer = send;
    if let Some(LinkRate(rate)) = table.optional("receive_rate") {
        leg.receive_buffer = Leg::buffer(rate);
    }
    let Buffer(receive) = table.or("receive_buffer", Buffer(leg.receive_buffer));
    leg.receive_buffer = receive;
    leg.notsent_lowat = table
        .optional("notsent_lowat")
        .map(|Buffer(size)| size)
        .or(leg.notsent_lowat);
    table.finish();
    (interface, leg)
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
    limits.descriptors = table
        .optional("descriptors")
        .map(|Whole::<100, 1_000_000_000>(count)| count as usize);
    if let Some(Pipe(size)) = table.optional("pipe") {
        limits.pipe = size;
    }
    if let Some(Whole::<1, 1_000_000>(pipes)) = table.optional("pipes") {
        limits.pipes = pipes as usize;
    }
    table.finish();
    limits
}

/// A whole number from `MIN` to `MAX`.
struct Whole<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Value for Whole<MIN, MAX> {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let range = format!("a whole number from {MIN} to {MAX}, without quotes");
        match u64::read(value, source) {
            Ok(number) if (MIN..=MAX).contains(&number) => Ok(Self(number)),
            Ok(number) => Err(Wrong::new(format!("`{number}` is out of range"), range)),
            Err(wrong) => Err(Wrong::new(wrong.what, range)),
        }
    }
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

impl Value for Socket {
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

/// An address and a port, or `"off"`.
struct Metrics(Option<SocketAddr>);

impl Value for Metrics {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        let wrong = |_| {
            Wrong::new(
                format!("`{}` is no address with a port", text.escape_default()),
                "an address and a port such as \"127.0.0.1:9463\", or \"off\"",
            )
        };
        match text.as_str() {
            "off" => Ok(Self(None)),
            text => Ok(Self(Some(text.parse().map_err(wrong)?))),
        }
    }
}

/// A path from the root, or `"off"`.
struct AbsolutePath(Option<PathBuf>);

impl Value for AbsolutePath {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match text.as_str() {
            "off" => Ok(Self(None)),
            path if path.starts_with('/') && !path.contains('\0') => {
                Ok(Self(Some(PathBuf::from(path))))
            }
            other => Err(Wrong::new(
                format!("`{}` is no path from the root", other.escape_default()),
                "a path such as \"/run/bentpipe/gateway.sock\", or \"off\"",
            )),
        }
    }
}

/// The name of an interface: 1 to 15 bytes, as the kernel takes them.
struct Interface(String);

impl Value for Interface {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let name = String::read(value, source)?;
        let fits = (1..16).contains(&name.len())
            && name
                .chars()
                .all(|c| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '"' | '\\' | '*'));
        if !fits {
            let what = format!("`{}` cannot name an interface", name.escape_default());
            return Err(Wrong::new(
                what,
                "1 to 15 letters and digits, as `ip link` shows them",
            ));
        }
        Ok(Self(name))
    }
}

/// The name of a congestion control: 1 to 15 bytes, as the kernel takes them.
struct Control(String);

impl Value for Control {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let name = String::read(value, source)?;
        let fits = (1..16).contains(&name.len())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !fits {
            let what = format!(
                "`{}` cannot name a congestion control",
                name.escape_default()
            );
            return Err(Wrong::new(what, "1 to 15 letters, such as \"cubic\""));
        }
        Ok(Self(name))
    }
}

/// The part of the rate to pace at.
struct Pacing(Probability);

impl Value for Pacing {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a part of the rate from 10% to 100%, such as \"99%\" or 0.99";
        match Probability::read(value, source) {
            Ok(part) if part.value() >= 0.1 => Ok(Self(part)),
            Ok(part) => Err(Wrong::new(format!("`{part}` is too little"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

/// The rate of a link.
struct LinkRate(Rate);

impl Value for LinkRate {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let rate = Rate::read(value, source)?;
        let range = Rate::from_bits_per_sec(8_000)..=Rate::from_bits_per_sec(100_000_000_000);
        if !range.contains(&rate) {
            let what = format!("`{rate}` is out of range");
            return Err(Wrong::new(what, "a rate from 8kbit/s to 100Gbit/s"));
        }
        Ok(Self(rate))
    }
}

/// The delay that sets the guard off.
struct Guard(Option<Duration>);

impl Value for Guard {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 1ms to 16s, such as \"60ms\", or \"off\"";
        if String::read(value, source).is_ok_and(|text| text == "off") {
            return Ok(Self(None));
        }
        match Duration::read(value, source) {
            Ok(time) if (0.001..=16.0).contains(&time.as_secs_f64()) => Ok(Self(Some(time))),
            Ok(time) => Err(Wrong::new(format!("{time:?} is out of range"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

/// How long a flow may be idle.
struct Idle(Option<Duration>);

impl Value for Idle {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 1s to 30 days, such as \"3600s\", or \"off\"";
        if String::read(value, source).is_ok_and(|text| text == "off") {
            return Ok(Self(None));
        }
        match Duration::read(value, source) {
            Ok(time) if (1..=2_592_000).contains(&time.as_secs()) => Ok(Self(Some(time))),
            Ok(time) => Err(Wrong::new(format!("{time:?} is out of range"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

/// What a link adds to a packet.
struct Overhead(Bytes);

impl Value for Overhead {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        sized(value, source, 0, 1500, "from 0B to 1500B, such as \"20B\"").map(Self)
    }
}

/// The RTT0 of Hybla.
struct ReferenceTime(Duration);

impl Value for ReferenceTime {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 1ms to 1s, such as \"25ms\"";
        match Duration::read(value, source) {
            Ok(time) if (0.001..=1.0).contains(&time.as_secs_f64()) => Ok(Self(time)),
            Ok(time) => Err(Wrong::new(format!("{time:?} is out of range"), expected)),
            Err(wrong) => Err(wrong),
        }
    }
}

/// The size of a socket's buffer.
struct Buffer(Bytes);

impl Value for Buffer {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        sized(
            value,
            source,
            4 << 10,
            1 << 30,
            "from 4KiB to 1GiB, such as \"2MiB\"",
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

fn sized(
    value: &DeValue<'_>,
    source: &str,
    least: u64,
    most: u64,
    range: &str,
) -> Result<Bytes, Wrong> {
    let size = Bytes::read(value, source)?;
    if !(least..=most).contains(&size.0) {
        let what = format!("`{size}` is out of range");
        return Err(Wrong::new(what, format!("an amount of data {range}")));
    }
    Ok(size)
}
