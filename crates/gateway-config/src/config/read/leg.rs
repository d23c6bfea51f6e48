//! `[lan]`, `[sat]` and `[leg.NAME]`.

use super::Keys;
use super::policy::Name;
use crate::config::{LegId, Profile};
use crate::{Carrier, Leg, LossCause, QuicCarrier, QuicEnd, SconeRates, quic};
use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_config::network::{LinkRate, Many, Whole, sized};
use bentpipe_config::{Table, Value, Wrong};
use std::time::Duration;
use toml::de::DeValue;

/// What only our own TCP heeds.
const OURS: [&str; 4] = [
    "ack_every",
    "ack_delay",
    "loss_cause",
    "corruption_experienced",
];

/// `[lan]` or `[sat]`: its interfaces, none of which may be among `taken`, and its policy.
pub(super) fn leg(
    mut table: Table<'_, '_>,
    which: LegId,
    taken: &[String],
    keys: Keys,
) -> (Vec<String>, Leg) {
    let mut interfaces: Vec<String> = Vec::new();
    let Many(named) = table.optional("interface").unwrap_or(Many(Vec::new()));
    for Interface(name) in named {
        if taken.contains(&name) || interfaces.contains(&name) {
            let what = format!("`{name}` is named twice");
            let wrong = Wrong::new(what, "each interface once: a split needs two legs");
            table.problem("interface", wrong);
        }
        interfaces.push(name);
    }
    let rate = table.optional("rate").map(|LinkRate(rate)| rate);
    let mut leg = match which {
        LegId::Lan => Leg::terrestrial(),
        LegId::Sat => Leg::satellite(rate),
    };
    leg.link.rate = rate;
    leg.carrier = carrier(&mut table, which, &leg);
    if leg.carrier == Carrier::Scps {
        leg.link = leg.link.pure_rate();
    }
    leg.link = quic::link(&mut table, leg.link);
    let receive_rate = table.optional("receive_rate").map(|LinkRate(rate)| rate);
    if let Some(rate) = receive_rate {
        leg.receive_buffer = Leg::buffer(rate);
    }
    quic_carrier(&mut table, &mut leg, (keys, None), receive_rate);
    if which == LegId::Sat {
        leg.scone = scone(&mut table, rate, receive_rate);
        let rate = table.optional("ack_rate");
        leg.ack_rate = rate.map(|LinkRate(rate)| rate);
    }
    let unbounded = match keys {
        Keys::Gateway => [false; 2],
        Keys::Scenario => ["send_buffer", "receive_buffer"].map(|key| table.says(key, "infinite")),
    };
    of_flows(&mut table, &mut leg, unbounded);
    if keys == Keys::Scenario {
        simulated(&mut table, &mut leg);
    }
    table.finish();
    (interfaces, leg)
}

/// What SCONE packets are to say at most, on a link of those rates.
fn scone(table: &mut Table<'_, '_>, rate: Option<Rate>, receive_rate: Option<Rate>) -> SconeRates {
    let Some(SconeShare(share)) = table.optional("scone") else {
        return SconeRates::default();
    };
    if share.is_some() && rate.is_none() && receive_rate.is_none() {
        let what = "`scone` of a link of unknown rate";
        let wrong = Wrong::new(what, "a `rate`, a `receive_rate` or both beside it");
        table.problem("scone", wrong);
    }
    let part = |rate: Option<Rate>| Some(rate?.scaled(share?.value()));
    SconeRates {
        to_sat: part(rate),
        from_sat: part(receive_rate),
    }
}

/// What only simulated legs know.
fn simulated(table: &mut Table<'_, '_>, leg: &mut Leg) {
    leg.variant = table.optional("variant").map(|Variant(name)| name);
    if leg.variant.is_some() && table.has("congestion_control") {
        let what = "`variant` beside `congestion_control`";
        table.problem("variant", Wrong::new(what, "one of the two"));
    }
    leg.initial_window = table
        .optional("initial_window")
        .map(|Whole::<1, 1_000_000>(segments)| segments as u32);
}

/// What carries a leg, which has that of `leg` where it does not say.
fn carrier(table: &mut Table<'_, '_>, which: LegId, leg: &Leg) -> Carrier {
    let carrier = table.or("carrier", leg.carrier);
    if carrier != Carrier::Kernel {
        let wrong = match which {
            LegId::Lan => Some("of a satellite leg only"),
            LegId::Sat if carrier == Carrier::Scps && leg.link.rate.is_none() => {
                Some("beside a `rate` in [sat], for it sends at a given rate")
            }
            LegId::Sat => None,
        };
        if let Some(expected) = wrong {
            let what = "this `carrier` is none that this leg can have";
            table.problem("carrier", Wrong::new(what, expected));
        }
    }
    carrier
}

/// The other end of a leg that QUIC carries, which is as `before` where it is not said.
fn quic_carrier(
    table: &mut Table<'_, '_>,
    leg: &mut Leg,
    (keys, before): (Keys, Option<&QuicCarrier>),
    receive_rate: Option<Rate>,
) {
    if leg.carrier == Carrier::Quic && keys == Keys::Scenario {
        leg.quic_end = Some(QuicEnd::read(table, receive_rate));
        return;
    }
    if leg.carrier == Carrier::Quic {
        leg.quic = QuicCarrier::read(table, before, receive_rate);
        return;
    }
    for key in quic::KEYS {
        if !table.has(key) {
            continue;
        }
        let what = format!("`{key}` of a leg that QUIC does not carry");
        table.problem(
            key,
            Wrong::new(what, "`carrier = \"quic\"` beside it, or without it"),
        );
        // It is known, and wrong here.
        table.says(key, "");
    }
}

/// The tables `[leg.NAME]`: variants of `legs`, that of the ground before that of the satellite.
pub(super) fn profiles(root: &mut Table<'_, '_>, legs: [&Leg; 2], keys: Keys) -> Vec<Profile> {
    let mut profiles = Vec::new();
    for (name, place, mut table) in root.tables("leg") {
        let problem = |wrong| table.document().problem(place.clone(), wrong);
        if !Name::fits(name) {
            let what = format!("`{}` cannot name a leg", name.escape_default());
            problem(Wrong::new(what, Name::EXPECTED));
        }
        if profiles.len() == Profile::MOST {
            let what = format!("there are more than {} of them", Profile::MOST);
            problem(Wrong::new(what, "fewer tables `[leg.NAME]`"));
        }
        let like = table.or("like", LegId::Sat);
        let mut leg = legs[like as usize].clone();
        let before = leg.carrier;
        leg.carrier = carrier(&mut table, like, &leg);
        if leg.carrier == Carrier::Scps && before != Carrier::Scps {
            leg.link = leg.link.pure_rate();
        }
        if keys == Keys::Scenario && (leg.carrier == Carrier::Quic || before == Carrier::Quic) {
            let what = "a variant of a leg, in a scenario, that QUIC carries or whose leg it does";
            let expected =
                "no such [leg.NAME] beside `carrier = \"quic\"`, which [sat] alone has there";
            table.problem("carrier", Wrong::new(what, expected));
        }
        let carrier = leg.quic.take();
        quic_carrier(&mut table, &mut leg, (keys, carrier.as_ref()), None);
        of_flows(&mut table, &mut leg, [false; 2]);
        table.finish();
        profiles.push(Profile {
            name: name.to_owned(),
            like,
            leg,
        });
    }
    profiles
}

/// What may differ between the flows of a leg, whose buffers to send and to receive may be `unbounded`.
fn of_flows(table: &mut Table<'_, '_>, leg: &mut Leg, unbounded: [bool; 2]) {
    if let Some(Control(control)) = table.optional("congestion_control") {
        leg.congestion = Some(control);
        // A profile's own control takes the place of the simulated TCP that its leg may have.
        leg.variant = None;
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
    let [send, receive] = unbounded;
    leg.send_buffer = if send {
        Leg::UNBOUNDED
    } else {
        table.or("send_buffer", Buffer(leg.send_buffer)).0
    };
    leg.receive_buffer = if receive {
        Leg::UNBOUNDED
    } else {
        table.or("receive_buffer", Buffer(leg.receive_buffer)).0
    };
    leg.notsent_lowat = table
        .optional("notsent_lowat")
        .map(|Buffer(size)| size)
        .or(leg.notsent_lowat);
    if let Some(Segment(mss)) = table.optional("mss") {
        leg.mss = mss;
    }
    let every = table.optional("ack_every");
    leg.ack_every = every.map_or(leg.ack_every, |Whole::<1, 64>(every)| Some(every as u32));
    let delay = table.optional("ack_delay");
    leg.ack_delay = delay.map_or(leg.ack_delay, |AckDelay(delay)| Some(delay));
    leg.loss_cause = table.optional("loss_cause").or(leg.loss_cause);
    if let Some(Corruption(time)) = table.optional("corruption_experienced") {
        leg.corruption_experienced = time;
    }
    for key in OURS {
        if table.has(key) && leg.carrier != Carrier::Scps {
            let what = format!(
                "`{key}` of a leg that the kernel's TCP carries, which decides that itself"
            );
            table.problem(
                key,
                Wrong::new(what, "`carrier = \"scps\"` beside it, or without it"),
            );
        }
    }
}

impl Value for Carrier {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match text.as_str() {
            "kernel" => Ok(Self::Kernel),
            "scps" => Ok(Self::Scps),
            "quic" => Ok(Self::Quic),
            other => {
                let what = format!("`{other}` carries no leg");
                Err(Wrong::name(what, other, &["kernel", "scps", "quic"]))
            }
        }
    }
}

impl Value for LossCause {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match text.as_str() {
            "corruption" => Ok(Self::Corruption),
            "congestion" => Ok(Self::Congestion),
            other => {
                let what = format!("`{other}` causes no losses");
                Err(Wrong::name(what, other, &["corruption", "congestion"]))
            }
        }
    }
}

/// How long the far end is believed that packets arrive damaged there.
struct Corruption(Option<Duration>);

impl Value for Corruption {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 10ms to 60s, such as \"2s\", or \"off\"";
        if String::read(value, source).is_ok_and(|text| text == "off") {
            return Ok(Self(None));
        }
        match Duration::read(value, source) {
            Ok(time) if (0.01..=60.0).contains(&time.as_secs_f64()) => Ok(Self(Some(time))),
            Ok(time) => Err(Wrong::new(format!("{time:?} is out of range"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

/// The name of an interface: 1 to 15 bytes, as the kernel takes them.
pub(super) struct Interface(pub(super) String);

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

/// The name of a TCP of the papers, such as `sack`.
struct Variant(String);

impl Value for Variant {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let name = String::read(value, source)?;
        let fits = (1..=40).contains(&name.len())
            && name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+'));
        if !fits {
            let what = format!("`{}` is not a name", name.escape_default());
            return Err(Wrong::new(what, "letters, digits, `-`, `_` or `+`"));
        }
        Ok(Self(name))
    }
}

/// The share of a link that a QUIC connection is told.
struct SconeShare(Option<Probability>);

impl Value for SconeShare {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a part of the rate from 1% to 100%, such as \"50%\" or 0.5, or \"off\"";
        if String::read(value, source).is_ok_and(|text| text == "off") {
            return Ok(Self(None));
        }
        match Probability::read(value, source) {
            Ok(part) if part.value() >= 0.01 => Ok(Self(Some(part))),
            Ok(part) => Err(Wrong::new(format!("`{part}` is too little"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

/// How long an acknowledgement waits: at most what RFC 9293, section 3.8.6.3, allows.
struct AckDelay(Duration);

impl Value for AckDelay {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time up to 500ms, such as \"100ms\"";
        match Duration::read(value, source) {
            Ok(time) if time <= Duration::from_millis(500) => Ok(Self(time)),
            Ok(time) => Err(Wrong::new(format!("{time:?} is too long"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
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

/// The largest segment.
struct Segment(Option<Bytes>);

impl Value for Segment {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        if String::read(value, source).is_ok_and(|text| text == "off") {
            return Ok(Self(None));
        }
        let range = "from 88B to 16KiB, such as \"1360B\", or \"off\"";
        sized(value, source, 88, 16 << 10, range).map(|size| Self(Some(size)))
    }
}
