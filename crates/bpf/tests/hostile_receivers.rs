//! Receivers that lie, played packet by packet behind a link of our own making, against the kernel's TCP under
//! the rate control: the leg that they share with honest ones keeps its queue short.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]
#![allow(
    clippy::print_stderr,
    reason = "what was measured is shown where asked"
)]

use bentpipe_base::Seq;
use bentpipe_bpf::{Controls, LinkParams, RATE, kernel_name};
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_sockets::{socket, tcp};
use bentpipe_wire::{
    Checksums, Flags, Ip, Ipv4, Packet, Payload, Tcp, TcpOptions, Timestamps, Transport,
};
use socket2::{Domain, Socket, Type};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// A mark that no other test has, and one for each lie.
const MARK: u32 = 0x7e57_0200;
/// The link: bytes a second, and how long one way takes.
const RATE_BYTES: u64 = 2_500_000;
const DELAY: Duration = Duration::from_millis(50);
const RUN: Duration = Duration::from_secs(14);
/// From here on the queue is judged.
const SETTLED: Duration = Duration::from_secs(8);

/// What the first receiver says.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    None,
    /// Its clock takes nine tenths of the time.
    SlowClock,
    /// It acknowledges when the data would have come without a queue.
    Optimistic,
    /// It opens connections, 40 a second, and never acknowledges a byte.
    Silent,
}

/// The link and all receivers behind it.
struct Space {
    tun: Tun,
    began: Instant,
    lie: Lie,
    /// When the link has sent what it was given.
    free: Duration,
    /// By address and port of the receiver: the byte expected next.
    expected: BTreeMap<(Ipv4Addr, u16), Seq>,
    /// When each answer leaves, in which order, and what it is.
    answers: BinaryHeap<Reverse<(Duration, u64)>>,
    waiting: BTreeMap<u64, Packet>,
    sent: u64,
    seen: Seen,
}

/// What happened once all had settled.
#[derive(Debug, Default)]
struct Seen {
    waits: Vec<Duration>,
    /// Payload that arrived, by receiver.
    arrived: BTreeMap<Ipv4Addr, u64>,
}

impl Space {
    fn run(mut self, stop: &AtomicBool) -> Seen {
        let mut buffer = vec![0; 2000];
        while !stop.load(Relaxed) {
            while let Some(length) = self.tun.receive(&mut buffer).unwrap() {
                if let Ok(packet) = Packet::parse(&buffer[..length], Checksums::Ignore) {
                    self.take(&packet);
                }
            }
            self.answer();
            thread::sleep(Duration::from_micros(300));
        }
        self.seen
    }

    fn answer(&mut self) {
        let now = self.began.elapsed();
        while let Some(Reverse((at, number))) = self.answers.peek().copied() {
            if at > now {
                return;
            }
            self.answers.pop();
            let packet = self.waiting.remove(&number).unwrap();
            self.tun.send(&packet.to_vec().unwrap()).unwrap();
        }
    }

    fn take(&mut self, packet: &Packet) {
        let (Ip::V4(ip), Transport::Tcp(tcp)) = (&packet.ip, &packet.transport) else {
            return;
        };
        let length = packet.length().0 - (Ipv4::BARE + tcp.header_len()) as u64;
        let syn = tcp.flags.contains(Flags::SYN);
        if !syn && length == 0 {
            return;
        }
        let now = self.began.elapsed();
        let wait = self.free.saturating_sub(now);
        let wire = packet.length().0 * 1_000_000_000 / RATE_BYTES;
        self.free = self.free.max(now) + Duration::from_nanos(wire);
        let arrives = self.free + DELAY;
        let lies = ip.destination.octets()[3] == 10;
        let (arrives, lie) = match self.lie {
            Lie::Optimistic if lies => (now + DELAY, Lie::None),
            Lie::Silent if lies && !syn => return,
            lie if lies => (arrives, lie),
            _ => (arrives, Lie::None),
        };
        if now > SETTLED && !syn {
            self.seen.waits.push(wait);
            *self.seen.arrived.entry(ip.destination).or_default() += length;
        }
        let key = (ip.destination, tcp.source);
        let expected = self.expected.entry(key).or_insert(tcp.seq);
        if syn {
            *expected = tcp.seq + 1;
        } else if tcp.seq.offset_from(*expected) <= 0 {
            let end = tcp.seq + length as u32;
            *expected = if end.offset_from(*expected) > 0 {
                end
            } else {
                *expected
            };
        }
        let clock = 1_000_000 + arrives.as_millis() as u64;
        let clock = if lie == Lie::SlowClock {
            clock * 9 / 10
        } else {
            clock
        };
        let reply = reply(ip, tcp, *expected, clock as u32);
        self.sent += 1;
        self.waiting.insert(self.sent, reply);
        self.answers.push(Reverse((arrives + DELAY, self.sent)));
    }
}

fn reply(ip: &Ipv4, tcp: &Tcp, ack: Seq, clock_ms: u32) -> Packet {
    let syn = tcp.flags.contains(Flags::SYN);
    let timestamps = tcp.timestamps.map(|theirs| Timestamps {
        value: clock_ms,
        echo: theirs.value,
    });
    let options = TcpOptions {
        mss: syn.then_some(1460),
        window_scale: syn.then_some(10),
        ..TcpOptions::default()
    };
    Packet {
        ip: Ip::V4(Ipv4 {
            source: ip.destination,
            destination: ip.source,
            options: Box::default(),
            ..ip.clone()
        }),
        transport: Transport::Tcp(Tcp {
            source: tcp.destination,
            destination: tcp.source,
            seq: if syn { Seq(7) } else { Seq(8) },
            ack,
            flags: if syn {
                Flags::SYN | Flags::ACK
            } else {
                Flags::ACK
            },
            window: 60_000,
            urgent: 0,
            timestamps,
            options: options.boxed(),
        }),
        payload: Payload::default(),
    }
}

/// Sends until stopped.
fn send(to: SocketAddr, mark: u32, stop: &AtomicBool) {
    let stream = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    tcp::set_congestion(&stream, kernel_name(RATE)).unwrap();
    socket::set_mark(&stream, mark).unwrap();
    stream.connect(&to.into()).unwrap();
    socket::abort_on_close(&stream, true).unwrap();
    let mut stream = TcpStream::from(stream);
    let patience = Some(Duration::from_millis(100));
    stream.set_write_timeout(patience).unwrap();
    let block = vec![7; 64 << 10];
    while !stop.load(Relaxed) {
        let _ = stream.write(&block);
    }
}

/// Opens connections, and sends a little by each, until stopped.
fn send_by_many(to: SocketAddr, mark: u32, stop: &AtomicBool) {
    let mut streams = Vec::new();
    while !stop.load(Relaxed) {
        let stream = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        tcp::set_congestion(&stream, kernel_name(RATE)).unwrap();
        socket::set_mark(&stream, mark).unwrap();
        socket::abort_on_close(&stream, true).unwrap();
        stream.set_nonblocking(true).unwrap();
        // It is under way.
        let _ = stream.connect(&to.into());
        streams.push((stream, false));
        for (stream, sent) in streams.iter_mut().filter(|(_, sent)| !sent) {
            *sent = stream.send(&[7; 64 << 10]).is_ok();
        }
        thread::sleep(Duration::from_millis(25));
    }
}

/// Three receivers, of which the first lies: the mean queue, and what the other two got of their part.
fn shared_with(lie: Lie) -> (Duration, f64) {
    let mark = MARK | lie as u32;
    let mut controls = Controls::load().unwrap();
    controls.configure(mark, &LinkParams::default()).unwrap();
    let netns = Netns::create("sender").unwrap();
    let tun = netns.run(|| {
        let config = TunConfig {
            queue_packets: 10_000,
            ..TunConfig::default()
        };
        Tun::open("space", config).unwrap()
    });
    let tun = tun.unwrap();
    let netlink = netns.netlink().unwrap();
    netlink
        .add_address("space", "10.88.0.1/24".parse().unwrap())
        .unwrap();
    let space = Space {
        tun,
        began: Instant::now(),
        lie,
        free: Duration::ZERO,
        expected: BTreeMap::new(),
        answers: BinaryHeap::new(),
        waiting: BTreeMap::new(),
        sent: 0,
        seen: Seen::default(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let halt = stop.clone();
    let space = thread::spawn(move || space.run(&halt));
    let senders: Vec<_> = [10, 20, 30]
        .map(|host| {
            let halt = stop.clone();
            let to = (Ipv4Addr::new(10, 88, 0, host), 80).into();
            netns
                .spawn_thread("sender", move || match lie {
                    Lie::Silent if host == 10 => send_by_many(to, mark, &halt),
                    _ => send(to, mark, &halt),
                })
                .unwrap()
        })
        .into();
    thread::sleep(RUN);
    stop.store(true, Relaxed);
    for sender in senders {
        sender.join().unwrap();
    }
    let seen = space.join().unwrap();
    let mean = seen.waits.iter().sum::<Duration>() / seen.waits.len().max(1) as u32;
    let honest: u64 = [20, 30]
        .map(|host| seen.arrived.get(&Ipv4Addr::new(10, 88, 0, host)).copied())
        .iter()
        .flatten()
        .sum();
    let part = 2.0 / 3.0 * RATE_BYTES as f64 * (RUN - SETTLED).as_secs_f64();
    let got = honest as f64 / part;
    eprintln!("{lie:?}: mean queue {mean:?}, the honest got {got:.2} of their part");
    (mean, got)
}

#[test]
fn one_receiver_that_lies_keeps_no_queue_for_all() {
    bentpipe_os::need!(Root, Tun, Btf, StructOps);
    thread::scope(|scope| {
        for lie in [Lie::None, Lie::SlowClock, Lie::Optimistic] {
            scope.spawn(move || {
                let (mean, got) = shared_with(lie);
                assert!(mean < Duration::from_millis(120), "{lie:?}: {mean:?}");
                assert!(got > 0.7, "{lie:?}: {got}");
            });
        }
    });
}

/// As many connections as it likes are one receiver, and what is sent again to nobody has no window.
#[test]
fn a_receiver_that_never_acknowledges_takes_no_more_than_its_part() {
    bentpipe_os::need!(Root, Tun, Btf, StructOps);
    let (_, got) = shared_with(Lie::Silent);
    assert!(got > 0.5, "{got}");
}
