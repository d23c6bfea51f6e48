//! The satellite leg of split connections by tunnels over QUIC: the near end of `carrier = "quic"`.
//!
//! The relay hands a client's accepted socket to [`Tunnels`], whose far end, a `bentpipe proxy`, dials the server. What carries the
//! bytes is in `bentpipe-tunnel-sockets`; here a leg's configuration becomes an endpoint, and what the far end says of a dial becomes
//! what the relay makes of it.
//!
//! Where the leg names ports of UDP, clients' datagrams to these are carried too ([`QuicCarrier::carry_udp`]).
//!
//! Begin with [`QuicCarrier`].
#![forbid(unsafe_code)]

mod client_port;
mod icmp;

pub use client_port::PortParts;

use bentpipe_base::Bytes;
use bentpipe_bpf::LazyControls;
use bentpipe_connect_tcp::{DialError, Template};
use bentpipe_gateway_config::{CarriedUdp, Ends, Handshake, Leg};
use bentpipe_quic::{ParseKeyError, UnusableControl};
use bentpipe_relay::{Answer, Keep, NoTunnel, Tunnel, TunnelPlan, Tunnels};
use bentpipe_tunnel_sockets::{
    self as sockets, CertificateFileError, CertificateFiles, Driver, DriverError, Handle,
    IdentityFileError, Link, Near, Ticket, read_identity,
};
use client_port::{GatewayPort, bounds};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use thiserror::Error;

/// A leg cannot be carried over QUIC.
#[derive(Debug, Error)]
pub enum CarrierError {
    /// The secret key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityFileError),
    /// The certificate cannot.
    #[error(transparent)]
    Certificate(#[from] CertificateFileError),
    /// The far end's key cannot.
    #[error(transparent)]
    Key(#[from] ParseKeyError),
    /// The congestion control cannot.
    #[error(transparent)]
    Control(#[from] UnusableControl),
    /// The endpoint cannot be made.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The address of the far end makes no template.
    #[error("no tunnels are asked for at {0}: give the proxy's IP address and UDP port")]
    Template(SocketAddr),
    /// The leg has no far end.
    #[error("the leg names no far end: give `proxy`, `identity` and `peer_key`")]
    NoFarEnd,
}

/// The near end of a leg's tunnels, not at work yet.
pub struct QuicCarrier {
    driver: Driver,
    handle: Handle,
    plan: TunnelPlan,
    udp: Option<CarriedUdp>,
    lack: Option<String>,
}

impl QuicCarrier {
    /// Sets it up for `leg`; the TCP socket beside QUIC has `mark`, by which one of `controls` knows the link. It opens its UDP port, and
    /// begins to connect when it is [run](Self::run). Where the process may have no more than `memory`, it holds less.
    ///
    /// # Errors
    /// [`CarrierError`].
    pub fn new(
        leg: &Leg,
        mark: u32,
        controls: &mut LazyControls,
        memory: Option<Bytes>,
    ) -> Result<Self, CarrierError> {
        let carrier = leg.quic.as_ref().ok_or(CarrierError::NoFarEnd)?;
        let identity = read_identity(&carrier.identity)?;
        let peer = carrier.peer_key.parse()?;
        let link = Link::of_leg(leg, &carrier.path);
        let proxy = carrier.proxy;
        let shown = carrier.certificate.as_ref().map(|own| CertificateFiles {
            chain: own.chain.clone(),
            key: own.key.clone(),
            authorities: None,
            revoked: None,
        });
        let shown = shown.map(|files| files.read(&identity)).transpose()?;
        let mut config = link.config(identity, vec![peer], proxy.is_ipv6())?;
        config.certificates = shown;
        if let Some(memory) = memory {
            config.bound_memory(memory);
        }
        let any: SocketAddr = match proxy {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let template = Template::of_authority(&proxy.to_string());
        let template = template.map_err(|_| CarrierError::Template(proxy))?;
        let (driver, near) = Driver::near(&config, any, proxy, template)?;
        let driver = match carrier.early_data {
            true => driver.with_early_data(carrier.path.round_trip),
            false => driver,
        };
        let (driver, lack) = match carrier.path.fall_back {
            false => (driver, None),
            true => {
                let tcp = link.tcp(mark, controls);
                let lack = tcp.lack.clone();
                (driver.with_http2(tcp, 1)?, lack)
            }
        };
        let driver = match carrier.tells_clients {
            true => driver.telling_clients(),
            false => driver,
        };
        let handle = driver.handle();
        let plan = TunnelPlan {
            tunnels: Arc::new(NearEnd(near)),
            early: carrier.handshake == Handshake::Early,
            refuses: carrier.refuses,
        };
        Ok(Self {
            driver,
            handle,
            plan,
            udp: carrier.udp.clone(),
            lack,
        })
    }

    /// Has clients' UDP carried, where the leg wants that, in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel cannot hold packets; everything else is carried all the same.
    pub fn carry_udp(&mut self, parts: PortParts) -> Result<(), String> {
        let Some(udp) = &self.udp else {
            return Ok(());
        };
        let port = GatewayPort::open(parts, self.plan.refuses)?;
        let bounds = bounds(udp, self.plan.refuses);
        { self.driver.carry_udp(Box::new(port), bounds) }.map_err(|error| error.to_string())
    }

    /// Why the TCP socket beside QUIC has a congestion control of the kernel's in the place of ours, where it has.
    pub fn lack(&self) -> Option<&str> {
        self.lack.as_deref()
    }

    /// Whether clients' UDP is carried.
    pub fn carries_udp(&self) -> bool {
        self.driver.carries_udp()
    }

    /// What the relay has of it.
    pub fn plan(&self) -> TunnelPlan {
        self.plan.clone()
    }

    /// What others order and ask.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Works until it is stopped.
    ///
    /// # Errors
    /// When the kernel fails the loop itself.
    pub fn run(self) -> io::Result<()> {
        self.driver.run().map(drop).map_err(io::Error::other)
    }
}

/// The relay's tunnels.
#[derive(Debug)]
struct NearEnd(Near);

impl Tunnels for NearEnd {
    fn is_up(&self) -> bool {
        self.0.admits()
    }

    fn awaited(&self, client: IpAddr) -> (usize, usize) {
        self.0.awaited(client)
    }

    fn carry(&self, client: OwnedFd, server: SocketAddr, keep: Keep) {
        self.0.carry(TcpStream::from(client), server.into(), keep);
    }

    fn ask(&self, (client, server): Ends, answer: Answer) -> Box<dyn Tunnel> {
        let answer = move |result: Result<(), sockets::NoTunnel>| answer(result.map_err(reason));
        Box::new(Asked(self.0.ask(server.into(), client, answer)))
    }
}

#[derive(Debug)]
struct Asked(Ticket);

impl Tunnel for Asked {
    fn join(self: Box<Self>, client: OwnedFd, keep: Keep) {
        self.0.join(TcpStream::from(client), keep);
    }
}

/// What the relay makes of a failure.
fn reason(why: sockets::NoTunnel) -> NoTunnel {
    match why {
        sockets::NoTunnel::Down
        | sockets::NoTunnel::Dial(DialError::Limit | DialError::Internal) => NoTunnel::Down,
        sockets::NoTunnel::Dial(DialError::Refused | DialError::Terminated) => NoTunnel::Refused,
        sockets::NoTunnel::Dial(DialError::Timeout) => NoTunnel::Silent,
        sockets::NoTunnel::Dial(
            DialError::Unroutable | DialError::Prohibited | DialError::Dns | DialError::DnsTimeout,
        ) => NoTunnel::Unreachable,
    }
}
