//! What the two ends of a leg over QUIC are told of its link: the near one in `[sat]` or `[leg.NAME]`, the far one in its own file.

mod values;

pub use values::{CertificateFile, KeyFile};

use crate::Handshake;
use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_cc::LinkParams;
use bentpipe_config::network::LinkRate;
use bentpipe_config::{Table, Wrong};
use bentpipe_fec::{Overhead, Strength};
use core::ops::RangeInclusive;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use values::{
    ClientAddress, EarlyData, FallBack, Fec, Guard, LinkOverhead, Loss, Mtu, Pacing, PeerKey,
    ReferenceTime, Remote, RoundTrip, UdpFlows, UdpIdle, UdpPorts, WhenDown, Window,
};

/// What is known of the path of a leg over QUIC, besides the link's rate towards the other end.
#[derive(Clone, Debug, PartialEq)]
pub struct QuicPath {
    /// What the link carries towards this end; `None`: as much as the other way.
    pub receive_rate: Option<Rate>,
    /// The round-trip time without any queue.
    pub round_trip: Duration,
    /// Packets that are lost each way.
    pub loss: Probability,
    /// The longest IP packet.
    pub mtu: Bytes,
    /// Forward error correction of what is sent, where the other end has it too; `None`: none.
    pub fec: Option<Overhead>,
    /// HTTP/2 over TCP stands beside it, and carries where UDP does not get through.
    pub fall_back: bool,
}

/// The other end of a leg that QUIC carries, and what becomes of connections by it.
#[derive(Clone, Debug, PartialEq)]
pub struct QuicCarrier {
    /// Where the far end listens.
    pub proxy: SocketAddr,
    /// The file of this end's secret key.
    pub identity: PathBuf,
    /// The far end's public key, as text.
    pub peer_key: String,
    /// What this end shows to a far end that is known by the key in its certificate; `None`: nothing.
    pub certificate: Option<OwnCertificate>,
    /// When a SYN is answered.
    pub handshake: Handshake,
    /// Whether new connections are refused while the far end is not reached; otherwise they pass end to end.
    pub refuses: bool,
    /// Whether new connections leave in the first flight of a connection to the far end that is made again (0-RTT).
    pub early_data: bool,
    /// Its path.
    pub path: QuicPath,
    /// The far end is told the addresses of clients.
    pub tells_clients: bool,
    /// The UDP that it carries; `None`: none.
    pub udp: Option<CarriedUdp>,
}

/// A near end's certificate, for a far end of others' that wants one of its clients; both files are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// Its own certificate, and then those that lead to an authority.
    pub chain: PathBuf,
    /// The secret key of its own; `None`: that of its identity.
    pub key: Option<PathBuf>,
}

impl OwnCertificate {
    /// Reads `certificate` and `certificate_key`.
    fn read(table: &mut Table<'_, '_>) -> Option<Self> {
        let [chain, key] = ["certificate", "certificate_key"]
            .map(|key| table.optional(key).map(|CertificateFile(path)| path));
        if table.has("certificate_key") && !table.has("certificate") {
            let wrong = Wrong::new(
                "`certificate_key` goes with `certificate`",
                "`certificate = \"...\"` beside it",
            );
            table.problem("certificate_key", wrong);
        }
        Some(Self { chain: chain?, key })
    }
}

/// Which UDP of its clients a near end takes, and how much it holds of it.
#[derive(Clone, Debug, PartialEq)]
pub struct CarriedUdp {
    /// The servers' ports.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Flows of all clients at a time; one client has at most a quarter.
    pub flows: usize,
    /// Without a datagram either way for so long a flow is forgotten.
    pub idle: Duration,
}

impl CarriedUdp {
    /// Reads `udp`, `udp_flows` and `udp_idle`, which are as in `before` where they are not said.
    fn read(table: &mut Table<'_, '_>, before: Option<&Self>) -> Option<Self> {
        let ports = table.optional("udp");
        let flows = table.optional("udp_flows");
        let idle = table.optional("udp_idle");
        let ports = match (ports, before) {
            (Some(UdpPorts(ports)), _) => ports,
            (None, Some(before)) => before.ports.clone(),
            (None, None) => {
                for (key, said) in [("udp_flows", flows.is_some()), ("udp_idle", idle.is_some())] {
                    if said {
                        let wrong = Wrong::new(
                            format!("`{key}` goes with `udp`, the ports that are carried"),
                            "`udp = [443]` beside it",
                        );
                        table.problem(key, wrong);
                    }
                }
                return None;
            }
        };
        let usual = before.map_or((1024, Duration::from_secs(120)), |it| (it.flows, it.idle));
        Some(Self {
            ports,
            flows: flows.map_or(usual.0, |UdpFlows(flows)| flows),
            idle: idle.map_or(usual.1, |UdpIdle(idle)| idle),
        })
        .filter(|udp| !udp.ports.is_empty())
    }
}

impl QuicCarrier {
    /// Reads what only a leg with `carrier = "quic"` has, as in `before` where it is not said; the link carries `receive_rate` towards
    /// this end. `None` where something is missing or wrong, which is recorded.
    pub(crate) fn read(
        table: &mut Table<'_, '_>,
        before: Option<&Self>,
        receive_rate: Option<Rate>,
    ) -> Option<Self> {
        let terms = before.map_or_else(Terms::default, Self::terms);
        let Terms {
            handshake,
            refuses,
            tells_clients,
            early_data,
            path,
            udp,
        } = terms.read(table, receive_rate);
        let [proxy, identity, peer_key] =
            ["proxy", "identity", "peer_key"].map(|key| table.has(key));
        let certificate = OwnCertificate::read(table);
        let unasked = Wrong::new(
            "`certificate` is shown to a far end that is known by its own",
            "`peer_key = \"sha256:...\"` beside it, the key in that",
        );
        if let Some(before) = before.filter(|_| !proxy && !identity && !peer_key) {
            if certificate.is_some() {
                table.problem("certificate", unasked);
            }
            return Some(Self {
                handshake,
                refuses,
                tells_clients,
                early_data,
                path,
                udp,
                ..before.clone()
            });
        }
        let proxy = table.required("proxy", "\"198.51.100.7:4433\"");
        let identity = table.required("identity", "\"/etc/bentpipe/gateway.key\"");
        let peer_key = table.required("peer_key", "\"ed25519:...\"");
        let pinned = { peer_key.as_ref() }.is_some_and(|PeerKey(key)| key.starts_with("ed25519:"));
        if certificate.is_some() && pinned {
            table.problem("certificate", unasked);
        }
        let (Remote(proxy), KeyFile(identity), PeerKey(peer_key)) = (proxy?, identity?, peer_key?);
        Some(Self {
            proxy,
            identity,
            peer_key,
            certificate,
            handshake,
            refuses,
            tells_clients,
            early_data,
            path,
            udp,
        })
    }

    fn terms(&self) -> Terms {
        Terms {
            handshake: self.handshake,
            refuses: self.refuses,
            tells_clients: self.tells_clients,
            early_data: self.early_data,
            path: self.path.clone(),
            udp: self.udp.clone(),
        }
    }
}

/// What a leg over QUIC says besides who its far end is.
struct Terms {
    handshake: Handshake,
    refuses: bool,
    tells_clients: bool,
    early_data: bool,
    path: QuicPath,
    udp: Option<CarriedUdp>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            handshake: Handshake::Early,
            refuses: false,
            tells_clients: false,
            early_data: true,
            path: QuicPath::default(),
            udp: None,
        }
    }
}

impl Terms {
    /// Reads them, as they are in `self` where they are not said; the link carries `receive_rate` towards this end.
    fn read(self, table: &mut Table<'_, '_>, receive_rate: Option<Rate>) -> Self {
        let path = QuicPath {
            receive_rate: receive_rate.or(self.path.receive_rate),
            ..self.path
        };
        let path = path.read(table);
        let handshake = table.or("handshake", self.handshake);
        let WhenDown(refuses) = table.or("when_down", WhenDown(self.refuses));
        let ClientAddress(tells_clients) =
            table.or("client_address", ClientAddress(self.tells_clients));
        let EarlyData(early_data) = table.or("early_data", EarlyData(self.early_data));
        let udp = CarriedUdp::read(table, self.udp.as_ref());
        Self {
            handshake,
            refuses,
            tells_clients,
            early_data,
            path,
            udp,
        }
    }
}

/// One end of a leg over QUIC in a scenario, in which nodes have names, and who runs it makes the keys.
#[derive(Clone, Debug, PartialEq)]
pub struct QuicEnd {
    /// The gateway that is the far end; `None`: this one is.
    pub proxy: Option<String>,
    /// When a SYN is answered.
    pub handshake: Handshake,
    /// Whether new connections are refused while the far end is not reached; otherwise they pass end to end.
    pub refuses: bool,
    /// Whether new connections leave in the first flight of a connection to the far end that is made again (0-RTT).
    pub early_data: bool,
    /// Its path.
    pub path: QuicPath,
    /// The UDP that it carries; `None`: none.
    pub udp: Option<CarriedUdp>,
}

impl QuicEnd {
    /// Reads what a leg with `carrier = "quic"` has in a scenario; the link carries `receive_rate` towards this end.
    pub(crate) fn read(table: &mut Table<'_, '_>, receive_rate: Option<Rate>) -> Self {
        let proxy: Option<String> = table.optional("proxy");
        let keys = "neither of them: whoever runs it makes keys for both ends";
        for (key, expected) in [
            ("identity", keys),
            ("peer_key", keys),
            ("certificate", keys),
            ("certificate_key", keys),
            (
                "client_address",
                "none: there the far end dials from its own address",
            ),
        ] {
            if table.has(key) {
                // It is known, and wrong here.
                table.says(key, "");
                let what = format!("`{key}` in a scenario");
                table.problem(key, Wrong::new(what, expected));
            }
        }
        for key in ["handshake", "when_down", "early_data", "udp"] {
            if proxy.is_none() && table.has(key) {
                let what = format!("`{key}` of a far end, which takes nothing off clients");
                let expected =
                    "it at the near end, or `proxy` beside it, the gateway that is the far end";
                table.problem(key, Wrong::new(what, expected));
            }
        }
        let Terms {
            handshake,
            refuses,
            early_data,
            path,
            udp,
            ..
        } = Terms::default().read(table, receive_rate);
        Self {
            proxy,
            handshake,
            refuses,
            early_data,
            path,
            udp,
        }
    }
}

/// The keys that only such a leg has.
pub(crate) const KEYS: [&str; 18] = [
    "proxy",
    "identity",
    "peer_key",
    "certificate",
    "certificate_key",
    "handshake",
    "when_down",
    "client_address",
    "early_data",
    "round_trip",
    "loss",
    "mtu",
    "fec",
    "fec_window",
    "fall_back",
    "udp",
    "udp_flows",
    "udp_idle",
];

impl Default for QuicPath {
    /// A geostationary satellite's 600 ms, 1% loss, and packets of 1500 bytes; HTTP/2 stands by.
    fn default() -> Self {
        Self {
            receive_rate: None,
            round_trip: Duration::from_millis(600),
            loss: Probability::new(0.01).unwrap_or(Probability::ZERO),
            mtu: Bytes(1500),
            fec: None,
            fall_back: true,
        }
    }
}

impl QuicPath {
    /// Reads `round_trip`, `loss`, `mtu`, `fec`, `fec_window` and `fall_back`, which are as in `self` where they are not said.
    pub fn read(self, table: &mut Table<'_, '_>) -> Self {
        let RoundTrip(round_trip) = table.or("round_trip", RoundTrip(self.round_trip));
        let Loss(loss) = table.or("loss", Loss(self.loss));
        let Mtu(mtu) = table.or("mtu", Mtu(self.mtu));
        let FallBack(fall_back) = table.or("fall_back", FallBack(self.fall_back));
        Self {
            round_trip,
            loss,
            mtu,
            fec: fec(table, self.fec),
            fall_back,
            ..self
        }
    }
}

/// Packets of which a repair is made where nothing is said of it.
const FEC_WINDOW: u16 = 200;

/// Reads `fec` and `fec_window`, which are as in `before` where neither is said.
fn fec(table: &mut Table<'_, '_>, before: Option<Overhead>) -> Option<Overhead> {
    let said = table.optional("fec");
    let window = table.optional("fec_window");
    let overhead = match said {
        None if window.is_none() => return before,
        None | Some(Fec::Off | Fec::Measured) if window.is_some() => {
            let wrong = Wrong::new(
                "`fec_window` goes with a fixed overhead",
                "`fec = \"10%\"` beside it, or no `fec_window`",
            );
            table.problem("fec_window", wrong);
            return None;
        }
        None | Some(Fec::Off) => return None,
        Some(Fec::Measured) => return Some(Overhead::Measured),
        Some(Fec::Fixed(overhead)) => overhead,
    };
    let window = window.map_or(FEC_WINDOW, |Window(packets)| packets);
    match Strength::fixed(overhead, window) {
        Ok(strength) => Some(Overhead::Fixed(strength)),
        Err(error) => {
            let wrong = Wrong::new(error.to_string(), "a longer window or more overhead");
            table.problem("fec_window", wrong);
            None
        }
    }
}

/// Reads what is said of a link besides its rate: `pacing`, `rtt0`, `aggressive`, `guard` and `overhead`, which are as in `link`
/// where they are not said.
pub fn link(table: &mut Table<'_, '_>, mut link: LinkParams) -> LinkParams {
    let Pacing(pacing) = table.or("pacing", Pacing(link.pace));
    link.pace = pacing;
    let ReferenceTime(rtt0) = table.or("rtt0", ReferenceTime(link.rtt0));
    link.rtt0 = rtt0;
    link.aggressive = table.or("aggressive", link.aggressive);
    let Guard(guard) = table.or("guard", Guard(link.guard));
    link.guard = guard;
    let LinkOverhead(overhead) = table.or("overhead", LinkOverhead(link.overhead));
    link.overhead = overhead;
    link
}

/// The rate of a link towards the other end, and `receive_rate`, that towards this one.
pub fn rates(table: &mut Table<'_, '_>) -> [Option<Rate>; 2] {
    ["rate", "receive_rate"].map(|key| table.optional(key).map(|LinkRate(rate)| rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    /// A leg over QUIC has a far end, which a variant of it shares, and another cannot be beside it.
    #[test]
    fn legs_over_quic_have_one_far_end() {
        let key = format!("ed25519:{}=", "A".repeat(43));
        let end = |port: u16| {
            format!(
                "carrier = \"quic\"\nproxy = \"192.0.2.1:{port}\"\nidentity = \"/k\"\npeer_key = \"{key}\"\n"
            )
        };
        let text = format!(
            "[sat]\nrate = \"2Mbit/s\"\nreceive_rate = \"9Mbit/s\"\n{}",
            end(1)
        );
        let config = Config::parse("f", &text).unwrap();
        let carrier = config.tunnelled_leg().unwrap().quic.as_ref().unwrap();
        assert_eq!(carrier.proxy, "192.0.2.1:1".parse().unwrap());
        assert_eq!(
            (carrier.handshake, carrier.refuses),
            (Handshake::Early, false)
        );
        assert_eq!(carrier.path.receive_rate, "9Mbit/s".parse().ok());
        let fec = |said: &str| {
            let config = Config::parse("f", &format!("{text}{said}")).unwrap();
            config
                .tunnelled_leg()
                .unwrap()
                .quic
                .as_ref()
                .unwrap()
                .path
                .fec
        };
        assert_eq!(fec(""), None);
        assert_eq!(fec("fec = \"measured\""), Some(Overhead::Measured));
        let strength = |every, window, tail| {
            let strength = Strength {
                every,
                window,
                tail,
            };
            Some(Overhead::Fixed(strength))
        };
        assert_eq!(fec("fec = \"10%\""), strength(10, 200, 8));
        assert_eq!(fec("fec = 0.05\nfec_window = 500"), strength(20, 500, 3));
        let falls_back = |said: &str| {
            let config = Config::parse("f", &format!("{text}{said}")).unwrap();
            let leg = config.tunnelled_leg().unwrap();
            leg.quic.as_ref().unwrap().path.fall_back
        };
        assert!(falls_back("") && falls_back("fall_back = \"http2\""));
        assert!(!falls_back("fall_back = \"off\""));
        let early = |said: &str| {
            let config = Config::parse("f", &format!("{text}{said}")).unwrap();
            let leg = config.tunnelled_leg().unwrap();
            leg.quic.as_ref().unwrap().early_data
        };
        assert!(early("") && early("early_data = \"on\"") && !early("early_data = \"off\""));
        let shown = text.replace("ed25519:", "sha256:")
            + "certificate = \"/c\"\ncertificate_key = \"/d\"\n[leg.slow]\nsend_buffer = \"1MiB\"\n";
        let shown = Config::parse("f", &shown).unwrap();
        for leg in [&shown.profiles[0].leg, shown.tunnelled_leg().unwrap()] {
            let own = OwnCertificate {
                chain: "/c".into(),
                key: Some("/d".into()),
            };
            assert_eq!(leg.quic.as_ref().unwrap().certificate, Some(own));
        }
        let udp = |said: &str| {
            let config = Config::parse("f", &format!("{text}{said}")).unwrap();
            let leg = config.tunnelled_leg().unwrap();
            leg.quic.as_ref().unwrap().udp.clone()
        };
        assert_eq!((udp(""), udp("udp = \"off\"")), (None, None));
        let ports = vec![443..=443, 8000..=8099];
        let carried = CarriedUdp {
            ports,
            flows: 1024,
            idle: Duration::from_secs(120),
        };
        let said = "udp = [443, \"8000-8099\"]\n";
        assert_eq!(udp(said).as_ref(), Some(&carried));
        let bounded = CarriedUdp {
            flows: 9,
            idle: Duration::from_secs(7),
            ..carried
        };
        let bounds = format!("{said}udp_flows = 9\nudp_idle = \"7s\"");
        assert_eq!(udp(&bounds), Some(bounded));
        let varied = format!("{text}[leg.slow]\nsend_buffer = \"1MiB\"\n");
        assert!(
            Config::parse("f", &varied).unwrap().profiles[0]
                .leg
                .quic
                .is_some()
        );
        let without = format!("{text}[leg.plain]\ncarrier = \"kernel\"\n");
        assert!(
            Config::parse("f", &without).unwrap().profiles[0]
                .leg
                .quic
                .is_none()
        );
        let alone = format!("[leg.far]\n{}", end(1));
        assert!(
            Config::parse("f", &alone)
                .unwrap()
                .tunnelled_leg()
                .is_some()
        );
        let two = format!("{text}[leg.other]\n{}", end(2));
        let error = Config::parse("f", &two).unwrap_err().to_string();
        assert!(error.contains("one far end"), "{error}");
    }

    #[test]
    fn mistakes_of_a_far_end_are_told() {
        for (text, said) in [
            ("[lan]\ncarrier = \"quic\"", "of a satellite leg only"),
            ("[sat]\ncarrier = \"quic\"", "lacks `proxy`"),
            ("proxy = \"0.0.0.0:4433\"", "its IP address and UDP port"),
            (
                "peer_key = \"ed25519:AAAA\"",
                "`bentpipe proxy keys` prints",
            ),
            ("identity = \"gateway.key\"", "the file of a secret key"),
            ("when_down = \"pas\"", "did you mean `pass`?"),
            ("client_address = \"tel\"", "did you mean `tell`?"),
            ("early_data = \"offf\"", "did you mean `off`?"),
            ("fall_back = \"http3\"", "did you mean `http2`?"),
            ("fec = \"0.1%\"", "`0.001` is too little"),
            ("fec = \"mesured\"", "\"off\", \"measured\", or an overhead"),
            ("fec_window = 100", "goes with a fixed overhead"),
            (
                "fec = \"measured\"\nfec_window = 100",
                "goes with a fixed overhead",
            ),
            ("fec = \"1%\"\nfec_window = 99", "after every 100"),
            ("fec = \"10%\"\nfec_window = 513", "from 1 to 512"),
            (
                "certificate = \"/near.crt\"\npeer_key = \"ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"",
                "is shown to a far end that is known by its own",
            ),
            ("certificate_key = \"/near.key\"", "goes with `certificate`"),
            ("certificate = \"near.crt\"", "a file in PEM"),
            ("udp_flows = 10", "goes with `udp`"),
            ("udp = []", "at least one value"),
            ("udp = [0]", "from 1 to 65535"),
            ("udp = 443\nudp_flows = 3", "from 4 to 65536"),
            ("udp = 443\nudp_idle = \"0s\"", "from 1s to 3600s"),
        ] {
            let text = if text.starts_with('[') {
                text.to_owned()
            } else {
                format!("[sat]\ncarrier = \"quic\"\n{text}")
            };
            let error = Config::parse("f", &text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
