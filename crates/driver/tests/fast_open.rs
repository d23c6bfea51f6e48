//! TCP Fast Open (RFC 7413) between our TCP and the kernel's, over a TUN interface in a namespace of its own: each end as
//! client and as server, IPv4 and IPv6, with cookies that are good, wrong and dropped on the way. The kernel's own counters
//! say what it saw.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

use bentpipe_base::{Bytes, Instant, Machine};
use bentpipe_driver::Driver;
use bentpipe_host::{Config, ConnectionId, Event, Host, Secret, ServerCookie};
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_tcp as tcp;
use bentpipe_wire::{FastOpenCookie, Flags, Packet, Transport};
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const PORT: u16 = 5_000;
const REQUEST: &[u8] = b"a request that may be repeated";
const ANSWER: &[u8] = b"its answer";
/// `net.ipv4.tcp_fastopen`: clients, servers, and all listeners without being asked (bits 0, 1 and 10).
const FAST_OPEN: &str = "1027";
/// `MSG_FASTOPEN` of linux/socket.h: connects, and sends data with the SYN.
const MSG_FASTOPEN: i32 = 0x2000_0000;

/// A host, and a path that drops SYNs with data where it is told to.
struct Path {
    host: Host,
    drops: bool,
}

impl Machine for Path {
    type Packet = Packet;
    type Port = ();
    type Event = Event;

    fn input(&mut self, (): (), packet: Packet, now: Instant) {
        self.host.input((), packet, now);
    }

    fn timeout(&mut self, now: Instant) {
        self.host.timeout(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Packet)> {
        loop {
            let ((), packet) = self.host.transmit(now)?;
            let syn =
                matches!(&packet.transport, Transport::Tcp(tcp) if tcp.flags.contains(Flags::SYN));
            if !(self.drops && syn && !packet.payload.is_empty()) {
                return Some(((), packet));
            }
        }
    }

    fn event(&mut self) -> Option<Event> {
        self.host.event()
    }

    fn deadline(&self) -> Option<Instant> {
        self.host.deadline()
    }
}

/// The kernel's address and ours, in both families.
fn ends() -> [(IpAddr, IpAddr, u8); 2] {
    let ip = |text: &str| text.parse().unwrap();
    [
        (ip("100.64.0.1"), ip("100.64.0.2"), 30),
        (ip("fd00:64::1"), ip("fd00:64::2"), 126),
    ]
}

fn config() -> Arc<tcp::Config> {
    Arc::new(tcp::Config {
        fast_open: true,
        min_rto: Duration::from_millis(200),
        receive_buffer: Bytes(1 << 20),
        send_buffer: Bytes(1 << 20),
        ..tcp::Config::rfc()
    })
}

/// Runs `f` in a namespace where the kernel does Fast Open, with a driver.
fn with_driver(
    (kernel, ours, bits): (IpAddr, IpAddr, u8),
    f: impl FnOnce(&Netns, Driver<Path>) + Send,
) {
    let netns = Netns::create("fastopen").unwrap();
    netns
        .set_sysctl("net.ipv4.tcp_fastopen", FAST_OPEN)
        .unwrap();
    let here = &netns;
    here.run(move || {
        let tun = Tun::open("ours", TunConfig::default()).unwrap();
        let prefix = format!("{kernel}/{bits}").parse().unwrap();
        here.netlink().unwrap().add_address("ours", prefix).unwrap();
        until_served(kernel);
        let mut host = Host::new(Config::default(), Secret::new([7; 16]));
        host.add_address(ours);
        let machine = Path { host, drops: false };
        f(here, Driver::new(machine, tun).unwrap());
    })
    .unwrap();
}

/// Waits until what is sent to `address` of this namespace arrives: the kernel makes the route to an IPv6 address of its
/// own a while after the address, and a SYN that comes before is lost.
fn until_served(address: IpAddr) {
    let own = std::net::UdpSocket::bind((address, 0)).unwrap();
    own.set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let to = own.local_addr().unwrap();
    while own.send_to(&[0], to).is_err() || own.recv(&mut [0]).is_err() {}
}

/// What the kernel counted of `name` in the namespace of this thread.
fn counted(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let found = names
        .split(' ')
        .zip(values.split(' '))
        .find(|(n, _)| *n == name);
    found.unwrap().1.parse().unwrap()
}

/// Turns `driver` until `done`.
fn until(driver: &mut Driver<Path>, mut done: impl FnMut(&mut Host) -> bool) {
    let began = driver.now();
    while !done(&mut driver.machine_mut().host) {
        assert!(driver.now().since(began) < Duration::from_secs(60));
        driver.turn(Some(Duration::from_millis(50))).unwrap();
        while driver.machine_mut().event().is_some() {}
    }
}

/// A server of the kernel that answers one request on each of so many connections.
fn kernel_serves(at: SocketAddr, connections: usize) -> thread::JoinHandle<()> {
    let listener = TcpListener::bind(at).unwrap();
    thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            stream.read_to_end(&mut request).unwrap();
            assert_eq!(request, REQUEST);
            stream.write_all(ANSWER).unwrap();
        }
    })
}

/// Asks the kernel's server, and takes its answer.
fn ask(driver: &mut Driver<Path>, (kernel, ours): (IpAddr, IpAddr)) {
    let now = driver.now();
    let host = &mut driver.machine_mut().host;
    let (from, to) = (SocketAddr::new(ours, 0), SocketAddr::new(kernel, PORT));
    let id = host.connect(from, to, &config(), now).unwrap();
    let connection = host.connection_mut(id).unwrap();
    assert_eq!(connection.write(REQUEST), REQUEST.len());
    let (mut answer, mut closed) = (Vec::new(), false);
    until(driver, |host| {
        let connection = host.connection_mut(id).unwrap();
        let state = connection.state();
        if state == tcp::State::Established && !closed {
            closed = true;
            connection.close(now);
        }
        let mut room = [0; 64];
        let got = connection.read(&mut room);
        answer.extend_from_slice(&room[..got]);
        matches!(state, tcp::State::TimeWait | tcp::State::Closed)
    });
    assert_eq!(answer, ANSWER);
    let now = driver.now();
    driver.machine_mut().host.release(id, now);
}

#[test]
fn we_send_data_with_the_syn_and_the_kernel_takes_it() {
    need!(Root, Tun);
    for ends in ends() {
        let (kernel, ours, _) = ends;
        with_driver(ends, move |_, mut driver| {
            let server = kernel_serves(SocketAddr::new(kernel, PORT), 4);
            ask(&mut driver, (kernel, ours));
            assert_eq!(counted("TCPFastOpenCookieReqd"), 1);
            assert_eq!(counted("TCPFastOpenPassive"), 0);
            let given = driver.machine().host.server_cookie(ours, kernel);
            let given = given.expect("the kernel gave a cookie");
            ask(&mut driver, (kernel, ours));
            assert_eq!(counted("TCPFastOpenPassive"), 1);
            assert_eq!(driver.machine().host.counters().fast_opens_answered, 1);
            // A wrong cookie: the kernel takes the SYN alone, and gives the right one.
            let wrong = ServerCookie {
                cookie: FastOpenCookie::new(&[9; 8]).unwrap(),
                ..given
            };
            let now = driver.now();
            let host = &mut driver.machine_mut().host;
            host.add_server_cookie((ours, kernel), wrong, now);
            ask(&mut driver, (kernel, ours));
            assert_eq!(counted("TCPFastOpenPassiveFail"), 1);
            let host = &driver.machine().host;
            assert_eq!(host.server_cookie(ours, kernel), Some(given));
            // A path that drops SYNs with data: a plain one follows.
            driver.machine_mut().drops = true;
            ask(&mut driver, (kernel, ours));
            assert_eq!(counted("TCPFastOpenPassive"), 1);
            let counters = driver.machine().host.counters();
            assert_eq!(
                (counters.fast_opens_answered, counters.fast_opens_failed),
                (1, 2)
            );
            server.join().unwrap();
        });
    }
}

/// Has the kernel connect and send the request with its SYN, where it knows a cookie; returns the answer.
fn kernel_asks(at: SocketAddr) -> Vec<u8> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, None).unwrap();
    let to = SockAddr::from(at);
    let sent = socket
        .send_to_with_flags(REQUEST, &to, MSG_FASTOPEN)
        .unwrap();
    assert_eq!(sent, REQUEST.len());
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    (&socket).read_to_end(&mut answer).unwrap();
    answer
}

/// Serves one connection; whether its data came before the handshake was complete.
fn serve(driver: &mut Driver<Path>, listener: bentpipe_host::ListenerId) -> bool {
    let mut accepted: Option<(ConnectionId, bool)> = None;
    let mut request = Vec::new();
    let mut answered = false;
    until(driver, |host| {
        if accepted.is_none()
            && let Some((id, _)) = host.accept(listener)
        {
            let state = host.connection(id).unwrap().state();
            accepted = Some((id, state == tcp::State::SynReceived));
        }
        let Some((id, _)) = accepted else {
            return false;
        };
        let connection = host.connection_mut(id).unwrap();
        let mut room = [0; 64];
        let got = connection.read(&mut room);
        request.extend_from_slice(&room[..got]);
        if request == REQUEST && !answered {
            answered = true;
            assert_eq!(connection.write(ANSWER), ANSWER.len());
        }
        answered && connection.state() == tcp::State::CloseWait
    });
    let (id, early) = accepted.unwrap();
    let now = driver.now();
    driver.machine_mut().host.release(id, now);
    until(driver, |host| host.connections().0 == 0);
    early
}

#[test]
fn the_kernel_sends_data_with_its_syn_and_we_take_it() {
    need!(Root, Tun);
    for ends in ends() {
        let (_, ours, _) = ends;
        with_driver(ends, move |netns, mut driver| {
            let at = SocketAddr::new(ours, PORT);
            let host = &mut driver.machine_mut().host;
            let listener = host.listen(at, &config(), 8).unwrap();
            host.set_fast_open(listener, 8);
            thread::scope(|scope| {
                for expected in [false, true, true] {
                    let client = scope.spawn(|| netns.run(|| kernel_asks(at)).unwrap());
                    assert_eq!(serve(&mut driver, listener), expected);
                    assert_eq!(client.join().unwrap(), ANSWER);
                }
                assert_eq!(counted("TCPFastOpenActive"), 2);
                // Past the limit the SYN alone is taken.
                driver.machine_mut().host.set_fast_open(listener, 0);
                let client = scope.spawn(|| netns.run(|| kernel_asks(at)).unwrap());
                assert!(!serve(&mut driver, listener));
                assert_eq!(client.join().unwrap(), ANSWER);
            });
            assert_eq!(counted("TCPFastOpenActive"), 2);
            assert_eq!(counted("TCPFastOpenActiveFail"), 1);
            let counters = driver.machine().host.counters();
            assert_eq!(
                (counters.fast_opens, counters.fast_open_cookies_sent),
                (2, 1)
            );
        });
    }
}
