//! A host behind a link of the emulator, and behind what doubles packets, damages them and lets them overtake each other.

use bentpipe_base::{Bytes, Instant, Machine, Probability, Rate, Silent, Stream};
use bentpipe_host::{Event, Host};
use bentpipe_link::channel::PacketError;
use bentpipe_link::queue::{Discipline, DropTail};
use bentpipe_link::{Direction, Limit, Settings};
use bentpipe_os::tun::Tun;
use bentpipe_wire::{Checksums, Ip, Packet, VirtioHeader};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

/// What became of packets; lost are those that the link has not delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    doubled: u64,
    damaged: u64,
    late: u64,
    lost: u64,
}

impl Seen {
    /// Something of everything.
    pub(crate) fn all(&self) -> bool {
        self.doubled > 0 && self.damaged > 0 && self.late > 0 && self.lost > 0
    }
}

pub(crate) struct BadPath {
    host: Host,
    dice: Stream,
    /// To the host, and from it.
    ways: [Direction<Packet, Silent>; 2],
    /// Packets that are held back: until when, and which way they go.
    late: BTreeMap<(Instant, u64), (usize, Packet)>,
    count: u64,
    trouble: f64,
    seen: Seen,
    /// The interface, for what no machine would send.
    tun: File,
    offloads: bool,
}

const IN: usize = 0;
const OUT: usize = 1;

impl BadPath {
    pub(crate) fn new(host: Host, seed: u64, dice: &mut Stream, tun: &Tun) -> Self {
        let file = tun.as_fd().try_clone_to_owned().unwrap();
        let delay = Duration::from_millis(dice.choose(&[0, 2, 10]));
        let loss = Probability::new(dice.choose(&[0.002, 0.01, 0.03])).unwrap();
        let mut way = |name: &str| {
            let settings = Settings {
                rate: Some(Rate::from_bits_per_sec(dice.choose(&[20, 100]) * 1_000_000)),
                delay,
                queue: Discipline::DropTail(DropTail::new(Limit::Packets(100))),
                channels: vec![Box::new(PacketError::new(loss))],
                ..Settings::default()
            };
            Direction::new(settings, seed, name, Silent)
        };
        Self {
            host,
            ways: [way("in"), way("out")],
            trouble: dice.choose(&[0.002, 0.01, 0.03]),
            dice: Stream::new(seed, "path"),
            late: BTreeMap::new(),
            count: 0,
            seen: Seen::default(),
            tun: file.into(),
            offloads: tun.has_offloads(),
        }
    }

    pub(crate) fn host(&mut self) -> &mut Host {
        &mut self.host
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen
    }

    /// A packet begins its way: it may be doubled, damaged or held back.
    fn begin(&mut self, way: usize, packet: Packet, now: Instant) {
        if self.dice.uniform() < self.trouble {
            self.seen.doubled += 1;
            self.set_out(way, packet.clone(), now);
        }
        if self.dice.uniform() < self.trouble {
            self.seen.damaged += 1;
            self.damage(way, &packet);
            return;
        }
        if self.dice.uniform() < self.trouble {
            self.seen.late += 1;
            let until = now + Duration::from_micros(100 + self.dice.below(20_000));
            self.count += 1;
            self.late.insert((until, self.count), (way, packet));
            return;
        }
        self.set_out(way, packet, now);
    }

    /// The packet arrives at once, with one bit behind its IP header inverted: whoever gets it has to notice.
    fn damage(&mut self, way: usize, packet: &Packet) {
        let header = match packet.ip {
            Ip::V4(_) => 20,
            Ip::V6(_) => 40,
        };
        let start = if self.offloads { VirtioHeader::LEN } else { 0 };
        let mut bytes = vec![0; start];
        packet.emit(&mut bytes).unwrap();
        let bits = (bytes.len() - start - header) as u64 * 8;
        let bit = self.dice.below(bits) as usize;
        bytes[start + header + bit / 8] ^= 1 << (bit % 8);
        if way == OUT {
            // Where the kernel has no room it is lost.
            let _lost = self.tun.write(&bytes);
            return;
        }
        let read = Packet::parse(&bytes[start..], Checksums::Verify);
        assert!(read.is_err(), "one inverted bit is always noticed");
    }

    fn set_out(&mut self, way: usize, packet: Packet, now: Instant) {
        let len = Bytes(packet.length().0);
        self.seen.lost += 1;
        let _refused = self.ways[way].push(packet, len, now);
    }

    fn advance(&mut self, now: Instant) {
        while let Some(entry) = self.late.first_entry()
            && entry.key().0 <= now
        {
            let (way, packet) = entry.remove();
            self.set_out(way, packet, now);
        }
        while let Some((_, packet, _)) = self.ways[IN].deliver_due(now) {
            self.seen.lost -= 1;
            self.host.input((), packet, now);
        }
    }
}

impl Machine for BadPath {
    type Packet = Packet;
    type Port = ();
    type Event = Event;

    fn input(&mut self, (): (), packet: Packet, now: Instant) {
        self.begin(IN, packet, now);
        self.advance(now);
    }

    fn timeout(&mut self, now: Instant) {
        self.advance(now);
        if self.host.deadline().is_some_and(|at| at <= now) {
            self.host.timeout(now);
        }
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Packet)> {
        while let Some(((), packet)) = self.host.transmit(now) {
            self.begin(OUT, packet, now);
        }
        let (_, packet, _) = self.ways[OUT].deliver_due(now)?;
        self.seen.lost -= 1;
        Some(((), packet))
    }

    fn event(&mut self) -> Option<Event> {
        self.host.event()
    }

    fn deadline(&self) -> Option<Instant> {
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        let ways = self.ways.iter().map(Direction::deadline);
        ways.chain([late, self.host.deadline()]).flatten().min()
    }
}
