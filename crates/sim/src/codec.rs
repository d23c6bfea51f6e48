//! Packets as the bytes that would be on the wire, and back.

use crate::addresses::Addresses;
use crate::{Content, Packet, SimError};
use bentpipe_tcp::{Options, Segment};
use bentpipe_wire as wire;
use bentpipe_wire::saratoga::Frame;
use bentpipe_wire::{
    Checksums, Ip, Ipv4, Ipv6, Payload, SackBlocks, Tcp, TcpOptions, Transport, Udp,
};
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Turns packets of a simulation into those of [`bentpipe_wire`] and back.
pub(crate) struct Codec {
    addresses: Addresses,
    /// The bytes of the last packet; kept for its room.
    bytes: Vec<u8>,
}

impl Codec {
    pub(crate) const fn new(addresses: Addresses) -> Self {
        Self {
            addresses,
            bytes: Vec::new(),
        }
    }

    /// What the next hop reads of `packet`: written as bytes, checksums and all, and read again.
    pub(crate) fn hop(&mut self, packet: Packet) -> Result<Packet, SimError> {
        self.write(&packet)?;
        let read = wire::Packet::parse(&self.bytes, Checksums::Verify)?;
        let (ports, content) = match read.transport {
            Transport::Tcp(tcp) => {
                let ports = (tcp.source, tcp.destination);
                (ports, Content::Tcp(segment(tcp, read.payload)))
            }
            Transport::Udp(udp) => {
                let Payload::Bytes(octets) = &read.payload else {
                    return Err(SimError::Misread);
                };
                let (frame, _) = Frame::parse(octets).map_err(|_| SimError::Misread)?;
                let ports = (udp.source, udp.destination);
                (ports, Content::Saratoga(Box::new(frame)))
            }
            Transport::Other { .. } => return Err(SimError::Misread),
        };
        let source = SocketAddr::new(read.ip.source(), ports.0);
        let destination = SocketAddr::new(read.ip.destination(), ports.1);
        let to = self.addresses.find(source, destination);
        if to != Some(packet.to) {
            return Err(SimError::Misread);
        }
        Ok(Packet {
            content,
            // What the link counts may differ from the true length by the preset of TCP.
            ..packet
        })
    }

    /// The bytes of `packet`.
    pub(crate) fn bytes(&mut self, packet: &Packet) -> Result<&[u8], SimError> {
        self.write(packet)?;
        Ok(&self.bytes)
    }

    fn write(&mut self, packet: &Packet) -> Result<(), SimError> {
        let source = self.addresses.of(packet.to.peer());
        let destination = self.addresses.of(packet.to);
        let (transport, payload) = match &packet.content {
            Content::Tcp(segment) => {
                let tcp = tcp(segment, source.port(), destination.port());
                (Transport::Tcp(tcp), segment.payload.clone())
            }
            Content::Saratoga(frame) => {
                let udp = Udp {
                    source: source.port(),
                    destination: destination.port(),
                };
                (
                    Transport::Udp(udp),
                    Payload::Bytes(Arc::new(octets(frame)?)),
                )
            }
        };
        let written = wire::Packet {
            ip: ip(source.ip(), destination.ip())?,
            transport,
            payload,
        };
        self.bytes.clear();
        written.emit(&mut self.bytes)?;
        Ok(())
    }
}

fn ip(source: IpAddr, destination: IpAddr) -> Result<Ip, SimError> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ok(Ip::V4(Ipv4::new(source, destination))),
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Ok(Ip::V6(Box::new(Ipv6::new(source, destination))))
        }
        _ => Err(SimError::Misread),
    }
}

/// A frame, with the content of DATA behind it.
fn octets(frame: &Frame) -> Result<Vec<u8>, SimError> {
    let mut octets = Vec::new();
    frame.emit(&mut octets).map_err(|_| SimError::Misread)?;
    if let Frame::Data(data) = frame {
        // Files of the simulator end below 64 bits.
        let offset = data.offset as u64;
        octets.extend((offset..offset + u64::from(data.len)).map(Payload::pattern));
    }
    Ok(octets)
}

/// The TCP header of `segment`.
fn tcp(segment: &Segment, source: u16, destination: u16) -> Tcp {
    let options = segment.options.as_deref();
    Tcp {
        source,
        destination,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        urgent: 0,
        options: TcpOptions {
            mss: options.and_then(|options| options.mss),
            window_scale: options.and_then(|options| options.window_scale),
            sack_permitted: options.is_some_and(|options| options.sack_permitted),
            timestamps: segment.timestamps,
            sack: options
                .and_then(|options| SackBlocks::new(&options.sack))
                .map(Box::new),
            unknown: None,
        },
    }
}

/// The segment of a TCP header and its payload.
fn segment(tcp: Tcp, payload: wire::Payload) -> Segment {
    let options = Options {
        mss: tcp.options.mss,
        window_scale: tcp.options.window_scale,
        sack_permitted: tcp.options.sack_permitted,
        sack: tcp
            .options
            .sack
            .map_or_else(Vec::new, |blocks| blocks.as_slice().to_vec()),
    };
    Segment {
        seq: tcp.seq,
        ack: tcp.ack,
        flags: tcp.flags,
        window: tcp.window,
        timestamps: tcp.options.timestamps,
        options: (options != Options::default()).then(|| Box::new(options)),
        payload,
    }
}
