//! A client, a gateway and a server in namespaces of their own, and a gateway running in the middle.
//!
//! ```text
//! client eth0 ---- sat0 gateway lan0 ---- eth0 server
//! ```

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(unreachable_pub, reason = "a module of several test binaries")]

pub mod child;
pub mod crowd;
pub mod ends;
pub mod flood;
pub mod listen;
pub mod managed;
pub mod office;
pub mod pair;
pub mod peer;
pub mod proxy;

use bentpipe_base::Bytes;
use bentpipe_gateway::{Config, Ending, Gateway, Handle, Handshake, Meter, RunError, Shutdown};
use bentpipe_os::diag::{Connection, Diag, States};
use bentpipe_os::netlink::{Prefix, Route, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use listen::Listener;

/// The longest that anything here may take.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Both answers to when a client's SYN is answered.
pub const HANDSHAKES: [Handshake; 2] = [Handshake::EndToEnd, Handshake::Early];

/// IPv4 or IPv6, and the addresses on the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    V4,
    V6,
}

impl Ip {
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];

    fn pick(self, v4: &str, v6: &str) -> IpAddr {
        match self {
            Self::V4 => v4.parse().unwrap(),
            Self::V6 => v6.parse().unwrap(),
        }
    }

    pub fn client(self) -> IpAddr {
        self.pick("10.77.1.2", "fd77:1::2")
    }

    pub fn server(self) -> IpAddr {
        self.pick("10.77.2.2", "fd77:2::2")
    }

    /// The gateway's own address towards the client.
    pub fn gateway_sat(self) -> IpAddr {
        self.pick("10.77.1.1", "fd77:1::1")
    }

    /// The gateway's own address towards the server.
    pub fn gateway_lan(self) -> IpAddr {
        self.pick("10.77.2.1", "fd77:2::1")
    }

    /// Routed to the server's side, where nobody has it.
    pub fn nobody(self) -> IpAddr {
        self.pick("10.77.2.99", "fd77:2::99")
    }

    /// A host behind the server's, if the server were a router.
    pub fn beyond(self) -> IpAddr {
        self.pick("10.77.9.9", "fd77:9::9")
    }

    pub fn any(self) -> IpAddr {
        self.pick("0.0.0.0", "::")
    }
}

/// A stage with a gateway as [`Stage::config`] has it.
pub fn splitting() -> (Stage, Running) {
    let stage = Stage::new();
    let gateway = stage.split();
    (stage, gateway)
}

pub struct Stage {
    pub client: Netns,
    pub gateway: Netns,
    pub server: Netns,
    _veths: [Veth; 2],
}

impl Stage {
    pub fn new() -> Self {
        let [client, gateway, server] =
            ["client", "gateway", "server"].map(|label| Netns::create(label).unwrap());
        for netns in [&client, &gateway, &server] {
            // Link-local addresses usable at once: a packet from an address that is not its own
            // lets the gateway ask for its neighbours only by that one.
            let key = "net.ipv6.conf.default.dad_transmits";
            netns.set_sysctl(key, "0").unwrap();
        }
        let wire = |near: &Netns, far: &Netns, name: &str| {
            let near = VethEnd {
                netns: near,
                name: "eth0",
            };
            let far = VethEnd { netns: far, name };
            Veth::create(near, far).unwrap()
        };
        let veths = [
            wire(&client, &gateway, "sat0"),
            wire(&server, &gateway, "lan0"),
        ];
        let stage = Self {
            client,
            gateway,
            server,
            _veths: veths,
        };
        stage.configure();
        stage
    }

    fn configure(&self) {
        for ip in Ip::BOTH {
            let bits = if ip == Ip::V4 { 24 } else { 64 };
            for (netns, interface, address) in [
                (&self.client, "eth0", ip.client()),
                (&self.gateway, "sat0", ip.gateway_sat()),
                (&self.gateway, "lan0", ip.gateway_lan()),
                (&self.server, "eth0", ip.server()),
            ] {
                let prefix = Prefix::new(address, bits).unwrap();
                let netlink = netns.netlink().unwrap();
                netlink.add_address(interface, prefix).unwrap();
                netlink.set_up(interface).unwrap();
            }
        }
        for ip in Ip::BOTH {
            let default = Prefix::new(ip.any(), 0).unwrap();
            for (netns, via) in [
                (&self.client, ip.gateway_sat()),
                (&self.server, ip.gateway_lan()),
            ] {
                let route = Route::via(default, via);
                netns.netlink().unwrap().add_route(&route).unwrap();
            }
        }
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            self.gateway.set_sysctl(key, "1").unwrap();
        }
        for netns in [&self.client, &self.gateway, &self.server] {
            for (key, value) in [
                ("net.ipv4.tcp_congestion_control", "reno"),
                ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
                ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
                ("net.ipv4.tcp_no_metrics_save", "1"),
            ] {
                netns.set_sysctl(key, value).unwrap();
            }
        }
    }

    /// A gateway with plain kernel congestion control.
    pub fn config() -> Config {
        let text = "threads = 2\n[sat]\ncongestion_control = \"cubic\"\n";
        Config::parse("test", text).unwrap().between("lan0", "sat0")
    }

    /// The same that answers SYNs early.
    pub fn early() -> Config {
        Config {
            handshake: Handshake::Early,
            ..Self::config()
        }
    }

    /// A gateway as [`Stage::config`] has it.
    pub fn split(&self) -> Running {
        self.split_by(Self::config())
    }

    /// The same with this handshake.
    pub fn split_after(&self, handshake: Handshake) -> Running {
        self.split_by(Config {
            handshake,
            ..Self::config()
        })
    }

    /// Adds the operator's own rules to the gateway's namespace.
    pub fn apply(&self, rules: &str) {
        // nft wants each brace that closes a chain or table on a line of its own.
        let rules = rules.replace("} }", "}\n}");
        let apply = || bentpipe_os::nft::apply(&rules).unwrap();
        self.gateway.run(apply).unwrap();
    }

    /// A gateway as `text` has it, between the stage's interfaces unless it names others.
    pub fn split_with(&self, text: &str) -> Running {
        let text = format!("threads = 2\n{text}\n");
        let config = Config::parse("test", &text).unwrap();
        self.split_by(if config.lan_interfaces.is_empty() {
            config.between("lan0", "sat0")
        } else {
            config
        })
    }

    pub fn split_by(&self, config: Config) -> Running {
        split_in(&self.gateway, config)
    }

    /// A listener in the server's namespace.
    pub fn listen(&self, ip: Ip) -> Listener {
        self.listen_in(&self.server, ip.server())
    }

    pub fn listen_in(&self, netns: &Netns, address: IpAddr) -> Listener {
        let bound = netns.run(|| TcpListener::bind((address, 0)).unwrap());
        Listener(bound.unwrap())
    }

    /// Connects from the client's namespace.
    pub fn connect(&self, to: SocketAddr) -> TcpStream {
        self.try_connect(to).unwrap()
    }

    pub fn try_connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        connect_in(&self.client, to)
    }

    /// Connects from an address and port of the client's namespace, whatever waits there in
    /// TIME_WAIT.
    pub fn connect_from(&self, from: SocketAddr, to: SocketAddr) -> TcpStream {
        let dial = || {
            let socket = tcp_socket(to);
            socket.set_reuse_address(true).unwrap();
            socket.bind(&from.into()).unwrap();
            socket.connect_timeout(&to.into(), PATIENCE).unwrap();
            TcpStream::from(socket)
        };
        let stream = self.client.run(dial).unwrap();
        patient(&stream);
        stream
    }

    /// Connects `count` times from the client's namespace before any answer is waited for.
    pub fn burst(&self, count: usize, to: SocketAddr) -> Vec<TcpStream> {
        let dial = || {
            let sockets: Vec<_> = (0..count).map(|_| tcp_socket(to)).collect();
            for socket in &sockets {
                socket.set_nonblocking(true).unwrap();
                // It is under way.
                let _ = socket.connect(&to.into());
            }
            sockets
        };
        let sockets = self.client.run(dial).unwrap().into_iter();
        let streams = sockets.map(|socket| {
            socket.set_nonblocking(false).unwrap();
            let stream = TcpStream::from(socket);
            patient(&stream);
            stream
        });
        streams.collect()
    }

    /// In the gateway's namespace there is another transparent proxy, whose packets get the mark 5.
    pub fn has_another_proxy(&self) {
        for family in ["-4", "-6"] {
            for words in [
                "rule add fwmark 5 lookup 55",
                "route add local default dev lo table 55",
            ] {
                let mut command = self.gateway.command("ip");
                let words = [family].into_iter().chain(words.split(' '));
                assert!(command.args(words).status().unwrap().success());
            }
        }
        self.apply(
            "table inet proxy { chain divert { type filter hook prerouting priority mangle; policy accept;
               meta l4proto tcp socket transparent 1 meta mark set 5
             } }",
        );
    }

    /// Connects from an address of the client's out of the gateway's namespace, as the gateway does.
    pub fn dial_transparently(&self, from: SocketAddr, to: SocketAddr) -> TcpStream {
        let dial = || {
            let socket = tcp_socket(to);
            bentpipe_sockets::socket::set_transparent(&socket, to).unwrap();
            socket.set_reuse_address(true).unwrap();
            socket.bind(&from.into()).unwrap();
            socket.connect_timeout(&to.into(), PATIENCE).unwrap();
            TcpStream::from(socket)
        };
        let stream = self.gateway.run(dial).unwrap();
        patient(&stream);
        stream
    }

    /// A port of the gateway's loopback that is free, and the next one too.
    pub fn free_ports_of_the_gateway(&self) -> u16 {
        let free = |port: u16| {
            ["127.0.0.1", "::1"].iter().all(|host| {
                let address = SocketAddr::new(host.parse().unwrap(), port);
                TcpListener::bind(address).is_ok()
            })
        };
        let find = || (20_000..).find(|port| free(*port) && free(port + 1));
        self.gateway.run(find).unwrap().unwrap()
    }

    /// A listener in a namespace behind the server's, which forwards to it over an MTU of 1300.
    pub fn behind_a_narrow_router(&self, ip: Ip) -> (Narrow, Listener) {
        let inner = Netns::create("inner").unwrap();
        let near = VethEnd {
            netns: &self.server,
            name: "in0",
        };
        let far = VethEnd {
            netns: &inner,
            name: "eth0",
        };
        let veth = Veth::create(near, far).unwrap();
        let (bits, router, host) = match ip {
            Ip::V4 => (24, "10.77.3.1", "10.77.3.2"),
            Ip::V6 => (64, "fd77:3::1", "fd77:3::2"),
        };
        let prefix = |address: &str| Prefix::new(address.parse().unwrap(), bits).unwrap();
        let narrow = self.server.netlink().unwrap();
        narrow.add_address("in0", prefix(router)).unwrap();
        let wide = inner.netlink().unwrap();
        wide.add_address("eth0", prefix(host)).unwrap();
        veth.set_up().unwrap();
        narrow.set_mtu("in0", Bytes(1300)).unwrap();
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            self.server.set_sysctl(key, "1").unwrap();
        }
        let everything = Prefix::new(ip.any(), 0).unwrap();
        let back = Route::via(everything, router.parse().unwrap());
        wide.add_route(&back).unwrap();
        let there = Route::via(prefix(host), ip.server());
        let gateway = self.gateway.netlink().unwrap();
        gateway.add_route(&there).unwrap();
        let listener = self.listen_in(&inner, host.parse().unwrap());
        (Narrow(inner, veth), listener)
    }

    /// A second address of the server's, which it is given.
    pub fn server_has_another_address(&self, ip: Ip) -> IpAddr {
        let (bits, another) = match ip {
            Ip::V4 => (24, "10.77.2.3"),
            Ip::V6 => (64, "fd77:2::3"),
        };
        let another = another.parse().unwrap();
        let prefix = Prefix::new(another, bits).unwrap();
        let netlink = self.server.netlink().unwrap();
        netlink.add_address("eth0", prefix).unwrap();
        another
    }

    /// The server answers packets for [`Ip::beyond`] with "host unreachable".
    pub fn server_refuses_to_route(&self, ip: Ip) {
        self.server.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
        let forwarding = "net.ipv6.conf.all.forwarding";
        self.server.set_sysctl(forwarding, "1").unwrap();
        let family = if ip == Ip::V4 { "-4" } else { "-6" };
        let route = ["route", "add", "unreachable", &ip.beyond().to_string()].map(str::to_owned);
        let mut command = self.server.command("ip");
        assert!(command.arg(family).args(route).status().unwrap().success());
    }

    /// Whether new connections are to be split in the gateway's namespace: the switch in the table is
    /// held in its first position.
    pub fn intercepts(&self) -> bool {
        let rules = self
            .gateway
            .run(|| bentpipe_os::nft::list(&["ruleset"]).unwrap());
        rules.unwrap().contains("elements = { 1 timeout")
    }

    /// Sends a signal to the nft process that holds the gateway's table.
    pub fn signal_nft(&self, signal: &str) {
        let own = |path: &str| std::fs::metadata(path).map(|about| about.ino());
        let here = || own("/proc/thread-self/ns/net").unwrap();
        let here = self.gateway.run(here).unwrap();
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().into_string().ok());
        let nft: Vec<String> = pids
            .filter(|pid| {
                let of = |file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                // Others list the rules.
                of("comm") == b"nft\n"
                    && of("cmdline").ends_with(b"\0-i\0")
                    && own(&format!("/proc/{pid}/ns/net")).is_ok_and(|other| other == here)
            })
            .collect();
        assert_eq!(nft.len(), 1, "{nft:?}");
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &nft[0]]).status().unwrap().success());
    }

    /// The connections whose sockets are the gateway's: two a flow.
    pub fn connections(&self) -> Vec<Connection> {
        let ask = || Diag::open().unwrap().connections(States::CARRYING).unwrap();
        self.gateway.run(ask).unwrap()
    }

    /// A connection through the gateway: the client's end and the server's.
    pub fn pair(&self, ip: Ip) -> (TcpStream, TcpStream) {
        let listener = self.listen(ip);
        let client = self.connect(listener.address());
        let server = listener.accept();
        (client, server)
    }
}

/// Five bytes there, and four back.
pub fn converse(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"still").unwrap();
    server.read_exact(&mut [0; 5]).unwrap();
    server.write_all(b"here").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
}

/// The same over the ends of a connection.
pub fn exchange((client, server): &mut (TcpStream, TcpStream)) {
    converse(client, server);
}

/// The ends of a connection as who begins and who follows; by turns, where all of `[true, false]` is
/// gone through.
pub fn in_order<T>((client, server): (T, T), client_first: bool) -> (T, T) {
    if client_first {
        (client, server)
    } else {
        (server, client)
    }
}

/// A namespace behind the server's; gone when dropped.
pub struct Narrow(pub Netns, pub Veth);

/// How many sockets of the gateway's stand.
pub fn connections_of(stage: &Stage) -> usize {
    let all = stage.connections();
    all.iter()
        .filter(|each| each.held && each.mark >> 24 == 0x62)
        .count()
}

/// The descriptors of another process.
pub fn descriptors_of(pid: u32) -> usize {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
    open.unwrap().count()
}

/// Whether a connection from an address and port of this namespace is refused.
pub fn refused_from(netns: &Netns, from: SocketAddr, to: SocketAddr) -> bool {
    let dial = || {
        let socket = tcp_socket(to);
        socket.set_reuse_address(true).unwrap();
        socket.bind(&from.into()).unwrap();
        socket.connect_timeout(&to.into(), PATIENCE)
    };
    let refused = netns.run(dial).unwrap();
    refused.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Closes with a reset.
pub fn abort(stream: TcpStream) {
    let socket = socket2::SockRef::from(&stream);
    socket.set_linger(Some(Duration::ZERO)).unwrap();
}

/// Holds small writes back until the connection is shut down.
pub fn cork(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_tcp_cork(true).unwrap();
}

/// Fixes the sender's send buffer and the receiver's receive buffer.
pub fn set_buffers(sender: &TcpStream, receiver: &TcpStream, size: usize) {
    let sender = socket2::SockRef::from(sender);
    sender.set_send_buffer_size(size).unwrap();
    let receiver = socket2::SockRef::from(receiver);
    receiver.set_recv_buffer_size(size).unwrap();
}

/// What the ends' own buffers hold: the kernel's books, overhead included.
pub fn buffers(sender: &TcpStream, receiver: &TcpStream) -> u64 {
    let sender = socket2::SockRef::from(sender);
    let receiver = socket2::SockRef::from(receiver);
    (sender.send_buffer_size().unwrap() + receiver.recv_buffer_size().unwrap()) as u64
}

fn tcp_socket(like: SocketAddr) -> socket2::Socket {
    let domain = socket2::Domain::for_address(like);
    socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap()
}

pub fn connect_in(netns: &Netns, to: SocketAddr) -> io::Result<TcpStream> {
    let stream = netns
        .run(|| TcpStream::connect_timeout(&to, PATIENCE))
        .unwrap()?;
    patient(&stream);
    Ok(stream)
}

fn patient(stream: &TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
}

/// A gateway as `config` has it, in a namespace.
pub fn split_in(netns: &Netns, config: Config) -> Running {
    let shutdown = Arc::new(Shutdown::new().unwrap());
    let told = Arc::clone(&shutdown);
    let (ready, readied) = mpsc::channel();
    let thread = netns.spawn_thread("gateway", move || {
        let gateway = Gateway::start(&config).unwrap();
        ready.send((gateway.meter(), gateway.handle())).unwrap();
        gateway.run_until(&told)
    });
    let (meter, handle) = readied.recv_timeout(PATIENCE).unwrap();
    Running {
        meter,
        handle,
        shutdown,
        thread: Some(thread.unwrap()),
    }
}

/// A gateway at work in this process; ends with the value.
pub struct Running {
    pub meter: Meter,
    pub handle: Handle,
    pub shutdown: Arc<Shutdown>,
    thread: Option<JoinHandle<Result<Ending, RunError>>>,
}

impl Running {
    /// Waits for the gateway to end by itself.
    pub fn join(mut self) -> Ending {
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.shutdown.request();
        self.shutdown.request();
        let result = thread.join();
        if !std::thread::panicking() {
            result.unwrap().unwrap();
        }
    }
}

/// Waits until `done`; fails after [`PATIENCE`].
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// `count` bytes that differ from place to place.
pub fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}
