//! A host with listeners and connections of its own, and somebody who sends it what he likes: segments near the
//! numbers that it uses, ICMP about what it sent, raw bytes; its application does what it likes, too. Nothing panics,
//! bounds hold, and it comes to rest.
#![no_main]

use arbitrary::Arbitrary;
use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_host::{Config, ConnectionId, Host, Secret};
use bentpipe_wire::{
    Checksums, FastOpenOption, Flags, Ip, Ipv4, Packet, Payload, RawOptions, Tcp, TcpOptions,
    Timestamps, Transport, checksum, protocol,
};
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const CONNECTIONS: usize = 12;
const TIME_WAITS: usize = 4;

#[derive(Arbitrary, Debug)]
enum Step {
    Segment(Forged),
    /// An answer to packet `0` of those that it sent.
    Answer(u8, Forged),
    Icmp(u8, u8, u8, u16),
    Raw(Vec<u8>),
    Wait(u16),
    Accept,
    Connect(u8),
    Write(u8, u16),
    Read(u8, u16),
    Close(u8),
    Release(u8),
}

#[derive(Arbitrary, Debug)]
struct Forged {
    ports: (u8, bool),
    seq: i16,
    ack: i16,
    flags: u8,
    window: u16,
    len: u8,
    timestamps: Option<(i8, i8)>,
    options: Option<(u16, u8, bool)>,
    /// The cookie of Fast Open that the host gave last, or else a request for one.
    fast_open: bool,
}

impl Forged {
    /// A segment from the peer; numbers are near those of `sent`, a packet of the host's. `given`: the host's cookie.
    fn packet(&self, sent: Option<&Tcp>, given: Option<Box<RawOptions>>) -> Packet {
        let none = Tcp::default();
        let near = sent.unwrap_or(&none);
        let at = |seq: Seq, by: i16| Seq(seq.0.wrapping_add_signed(by.into()));
        let clock = near.timestamps.unwrap_or_default();
        let port = |number: u8| 1_000 + u16::from(number % 8);
        Packet {
            ip: Ip::V4(Ipv4::new(PEER, OURS)),
            transport: Transport::Tcp(Tcp {
                source: sent.map_or(port(self.ports.0), |sent| sent.destination),
                destination: sent.map_or(80 + u16::from(self.ports.1), |sent| sent.source),
                seq: at(near.ack, self.seq),
                ack: at(near.seq, self.ack),
                flags: Flags::from_bits(self.flags.into()),
                window: self.window,
                urgent: 0,
                timestamps: self.timestamps.map(|(value, echo)| Timestamps {
                    value: clock.echo.wrapping_add_signed(value.into()),
                    echo: clock.value.wrapping_add_signed(echo.into()),
                }),
                options: self.options.and_then(|(mss, scale, sack_permitted)| {
                    let options = TcpOptions {
                        mss: Some(mss),
                        window_scale: Some(scale),
                        sack_permitted,
                        unknown: if self.fast_open { given.or_else(|| FastOpenOption::Request.to_raw()) } else { None },
                        ..TcpOptions::default()
                    };
                    options.boxed()
                }),
            }),
            payload: Payload::from(&vec![7; self.len.into()][..]),
        }
    }
}

/// An ICMP error about `packet`.
fn error(kind: u8, code: u8, mtu: u16, packet: &Packet) -> Option<Packet> {
    let quoted = packet.to_vec().ok()?;
    let mut body = vec![kind, code, 0, 0, 0, 0];
    body.extend_from_slice(&mtu.to_be_bytes());
    body.extend_from_slice(quoted.get(..28)?);
    let sum = checksum::checksum(&body).to_be_bytes();
    body[2..4].copy_from_slice(&sum);
    Some(Packet {
        ip: Ip::V4(Ipv4::new(PEER, OURS)),
        transport: Transport::Other {
            protocol: protocol::ICMP,
        },
        payload: Payload::from(&body[..]),
    })
}

struct World {
    host: Host,
    now: Instant,
    sent: Vec<Packet>,
    held: Vec<ConnectionId>,
}

impl World {
    fn drain(&mut self) {
        for turn in 0.. {
            assert!(turn < 100_000, "it never has enough");
            let Some(((), packet)) = self.host.transmit(self.now) else {
                break;
            };
            let bytes = packet.to_vec().expect("what it sends can be written");
            assert!(Packet::parse(&bytes, Checksums::Verify).is_ok_and(|read| read == packet));
            if self.sent.len() < 200 {
                self.sent.push(packet);
            }
        }
        while self.host.event().is_some() {}
        let (connections, time_waits) = self.host.connections();
        assert!(connections <= CONNECTIONS && time_waits <= TIME_WAITS);
    }

    fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        for turn in 0.. {
            assert!(turn < 100_000, "timers do not come to rest");
            let Some(at) = self.host.deadline().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(at);
            self.host.timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    fn held(&self, which: u8) -> Option<ConnectionId> {
        let count = self.held.len().max(1);
        self.held.get(usize::from(which) % count).copied()
    }

    fn step(&mut self, step: Step, listener: bentpipe_host::ListenerId) {
        let now = self.now;
        let given = self.sent.iter().rev().find_map(|packet| match &packet.transport {
            Transport::Tcp(tcp) => tcp.options.as_ref()?.unknown.clone(),
            _ => None,
        });
        let sent = |which: u8| self.sent.get(usize::from(which) % self.sent.len().max(1));
        match step {
            Step::Segment(forged) => self.host.input((), forged.packet(None, given), now),
            Step::Answer(which, forged) => {
                let near = sent(which).and_then(|packet| match &packet.transport {
                    Transport::Tcp(tcp) => Some(tcp),
                    _ => None,
                });
                let packet = forged.packet(near, given);
                self.host.input((), packet, now);
            }
            Step::Icmp(which, kind, code, mtu) => {
                let about = sent(which).and_then(|packet| error(kind, code, mtu, packet));
                if let Some(packet) = about {
                    self.host.input((), packet, now);
                }
            }
            Step::Raw(bytes) => {
                if let Ok(packet) = Packet::parse(&bytes, Checksums::Ignore) {
                    self.host.input((), packet, now);
                }
            }
            Step::Wait(ms) => self.wait(Duration::from_millis(ms.into())),
            Step::Accept => self.held.extend(self.host.accept(listener).map(|(id, _)| id)),
            Step::Connect(port) => {
                let from = SocketAddr::new(OURS.into(), 0);
                let to = SocketAddr::new(PEER.into(), 1 + u16::from(port));
                let config = Arc::new(fast());
                self.held.extend(self.host.connect(from, to, &config, now));
            }
            Step::Write(which, len) => {
                let id = self.held(which);
                if let Some(connection) = id.and_then(|id| self.host.connection_mut(id)) {
                    connection.write(&vec![9; len.into()]);
                }
            }
            Step::Read(which, len) => {
                let id = self.held(which);
                if let Some(connection) = id.and_then(|id| self.host.connection_mut(id)) {
                    connection.read(&mut vec![0; len.into()]);
                }
            }
            Step::Close(which) => {
                let id = self.held(which);
                if let Some(connection) = id.and_then(|id| self.host.connection_mut(id)) {
                    connection.close(now);
                }
            }
            Step::Release(which) => {
                if let Some(id) = self.held(which) {
                    self.held.retain(|held| *held != id);
                    self.host.release(id, now);
                }
            }
        }
        self.drain();
    }
}

fn fast() -> bentpipe_tcp::Config {
    bentpipe_tcp::Config {
        fast_open: true,
        ..bentpipe_tcp::Config::rfc()
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let config = Config {
        connections: CONNECTIONS,
        time_wait: TIME_WAITS,
        orphans: 3,
        buffered: Bytes(50_000),
        ..Config::default()
    };
    let mut host = Host::new(config, Secret::new([5; 16]));
    host.add_address(OURS.into());
    let at = SocketAddr::new(OURS.into(), 80);
    let listener = host.listen(at, &Arc::new(fast()), 4).expect("a free port");
    host.set_fast_open(listener, 3);
    let (now, sent, held) = (Instant::ZERO, Vec::new(), Vec::new());
    let mut world = World { host, now, sent, held };
    for step in steps {
        world.step(step, listener);
    }
    // Who lets go of all, and hears no more, is left with nothing.
    while let Some((id, _)) = world.host.accept(listener) {
        world.held.push(id);
    }
    for id in core::mem::take(&mut world.held) {
        world.host.release(id, world.now);
    }
    world.drain();
    world.wait(Duration::from_secs(7_200));
    assert_eq!(world.host.connections(), (0, 0));
});
