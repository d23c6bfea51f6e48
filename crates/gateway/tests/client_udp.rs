//! Clients' UDP on the tunnels of `carrier = "quic"`: to a server that says whom it sees, so that the far end's address tells a datagram
//! that a tunnel has carried from one that has passed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::Ending;
use bentpipe_os::netns::Netns;
use bentpipe_os::{need, nft};
use bentpipe_sockets::raw_ip::{RawIp, Way};
use bentpipe_tunnel_sockets::UdpStatus;
use bentpipe_wire::{Ip as Header, Packet, Transport, Udp};
use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::pair::{Pair, split_one};
use support::proxy::{self, Keys, OPEN, ProxyProcess, Tunnelled, is_up};
use support::{Ip, Running, child, eventually};

/// A port that is not QUIC's: nothing here depends on what the payload is.
const PORT: u16 = 5300;
const UDP: &str = "udp = [443, \"5300-5301\"]\n";

/// With an environment variable of its own, a gateway to be killed.
#[test]
fn gateway_process() {
    child::be_a_gateway();
}

/// And a proxy.
#[test]
fn proxy_process() {
    proxy::be_a_proxy();
}

/// Answers each datagram with the address it came from, a space, and the datagram.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(netns: &Netns, address: SocketAddr) -> Self {
        let socket = netns.run(|| UdpSocket::bind(address).unwrap()).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !told.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let answer = [from.ip().to_string().as_bytes(), b" ", &buffer[..length]].concat();
                let _ = socket.send_to(&answer, from);
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A client's socket, connected, so that it takes answers of the server alone and hears of ICMP.
fn client(netns: &Netns, to: SocketAddr) -> UdpSocket {
    netns.run(|| connected(to)).unwrap()
}

fn connected(to: SocketAddr) -> UdpSocket {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => [0; 4].into(),
        SocketAddr::V6(_) => [0; 16].into(),
    };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.connect(to).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    socket
}

/// Whom the server sees, of one datagram that says `text`, and a number of its own, so that late answers to others are told apart.
fn ask(socket: &UdpSocket, text: &str) -> io::Result<IpAddr> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let text = format!("{number:08}{text}");
    socket.send(text.as_bytes())?;
    let mut buffer = [0; 2048];
    loop {
        let length = socket.recv(&mut buffer)?;
        let said = str::from_utf8(&buffer[..length]).unwrap();
        let (seen, rest) = said.split_once(' ').unwrap();
        if rest == text {
            return Ok(seen.parse().unwrap());
        }
        assert!(rest[..8] < text[..8], "{rest}");
    }
}

/// The same, until one is answered.
fn ask_again(socket: &UdpSocket) -> IpAddr {
    let begun = Instant::now();
    loop {
        match ask(socket, "who?") {
            Ok(seen) => return seen,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
    }
}

fn status(gateway: &Running) -> UdpStatus {
    let status = gateway.handle.status().unwrap();
    status.tunnels.as_ref().unwrap().udp.clone()
}

fn server(ip: Ip) -> SocketAddr {
    (ip.server(), PORT).into()
}

/// A pair that carries UDP, and a server.
fn carrying(ip: Ip, near: &str) -> (Tunnelled, Echo) {
    let on = Tunnelled::new(ip, OPEN, &format!("{UDP}{near}"));
    let echo = Echo::start(&on.pair.server, server(ip));
    (on, echo)
}

/// The far end's address, by which the server knows what a tunnel has carried.
fn far_end(ip: Ip) -> IpAddr {
    ip.gateway_lan()
}

/// Datagrams cross by a tunnel, the answers come from the server's address; other ports pass.
#[test]
fn a_tunnel_carries_the_ports_that_are_named() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let (on, _echo) = carrying(ip, "");
        let socket = client(&on.pair.client, server(ip));
        for number in 0..20 {
            assert_eq!(ask(&socket, &number.to_string()).unwrap(), far_end(ip));
        }
        // A status may be as old as a second.
        eventually("the figures", || {
            let counted = status(&on.gateway);
            [counted.flows as u64, counted.into, counted.out] == [1, 20, 20]
        });
        let other = SocketAddr::new(ip.server(), 5302);
        let _echo = Echo::start(&on.pair.server, other);
        let socket = client(&on.pair.client, other);
        assert_eq!(ask(&socket, "x").unwrap(), ip.client());
    }
}

/// A far end that may dial from clients' addresses does so for UDP as well, and the answers find their way.
#[test]
fn a_server_sees_the_client_where_the_far_end_may_show_it() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let (pair, keys) = (Pair::new(), Keys::new());
        let client_addresses = "addresses = [\"10.77.1.0/24\", \"fd77:1::/64\"]\n";
        let far = format!(
            "{OPEN}[[client]]\nkey = \"{}\"\n{client_addresses}",
            keys.near
        );
        let proxy = proxy::start(&pair, &keys.proxy(ip, &keys.near, &far));
        let near = keys.gateway(ip, &keys.far, &format!("{UDP}client_address = \"tell\"\n"));
        let gateway = split_one(&pair.near, &near);
        eventually("tunnels", || is_up(&gateway));
        let _echo = Echo::start(&pair.server, server(ip));
        let socket = client(&pair.client, server(ip));
        assert_eq!(ask_again(&socket), ip.client());
        assert_eq!(ask(&socket, "x").unwrap(), ip.client());
        let status = proxy.status().unwrap().tunnels;
        assert_eq!(status.counters.from_clients, 1);
        assert!(status.udp.out >= 2, "{:?}", status.udp);
    }
}

/// Where UDP is blocked on the link, clients' UDP goes by TCP; the server sees another port of the far end then.
#[test]
fn where_udp_is_blocked_it_goes_by_tcp() {
    need!(Root, Nft, Tproxy);
    let (on, _echo) = carrying(Ip::V4, "");
    let socket = client(&on.pair.client, server(Ip::V4));
    let carrier = || {
        let status = on.gateway.handle.status().unwrap();
        let tunnels = status.tunnels.as_ref().unwrap();
        (tunnels.carrier, tunnels.connections.len())
    };
    eventually("both carriers", || carrier() == (Some("quic"), 2));
    assert_eq!(ask(&socket, "x").unwrap(), far_end(Ip::V4));
    let rules = "table inet no_udp {
       chain input {
         type filter hook prerouting priority -400; policy accept;
         iifname sat0 meta l4proto udp drop
       }
     }";
    for netns in [&on.pair.near, &on.pair.far] {
        netns.run(|| nft::apply(rules).unwrap()).unwrap();
    }
    assert_eq!(ask_again(&socket), far_end(Ip::V4));
    assert_eq!(carrier().0, Some("http2"));
    for number in 0..20 {
        assert_eq!(ask(&socket, &number.to_string()).unwrap(), far_end(Ip::V4));
    }
    let long = "x".repeat(1400);
    assert_eq!(ask(&socket, &long).unwrap(), far_end(Ip::V4));
}

/// What a lossy link loses is not sent again, and what arrives is whole.
#[test]
fn what_the_link_loses_is_lost() {
    need!(Root, Nft, Tproxy);
    let (on, _echo) = carrying(Ip::V4, "");
    on.pair.lose(5);
    let socket = client(&on.pair.client, server(Ip::V4));
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let answered = (0..100).filter(|number| {
        ask(&socket, &format!("{number}")).is_ok_and(|seen| seen == far_end(Ip::V4))
    });
    let answered = answered.count();
    assert!((40..95).contains(&answered), "{answered}");
    eventually("the figures", || status(&on.gateway).into == 100);
}

/// A client that does not let its datagrams be fragmented is told what a tunnel carries; the kernel believes it, and the next is refused
/// before it leaves.
#[test]
fn who_sends_too_much_is_told_how_much_passes() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let (on, _echo) = carrying(ip, "");
        let socket = client(&on.pair.client, server(ip));
        let headers = if ip == Ip::V4 { 28 } else { 48 };
        let long = vec![b'x'; 1500 - headers];
        assert_eq!(ask(&socket, "x").unwrap(), far_end(ip));
        // Linux sets DF for UDP unless told otherwise, and reports what it has learnt of the path.
        let script = "import socket,sys,time
family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
s=socket.socket(family,socket.SOCK_DGRAM); s.connect((sys.argv[1],int(sys.argv[2])))
level,discover,mtu=(41,23,24) if ':' in sys.argv[1] else (0,10,14)
s.setsockopt(level,discover,2)
for n in range(50):
    try: s.send(b'x'*int(sys.argv[3]))
    except OSError as e:
        assert e.errno==90,e
        print(s.getsockopt(level,mtu)); break
    time.sleep(0.05)
";
        let mut command = on.pair.client.command("python3");
        command.args(["-c", script, &ip.server().to_string(), &PORT.to_string()]);
        let output = command.arg(long.len().to_string()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let mtu: usize = said
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("{said:?}: {}", String::from_utf8_lossy(&output.stderr)));
        let room = mtu - headers;
        assert!((1350..1450).contains(&room), "{room}");
        eventually("the figures", || {
            status(&on.gateway).dropped["too_long"] >= 1
        });
        // What the client was told is what a tunnel carries.
        let before = status(&on.gateway).into;
        socket.send(&vec![b'y'; room]).unwrap();
        eventually("one more", || status(&on.gateway).into == before + 1);
    }
}

/// Names are resolved by a tunnel: the server (dnsmasq) is asked by the far end.
#[test]
fn names_are_resolved_by_a_tunnel() {
    need!(Root, Nft, Tproxy, Program("dnsmasq"), Program("dig"));
    let ip = Ip::V4;
    let on = Tunnelled::new(ip, OPEN, "udp = 53\n");
    let listen = format!("--listen-address={}", ip.server());
    let mut command = on.pair.server.command("dnsmasq");
    command
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--no-resolv",
        ])
        .args([
            "--no-hosts",
            "--pid-file",
            "--bind-interfaces",
            "--user=root",
            &listen,
        ])
        .args([
            "--address=/name.test/192.0.2.7",
            "--log-queries",
            "--log-facility=-",
        ])
        .stderr(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let resolved = || {
        let mut command = on.pair.client.command("dig");
        let at = format!("@{}", ip.server());
        command.args(["+short", "+tries=1", "+time=2", &at, "name.test"]);
        command.output().unwrap().stdout == b"192.0.2.7\n"
    };
    eventually("an answer", resolved);
    let mut log = String::new();
    server.kill().unwrap();
    server.wait().unwrap();
    server
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    let asked = format!("query[A] name.test from {}", far_end(ip));
    assert!(log.contains(&asked), "{log}");
    assert!(!log.contains(&format!("from {}", ip.client())), "{log}");
}

/// What the far end may not reach passes end to end from the second datagram on.
#[test]
fn what_the_far_end_refuses_passes() {
    need!(Root, Nft, Tproxy);
    let on = Tunnelled::new(Ip::V4, "", UDP);
    let _echo = Echo::start(&on.pair.server, server(Ip::V4));
    let socket = client(&on.pair.client, server(Ip::V4));
    assert_eq!(ask_again(&socket), Ip::V4.client());
    assert_eq!(ask(&socket, "y").unwrap(), Ip::V4.client());
    eventually("the figures", || status(&on.gateway).passed >= 1);
}

/// A flow goes on through an outage of its tunnel, by another address meanwhile, and on a tunnel again afterwards.
#[test]
fn a_flow_outlives_its_tunnel() {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (support::pair::Pair::new(), Keys::new());
    let file = keys.proxy(Ip::V4, &keys.near, OPEN);
    let _echo = Echo::start(&pair.server, server(Ip::V4));
    let mut far = ProxyProcess::start(&pair, &file);
    let gateway = split_one(&pair.near, &keys.gateway(Ip::V4, &keys.far, UDP));
    eventually("tunnels", || is_up(&gateway));
    let socket = client(&pair.client, server(Ip::V4));
    assert_eq!(ask_again(&socket), far_end(Ip::V4));
    far.kill();
    eventually("the loss", || !is_up(&gateway));
    assert_eq!(ask_again(&socket), Ip::V4.client());
    let _far = ProxyProcess::start(&pair, &file);
    eventually("tunnels again", || is_up(&gateway));
    eventually("the tunnel", || ask_again(&socket) == far_end(Ip::V4));
}

/// Where nothing is to pass without a tunnel, the client hears of it.
#[test]
fn without_a_far_end_clients_are_refused_where_that_is_wanted() {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (support::pair::Pair::new(), Keys::new());
    let _echo = Echo::start(&pair.server, server(Ip::V4));
    let rest = format!("{UDP}when_down = \"refuse\"\n");
    let gateway = split_one(&pair.near, &keys.gateway(Ip::V4, &keys.far, &rest));
    let socket = client(&pair.client, server(Ip::V4));
    eventually("a refusal", || {
        ask(&socket, "x").is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    assert!(status(&gateway).passed >= 1);
    // Others pass.
    let other = SocketAddr::new(Ip::V4.server(), 5302);
    let _other = Echo::start(&pair.server, other);
    assert_eq!(ask_again(&client(&pair.client, other)), Ip::V4.client());
}

/// A client that goes on is not refused for ever because the far end could not reach the server for a while.
#[test]
fn what_the_far_end_could_not_open_is_asked_for_again_where_nothing_passes() {
    need!(Root, Nft, Tproxy);
    let (on, _echo) = carrying(Ip::V4, "udp_idle = \"1s\"\nwhen_down = \"refuse\"\n");
    let route = |what| {
        let server = Ip::V4.server().to_string();
        let run = || {
            let mut ip = Command::new("ip");
            ip.args(["route", what, "unreachable", &server]).status()
        };
        assert!(on.pair.far.run(run).unwrap().unwrap().success());
    };
    route("add");
    let socket = client(&on.pair.client, server(Ip::V4));
    eventually("a refusal", || {
        ask(&socket, "x").is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    });
    route("del");
    eventually("the tunnel", || {
        std::thread::sleep(Duration::from_millis(300));
        ask(&socket, "x").is_ok_and(|seen| seen == far_end(Ip::V4))
    });
}

/// A flow without a word is forgotten, also at the far end.
#[test]
fn idle_flows_are_forgotten() {
    need!(Root, Nft, Tproxy);
    let (on, _echo) = carrying(Ip::V4, "udp_idle = \"1s\"\n");
    let socket = client(&on.pair.client, server(Ip::V4));
    assert_eq!(ask(&socket, "x").unwrap(), far_end(Ip::V4));
    eventually("the figures", || status(&on.gateway).idle == 1);
    let far = || on.proxy.status().unwrap().tunnels.udp.flows;
    eventually("its end at the far end", || far() == 0);
    assert_eq!(ask(&socket, "y").unwrap(), far_end(Ip::V4));
}

/// One client has a quarter of the flows, and a flood in the name of many has all of them; what finds none passes, and connections go on by
/// tunnels meanwhile.
#[test]
fn a_flood_is_bounded() {
    need!(Root, Nft, Tproxy);
    let (on, _echo) = carrying(Ip::V4, "udp_flows = 40\n");
    let sockets: Vec<_> = (0..20)
        .map(|_| client(&on.pair.client, server(Ip::V4)))
        .collect();
    let seen: Vec<_> = sockets
        .iter()
        .map(|socket| ask(socket, "x").unwrap())
        .collect();
    let by_tunnel = seen.iter().filter(|&&seen| seen == far_end(Ip::V4)).count();
    assert_eq!(by_tunnel, 10);
    let (server_side, to) = (on.pair.listen(Ip::V4), server(Ip::V4));
    let flood = || {
        let raw = RawIp::open().unwrap();
        for number in 0..20_000_u32 {
            let from = Ipv4Addr::new(10, 77, 1, 3 + (number % 250) as u8);
            let packet = Packet {
                ip: Header::between(from.into(), to.ip()).unwrap(),
                transport: Transport::Udp(Udp {
                    source: 1024 + (number / 250) as u16,
                    destination: to.port(),
                }),
                payload: b"flood"[..].into(),
            };
            let way = Way {
                interface: 0,
                router: None,
                mark: 0,
            };
            let _ = raw.send(&packet.to_vec().unwrap(), &way);
        }
    };
    on.pair.client.run(flood).unwrap();
    eventually("the bound", || status(&on.gateway).flows == 40);
    // Flows that stand are served, once the flood has left the queues before them, and so are connections.
    eventually("a flow that stands", || {
        ask(&sockets[0], "y").is_ok_and(|seen| seen == far_end(Ip::V4))
    });
    let _client = on.pair.connect(server_side.address());
    let seen = server_side.accept().peer_addr().unwrap().ip();
    assert_eq!(seen, far_end(Ip::V4));
    eventually("the others", || status(&on.gateway).passed > 1000);
}

/// The operator's forward rules decide before a tunnel does, and with masquerading behind them all is as without.
#[test]
fn the_operators_rules_hold() {
    need!(Root, Nft, Tproxy);
    let (on, _echo) = carrying(Ip::V4, "");
    let rules = "table ip operator {
      chain forward { type filter hook forward priority filter; policy accept; ct state invalid drop; udp dport 5301 drop; }
      chain output { type filter hook output priority filter; policy drop; oifname { lo, sat0 } accept; ct state established accept; }
      chain post { type nat hook postrouting priority srcnat; policy accept; oifname sat0 masquerade; }
      chain pre { type nat hook prerouting priority dstnat; policy accept; iifname lan0 udp dport 5300 ip daddr 10.77.2.77 dnat to 10.77.2.2; }
    }";
    on.pair.near.run(|| nft::apply(rules).unwrap()).unwrap();
    let closed = SocketAddr::new(Ip::V4.server(), 5301);
    let _closed = Echo::start(&on.pair.server, closed);
    let socket = client(&on.pair.client, closed);
    assert!(ask(&socket, "x").is_err(), "the operator forbids it");
    let socket = client(&on.pair.client, server(Ip::V4));
    // The answer passes an output chain that drops it, once the gateway has seen that chain.
    assert_eq!(ask_again(&socket), far_end(Ip::V4));
    // To a destination that is translated it passes, and the answer comes from where the client has asked.
    let translated = client(&on.pair.client, ([10, 77, 2, 77], PORT).into());
    eventually("the table for translations", || {
        ask(&translated, "x").is_ok_and(|seen| seen != far_end(Ip::V4))
    });
}

/// Bypassed, new flows pass, and those that stand stay; a gateway that ends leaves nothing, and flows pass.
#[test]
fn bypass_and_the_end_of_a_gateway_let_flows_pass() {
    need!(Root, Nft, Tproxy);
    let (on, _echo) = carrying(Ip::V4, "");
    let old = client(&on.pair.client, server(Ip::V4));
    assert_eq!(ask(&old, "x").unwrap(), far_end(Ip::V4));
    on.gateway.handle.bypass(true).unwrap();
    let new = client(&on.pair.client, server(Ip::V4));
    assert_eq!(ask(&new, "x").unwrap(), Ip::V4.client());
    assert_eq!(ask(&old, "y").unwrap(), far_end(Ip::V4));
    let Tunnelled {
        pair: _pair,
        gateway,
        ..
    } = on;
    gateway.shutdown.request();
    assert_eq!(gateway.join(), Ending::Drained);
    assert_eq!(ask_again(&old), Ip::V4.client());
}

/// While the gateway's process is stopped, and when it is killed, flows pass within two seconds.
#[test]
fn a_gateway_that_hangs_or_is_killed_lets_flows_pass() {
    need!(Root, Nft, Tproxy);
    let (pair, keys) = (support::pair::Pair::new(), Keys::new());
    let _far = proxy::start(&pair, &keys.proxy(Ip::V4, &keys.near, OPEN));
    let _echo = Echo::start(&pair.server, server(Ip::V4));
    let mut gateway = proxy::gateway_process(&pair, &keys.gateway(Ip::V4, &keys.far, UDP));
    let socket = client(&pair.client, server(Ip::V4));
    eventually("the tunnel", || ask_again(&socket) == far_end(Ip::V4));
    let passes_soon = || {
        let begun = Instant::now();
        assert_eq!(ask_again(&socket), Ip::V4.client());
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
    };
    gateway.stop();
    passes_soon();
    gateway.signal("-CONT");
    eventually("the tunnel again", || ask_again(&socket) == far_end(Ip::V4));
    gateway.kill();
    passes_soon();
}
