//! The path that one subject is measured on: client – gateway – server, and the proxy in the
//! gateway; or client – gateway – gateway – server.
//!
//! Addresses are those that RFC 2544 sets aside for benchmarks; between two gateways, of RFC 6598's.

use super::error::BenchError;
use super::launch::Launch;
use super::proxy::Proxy;
use super::subject::Subject;
use super::traffic::{Cancel, Path, Ports};
use super::{MOST_FLOWS, MOST_PIPES, Options, ground, traffic, usage};
use bentpipe_os::need::Need;
use bentpipe_os::netlink::{Diversion, Prefix, Route, Veth};
use bentpipe_os::netns::Netns;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const GATEWAY_LAN: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 254);
const GATEWAY_SAT: Ipv4Addr = Ipv4Addr::new(198, 19, 255, 254);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
pub(super) const HOP: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 64, 0, 1), Ipv4Addr::new(100, 64, 0, 2)];
const SERVER_PORT: u16 = 5001;
/// The client's further addresses, for short connections: 198.18.1.1 and up.
const MORE_CLIENTS: u8 = 32;
pub(super) const LAN: &str = "lan";
pub(super) const SAT: &str = "sat";
/// Three namespaces, two wires, and a proxy in the middle; or two proxies with a third wire between them.
#[derive(Debug)]
pub(super) struct Stage {
    // Dropped in this order: the proxy goes before the ground under it.
    proxy: Option<Proxy>,
    far_proxy: Option<Proxy>,
    launch: Launch,
    _diversion: Option<Diversion>,
    _wires: Vec<Veth>,
    client: Netns,
    gateway: Netns,
    far_gateway: Option<Netns>,
    server: Netns,
    ports: Ports,
    congestion: &'static str,
    cancel: Cancel,
}

/// Checks what the comparison needs, and says what it found: a line each.
pub(super) fn requirements(options: &Options) -> Result<Vec<String>, BenchError> {
    Need::check_all(&[Need::Root, Need::Nft, Need::Tproxy])?;
    raise_descriptor_limit()?;
    let mut notes = vec![format!(
        "Linux {}, {} processors",
        rustix::system::uname().release().to_string_lossy(),
        usage::processors()
    )];
    if options.subjects.iter().any(|s| s.is_haproxy()) {
        notes.push(haproxy_version(options)?);
    }
    Ok(notes)
}

fn haproxy_version(options: &Options) -> Result<String, BenchError> {
    let output = Command::new(&options.haproxy)
        .arg("-v")
        .output()
        .map_err(|source| BenchError::NoHaproxy {
            program: options.haproxy.display().to_string(),
            source,
        })?;
    let said = String::from_utf8_lossy(&output.stdout);
    // "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/"
    let version: Vec<&str> = said.split_whitespace().take(3).collect();
    Ok(version.join(" "))
}

/// Endpoints and proxies hold two sockets a flow.
fn raise_descriptor_limit() -> Result<(), BenchError> {
    let needed = 2 * (MOST_FLOWS + MOST_PIPES) as u64 + 200;
    let limits = getrlimit(Resource::Nofile);
    let hard = limits.maximum.unwrap_or(u64::MAX);
    if hard < needed {
        return Err(BenchError::Descriptors {
            limit: hard,
            needed,
        });
    }
    if limits.current.unwrap_or(u64::MAX) < needed {
        let raised = Rlimit {
            current: Some(hard),
            maximum: limits.maximum,
        };
        // Raising the soft limit within the hard one is always allowed.
        setrlimit(Resource::Nofile, raised).map_err(|_| BenchError::Descriptors {
            limit: limits.current.unwrap_or(0),
            needed,
        })?;
    }
    Ok(())
}

impl Stage {
    /// Builds the path of `subject` and starts its proxy.
    pub(super) fn build(subject: Subject, options: &Options) -> Result<Self, BenchError> {
        let (client, _) = ground::host::<BenchError>("bench_client")?;
        let (gateway, _) = ground::host::<BenchError>("bench_gateway")?;
        let (server, congestion) = ground::host::<BenchError>("bench_server")?;
        let lan = [(&client, "eth0", CLIENT), (&gateway, LAN, GATEWAY_LAN)];
        let mut wires = vec![ground::wire::<BenchError>(lan)?];
        let far_gateway = if subject.is_pair() {
            Some(ground::host::<BenchError>("bench_far_gateway")?.0)
        } else {
            None
        };
        let facing_server = match &far_gateway {
            Some(far) => {
                wires.push(hop([&gateway, far])?);
                (far, LAN, GATEWAY_SAT)
            }
            None => (&gateway, SAT, GATEWAY_SAT),
        };
        let sat = [(&server, "eth0", SERVER), facing_server];
        wires.push(ground::wire::<BenchError>(sat)?);
        if !options.offloads {
            wires.iter().try_for_each(Veth::disable_offloads)?;
        }
        default_route(&client, GATEWAY_LAN)?;
        default_route(&server, GATEWAY_SAT)?;
        let ports = Ports::of(more_addresses(&client)?);
        let launch = Launch::of(subject, options)?;
        let diversion = launch.intercept(&gateway)?;
        let mut stage = Self {
            proxy: None,
            far_proxy: None,
            launch,
            _diversion: diversion,
            _wires: wires,
            client,
            gateway,
            far_gateway,
            server,
            ports,
            congestion,
            cancel: Cancel(options.cancel.clone()),
        };
        stage.restart()?;
        Ok(stage)
    }

    /// Who is measured here.
    pub(super) fn subject(&self) -> Subject {
        self.launch.subject()
    }

    /// Ends the proxy, if there is one, and starts it afresh.
    pub(super) fn restart(&mut self) -> Result<(), BenchError> {
        (self.proxy, self.far_proxy) = (None, None);
        if let Some(far) = &self.far_gateway {
            self.far_proxy = self.launch.start_far(far, self.congestion)?;
        }
        self.proxy = self.launch.start(&self.gateway, self.congestion)?;
        self.check_interception()
    }

    /// The path for traffic.
    pub(super) fn path(&self) -> Path<'_> {
        Path {
            client: &self.client,
            server: &self.server,
            address: SocketAddr::new(SERVER.into(), SERVER_PORT),
            ports: &self.ports,
            proxy: self.proxy.as_ref().map(Proxy::pid),
            far_proxy: self.far_proxy.as_ref().map(Proxy::pid),
            cancel: self.cancel.clone(),
        }
    }

    /// What the proxy wrote last, if there is one and it wrote anything.
    pub(super) fn last_words(&self) -> Option<String> {
        let words = self.proxy.as_ref()?.last_words();
        (!words.is_empty()).then_some(words)
    }

    /// How hosts and gateway are set: a line.
    pub(super) fn conditions(&self) -> String {
        ground::conditions(self.congestion, 1500)
    }

    /// A proxy that nothing reaches would measure as well as the kernel.
    fn check_interception(&mut self) -> Result<(), BenchError> {
        for _ in 0..50 {
            for proxy in self.proxy.iter_mut().chain(&mut self.far_proxy) {
                proxy.check()?;
            }
            let path = self.path();
            let mut carry = true;
            for proxy in path.proxy.into_iter().chain(path.far_proxy) {
                carry = carry
                    && match self.subject() {
                        Subject::BentpipeSnoop | Subject::BentpipeScps => {
                            traffic::is_queued(&path, proxy)?
                        }
                        // What goes between the two needs no socket of its own.
                        Subject::BentpipeQuic => traffic::is_intercepted(&path, proxy, 1)?,
                        _ => traffic::is_intercepted(&path, proxy, 2)?,
                    };
            }
            if carry {
                return Ok(());
            }
            self.cancel.sleep(Duration::from_millis(50))?;
        }
        Err(BenchError::NotIntercepting {
            subject: self.subject().name(),
            said: self.last_words().unwrap_or_default(),
        })
    }
}

/// The wire between two gateways, and the routes over it.
fn hop([near, far]: [&Netns; 2]) -> Result<Veth, BenchError> {
    let wire = ground::wire::<BenchError>([(near, SAT, HOP[0]), (far, SAT, HOP[1])])?;
    default_route(near, HOP[1])?;
    default_route(far, HOP[0])?;
    Ok(wire)
}

fn default_route(netns: &Netns, gateway: Ipv4Addr) -> Result<(), BenchError> {
    let all = Prefix::new(Ipv4Addr::UNSPECIFIED.into(), 0).expect("0 bits fit any address");
    netns
        .netlink()?
        .add_route(&Route::via(all, gateway.into()))?;
    Ok(())
}

fn more_addresses(client: &Netns) -> Result<Vec<IpAddr>, BenchError> {
    let netlink = client.netlink()?;
    (1..=MORE_CLIENTS)
        .map(|last| {
            let address = Ipv4Addr::new(198, 18, 1, last);
            netlink.add_address("eth0", ground::prefix(address))?;
            Ok(address.into())
        })
        .collect()
}
