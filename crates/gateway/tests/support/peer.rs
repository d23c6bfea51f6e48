//! A TCP peer made of single packets, which does what no kernel does. It lives behind a TUN interface of the
//! client's or the server's namespace.

use super::{PATIENCE, Stage};
use bentpipe_base::Seq;
use bentpipe_os::netlink::{Prefix, Route};
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::{Tun, TunConfig};
use bentpipe_wire::{
    Checksums, Flags, Ipv4, Packet, Payload, Tcp, TcpOptions, Transport, checksum::checksum,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// One end of one connection.
pub struct Peer {
    tun: Tun,
    pub own: (Ipv4Addr, u16),
    pub other: (Ipv4Addr, u16),
    /// The number of its next byte.
    pub next: Seq,
    /// The number of the byte that it expects next.
    pub expected: Seq,
    /// The window that it offers.
    pub window: u16,
    /// Whether it acknowledges what arrives.
    pub acknowledges: bool,
    /// What has arrived in order.
    pub got: Vec<u8>,
    pub ended: bool,
    pub reset: bool,
    /// The longest payload so far.
    pub longest: usize,
    /// Acknowledgements without data so far.
    pub bare: usize,
}

impl Peer {
    /// A host beside the client, or the server, of `stage`.
    pub fn beside(stage: &Stage, client: bool) -> Self {
        let (netns, near, own): (&Netns, _, _) = if client {
            (&stage.client, super::Ip::V4.client(), [10, 77, 66, 66])
        } else {
            (&stage.server, super::Ip::V4.server(), [10, 77, 67, 67])
        };
        let tun = netns.run(|| Tun::open("peer", TunConfig::default()).unwrap());
        let own = Ipv4Addr::from(own);
        let host = Prefix::host(own.into());
        let here = netns.netlink().unwrap();
        here.add_route(&Route::device(host, "peer")).unwrap();
        netns.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
        let gateway = stage.gateway.netlink().unwrap();
        gateway.add_route(&Route::via(host, near)).unwrap();
        Self {
            tun: tun.unwrap(),
            own: (own, 4000),
            other: (Ipv4Addr::UNSPECIFIED, 0),
            next: Seq(u32::MAX - 1000),
            expected: Seq(0),
            window: 65_535,
            acknowledges: true,
            got: Vec::new(),
            ended: false,
            reset: false,
            longest: 0,
            bare: 0,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.own.into()
    }

    /// A segment of the connection with these numbers.
    pub fn segment(&self, seq: Seq, flags: Flags) -> Tcp {
        Tcp {
            source: self.own.1,
            destination: self.other.1,
            seq,
            ack: self.expected,
            flags,
            window: self.window,
            ..Tcp::default()
        }
    }

    pub fn send(&self, tcp: Tcp, bytes: &[u8]) {
        self.tun.send(&self.packet(tcp, bytes)).unwrap();
    }

    /// Sends a segment that was damaged on its way.
    pub fn send_damaged(&self, tcp: Tcp) {
        let mut packet = self.packet(tcp, b"");
        // Its checksum.
        packet[20 + 16] ^= 1;
        self.tun.send(&packet).unwrap();
    }

    fn packet(&self, tcp: Tcp, bytes: &[u8]) -> Vec<u8> {
        let packet = Packet {
            ip: bentpipe_wire::Ip::V4(Ipv4::new(self.own.0, self.other.0)),
            transport: Transport::Tcp(tcp),
            payload: Payload::from(bytes),
        };
        packet.to_vec().unwrap()
    }

    /// Sends `bytes` as the next ones.
    pub fn say(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(1400) {
            self.send(self.segment(self.next, Flags::ACK), piece);
            self.next = self.next + piece.len() as u32;
        }
    }

    /// Says its end.
    pub fn end(&mut self) {
        self.send(self.segment(self.next, Flags::ACK | Flags::FIN), b"");
        self.next = self.next + 1;
    }

    pub fn acknowledge(&self) {
        self.send(self.segment(self.next, Flags::ACK), b"");
    }

    /// An ICMP error about the segment that the other side would have sent with number `seq`.
    pub fn complain(&self, kind: u8, code: u8, mtu: u16, seq: Seq) {
        let ends = (self.other, self.own);
        self.complain_of(ends, self.other.0, [kind, code], mtu, seq);
    }

    /// An ICMP error, sent to `to`, about the segment with number `seq` from one end to the other.
    pub fn complain_of(
        &self,
        (from, destination): ((Ipv4Addr, u16), (Ipv4Addr, u16)),
        to: Ipv4Addr,
        [kind, code]: [u8; 2],
        mtu: u16,
        seq: Seq,
    ) {
        let mut about = Tcp {
            source: from.1,
            destination: destination.1,
            seq,
            ..Tcp::default()
        };
        about.flags = Flags::ACK;
        let inner = Packet {
            ip: bentpipe_wire::Ip::V4(Ipv4::new(from.0, destination.0)),
            transport: Transport::Tcp(about),
            payload: Payload::Absent,
        };
        let mut icmp = vec![kind, code, 0, 0, 0, 0];
        icmp.extend(mtu.to_be_bytes());
        icmp.extend(inner.to_vec().unwrap());
        let sum = checksum(&icmp).to_be_bytes();
        icmp[2..4].copy_from_slice(&sum);
        let packet = Packet {
            ip: bentpipe_wire::Ip::V4(Ipv4::new(self.own.0, to)),
            transport: Transport::Other { protocol: 1 },
            payload: Payload::from(icmp),
        };
        self.tun.send(&packet.to_vec().unwrap()).unwrap();
    }

    /// Connects to `to`, with `bytes` in the SYN.
    pub fn connect(&mut self, to: SocketAddr, bytes: &[u8]) {
        self.begin(to, bytes);
        self.acknowledge();
    }

    /// Begins a connection to `to` and resets it when that is answered, as who scans ports does.
    pub fn probe(&mut self, to: SocketAddr) {
        self.begin(to, b"");
        self.send(self.segment(self.next, Flags::RST), b"");
    }

    /// Sends a SYN with `bytes` to `to` and looks how that is answered, within a second; its next number stays as it is.
    pub fn knock(&mut self, to: SocketAddr, bytes: &[u8]) -> Option<Flags> {
        let SocketAddr::V4(to) = to else {
            unreachable!("of family V4")
        };
        self.other = (*to.ip(), to.port());
        let mut syn = self.segment(self.next, Flags::SYN);
        syn.options = options().boxed();
        self.send(syn, bytes);
        let until = Instant::now() + Duration::from_secs(1);
        while Instant::now() < until {
            if let Some((_, tcp, _)) = self.receive()
                && tcp.source == to.port()
                && tcp.destination == self.own.1
            {
                return Some(tcp.flags);
            }
        }
        None
    }

    fn begin(&mut self, to: SocketAddr, bytes: &[u8]) {
        let SocketAddr::V4(to) = to else {
            unreachable!("of family V4")
        };
        self.other = (*to.ip(), to.port());
        let mut syn = self.segment(self.next, Flags::SYN);
        syn.options = options().boxed();
        self.next = self.next + 1;
        let mut answer = None;
        // As a host does, where it hears nothing.
        for patience in [1, 2, 4, 8] {
            self.send(syn.clone(), bytes);
            answer = self.flag_within(Flags::SYN, Duration::from_secs(patience));
            if answer.is_some() {
                break;
            }
        }
        let answer = answer.expect("an answer to a SYN");
        assert_eq!(answer.ack, self.next, "bytes of a SYN are not taken");
        self.expected = answer.seq + 1;
    }

    /// Waits for a SYN, and answers it until that is confirmed.
    pub fn accept(&mut self) {
        let syn = self.await_flag(Flags::SYN);
        self.other.1 = syn.source;
        self.own.1 = syn.destination;
        self.expected = syn.seq + 1;
        let mut answer = self.segment(self.next, Flags::SYN | Flags::ACK);
        answer.options = options().boxed();
        self.send(answer, b"");
        self.next = self.next + 1;
        self.await_flag(Flags::ACK);
    }

    fn await_flag(&mut self, flag: Flags) -> Tcp {
        self.flag_within(flag, PATIENCE)
            .unwrap_or_else(|| panic!("waited in vain for {flag:?}"))
    }

    fn flag_within(&mut self, flag: Flags, patience: Duration) -> Option<Tcp> {
        let until = Instant::now() + patience;
        while Instant::now() < until {
            if let Some((from, tcp, _)) = self.receive()
                && tcp.flags.contains(flag)
            {
                self.other.0 = from;
                return Some(tcp);
            }
        }
        None
    }

    fn receive(&self) -> Option<(Ipv4Addr, Tcp, Vec<u8>)> {
        let mut buffer = [0; 1500];
        let Some(length) = self.tun.receive(&mut buffer).unwrap() else {
            std::thread::sleep(Duration::from_millis(1));
            return None;
        };
        let packet = Packet::parse(&buffer[..length], Checksums::Ignore).ok()?;
        let (bentpipe_wire::Ip::V4(ip), Transport::Tcp(tcp)) = (packet.ip, packet.transport) else {
            return None;
        };
        let bytes = match packet.payload {
            Payload::Bytes(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        Some((ip.source, tcp, bytes))
    }

    /// Takes what arrives for `time`.
    pub fn listen(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let Some((_, tcp, bytes)) = self.receive() else {
                continue;
            };
            self.reset |= tcp.flags.contains(Flags::RST);
            self.longest = self.longest.max(bytes.len());
            let end = tcp.flags.contains(Flags::FIN);
            if bytes.is_empty() && !end {
                self.bare += 1;
                continue;
            }
            // What it was offered room for, as a host would.
            let (known, room) = (self.expected.offset_from(tcp.seq), usize::from(self.window));
            if self.acknowledges && known >= 0 && known as usize <= bytes.len() {
                let new = &bytes[known as usize..];
                let new = &new[..new.len().min(room)];
                self.got.extend_from_slice(new);
                self.expected = self.expected + new.len() as u32;
                if end && !self.ended && self.expected == tcp.seq + bytes.len() as u32 {
                    self.ended = true;
                    self.expected = self.expected + 1;
                }
            }
            if self.acknowledges {
                self.acknowledge();
            }
        }
    }

    /// Listens until so many bytes have come.
    pub fn listen_until(&mut self, count: usize) {
        let until = Instant::now() + PATIENCE;
        while self.got.len() < count {
            assert!(Instant::now() < until, "{} of {count}", self.got.len());
            self.listen(Duration::from_millis(5));
        }
    }
}

/// The segments that a peer asks for at most, smaller than those of the interfaces.
pub const LARGEST_SEGMENT: u16 = 1400;

fn options() -> TcpOptions {
    TcpOptions {
        mss: Some(LARGEST_SEGMENT),
        ..TcpOptions::default()
    }
}
