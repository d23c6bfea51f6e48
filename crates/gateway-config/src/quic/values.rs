//! How single keys of a leg over QUIC are written.

use bentpipe_base::{Bytes, Probability};
use bentpipe_config::network::{AbsolutePath, Many, Ports, Whole, sized, time, word};
use bentpipe_config::{Value, Wrong};
use core::ops::RangeInclusive;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use toml::de::DeValue;

/// How much forward error correction there is.
pub(super) enum Fec {
    Off,
    Measured,
    Fixed(Probability),
}

impl Value for Fec {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "\"off\", \"measured\", or an overhead from 1% to 100%, such as \"10%\"";
        match String::read(value, source).as_deref() {
            Ok("off") => return Ok(Self::Off),
            Ok("measured") => return Ok(Self::Measured),
            _ => {}
        }
        match Probability::read(value, source) {
            Ok(overhead) if overhead.value() >= 0.01 => Ok(Self::Fixed(overhead)),
            Ok(overhead) => Err(Wrong::new(format!("`{overhead}` is too little"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

/// Packets of which a repair is made.
pub(super) struct Window(pub(super) u16);

impl Value for Window {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let Whole::<1, 512>(packets) = Whole::read(value, source)?;
        // As many as 512 fit.
        Ok(Self(packets as u16))
    }
}

/// The address and the UDP port of another host.
pub(super) struct Remote(pub(super) SocketAddr);

impl Value for Remote {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() > 0 && !address.ip().is_unspecified() => {
                Ok(Self(address))
            }
            _ => Err(Wrong::new(
                format!("`{}` is no address of a proxy", text.escape_default()),
                "its IP address and UDP port, such as \"198.51.100.7:4433\"",
            )),
        }
    }
}

/// The file of a secret key.
pub struct KeyFile(pub PathBuf);

impl Value for KeyFile {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        match AbsolutePath::read(value, source) {
            Ok(AbsolutePath(Some(path))) => Ok(Self(path)),
            _ => Err(Wrong::new(
                "this is no path from the root",
                "the file of a secret key, such as \"/etc/bentpipe/gateway.key\"",
            )),
        }
    }
}

/// A file of certificates, or of the secret key of one.
pub struct CertificateFile(pub PathBuf);

impl Value for CertificateFile {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        match AbsolutePath::read(value, source) {
            Ok(AbsolutePath(Some(path))) => Ok(Self(path)),
            _ => Err(Wrong::new(
                "this is no path from the root",
                "a file in PEM, such as \"/etc/bentpipe/proxy.crt\"",
            )),
        }
    }
}

/// A public key: `ed25519:`, or `sha256:` of one in a certificate, and the base64 of 32 bytes.
pub(super) struct PeerKey(pub(super) String);

impl Value for PeerKey {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        let digits = text
            .strip_prefix("ed25519:")
            .or_else(|| text.strip_prefix("sha256:"))
            .and_then(|rest| rest.strip_suffix('='));
        let is_digit = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
        if digits.is_some_and(|digits| digits.len() == 43 && digits.chars().all(is_digit)) {
            return Ok(Self(text));
        }
        Err(Wrong::new(
            format!("`{}` is no public key", text.escape_default()),
            "`ed25519:` or, of a certificate, `sha256:`, and 44 characters, as `bentpipe proxy keys` prints it",
        ))
    }
}

/// What becomes of new connections while the far end is not reached.
pub(super) struct WhenDown(pub(super) bool);

impl Value for WhenDown {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [("pass", false), ("refuse", true)];
        word(value, source, "way without a far end", &all).map(Self)
    }
}

/// What the far end hears of clients.
pub(super) struct ClientAddress(pub(super) bool);

impl Value for ClientAddress {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [("hide", false), ("tell", true)];
        word(value, source, "way with clients' addresses", &all).map(Self)
    }
}

/// What carries beside QUIC.
pub(super) struct FallBack(pub(super) bool);

impl Value for FallBack {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [("http2", true), ("off", false)];
        word(value, source, "second carrier", &all).map(Self)
    }
}

/// Whether first flights carry clients' connections.
pub(super) struct EarlyData(pub(super) bool);

impl Value for EarlyData {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [("on", true), ("off", false)];
        word(value, source, "use of first flights", &all).map(Self)
    }
}

/// A round-trip time.
pub(super) struct RoundTrip(pub(super) Duration);

impl Value for RoundTrip {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 1ms to 10s, such as \"600ms\"";
        match Duration::read(value, source) {
            Ok(time) if (0.001..=10.0).contains(&time.as_secs_f64()) => Ok(Self(time)),
            Ok(time) => Err(Wrong::new(format!("{time:?} is out of range"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

/// Packets that are lost.
pub(super) struct Loss(pub(super) Probability);

impl Value for Loss {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a part from 0% to 30%, such as \"1%\" or 0.01";
        match Probability::read(value, source) {
            Ok(loss) if loss.value() <= 0.3 => Ok(Self(loss)),
            Ok(loss) => Err(Wrong::new(format!("`{loss}` is too much"), expected)),
            Err(wrong) => Err(Wrong::new(wrong.what, expected)),
        }
    }
}

/// The longest packet: no path of QUIC may be narrower than 1,200 bytes of payload (RFC 9000, section 14).
pub(super) struct Mtu(pub(super) Bytes);

impl Value for Mtu {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let range = "from 1248B to 9000B, such as \"1500B\"";
        sized(value, source, 1248, 9000, range).map(Self)
    }
}

/// Ports of UDP, or `"off"`.
pub(super) struct UdpPorts(pub(super) Vec<RangeInclusive<u16>>);

impl Value for UdpPorts {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        if String::read(value, source).is_ok_and(|text| text == "off") {
            return Ok(Self(Vec::new()));
        }
        let Many(ports) = Many::<Ports>::read(value, source)?;
        Ok(Self(ports.into_iter().map(|Ports(range)| range).collect()))
    }
}

/// UDP flows at a time: a request of the far end's each, which allows so many tunnels.
pub(super) struct UdpFlows(pub(super) usize);

impl Value for UdpFlows {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let Whole::<4, 65_536>(flows) = Whole::read(value, source)?;
        Ok(Self(flows as usize))
    }
}

/// How long a UDP flow may be idle.
pub(super) struct UdpIdle(pub(super) Duration);

impl Value for UdpIdle {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 1s to 3600s, such as \"2min\"";
        time(value, source, 1..=3600, expected).map(Self)
    }
}

/// The part of the rate to pace at.
pub(super) struct Pacing(pub(super) Probability);

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

/// The delay that sets the guard off.
pub(super) struct Guard(pub(super) Option<Duration>);

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

/// What a link adds to a packet.
pub(super) struct LinkOverhead(pub(super) Bytes);

impl Value for LinkOverhead {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        sized(value, source, 0, 1500, "from 0B to 1500B, such as \"20B\"").map(Self)
    }
}

/// The RTT0 of Hybla.
pub(super) struct ReferenceTime(pub(super) Duration);

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
