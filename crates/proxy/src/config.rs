//! The configuration of a proxy: one TOML file, every value with its unit, every mistake named with its place.
//!
//! ```toml
//! listen = "0.0.0.0:4433"                  # UDP, and TCP unless `fall_back` is "off"
//! identity = "/etc/bentpipe/proxy.key"     # made by `bentpipe proxy keys`
//! clients = ["ed25519:..."]                # whom it serves: their public keys, `sha256:...` of those with a certificate
//! certificate = "/etc/bentpipe/proxy.crt"  # PEM; for clients that know no raw public keys; default: none of these is served
//! certificate_key = "/etc/bentpipe/tls.key" # of the certificate; default: `identity`
//! client_authorities = "/etc/bentpipe/clients.crt" # who vouches for clients; default: nobody
//! revoked = "/etc/bentpipe/clients.crl"    # clients for whom they vouch no more
//! control = "/run/bentpipe/proxy.sock"     # default; "off": none
//! metrics = "127.0.0.1:9464"               # where Prometheus asks; default: nowhere
//! drain = "30s"                            # how long SIGTERM waits for flows to end
//!
//! [link]
//! rate = "10Mbit/s"                        # towards the terminals, for all of them together
//! receive_rate = "2Mbit/s"                 # from there; default: as `rate`
//!
//! [[client]]                               # one more whom it serves, for whose clients it dials from their own addresses
//! key = "ed25519:..."
//! addresses = ["10.1.0.0/16"]              # this host has to be on the servers' way back to them
//!
//! [[policy]]                               # the first that fits decides
//! to = ["10.1.0.0/16", "fd00:1::/32"]
//! port = [22, "8000-8099"]                 # default: any
//! action = "allow"                         # or "deny"
//! ```
//!
//! Without a policy that fits, the public internet may be reached, and never the proxy itself or networks that are not routed there
//! ([`Policy`](bentpipe_tunnel_sockets::Policy)). Keys of `[link]`: `rate`, `receive_rate`, `congestion_control`, `round_trip`, `loss`, `mtu`, `fec`, `fec_window`, `fall_back`, `pacing`, `rtt0`,
//! `aggressive`, `guard`, `overhead`; see [`Link`]. Keys of `[limits]`: see [`Limits`].

use bentpipe_base::{Bytes, Prefix, read_text};
use bentpipe_cc::LinkParams;
use bentpipe_config::network::{
    AbsolutePath, Buffered, Idle, Many, Metrics, Net, Ports, Whole, time, word,
};
use bentpipe_config::{Document, Problems, Table, Value, Wrong};
use bentpipe_gateway_config::QuicPath;
use bentpipe_gateway_config::quic::{self, CertificateFile, KeyFile};
use bentpipe_quic::{Identity, PublicKey, UnusableControl};
use bentpipe_tunnel_sockets::{CertificateFiles, ClientLimits, Link, Rule};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;
use toml::de::DeValue;

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {} ({source}): check the path and its permissions", .path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file says something wrong; one line for each mistake.
    #[error(transparent)]
    Wrong(#[from] Problems),
}

/// How much a proxy takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of all clients.
    pub connections: usize,
    /// Bytes that one connection holds each way: received and not read, or sent and not acknowledged. `None`: 64 MB, and less
    /// where the memory of the process is bounded ([`Config::quic_within`]).
    pub buffered: Option<Bytes>,
    /// What one client, a key, may have at a time: `client_connections`, `tunnels` on all of them, `dials` under way.
    pub client: ClientLimits,
    /// How long a dial may take.
    pub dial: Duration,
    /// A flow on which no byte moves for so long is reset; `None`: never.
    pub idle: Option<Duration>,
    /// A UDP flow on which nothing goes for so long is ended.
    pub udp_idle: Duration,
}

impl Default for Limits {
    /// 256 connections, 8 of a client; 64 MB for each; 4,096 tunnels of a client and 256 dials, of 15 s at most; idle flows of TCP stay,
    /// those of UDP for two minutes (RFC 4787, REQ-5).
    fn default() -> Self {
        Self {
            connections: 256,
            buffered: None,
            client: ClientLimits {
                // Two of a near end, and two of each predecessor that has retired and still has flows.
                connections: 8,
                tunnels: 4096,
                dials: 256,
            },
            dial: Duration::from_secs(15),
            idle: None,
            udp_idle: Duration::from_secs(120),
        }
    }
}

/// Everything there is to configure.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The UDP address.
    pub listen: SocketAddr,
    /// The file of its secret key.
    pub identity: PathBuf,
    /// Whom it serves.
    pub clients: Vec<PublicKey>,
    /// The networks of clients in whose names servers are dialled, each with the key of the near end that may ask for it.
    pub client_addresses: Vec<(PublicKey, Prefix)>,
    /// What is shown to clients that know no raw public keys, and who vouches for these; `None`: there are none.
    pub certificates: Option<CertificateFiles>,
    /// Where it listens for its operator; `None`: nowhere.
    pub control: Option<PathBuf>,
    /// Where Prometheus finds it; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// How long an ordinary end waits for flows to end.
    pub drain: Duration,
    /// The link towards its clients.
    pub link: Link,
    /// How much it takes on.
    pub limits: Limits,
    /// Who may be reached.
    pub rules: Vec<Rule>,
}

impl Config {
    /// Where the control socket is unless the configuration says otherwise.
    pub const CONTROL: &str = "/run/bentpipe/proxy.sock";

    /// Reads the configuration at `path`.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = File::open(path).and_then(read_text);
        let text = text.map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::parse(&path.display().to_string(), &text)?)
    }

    /// Reads `text`; `file` is its name in messages.
    ///
    /// # Errors
    /// All that is wrong with it, each with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, Problems> {
        let document = Document::new(file, text);
        if document.is_broken() {
            return document.finish(None);
        }
        let config = config(document.root());
        document.finish(config)
    }

    /// Its endpoint, with the key `identity`.
    ///
    /// # Errors
    /// [`UnusableControl`].
    pub fn quic(&self, identity: Identity) -> Result<bentpipe_quic::Config, UnusableControl> {
        let ipv6 = self.listen.is_ipv6();
        let mut quic = self.link.config(identity, self.clients.clone(), ipv6)?;
        quic.limits.connections = self.limits.connections;
        quic.limits.memory = { self.limits.buffered }.unwrap_or(quic.limits.memory);
        quic.limits.streams = u32::try_from(self.limits.client.tunnels).unwrap_or(u32::MAX);
        // Those of the near side keep it.
        quic.keep_alive = None;
        Ok(quic)
    }

    /// As [`Config::quic`], where the process may have no more than `memory`, which bounds what a connection holds if the
    /// configuration does not say it.
    ///
    /// # Errors
    /// [`UnusableControl`].
    pub fn quic_within(
        &self,
        memory: Option<Bytes>,
        identity: Identity,
    ) -> Result<bentpipe_quic::Config, UnusableControl> {
        let mut quic = self.quic(identity)?;
        if let (None, Some(memory)) = (self.limits.buffered, memory) {
            quic.bound_memory(memory);
        }
        Ok(quic)
    }
}

fn config(mut root: Table<'_, '_>) -> Option<Config> {
    let listen = root.required("listen", "\"0.0.0.0:4433\"");
    let identity = root.required("identity", "\"/etc/bentpipe/proxy.key\"");
    let certificates = certificates(&mut root);
    let vouched = { certificates.as_ref() }.is_some_and(|files| files.authorities.is_some());
    let client_addresses: Vec<_> = { root.list("client").into_iter() }
        .flat_map(client)
        .collect();
    let clients = if vouched || !client_addresses.is_empty() {
        root.optional("clients").or(Some(Many(Vec::new())))
    } else {
        root.required("clients", "[\"ed25519:...\"]")
    };
    let mut all: Vec<_> = { clients.into_iter().flat_map(|Many(keys)| keys) }
        .map(|Key(key)| key)
        .collect();
    for (key, _) in &client_addresses {
        if !all.contains(key) {
            all.push(*key);
        }
    }
    if all.iter().any(PublicKey::is_certified) && certificates.is_none() {
        let what = "`clients` has a key `sha256:...`, which stands in a certificate: such a client wants to see one too";
        let wrong = Wrong::new(
            what,
            "`certificate = \"/etc/bentpipe/proxy.crt\"` beside it",
        );
        root.problem("clients", wrong);
    }
    let control = match root.optional("control") {
        None => Some(PathBuf::from(Config::CONTROL)),
        Some(AbsolutePath(path)) => path,
    };
    let metrics = root.optional("metrics");
    let drain = root.or("drain", Duration::from_secs(30));
    let link = root.table("link").map_or_else(unknown_link, link);
    let limits = root.table("limits").map_or_else(Limits::default, limits);
    let rules = root.list("policy").into_iter().flat_map(rules).collect();
    root.finish();
    let (Listen(listen), KeyFile(identity)) = (listen?, identity?);
    Some(Config {
        listen,
        identity,
        clients: all,
        client_addresses,
        certificates,
        control,
        metrics: metrics.and_then(|Metrics(address)| address),
        drain,
        link,
        limits,
        rules,
    })
}

/// The files of certificates; `None` where there are none, or a mistake is recorded.
fn certificates(root: &mut Table<'_, '_>) -> Option<CertificateFiles> {
    const REST: [&str; 3] = ["certificate_key", "client_authorities", "revoked"];
    let chain = root.optional("certificate");
    let rest = REST.map(|key| root.optional(key).map(|CertificateFile(path)| path));
    for (key, beside) in [
        (REST[0], "certificate"),
        (REST[1], "certificate"),
        (REST[2], REST[1]),
    ] {
        if root.has(key) && !root.has(beside) {
            let what = format!("`{key}` goes with `{beside}`");
            root.problem(
                key,
                Wrong::new(what, format!("`{beside} = \"...\"` beside it")),
            );
        }
    }
    let CertificateFile(chain) = chain?;
    let [key, authorities, revoked] = rest;
    Some(CertificateFiles {
        chain,
        key,
        authorities,
        revoked,
    })
}

fn unknown_link() -> Link {
    Link {
        params: LinkParams::default(),
        path: QuicPath::default(),
        control: None,
    }
}

fn link(mut table: Table<'_, '_>) -> Link {
    let [rate, receive_rate] = quic::rates(&mut table);
    let base = rate.map_or_else(LinkParams::default, LinkParams::of_rate);
    let params = quic::link(&mut table, base);
    let path = QuicPath {
        receive_rate,
        ..QuicPath::default()
    };
    let path = path.read(&mut table);
    let control = table
        .optional("congestion_control")
        .map(|Control(name)| name);
    table.finish();
    Link {
        params,
        path,
        control,
    }
}

fn limits(mut table: Table<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    if let Some(Whole::<1, 65_536>(count)) = table.optional("connections") {
        limits.connections = count as usize;
    }
    if let Some(Buffered(size)) = table.optional("buffered") {
        limits.buffered = Some(size);
    }
    if let Some(Whole::<1, 65_536>(count)) = table.optional("client_connections") {
        limits.client.connections = count as usize;
    }
    if let Some(Whole::<1, 1_000_000>(count)) = table.optional("tunnels") {
        limits.client.tunnels = count as usize;
    }
    if let Some(Whole::<1, 65_536>(count)) = table.optional("dials") {
        limits.client.dials = count as usize;
    }
    if let Some(DialTime(time)) = table.optional("dial") {
        limits.dial = time;
    }
    if let Some(Idle(idle)) = table.optional("idle") {
        limits.idle = idle;
    }
    if let Some(UdpIdle(time)) = table.optional("udp_idle") {
        limits.udp_idle = time;
    }
    table.finish();
    limits
}

/// The networks of one client.
fn client(mut table: Table<'_, '_>) -> Vec<(PublicKey, Prefix)> {
    let key = table.required("key", "\"ed25519:...\"");
    let networks = table.required("addresses", "[\"10.1.0.0/16\"]");
    table.finish();
    let (Some(Key(key)), Some(Many(networks))) = (key, networks) else {
        return Vec::new();
    };
    { networks.into_iter() }
        .map(|Net(prefix)| (key, prefix))
        .collect()
}

/// The rules of one policy: one for each network and range of ports.
fn rules(mut table: Table<'_, '_>) -> Vec<Rule> {
    let networks = table.required("to", "[\"10.1.0.0/16\"]");
    let ports = table.optional("port");
    let action = table.required("action", "\"allow\"");
    table.finish();
    let (Some(Many(networks)), Some(Allow(allow))) = (networks, action) else {
        return Vec::new();
    };
    let ports = ports.map_or_else(
        || vec![1..=u16::MAX],
        |Many(list)| list.into_iter().map(|Ports(range)| range).collect(),
    );
    let each = |Net(prefix): Net| ports.iter().map(move |range| rule(prefix, range, allow));
    networks.into_iter().flat_map(each).collect()
}

fn rule(prefix: Prefix, ports: &core::ops::RangeInclusive<u16>, allow: bool) -> Rule {
    Rule {
        prefix,
        ports: ports.clone(),
        allow,
    }
}

/// An address and a UDP port.
struct Listen(SocketAddr);

impl Value for Listen {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() > 0 => Ok(Self(address)),
            _ => Err(Wrong::new(
                format!("`{}` is no address with a port", text.escape_default()),
                "an address and a port such as \"0.0.0.0:4433\" or \"[::]:4433\"",
            )),
        }
    }
}

/// A public key.
struct Key(PublicKey);

impl Value for Key {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        text.parse().map(Self).map_err(|_| {
            Wrong::new(
                format!("`{}` is no public key", bentpipe_config::brief(&text)),
                "`ed25519:` or, of a certificate, `sha256:`, and 44 characters, as `bentpipe proxy keys` prints it",
            )
        })
    }
}

/// The name of a congestion control that QUIC may have.
struct Control(String);

impl Value for Control {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let text = String::read(value, source)?;
        match bentpipe_quic::CongestionControl::new(&text, bentpipe_cc::Settings::default()) {
            Ok(_) => Ok(Self(text)),
            // Without a rate that one needs samples; with one it does not.
            Err(UnusableControl::SamplesDeliveries("rate")) => Ok(Self(text)),
            Err(_) => Err(Wrong::name(
                format!(
                    "`{}` is no congestion control for QUIC",
                    text.escape_default()
                ),
                &text,
                &["rate", "hybla", "cubic"],
            )),
        }
    }
}

/// How long a dial may take.
struct DialTime(Duration);

impl Value for DialTime {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 1s to 120s, such as \"15s\"";
        time(value, source, 1..=120, expected).map(Self)
    }
}

/// How long a UDP flow may be silent.
struct UdpIdle(Duration);

impl Value for UdpIdle {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let expected = "a time from 5s to 1h, such as \"2min\"";
        time(value, source, 5..=3600, expected).map(Self)
    }
}

/// Whether a policy allows.
struct Allow(bool);

impl Value for Allow {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let all = [("allow", true), ("deny", false)];
        word(value, source, "action", &all).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::Rate;

    const KEY: &str = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn read(rest: &str) -> Result<Config, String> {
        let text =
            format!("listen = \"[::]:4433\"\nidentity = \"/k\"\nclients = \"{KEY}\"\n{rest}");
        Config::parse("proxy.toml", &text).map_err(|problems| problems.to_string())
    }

    #[test]
    fn what_is_said_is_read_and_what_is_not_is_usual() {
        let usual = read("").unwrap();
        assert_eq!(usual.control, Some(PathBuf::from(Config::CONTROL)));
        assert_eq!((usual.metrics, usual.rules.len()), (None, 0));
        assert_eq!(usual.limits, Limits::default());
        let config = read(
            "control = \"off\"\nmetrics = \"127.0.0.1:9464\"\n[link]\nrate = \"10Mbit/s\"\nreceive_rate = \"2Mbit/s\"\n\
             congestion_control = \"hybla\"\nround_trip = \"500ms\"\n[limits]\ndials = 3\ndial = \"5s\"\nidle = \"1h\"\nudp_idle = \"30s\"\n\
             [[policy]]\nto = [\"10.0.0.0/8\", \"fd00::/8\"]\nport = [22, \"80-89\"]\naction = \"allow\"\n",
        )
        .unwrap();
        assert_eq!(config.control, None);
        assert_eq!(
            config.link.params.rate,
            Some(Rate::from_bits_per_sec(10_000_000))
        );
        assert_eq!(config.link.control.as_deref(), Some("hybla"));
        assert_eq!(config.limits.client.dials, 3);
        assert_eq!(config.limits.idle, Some(Duration::from_secs(3600)));
        assert_eq!(config.limits.udp_idle, Duration::from_secs(30));
        // Each network with each range.
        assert_eq!(config.rules.len(), 4);
        assert!(config.rules.iter().all(|rule| rule.allow));
    }

    /// Who is vouched for needs no key in the list.
    #[test]
    fn clients_may_be_left_to_authorities() {
        let text = "listen = \"[::]:4433\"\nidentity = \"/k\"\ncertificate = \"/c\"\nclient_authorities = \"/a\"\n";
        let config = Config::parse("proxy.toml", text).unwrap();
        assert_eq!(config.clients, []);
        let files = config.certificates.unwrap();
        assert_eq!(files.authorities, Some(PathBuf::from("/a")));
        assert_eq!((files.key, files.revoked), (None, None));
        assert_eq!(read("").unwrap().certificates, None);
    }

    #[test]
    fn who_has_networks_of_its_own_is_served() {
        let text = format!(
            "[[client]]\nkey = \"{KEY}\"\naddresses = [\"10.1.0.0/16\", \"fd00:1::/32\"]\n"
        );
        let config = read(&text).unwrap();
        assert_eq!(
            (config.clients.len(), config.client_addresses.len()),
            (1, 2)
        );
        let alone = format!("listen = \"[::]:4433\"\nidentity = \"/k\"\n{text}");
        let config = Config::parse("proxy.toml", &alone).unwrap();
        assert_eq!(config.clients, [KEY.parse().unwrap()]);
    }

    #[test]
    fn mistakes_are_told_with_their_place_and_a_way_out() {
        for (text, said) in [
            ("listne = \"x\"", "did you mean `listen`?"),
            ("[link]\nrate = \"10Mb/s\"", "Mbit/s"),
            (
                "[link]\ncongestion_control = \"bbr\"",
                "no congestion control for QUIC",
            ),
            (
                "[link]\ncongestion_control = \"rat\"",
                "did you mean `rate`?",
            ),
            ("[link]\nloss = \"50%\"", "from 0% to 30%"),
            ("[limits]\ndials = 0", "from 1 to 65536"),
            ("certificate = \"proxy.crt\"", "a file in PEM"),
            ("client_authorities = \"/a\"", "goes with `certificate`"),
            (
                "certificate = \"/c\"\nrevoked = \"/r\"",
                "goes with `client_authorities`",
            ),
            ("[limits]\nudp_idle = \"1s\"", "from 5s to 1h"),
            ("[[policy]]\naction = \"allow\"", "`to`"),
            ("[[client]]\naddresses = \"10.0.0.0/8\"", "`key`"),
            (
                "[[policy]]\nto = \"10.0.0.0/8\"\naction = \"alow\"",
                "did you mean `allow`?",
            ),
            (
                "[[policy]]\nto = \"10.0.0.0/40\"\naction = \"allow\"",
                "no network",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(
                error.contains(said) && error.contains("proxy.toml:"),
                "{text}: {error}"
            );
        }
        let pinned = KEY.replace("ed25519", "sha256");
        let text = format!("listen = \"[::]:4433\"\nidentity = \"/k\"\nclients = \"{pinned}\"\n");
        let error = Config::parse("proxy.toml", &text).unwrap_err().to_string();
        assert!(error.contains("`certificate = "), "{error}");
        let error = Config::parse("proxy.toml", "clients = [\"ed25519:x\"]").unwrap_err();
        let error = error.to_string();
        for said in ["`listen`", "`identity`", "no public key"] {
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}
