//! What one side of a connection sent, as it was recorded: the peer of a replay.
//!
//! A line of a recording is `microseconds flags sequence acknowledgement window length TSval TSecr [options]`: numbers count
//! from the SYN of whoever chose them, timestamps too, and options are those besides the timestamps, in hexadecimal.

use bentpipe_base::Seq;
use bentpipe_wire::scps::{CapabilityVector, ScpsOptions};
use bentpipe_wire::{Checksums, Flags, Packet, Payload, Segment, Tcp, Timestamps, Transport};
use core::fmt;
use std::net::IpAddr;

/// One recorded segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// When it passed, in microseconds since the connection's first packet.
    pub(crate) at: u64,
    pub(crate) flags: Flags,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) window: u16,
    pub(crate) len: u32,
    /// Microseconds of both clocks.
    pub(crate) stamp: Timestamps,
    options: Vec<u8>,
}

/// From where the numbers of a connection are counted when its recording is played.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    /// The number of the SYN of who plays, and of the other one's.
    pub(crate) seq: [Seq; 2],
    /// The timestamp of both SYNs. The player's clock counts microseconds, the other's milliseconds.
    pub(crate) clock: [u32; 2],
}

fn octets(hex: &str) -> Vec<u8> {
    let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(octet).collect()
}

/// The recording of `text`.
pub(crate) fn read(text: &str) -> Vec<Recorded> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(Recorded::read).collect()
}

impl Recorded {
    fn read(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().unwrap();
        Self {
            at: words[0].parse().unwrap(),
            flags: Flags::from_bits(u16::from_str_radix(words[1], 16).unwrap()),
            seq: number(2),
            ack: number(3),
            window: words[4].parse().unwrap(),
            len: number(5),
            stamp: Timestamps {
                value: number(6),
                echo: number(7),
            },
            options: words.get(8).map_or_else(Vec::new, |hex| octets(hex)),
        }
    }

    /// The segment that it is where the numbers are counted from `origin`.
    pub(crate) fn segment(&self, origin: &Origin) -> Segment {
        // Through a header's octets, so that they are read as any.
        let mut header = vec![0; 20];
        header.extend(&self.options);
        header.resize(20 + self.options.len().next_multiple_of(4), 1);
        header[12] = (header.len() as u8 / 4) << 4;
        let mut packet = vec![0x45, 0, 0, 20 + header.len() as u8, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(header);
        let read = Packet::parse(&packet, Checksums::Ignore).unwrap();
        let Transport::Tcp(tcp) = read.transport else {
            panic!("{:?}", read.transport);
        };
        let payload = match self.len {
            0 => Payload::Absent,
            len => Payload::Virtual {
                offset: u64::from(self.seq) - 1,
                len,
            },
        };
        Segment::of_header(
            Tcp {
                seq: origin.seq[0] + self.seq,
                ack: origin.seq[1] + self.ack,
                flags: self.flags,
                window: self.window,
                timestamps: Some(Timestamps {
                    value: origin.clock[0].wrapping_add(self.stamp.value),
                    echo: origin.clock[1].wrapping_add(self.stamp.echo / 1000),
                }),
                ..tcp
            },
            payload,
        )
    }

    fn scps(&self) -> ScpsOptions {
        let raw = bentpipe_wire::RawOptions::new(&self.options);
        raw.map_or_else(ScpsOptions::default, |raw| ScpsOptions::parse(&raw))
    }

    /// The octets of the peer's stream, from its first, that it says it misses, in units of `unit`.
    pub(crate) fn missed(&self, unit: u64) -> Option<(u64, u64)> {
        let snack = self.scps().snack?;
        let from = u64::from(self.ack) - 1 + u64::from(snack.offset) * unit;
        Some((from, from + u64::from(snack.size) * unit))
    }

    /// What it can, as it says in its SYN.
    pub(crate) fn capabilities(&self) -> Option<CapabilityVector> {
        Some(self.scps().capabilities?.vector)
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            flags,
            seq,
            ack,
            window,
            len,
            stamp: Timestamps { value, echo },
            options,
        } = self;
        let flags = flags.bits();
        write!(
            f,
            "{at} {flags:02x} {seq} {ack} {window} {len} {value} {echo}"
        )?;
        if !options.is_empty() {
            write!(f, " ")?;
        }
        options
            .iter()
            .try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// The options in `list` besides timestamps and what fills the space between.
fn others(mut list: &[u8]) -> Vec<u8> {
    let mut others = Vec::new();
    while let [kind, rest @ ..] = list {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(rest[0]),
        };
        if ![1, 8].contains(kind) {
            others.extend(&list[..len]);
        }
        list = &list[len..];
    }
    others
}

/// What `side` sent of the one TCP connection in a capture in the format of libpcap. Frames may be cut behind their headers.
pub(crate) fn of_capture(capture: &[u8], side: IpAddr) -> Vec<Recorded> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
    let mut all = Vec::new();
    let mut at = 24;
    while at < capture.len() {
        let (time, length) = (
            u64::from(word(at)) * 1_000_000 + u64::from(word(at + 4)),
            word(at + 8),
        );
        let frame = &capture[at + 16..at + 16 + length as usize];
        at += 16 + length as usize;
        if frame[12..14] != [8, 0] || frame[14 + 9] != 6 {
            continue;
        }
        let mut bytes = frame[14..].to_vec();
        let whole = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        bytes.resize(whole, 0);
        let list = bytes[40..20 + usize::from(bytes[32] >> 4) * 4].to_vec();
        let packet = Packet::parse(&bytes, Checksums::Ignore).unwrap();
        if let Transport::Tcp(tcp) = packet.transport {
            all.push((
                time,
                packet.ip.source(),
                tcp,
                packet.payload.len() as u32,
                list,
            ));
        }
    }
    let stamp = |tcp: &Tcp| {
        tcp.timestamps
            .map_or((0, 0), |stamp| (stamp.value, stamp.echo))
    };
    let syn = |ours: bool| {
        let mut syns = all.iter().filter(|one| one.2.flags.contains(Flags::SYN));
        let syn = syns.find(|one| (one.1 == side) == ours);
        syn.map(|one| (one.2.seq, stamp(&one.2)))
    };
    let (own, other) = (syn(true).unwrap(), syn(false).unwrap());
    let start = all[0].0;
    let sent = all.iter().filter(|one| one.1 == side);
    sent.map(|(time, _, tcp, len, list)| {
        let (value, echo) = stamp(tcp);
        let answers = tcp.flags.contains(Flags::ACK);
        Recorded {
            at: time - start,
            flags: tcp.flags,
            seq: (tcp.seq - own.0.0).0,
            ack: if answers { (tcp.ack - other.0.0).0 } else { 0 },
            window: tcp.window,
            len: *len,
            stamp: Timestamps {
                value: value.wrapping_sub(own.1.0),
                echo: if answers {
                    echo.wrapping_sub(other.1.0)
                } else {
                    0
                },
            },
            options: others(list),
        }
    })
    .collect()
}
