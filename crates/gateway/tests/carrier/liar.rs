//! A server on a TUN interface that speaks SCPS-TP, takes what comes in order, and lies in its SNACKs.

use bentpipe_base::Seq;
use bentpipe_os::netlink::Prefix;
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_wire::scps::{Capabilities, CapabilityVector, ScpsOptions, Snack};
use bentpipe_wire::{Checksums, Flags, Ip, Packet, Segment, TcpOptions, Timestamps, Transport};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

pub(crate) const ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 99, 0, 2)), 5_000);
const ROUTER: &str = "10.99.0.1";
/// Lies in a millisecond.
const LIES: u32 = 5;

struct Liar {
    tun: Tun,
    client: Option<SocketAddr>,
    next: Seq,
    echo: u32,
    lies: u32,
}

/// Serves one connection, behind `router`, until the other end of the channel is gone; returns what counts the bytes that it took.
pub(crate) fn serve(router: &Netns) -> Arc<AtomicU64> {
    let tun = router.run(|| Tun::open("liar", TunConfig::default()).unwrap());
    let netlink = router.netlink().unwrap();
    let prefix = Prefix::new(ROUTER.parse().unwrap(), 24).unwrap();
    netlink.add_address("liar", prefix).unwrap();
    netlink.set_up("liar").unwrap();
    let taken = Arc::new(AtomicU64::new(0));
    let mut liar = Liar {
        tun: tun.unwrap(),
        client: None,
        next: Seq(0),
        echo: 0,
        lies: 0,
    };
    let count = Arc::clone(&taken);
    thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        // Nobody listens to the count any more: the test is over.
        while Arc::strong_count(&count) > 1 {
            while let Ok(Some(length)) = liar.tun.receive(&mut buffer) {
                if let Ok(packet) = Packet::parse(&buffer[..length], Checksums::Ignore) {
                    liar.hear(packet, &count);
                }
            }
            for _ in 0..LIES {
                liar.lie();
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    taken
}

impl Liar {
    fn hear(&mut self, packet: Packet, count: &AtomicU64) {
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
                    vector: CapabilityVector::SNACK_SHORT,
                    connection: 0,
                }),
                ..ScpsOptions::default()
            };
            self.say(Flags::SYN | Flags::ACK, Seq(1), Some(1460), &offer);
            return;
        }
        if tcp.seq == self.next {
            let length = packet.payload.len() as u32;
            self.next = self.next + length + u32::from(tcp.flags.contains(Flags::FIN));
            count.fetch_add(u64::from(length), Ordering::Relaxed);
        }
        self.say(Flags::ACK, Seq(2), None, &ScpsOptions::default());
    }

    /// Misses what was never sent, what has been acknowledged, and all there is.
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
                vector: Box::default(),
            }),
            ..ScpsOptions::default()
        };
        self.say(Flags::ACK, Seq(2), None, &snack);
    }

    fn say(&self, flags: Flags, seq: Seq, mss: Option<u16>, options: &ScpsOptions) {
        let Some(client) = self.client else {
            return;
        };
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
            ..Segment::default()
        };
        let ip = Ip::between(ADDRESS.ip(), client.ip()).unwrap();
        let mut bytes = Vec::new();
        let packet = Packet::of_segment(ip, ADDRESS.port(), client.port(), segment);
        packet.emit(&mut bytes).unwrap();
        // A full interface loses it.
        let _ = self.tun.send(&bytes);
    }
}
