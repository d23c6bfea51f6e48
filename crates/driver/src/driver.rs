use crate::Capture;
use crate::segmentation::Segments;
use bentpipe_base::{Instant, Machine};
use bentpipe_os::tun::{self, Tun};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::timer::{self, Timer};
use bentpipe_wire::{Checksums, Packet, VirtioHeader};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use thiserror::Error;

/// Packets that are read before the machine's deadlines are looked at again.
const BATCH: usize = 64;
/// The largest packet of any TUN interface, with its virtio header.
const LARGEST: usize = VirtioHeader::LEN + 65_535;
const TUN: u64 = 0;
const TIMER: u64 = 1;
/// Tokens of the caller's own descriptors begin here.
const OTHERS: u64 = 2;

/// What a driver did with packets, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came from the kernel.
    pub received: u64,
    /// Packets among these that could not be read.
    pub unreadable: u64,
    /// Packets that the kernel took; with offloads one may stand for several segments.
    pub sent: u64,
    /// Segments that they were.
    pub segments: u64,
    /// Packets that it refused.
    pub refused: u64,
    /// Deadlines of the machine that were acted on.
    pub deadlines: u64,
    /// The most that one of them was late.
    pub latest: Duration,
}

/// The loop cannot go on.
#[derive(Debug, Error)]
pub enum DriverError {
    /// A call of the kernel failed that never should.
    #[error("cannot {doing}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The interface is gone.
    #[error("interface `{name}` carries nothing any more: was it removed or switched off?")]
    Gone {
        /// The interface.
        name: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// An interface's frames cannot be read.
    #[error(
        "cannot read the frames of interface `{name}` ({source}): is there one, and are we root (CAP_NET_RAW)?"
    )]
    Interface {
        /// The interface.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// There are no rules that keep the kernel from the frames of a bridge.
    #[error(transparent)]
    Rules(#[from] bentpipe_os::nft::NftError),
    /// Those rules are gone.
    #[error(
        "the rules that keep the kernel from the frames are gone: was the nft process that holds them ended?"
    )]
    Displaced,
    /// The capture cannot be written.
    #[error("cannot write the capture: is the disk full?")]
    Capture(#[source] io::Error),
    /// The machine made a packet that cannot be.
    #[error("a packet to be sent contradicts itself: please report this")]
    Packet(#[from] bentpipe_wire::Error),
}

/// A machine, and the TUN interface that is its port.
pub struct Driver<M> {
    machine: M,
    tun: Tun,
    timer: Timer,
    epoll: Epoll,
    events: Events,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    segments: Segments,
    capture: Option<Capture>,
    counters: Counters,
}

impl<M: Machine<Packet = Packet, Port = ()>> Driver<M> {
    /// Drives `machine` on the packets of `tun`. With its offloads a packet that comes in may stand for several segments:
    /// for machines that do not mind.
    ///
    /// # Errors
    /// Fails when descriptors run out.
    pub fn new(machine: M, tun: Tun) -> Result<Self, DriverError> {
        let system = |doing| move |source| DriverError::System { doing, source };
        let timer = Timer::new().map_err(system("make a timer"))?;
        let epoll = Epoll::new().map_err(system("make an epoll set"))?;
        let watch = "watch a descriptor";
        epoll
            .add(&tun, TUN, Interest::READ)
            .map_err(system(watch))?;
        epoll
            .add(&timer, TIMER, Interest::READ)
            .map_err(system(watch))?;
        Ok(Self {
            machine,
            tun,
            timer,
            epoll,
            events: Events::with_capacity(16),
            incoming: vec![0; LARGEST],
            outgoing: Vec::new(),
            segments: Segments::default(),
            capture: None,
            counters: Counters::default(),
        })
    }

    /// Writes all packets to `capture` from now on.
    pub fn capture(&mut self, capture: Capture) {
        self.capture = Some(capture);
    }

    /// A round ends early when `source` can be read: standard input, or a waker.
    ///
    /// # Errors
    /// Fails when the descriptor cannot be waited for (a regular file always can be read).
    pub fn watch(&mut self, source: impl AsFd) -> Result<(), DriverError> {
        let added = self.epoll.add(source, OTHERS, Interest::READ);
        added.map_err(|source| DriverError::System {
            doing: "watch a descriptor",
            source,
        })
    }

    /// The machine.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, for its caller's part; what follows from that goes out in the next round.
    pub const fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// What was done with packets.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The time of the machine.
    pub fn now(&self) -> Instant {
        timer::now()
    }

    /// One round: sends what the machine has to send, waits for packets, its deadline or `most`, hands it what came,
    /// and sends again. A signal ends the wait.
    ///
    /// # Errors
    /// Fails when the interface is gone, and where the capture cannot be written.
    pub fn turn(&mut self, most: Option<Duration>) -> Result<(), DriverError> {
        self.send()?;
        let system = |doing| move |source| DriverError::System { doing, source };
        self.timer
            .arm(self.machine.deadline())
            .map_err(system("arm a timer"))?;
        self.epoll
            .wait(&mut self.events, most)
            .map_err(system("wait for packets"))?;
        let (mut packets, mut due) = (false, false);
        for event in self.events.iter() {
            packets |= event.token == TUN;
            due |= event.token == TIMER;
        }
        if due {
            self.timer.acknowledge().map_err(system("read a timer"))?;
        }
        if packets {
            self.receive()?;
        }
        let now = self.now();
        if let Some(due) = self.machine.deadline().filter(|due| *due <= now) {
            self.counters.deadlines += 1;
            self.counters.latest = self.counters.latest.max(now.since(due));
            self.machine.timeout(now);
        }
        self.send()
    }

    fn receive(&mut self) -> Result<(), DriverError> {
        let now = self.now();
        for _ in 0..BATCH {
            let read = self.tun.receive(&mut self.incoming);
            let Some(length) = read.map_err(|source| gone(&self.tun, source))? else {
                break;
            };
            self.counters.received += 1;
            let (bytes, checksums) = if self.tun.has_offloads() {
                match VirtioHeader::parse(&self.incoming[..length]) {
                    Ok((header, bytes)) => (bytes, trust(&header)),
                    Err(_) => {
                        self.counters.unreadable += 1;
                        continue;
                    }
                }
            } else {
                (&self.incoming[..length], Checksums::Verify)
            };
            if let Some(capture) = &mut self.capture {
                capture.packet(bytes, now).map_err(DriverError::Capture)?;
            }
            match Packet::parse(bytes, checksums) {
                Ok(packet) => self.machine.input((), packet, now),
                Err(_) => self.counters.unreadable += 1,
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), DriverError> {
        loop {
            let now = timer::now();
            let next = self.machine.transmit(now);
            if !self.tun.has_offloads() {
                let Some(((), packet)) = next else {
                    return Ok(());
                };
                self.outgoing.clear();
                packet.emit(&mut self.outgoing)?;
                hand_over(&self.tun, &self.outgoing, 1, &mut self.counters)?;
                if let Some(capture) = &mut self.capture {
                    let written = capture.packet(&self.outgoing, now);
                    written.map_err(DriverError::Capture)?;
                }
                continue;
            }
            let rest = match next {
                Some(((), packet)) => match self.segments.push(packet) {
                    None => continue,
                    rest => rest,
                },
                None => None,
            };
            if let Some((bytes, count)) = self.segments.take()? {
                hand_over(&self.tun, bytes, count, &mut self.counters)?;
                if let Some(capture) = &mut self.capture {
                    let written = capture.packet(&bytes[VirtioHeader::LEN..], now);
                    written.map_err(DriverError::Capture)?;
                }
            }
            match rest {
                // Nothing was gathered yet, so that this packet is the first.
                Some(packet) => drop(self.segments.push(packet)),
                None => return Ok(()),
            }
        }
    }

    /// Ends the loop: the interface goes, the capture is written.
    ///
    /// # Errors
    /// Fails where the capture cannot be written.
    pub fn finish(self) -> Result<M, DriverError> {
        if let Some(capture) = self.capture {
            capture.finish().map_err(DriverError::Capture)?;
        }
        Ok(self.machine)
    }
}

impl<M> core::fmt::Debug for Driver<M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Driver")
            .field("tun", &self.tun)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Hands the kernel what stands for `count` segments.
fn hand_over(
    tun: &Tun,
    bytes: &[u8],
    count: u64,
    counters: &mut Counters,
) -> Result<(), DriverError> {
    match tun.send(bytes) {
        Ok(()) => {
            counters.sent += 1;
            counters.segments += count;
            Ok(())
        }
        // The kernel has no room for it: it is lost as in a full queue.
        Err(e) if is_passing(&e) => {
            counters.refused += 1;
            Ok(())
        }
        Err(source) => Err(gone(tun, source)),
    }
}

/// Whether the checksums are still to be looked at. What the kernel itself sends has a part of them only.
const fn trust(header: &VirtioHeader) -> Checksums {
    if header.partial_checksum.is_some() || header.checksum_is_valid {
        Checksums::Ignore
    } else {
        Checksums::Verify
    }
}

fn gone(tun: &Tun, source: io::Error) -> DriverError {
    DriverError::Gone {
        name: tun.name().to_owned(),
        source,
    }
}

fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, OutOfMemory, WouldBlock};
    matches!(error.kind(), WouldBlock | OutOfMemory | Interrupted) || tun::is_out_of_buffers(error)
}
