//! A server on a TUN interface that speaks SCPS-TP, takes what comes in order, and lies in its SNACKs, or sends segments whose
//! checksum is wrong.

use super::support::pair::{Pair, SCPS, split_one};
use super::support::{self, Ip as Family, eventually, exchange, pattern};
use bentpipe_base::Seq;
use bentpipe_os::need;
use bentpipe_os::netlink::Prefix;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_wire::scps::{Capabilities, CapabilityVector, ScpsOptions, Snack};
use bentpipe_wire::{
    Checksums, Flags, Ip, Packet, Payload, Segment, TcpOptions, Timestamps, Transport,
};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)), 5_000);
const ROUTER: &str = "10.99.0.1";
/// Lies in a millisecond.
const LIES: u32 = 5;

/// What it has heard.
#[derive(Default)]
pub(crate) struct Heard {
    /// Bytes that it took.
    pub(crate) taken: AtomicU64,
    /// SNACKs of the other end.
    pub(crate) snacks: AtomicU64,
    /// How often it was told that packets of its own arrived damaged.
    pub(crate) corruption: AtomicU64,
}

pub(crate) struct Liar {
    tun: Tun,
    client: Option<SocketAddr>,
    next: Seq,
    echo: u32,
    lies: u32,
    /// The other end has sent data: the connection is carried.
    is_open: bool,
}

/// Serves one connection, behind `router`, until nobody has what it returns any more. It behaves as `does` says, once a millisecond.
pub(crate) fn serve(router: &Netns, does: fn(&mut Liar)) -> Arc<Heard> {
    let tun = router.run(|| Tun::open("liar", TunConfig::default()).unwrap());
    let netlink = router.netlink().unwrap();
    let prefix = Prefix::new(ROUTER.parse().unwrap(), 24).unwrap();
    netlink.add_address("liar", prefix).unwrap();
    netlink.set_up("liar").unwrap();
    let heard = Arc::new(Heard::default());
    let mut liar = Liar {
        tun: tun.unwrap(),
        client: None,
        next: Seq(0),
        echo: 0,
        lies: 0,
        is_open: false,
    };
    let count = Arc::clone(&heard);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        // Nobody looks at it any more: the test is over.
        while Arc::strong_count(&count) > 1 {
            while let Ok(Some(length)) = liar.tun.receive(&mut buffer) {
                if let Ok(packet) = Packet::parse(&buffer[..length], Checksums::Ignore) {
                    liar.hear(packet, &count);
                }
            }
            does(&mut liar);
            thread::sleep(Duration::from_millis(1));
        }
    });
    heard
}

impl Liar {
    fn hear(&mut self, packet: Packet, heard: &Heard) {
        let source = packet.ip.source();
        let Transport::Tcp(tcp) = packet.transport else {
            return;
        };
        self.client = Some(SocketAddr::new(source, tcp.source));
        self.echo = tcp.timestamps.map_or(0, |stamps| stamps.value);
        if tcp.flags.contains(Flags::SYN) {
            self.next = tcp.seq + 1;
            let offer = ScpsOptions {
                capabilities: Some(Capabilities {
                    vector: CapabilityVector::SNACK_SHORT | CapabilityVector::SNACK_LONG,
                    connection: 0,
                }),
                ..ScpsOptions::default()
            };
            self.say((Flags::SYN | Flags::ACK, Seq(1)), &offer, b"");
            return;
        }
        let unknown = tcp.options.as_deref().and_then(|o| o.unknown.as_deref());
        let said = unknown.map(ScpsOptions::parse).unwrap_or_default();
        let count = |counter: &AtomicU64, is: bool| counter.fetch_add(is.into(), Ordering::Relaxed);
        count(&heard.snacks, said.snack.is_some());
        count(&heard.corruption, said.corruption_experienced);
        if tcp.seq == self.next {
            let length = packet.payload.len() as u32;
            self.next = self.next + length + u32::from(tcp.flags.contains(Flags::FIN));
            heard.taken.fetch_add(length.into(), Ordering::Relaxed);
            self.is_open |= length > 0;
        }
        self.say((Flags::ACK, Seq(2)), &ScpsOptions::default(), b"");
    }

    /// Misses what was never sent, what has been acknowledged, and all there is.
    pub(crate) fn lies(&mut self) {
        (0..LIES).for_each(|_| self.lie());
    }

    /// Sends a segment whose checksum is wrong, and one behind it.
    pub(crate) fn damages(&mut self) {
        if !self.is_open {
            return;
        }
        let none = ScpsOptions::default();
        if let Some(mut bytes) = self.packet((Flags::ACK, Seq(2)), &none, b"lost") {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
            let _ = self.tun.send(&bytes);
        }
        self.say((Flags::ACK, Seq(6)), &none, b"beyond");
    }

    fn lie(&mut self) {
        self.lies = self.lies.wrapping_add(1);
        let (offset, size) = match self.lies % 4 {
            0 => (0, u16::MAX),
            1 => (u16::MAX, u16::MAX),
            2 => (0, 1),
            _ => (self.lies as u16, 0),
        };
        let snack = ScpsOptions {
            snack: Some(Snack {
                offset,
                size,
                // Each second unit behind the hole as well, at times.
                vector: vec![0x55; (self.lies % 3 * 10) as usize].into(),
            }),
            ..ScpsOptions::default()
        };
        self.say((Flags::ACK, Seq(2)), &snack, b"");
    }

    fn say(&self, header: (Flags, Seq), options: &ScpsOptions, data: &'static [u8]) {
        if let Some(bytes) = self.packet(header, options, data) {
            // A full interface loses it.
            let _ = self.tun.send(&bytes);
        }
    }

    fn packet(
        &self,
        (flags, seq): (Flags, Seq),
        options: &ScpsOptions,
        data: &'static [u8],
    ) -> Option<Vec<u8>> {
        let client = self.client?;
        let mss = flags.contains(Flags::SYN).then_some(1460);
        let options = TcpOptions {
            mss,
            window_scale: mss.map(|_| 7),
            unknown: options.to_raw().unwrap().map(Box::new),
            ..TcpOptions::default()
        };
        let segment = Segment {
            seq,
            ack: self.next,
            flags,
            window: 60_000,
            timestamps: Some(Timestamps {
                value: 1,
                echo: self.echo,
            }),
            options: options.boxed(),
            payload: Payload::from(data),
        };
        let ip = Ip::between(ADDRESS.ip(), client.ip()).unwrap();
        let mut bytes = Vec::new();
        let packet = Packet::of_segment(ip, ADDRESS.port(), client.port(), segment);
        packet.emit(&mut bytes).unwrap();
        Some(bytes)
    }
}

/// A server that lies in 5,000 SNACKs a second has no more sent than the rate, nor more kept, and delays nobody else.
#[test]
fn lies_in_snacks_have_no_more_sent_than_the_rate() {
    const WHOLE: usize = 1 << 20;
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let near = split_one(&pair.near, &SCPS.replace("200Mbit/s", "8Mbit/s"));
    let heard = serve(&pair.far, Liar::lies);
    let mut client = pair.connect(ADDRESS);
    let (before, begun) = (sent_to_space(&pair.near), Instant::now());
    client.write_all(&pattern(WHOLE)).unwrap();
    let mut most = 0;
    let taken = || heard.taken.load(Ordering::Relaxed);
    while taken() < WHOLE as u64 {
        most = most.max(near.handle.status().unwrap().buffered);
        let counters = || near.meter.read();
        let late = begun.elapsed() > support::PATIENCE;
        assert!(!late, "{} taken, {:?}", taken(), counters());
        thread::sleep(Duration::from_millis(20));
    }
    exchange(&mut pair.pair(Family::V4));
    let (sent, took) = (sent_to_space(&pair.near) - before, begun.elapsed());
    let counters = near.meter.read();
    assert_eq!(counters.carried, 1, "{counters:?}");
    // The bytes that the interface counts have an Ethernet header each.
    let bound = 1e6 * took.as_secs_f64() * 1514.0 / 1500.0 + 64e3;
    assert!((sent as f64) < bound, "{sent} of {bound} in {took:?}");
    assert!(most < 4 << 20, "{most} bytes kept");
}

/// Packets from space whose checksum is wrong are told to who sent them, where the gateway is asked to.
#[test]
fn damaged_packets_from_space_are_told() {
    need!(Root, Nft, Tproxy);
    for tells in [false, true] {
        let pair = Pair::new();
        let more = if tells {
            "corruption_experienced = \"1s\"\nloss_cause = \"congestion\"\n"
        } else {
            ""
        };
        let near = split_one(&pair.near, &format!("{SCPS}{more}"));
        let heard = serve(&pair.far, Liar::damages);
        let mut client = pair.connect(ADDRESS);
        client.write_all(b"begins").unwrap();
        eventually("a connection is carried", || near.meter.read().carried == 1);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        eventually("a SNACK", || count(&heard.snacks) > 1);
        if tells {
            eventually("it is told", || count(&heard.corruption) > 1);
        } else {
            thread::sleep(Duration::from_millis(200));
            assert_eq!(count(&heard.corruption), 0);
        }
    }
}

/// Bytes that a gateway has sent by its interface to space.
pub(crate) fn sent_to_space(netns: &Netns) -> u64 {
    let counts = netns.command("cat").arg("/proc/self/net/dev").output();
    let counts = String::from_utf8(counts.unwrap().stdout).unwrap();
    let line = counts
        .lines()
        .find_map(|line| line.trim().strip_prefix("sat0:"));
    line.unwrap()
        .split_whitespace()
        .nth(8)
        .unwrap()
        .parse()
        .unwrap()
}
