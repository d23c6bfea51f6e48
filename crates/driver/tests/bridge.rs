//! A bridge of frames between two hosts: what they send crosses the machine, segment by segment, and crosses the kernel's bridge
//! when the process that drives the machine is killed, stopped or gone.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

#[path = "support/actor.rs"]
mod actor;

use actor::Actor;
use bentpipe_base::{Instant as Time, Machine, Prefix};
use bentpipe_driver::{Bridge, End, Frame};
use bentpipe_os::netlink::{Veth, VethEnd};
use bentpipe_os::netns::Netns;
use bentpipe_os::{need, nft};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const PORTS: [&str; 2] = ["near", "far"];
/// What the role tells that its machine has lost: datagrams to this port.
const LOST: u16 = 7_777;

/// Passes all on but datagrams to [`LOST`], and sees how long the longest frame is.
#[derive(Default)]
struct Wire {
    frames: VecDeque<(End, Frame)>,
    longest: usize,
    payload: u64,
}

impl Machine for Wire {
    type Packet = Frame;
    type Port = End;
    type Event = Infallible;

    fn input(&mut self, end: End, frame: Frame, _: Time) {
        self.longest = self.longest.max(frame.bytes().len());
        if let Some(packet) = frame.packet() {
            self.payload += packet.payload.len() as u64;
            if matches!(&packet.transport, bentpipe_wire::Transport::Udp(udp) if udp.destination == LOST)
            {
                return;
            }
        }
        self.frames.push_back((end.opposite(), frame));
    }

    fn timeout(&mut self, _: Time) {}

    fn transmit(&mut self, _: Time) -> Option<(End, Frame)> {
        self.frames.pop_front()
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Time> {
        None
    }
}

/// Two hosts, and a machine between them whose kernel would bridge them.
struct Net {
    hosts: [Netns; 2],
    middle: Netns,
    _veths: [Veth; 2],
}

impl Net {
    fn new() -> Self {
        let middle = Netns::create("bridge").unwrap();
        let hosts = ["near", "far"].map(|label| Netns::create(label).unwrap());
        let veths = [0, 1].map(|i| {
            let near = VethEnd {
                netns: &middle,
                name: PORTS[i],
            };
            let far = VethEnd {
                netns: &hosts[i],
                name: "eth",
            };
            Veth::create(near, far).unwrap()
        });
        ip(&middle, &["link", "add", "bridge0", "type", "bridge"]);
        for (i, veth) in veths.iter().enumerate() {
            veth.set_up().unwrap();
            ip(&middle, &["link", "set", PORTS[i], "master", "bridge0"]);
            let netlink = hosts[i].netlink().unwrap();
            let address = Prefix::new(address(i).ip(), 24).unwrap();
            netlink.add_address("eth", address).unwrap();
        }
        ip(&middle, &["link", "set", "bridge0", "up"]);
        Self {
            hosts,
            middle,
            _veths: veths,
        }
    }

    /// A connection from the near host to the far one.
    fn connect(&self) -> [TcpStream; 2] {
        let listener = self.hosts[1]
            .run(|| TcpListener::bind(address(1)).unwrap())
            .unwrap();
        let near = self.hosts[0]
            .run(|| TcpStream::connect_timeout(&address(1), Duration::from_secs(10)).unwrap())
            .unwrap();
        let far = listener.accept().unwrap().0;
        for stream in [&near, &far] {
            stream.set_nodelay(true).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
        }
        [near, far]
    }

    /// Whether a datagram to a port arrives.
    fn arrives(&self, port: u16) -> bool {
        let to = SocketAddr::new(address(1).ip(), port);
        let far = self.hosts[1].run(|| UdpSocket::bind(to).unwrap()).unwrap();
        far.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let near = self.hosts[0]
            .run(|| UdpSocket::bind((address(0).ip(), 0)).unwrap())
            .unwrap();
        near.send_to(&[1], to).unwrap();
        far.recv(&mut [0; 1]).is_ok()
    }
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([100, 64, 9, 1 + host as u8], 5_000))
}

fn ip(netns: &Netns, arguments: &[&str]) {
    let status = netns.command("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}");
}

/// A byte there and back; how long that took.
fn echo([near, far]: &mut [TcpStream; 2]) -> Duration {
    let start = Instant::now();
    near.write_all(&[5]).unwrap();
    far.read_exact(&mut [0]).unwrap();
    far.write_all(&[6]).unwrap();
    near.read_exact(&mut [0]).unwrap();
    start.elapsed()
}

#[test]
#[ignore = "the other process of the tests below"]
fn bridge_process() {
    if !actor::plays("bridge_process") {
        return;
    }
    let mut bridge = Bridge::new(Wire::default(), PORTS[0], PORTS[1]).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "READY").unwrap();
    out.flush().unwrap();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        bridge.turn(Duration::from_secs(1), |_| {}).unwrap();
    }
}

#[test]
fn what_hosts_send_crosses_the_machine_segment_by_segment() {
    need!(Root, Nft);
    const LENGTH: usize = 4_000_000;
    let net = Net::new();
    net.middle
        .run(|| {
            let mut bridge = Bridge::new(Wire::default(), PORTS[0], PORTS[1]).unwrap();
            std::thread::scope(|scope| {
                let ends = scope.spawn(|| {
                    let [mut near, mut far] = net.connect();
                    let reader = std::thread::spawn(move || {
                        let mut bytes = Vec::new();
                        far.read_to_end(&mut bytes).unwrap();
                        bytes
                    });
                    let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * 7 / 3) as u8).collect();
                    near.write_all(&bytes).unwrap();
                    drop(near);
                    assert!(reader.join().unwrap() == bytes, "other bytes arrived");
                });
                while !ends.is_finished() {
                    bridge.turn(Duration::from_millis(50), |_| {}).unwrap();
                }
                ends.join().unwrap();
            });
            let (wire, counters) = (bridge.machine(), *bridge.counters());
            assert!(wire.payload >= LENGTH as u64, "{counters:?}");
            assert!(wire.longest <= 1_514, "{} bytes", wire.longest);
            // ARP at least is no IP packet, and crossed too.
            assert!(counters.unreadable >= 2, "{counters:?}");
            assert!(counters.received >= (LENGTH / 1_460) as u64, "{counters:?}");
        })
        .unwrap();
}

#[test]
fn what_a_killed_process_carried_the_kernel_carries() {
    need!(Root, Nft);
    let net = Net::new();
    let actor = Actor::start(&net.middle, "bridge_process");
    let mut ends = net.connect();
    echo(&mut ends);
    assert!(net.arrives(LOST + 1) && !net.arrives(LOST));
    actor.signal("-KILL");
    let took = echo(&mut ends);
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(net.arrives(LOST));
    let tables = || net.middle.run(|| nft::list(&["ruleset"]).unwrap()).unwrap();
    let start = Instant::now();
    while !tables().is_empty() && start.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(tables(), "");
}

#[test]
fn what_a_hung_process_carried_the_kernel_carries_until_it_is_back() {
    need!(Root, Nft);
    let net = Net::new();
    let actor = Actor::start(&net.middle, "bridge_process");
    let mut ends = net.connect();
    echo(&mut ends);
    assert!(!net.arrives(LOST));
    actor.signal("-STOP");
    std::thread::sleep(Duration::from_secs(1));
    assert!(net.arrives(LOST), "the kernel does not carry the frames");
    echo(&mut ends);
    actor.signal("-CONT");
    let start = Instant::now();
    while net.arrives(LOST) && start.elapsed() < Duration::from_secs(5) {}
    assert!(!net.arrives(LOST), "the process does not carry them again");
    echo(&mut ends);
}
