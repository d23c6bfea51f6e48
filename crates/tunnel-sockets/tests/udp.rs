//! UDP through a far end's driver and real sockets on loopback. The near side is a machine that the test drives, so that it can also do
//! what no gateway of ours does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{self as base, Machine};
use bentpipe_connect_tcp::{DialError, Target, Template};
use bentpipe_quic::{ConnectionId, Datagram, Endpoint, Limits};
use bentpipe_tunnel::{Event, Role, Side, TunnelId};
use bentpipe_tunnel_sockets::{Driver, Handle, Rule, UdpStatus};
use bytes::BytesMut;
use std::net::{SocketAddr, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use support::loopback;

/// A far end in a thread of its own, and the test's near side.
struct Bed {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    near: Side<Endpoint>,
    socket: UdpSocket,
    peer: SocketAddr,
    began: Instant,
    connection: ConnectionId,
    told: Vec<Event>,
}

impl Bed {
    fn new(tunnels: usize, udp_idle: Duration) -> Self {
        let began = Instant::now();
        let [near, far] = support::configs(Limits::default(), began);
        let template = Template::of_authority("far.example").unwrap();
        let rules = vec![Rule {
            prefix: "127.0.0.1/32".parse().unwrap(),
            ports: 1024..=65_535,
            allow: true,
        }];
        let serve = support::far(&template, rules, tunnels, udp_idle);
        let far = Driver::far(&far, loopback(), serve).unwrap();
        let peer = far.address().unwrap();
        let handle = far.handle();
        let thread = thread::spawn(move || far.run().map(drop).unwrap());
        let endpoint = Endpoint::new(&near, false).unwrap();
        let mut near = Side::new(endpoint, Role::Near, vec![template]);
        let now = base::Instant::ZERO + began.elapsed();
        let connection = near.quic_mut().connect(peer, now).unwrap();
        let socket = UdpSocket::bind(loopback()).unwrap();
        let mut bed = Self {
            handle,
            thread: Some(thread),
            near,
            socket,
            peer,
            began,
            connection,
            told: Vec::new(),
        };
        bed.until(|bed| bed.told.contains(&Event::Ready(bed.connection)));
        bed
    }

    fn turn(&mut self) {
        let mut buffer = [0; 2048];
        let pause = Some(Duration::from_millis(1));
        self.socket.set_read_timeout(pause).unwrap();
        if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
            let datagram = Datagram {
                peer: from,
                local: None,
                data: BytesMut::from(&buffer[..length]),
                segment: None,
            };
            let now = self.now();
            self.near.input((), datagram, now);
        }
        let now = self.now();
        if self.near.deadline().is_some_and(|due| due <= now) {
            self.near.timeout(now);
        }
        while let Some(((), datagram)) = self.near.transmit(now) {
            self.socket.send_to(&datagram.data, self.peer).unwrap();
        }
        while let Some(event) = self.near.event() {
            self.told.push(event);
        }
    }

    fn now(&self) -> base::Instant {
        base::Instant::ZERO + self.began.elapsed()
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < end, "{:?} {:?}", self.told, self.status());
            self.turn();
        }
    }

    fn open(&mut self, target: &str) -> TunnelId {
        let target: Target = target.parse().unwrap();
        self.near.open_udp(self.connection, &target, None).unwrap()
    }

    /// Sends a payload and waits for an answer.
    fn ask(&mut self, tunnel: TunnelId, payload: &[u8]) -> Vec<u8> {
        self.told.clear();
        self.near.send_udp(tunnel, payload).unwrap();
        self.until(|bed| bed.answer(tunnel).is_some());
        self.answer(tunnel).unwrap()
    }

    fn answer(&self, tunnel: TunnelId) -> Option<Vec<u8>> {
        self.told.iter().find_map(|event| match event {
            Event::Udp(of, payload) if *of == tunnel => Some(payload.to_vec()),
            _ => None,
        })
    }

    fn status(&self) -> UdpStatus {
        self.handle.status(Duration::from_secs(20)).unwrap().udp
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.handle.stop();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || thread::panicking());
    }
}

/// Answers each datagram with itself turned round, until it hears `end`; tells from how many ports it was asked.
fn server() -> (SocketAddr, JoinHandle<usize>) {
    let socket = UdpSocket::bind(loopback()).unwrap();
    let address = socket.local_addr().unwrap();
    let serving = thread::spawn(move || {
        let mut ports = std::collections::BTreeSet::new();
        let mut buffer = [0; 2048];
        loop {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            if &buffer[..length] == b"end" {
                return ports.len();
            }
            ports.insert(from.port());
            buffer[..length].reverse();
            socket.send_to(&buffer[..length], from).unwrap();
        }
    });
    (address, serving)
}

#[test]
fn flows_have_sockets_of_their_own_and_nobody_else_is_heard() {
    let mut bed = Bed::new(100, Duration::from_secs(60));
    let (address, serving) = server();
    let flows = [
        bed.open(&address.to_string()),
        bed.open(&address.to_string()),
    ];
    assert_eq!(bed.ask(flows[0], b"first"), b"tsrif");
    assert_eq!(bed.ask(flows[1], b"second"), b"dnoces");
    // By name too, and a payload of nothing.
    let named = bed.open(&format!("localhost:{}", address.port()));
    bed.until(|bed| bed.told.contains(&Event::Answered(named, Ok(()))));
    assert_eq!(bed.ask(named, b""), b"");
    let most = bed.near.udp_room(flows[0]).unwrap();
    let long = vec![1; most];
    assert_eq!(bed.ask(flows[0], &long), long);
    let status = bed.status();
    assert_eq!((status.flows, status.out, status.into), (3, 4, 4));
    for flow in flows {
        bed.near.finish(flow).unwrap();
    }
    bed.until(|bed| bed.status().flows == 1);
    UdpSocket::bind(loopback())
        .unwrap()
        .send_to(b"end", address)
        .unwrap();
    assert_eq!(serving.join().unwrap(), 3);
}

/// The longest that a server says is longer than what the path carries: it is dropped, and what follows is not.
#[test]
fn what_a_server_says_too_long_is_dropped_and_counted() {
    let mut bed = Bed::new(100, Duration::from_secs(60));
    let socket = UdpSocket::bind(loopback()).unwrap();
    let flow = bed.open(&socket.local_addr().unwrap().to_string());
    bed.near.send_udp(flow, b"ask").unwrap();
    bed.until(|bed| bed.status().out == 1);
    let (_, from) = socket.recv_from(&mut [0; 8]).unwrap();
    socket.send_to(&[7; 1480], from).unwrap();
    socket.send_to(b"short", from).unwrap();
    bed.until(|bed| bed.answer(flow).is_some());
    assert_eq!(bed.answer(flow).unwrap(), b"short");
    assert_eq!(bed.status().dropped["too_long"], 1);
}

#[test]
fn a_port_that_is_closed_ends_the_flow_and_a_policy_closes_others() {
    let mut bed = Bed::new(100, Duration::from_secs(60));
    let closed = UdpSocket::bind(loopback()).unwrap().local_addr().unwrap();
    let flow = bed.open(&closed.to_string());
    bed.near.send_udp(flow, b"anybody?").unwrap();
    bed.until(|bed| bed.told.contains(&Event::Reset(flow)));
    let status = bed.status();
    assert_eq!((status.flows, status.unreachable), (0, 1));
    for target in [
        "127.0.0.1:53",
        "127.0.0.2:4433",
        "10.0.0.1:443",
        "[::1]:4433",
    ] {
        let refused = bed.open(target);
        let answer = Event::Answered(refused, Err(DialError::Prohibited));
        bed.until(|bed| bed.told.contains(&answer));
    }
}

/// A client has so many tunnels and no more; flows on which nothing goes are ended, which makes room.
#[test]
fn flows_are_limited_and_the_idle_end() {
    let mut bed = Bed::new(2, Duration::from_secs(2));
    let (address, serving) = server();
    let target = address.to_string();
    let flows = [bed.open(&target), bed.open(&target)];
    for flow in flows {
        bed.until(|bed| bed.told.contains(&Event::Answered(flow, Ok(()))));
    }
    let third = bed.open(&target);
    bed.until(|bed| {
        bed.told
            .contains(&Event::Answered(third, Err(DialError::Limit)))
    });
    // One of the two is used, the other is not.
    let end = Instant::now() + Duration::from_secs(15);
    while !bed.told.contains(&Event::Reset(flows[1])) {
        assert!(Instant::now() < end, "the idle flow stays");
        bed.near.send_udp(flows[0], b"still here").unwrap();
        bed.turn();
    }
    assert!(!bed.told.contains(&Event::Reset(flows[0])));
    let status = bed.status();
    assert_eq!((status.flows, status.idle), (1, 1));
    let again = bed.open(&target);
    bed.until(|bed| bed.told.contains(&Event::Answered(again, Ok(()))));
    UdpSocket::bind(loopback())
        .unwrap()
        .send_to(b"end", address)
        .unwrap();
    serving.join().unwrap();
}

/// A connection that is lost takes its flows along.
#[test]
fn flows_end_with_their_connection() {
    let mut bed = Bed::new(100, Duration::from_secs(60));
    let (address, serving) = server();
    let flow = bed.open(&address.to_string());
    assert_eq!(bed.ask(flow, b"x"), b"x");
    assert_eq!(bed.status().flows, 1);
    let (connection, now) = (bed.connection, bed.now());
    bed.near.close(connection, "done", now);
    bed.until(|bed| bed.status().flows == 0);
    UdpSocket::bind(loopback())
        .unwrap()
        .send_to(b"end", address)
        .unwrap();
    serving.join().unwrap();
}
