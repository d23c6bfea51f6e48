//! Packets and captures, byte by byte.

#![allow(unreachable_pub, reason = "a module of several test binaries")]

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const ACK: u8 = 0x10;

/// A segment between A (10.0.0.1:1000) and B (10.0.0.2:2000).
#[derive(Clone, Debug)]
pub struct Packet {
    flags: u8,
    sequence: u32,
    acknowledgement: u32,
    window: u16,
    data: usize,
}

impl Packet {
    pub fn new(flags: u8, sequence: u32, acknowledgement: u32) -> Self {
        Self {
            flags,
            sequence,
            acknowledgement,
            window: 1000,
            data: 0,
        }
    }

    pub fn data(self, data: usize) -> Self {
        Self { data, ..self }
    }

    pub fn window(self, window: u16) -> Self {
        Self { window, ..self }
    }

    /// From A to B, or back.
    pub fn ipv4(&self, from_a: bool) -> Vec<u8> {
        let total = u16::try_from(40 + self.data).unwrap();
        let mut bytes = vec![0x45, 0];
        bytes.extend(total.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 6, 0, 0]);
        let (a, b) = ((1, 1000u16), (2, 2000u16));
        let (source, destination) = if from_a { (a, b) } else { (b, a) };
        bytes.extend([10, 0, 0, source.0, 10, 0, 0, destination.0]);
        bytes.extend(source.1.to_be_bytes());
        bytes.extend(destination.1.to_be_bytes());
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgement.to_be_bytes());
        bytes.extend([0x50, self.flags]);
        bytes.extend(self.window.to_be_bytes());
        bytes.extend([0, 0, 0, 0]);
        bytes.resize(bytes.len() + self.data, b'x');
        bytes
    }
}

/// Packets with their times in milliseconds.
#[derive(Clone, Debug)]
pub struct Capture {
    pub packets: Vec<(u64, Vec<u8>)>,
    /// Bytes that are kept of each.
    pub kept: usize,
}

impl Default for Capture {
    fn default() -> Self {
        Self {
            packets: Vec::new(),
            kept: usize::MAX,
        }
    }
}

impl Capture {
    pub fn a(&mut self, time: u64, packet: Packet) {
        self.packets.push((time, packet.ipv4(true)));
    }

    pub fn b(&mut self, time: u64, packet: Packet) {
        self.packets.push((time, packet.ipv4(false)));
    }

    /// As a file of link type RAW, big-endian, in microseconds.
    pub fn pcap(&self) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(0xa1b2_c3d4u32.to_be_bytes());
        file.extend([0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 101]);
        for (time, bytes) in &self.packets {
            let kept = bytes.len().min(self.kept);
            let words = [
                time / 1000,
                time % 1000 * 1000,
                kept as u64,
                bytes.len() as u64,
            ];
            file.extend(words.iter().flat_map(|word| (*word as u32).to_be_bytes()));
            file.extend(&bytes[..kept]);
        }
        file
    }
}

/// An Ethernet frame around an IPv4 packet, with two VLAN tags if it is `tagged`.
pub fn ethernet(packet: &[u8], tagged: bool) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if tagged {
        frame.extend([0x88, 0xa8, 0, 1, 0x81, 0x00, 0, 2]);
    }
    frame.extend([0x08, 0x00]);
    frame.extend(packet);
    // Ethernet pads what is short.
    frame.resize(frame.len().max(60), 0);
    frame
}

/// A block of pcapng, little-endian.
pub fn pcapng_block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 12).unwrap().to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}
