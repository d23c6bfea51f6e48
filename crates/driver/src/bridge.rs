use crate::DriverError;
use bentpipe_base::{Instant, Machine, Output};
use bentpipe_os::nft::{LIFE, Takeover};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::packet::PacketSocket;
use bentpipe_sockets::timer::{self, Timer};
use bentpipe_wire::{Checksums, Packet, VirtioHeader};
use bytes::Bytes;
use std::time::Duration;

/// Calls that read frames from one interface before the other's are looked at.
const CALLS: usize = 4;
/// How often the kernel is told that we are there: before half of what that holds for.
const PERIOD: Duration = Duration::from_millis(200);
const TIMER: u64 = 2;
/// The two addresses of a frame and what is behind them: its type, or a VLAN tag and its type.
const TYPE: usize = VirtioHeader::LEN + 12;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TAGS: [u16; 2] = [0x8100, 0x88a8];

/// An end of a [`Bridge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first of its interfaces.
    Near,
    /// The second.
    Far,
}

impl End {
    /// The other one.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Near => 0,
            Self::Far => 1,
        }
    }
}

/// An Ethernet frame on its way through a [`Bridge`].
#[derive(Clone, Debug)]
pub struct Frame {
    /// A virtio header, and the frame. Copies of a frame share them.
    bytes: Bytes,
    /// The IP packet in it, with the headers alone where it is read for a machine that only looks.
    packet: Option<Packet>,
}

impl Frame {
    /// What is on the wire.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[VirtioHeader::LEN..]
    }

    /// The packet in it; none where it is no IP packet, or one that cannot be read: a machine passes it on in its order.
    pub const fn packet(&self) -> Option<&Packet> {
        self.packet.as_ref()
    }
}

/// What a bridge did with frames, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeCounters {
    /// Frames that came from either side; one that stands for several segments counts as those.
    pub received: u64,
    /// Frames among these in which no IP packet was found. The machine gets them too.
    pub unreadable: u64,
    /// Frames that an interface took.
    pub sent: u64,
    /// Frames that it had no room for, or that are too long for it: they are lost.
    pub refused: u64,
    /// Frames that found no room in a socket's buffer: they are lost.
    pub overrun: u64,
    /// Frames that came while nobody could know whether we carried them or the kernel: they are left to the kernel.
    pub left: u64,
    /// Deadlines of the machine that were acted on, and the most that one of them was late.
    pub deadlines: u64,
    /// The most.
    pub latest: Duration,
}

/// A machine between two Ethernet interfaces: what comes by the one leaves by the other.
///
/// Frames cross it as they were, in both directions, of whatever kind they are; addresses, tags and packets are the two
/// sides' own. A frame that stands for several segments (GSO, GRO) is cut up before the machine meets it. When this value goes,
/// the process dies, or nobody calls [`Bridge::turn`] for [`LIFE`], the kernel has the frames again: it carries them on where the
/// two interfaces are ports of a bridge of its own.
pub struct Bridge<M> {
    machine: M,
    sockets: [PacketSocket; 2],
    names: [String; 2],
    takeover: Takeover,
    held: Instant,
    timer: Timer,
    epoll: Epoll,
    events: Events,
    counters: BridgeCounters,
}

impl<M: Machine<Packet = Frame, Port = End>> Bridge<M> {
    /// Puts `machine` between the interfaces `near` and `far` of the calling thread's namespace, in which `lo` is up.
    ///
    /// # Errors
    /// No such interfaces, or without root (CAP_NET_ADMIN, CAP_NET_RAW).
    pub fn new(machine: M, near: &str, far: &str) -> Result<Self, DriverError> {
        let system = |doing| move |source| DriverError::System { doing, source };
        let open = |name: &str| {
            PacketSocket::open(name).map_err(|source| DriverError::Interface {
                name: name.to_owned(),
                source,
            })
        };
        let sockets = [open(near)?, open(far)?];
        let timer = Timer::new().map_err(system("make a timer"))?;
        let epoll = Epoll::new().map_err(system("make an epoll set"))?;
        let watch = "watch a descriptor";
        for (socket, token) in sockets.iter().zip(0..) {
            epoll
                .add(socket, token, Interest::READ)
                .map_err(system(watch))?;
        }
        epoll
            .add(&timer, TIMER, Interest::READ)
            .map_err(system(watch))?;
        let mut bridge = Self {
            machine,
            sockets,
            names: [near.to_owned(), far.to_owned()],
            takeover: Takeover::load(&[near, far])?,
            held: Instant::ZERO,
            timer,
            epoll,
            events: Events::with_capacity(4),
            counters: BridgeCounters::default(),
        };
        bridge.hold()?;
        Ok(bridge)
    }

    /// The machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, for its caller's part; what follows from that goes out in the next round.
    pub const fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// What was done with frames.
    pub const fn counters(&self) -> &BridgeCounters {
        &self.counters
    }

    /// One round: waits for frames, the machine's deadline or `most`, hands it what came, and sends what it gives.
    /// Its events go to `event`.
    ///
    /// # Errors
    /// An interface is gone, or the rules that keep the kernel from the frames.
    pub fn turn(
        &mut self,
        most: Duration,
        mut event: impl FnMut(M::Event),
    ) -> Result<(), DriverError> {
        let system = |doing| move |source| DriverError::System { doing, source };
        self.timer
            .arm(self.machine.deadline())
            .map_err(system("arm a timer"))?;
        let again = (self.held + PERIOD).since(timer::now());
        self.epoll
            .wait(&mut self.events, Some(most.min(again)))
            .map_err(system("wait for frames"))?;
        let mut come = [false; 2];
        for found in self.events.iter() {
            match come.get_mut(found.token as usize) {
                Some(come) => *come = true,
                None => {
                    self.timer.acknowledge().map_err(system("read a timer"))?;
                }
            }
        }
        // Before frames are read: what came while the kernel had them is its own.
        if self.held + PERIOD <= timer::now() {
            self.hold()?;
        }
        let now = timer::now();
        if let Some(due) = self.machine.deadline().filter(|due| *due <= now) {
            self.counters.deadlines += 1;
            self.counters.latest = self.counters.latest.max(now.since(due));
        }
        self.step(None, &mut event)?;
        for end in [End::Near, End::Far] {
            if come[end.index()] {
                self.receive(end, &mut event)?;
            }
        }
        Ok(())
    }

    /// Says that we are there. After a pause in which the kernel may have had the frames, forgets what came meanwhile.
    fn hold(&mut self) -> Result<(), DriverError> {
        let system = |doing| move |source| DriverError::System { doing, source };
        if !self.takeover.is_there() {
            return Err(DriverError::Displaced);
        }
        self.takeover
            .hold()
            .map_err(system("say that we carry the frames (is `lo` up?)"))?;
        let now = timer::now();
        let paused = now.since(self.held) >= LIFE;
        self.held = now;
        for (socket, name) in self.sockets.iter().zip(&self.names) {
            let gone = |source| DriverError::Gone {
                name: name.clone(),
                source,
            };
            if paused {
                self.counters.left += socket.discard().map_err(gone)?;
            }
            self.counters.overrun += socket.take_overrun().map_err(gone)?;
        }
        Ok(())
    }

    fn receive(&mut self, end: End, event: &mut impl FnMut(M::Event)) -> Result<(), DriverError> {
        let at = end.index();
        for _ in 0..CALLS {
            let come = self.sockets[at]
                .receive()
                .map_err(|source| DriverError::Gone {
                    name: self.names[at].clone(),
                    source,
                })?;
            let frames: Vec<Frame> = self.sockets[at].frames().flat_map(read).collect();
            for frame in frames {
                self.counters.received += 1;
                self.counters.unreadable += u64::from(frame.packet.is_none());
                self.step(Some((end, frame)), event)?;
            }
            if come < PacketSocket::BATCH {
                break;
            }
        }
        Ok(())
    }

    /// One turn of the machine, whose frames leave by the side that it says.
    fn step(
        &mut self,
        arrived: Option<(End, Frame)>,
        event: &mut impl FnMut(M::Event),
    ) -> Result<(), DriverError> {
        let (sockets, counters) = (&self.sockets, &mut self.counters);
        let mut failed = None;
        self.machine
            .turn(arrived, timer::now(), |output| match output {
                Output::Event(what) => event(what),
                Output::Packet(end, frame) => match sockets[end.index()].send(&frame.bytes) {
                    Ok(()) => counters.sent += 1,
                    Err(error) if PacketSocket::is_gone(&error) => failed = Some((end, error)),
                    // Lost as in a full queue.
                    Err(_) => counters.refused += 1,
                },
            });
        match failed {
            None => Ok(()),
            Some((end, source)) => Err(DriverError::Gone {
                name: self.names[end.index()].clone(),
                source,
            }),
        }
    }
}

impl<M> core::fmt::Debug for Bridge<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bridge")
            .field("names", &self.names)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// The frames for which `bytes` stands, a virtio header and a frame. One that we cannot cut up stays what it is, for the
/// interface at the other side to cut up.
fn read(bytes: &[u8]) -> Vec<Frame> {
    if bytes.len() <= TYPE {
        return Vec::new();
    }
    let plain = || {
        vec![Frame {
            bytes: Bytes::copy_from_slice(bytes),
            packet: None,
        }]
    };
    let Ok((mut header, _)) = VirtioHeader::parse(bytes) else {
        return plain();
    };
    if let Some(partial) = &mut header.partial_checksum {
        partial.start += VirtioHeader::LEN;
    }
    let network = network(bytes);
    let Ok(pieces) = header.cut(bytes, network.unwrap_or(bytes.len())) else {
        return plain();
    };
    let frames = pieces.into_iter().map(|mut bytes| {
        bytes[..VirtioHeader::LEN].fill(0);
        let packet =
            network.and_then(|at| Packet::parse_headers(bytes.get(at..)?, Checksums::Verify).ok());
        Frame {
            bytes: bytes.into(),
            packet,
        }
    });
    frames.collect()
}

/// Where the IP header begins, behind no more than two VLAN tags.
fn network(bytes: &[u8]) -> Option<usize> {
    (0..3).map(|tags| TYPE + 4 * tags).find_map(|at| {
        let kind = bytes.get(at..at + 2)?;
        match u16::from_be_bytes([kind[0], kind[1]]) {
            IPV4 | IPV6 => Some(Some(at + 2)),
            kind if TAGS.contains(&kind) => None,
            _ => Some(None),
        }
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::{
        Flags, Ip, Ipv4, PartialChecksum, Payload, Segmentation, SegmentedProtocol, Tcp, Transport,
    };
    use core::net::Ipv4Addr;

    /// A frame with `payload` bytes of TCP behind `header` and `tags` VLAN tags.
    fn frame(header: &VirtioHeader, tags: usize, payload: usize) -> Vec<u8> {
        let packet = Packet {
            ip: Ip::V4(Ipv4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::BROADCAST)),
            transport: Transport::Tcp(Tcp {
                flags: Flags::ACK,
                ..Tcp::default()
            }),
            payload: Payload::from(vec![3; payload]),
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend([7; 12]);
        bytes.extend([0x81, 0, 0, 9].repeat(tags));
        bytes.extend(IPV4.to_be_bytes());
        packet.emit(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_stands_for_several_is_cut_up_behind_tags_too() {
        for tags in 0..3 {
            let header = VirtioHeader {
                segmentation: Some(Segmentation {
                    protocol: SegmentedProtocol::TcpV4,
                    size: 1_000,
                    ecn: false,
                }),
                partial_checksum: Some(PartialChecksum {
                    start: 14 + 4 * tags + 20,
                    offset: 16,
                }),
                ..VirtioHeader::default()
            };
            let frames = read(&frame(&header, tags, 2_500));
            assert_eq!(frames.len(), 3, "{tags} tags");
            for frame in frames {
                assert!(frame.packet().is_some());
                assert!(frame.bytes().len() <= 1_000 + 54 + 4 * tags);
                assert_eq!(frame.bytes[..VirtioHeader::LEN], [0; VirtioHeader::LEN]);
            }
        }
    }

    #[test]
    fn what_cannot_be_read_stays_as_it_was() {
        let plain = frame(&VirtioHeader::default(), 3, 10);
        let [unknown] = &read(&plain)[..] else {
            panic!("one frame");
        };
        assert!(unknown.packet().is_none());
        assert_eq!(unknown.bytes, plain);
        // A kind of segmentation that nobody knows goes to the other side with its header.
        let mut strange = frame(&VirtioHeader::default(), 0, 3_000);
        strange[1] = 77;
        let [whole] = &read(&strange)[..] else {
            panic!("one frame");
        };
        assert_eq!(whole.bytes, strange);
        assert!(read(&plain[..TYPE]).is_empty());
    }
}
