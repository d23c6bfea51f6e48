//! Packets as the bytes that would be on the wire, and back.

use crate::addresses::Addresses;
use crate::{Content, Packet, SimError};
use bentpipe_wire as wire;
use bentpipe_wire::saratoga::Frame;
use bentpipe_wire::{Checksums, Ip, Payload, Segment, Transport, Udp};
use core::net::SocketAddr;

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

    /// The addresses and ports of all ends.
    pub(crate) const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// What the next hop reads of `packet`: written as bytes, checksums and all, and read again.
    pub(crate) fn hop(&mut self, packet: Packet) -> Result<Packet, SimError> {
        self.write(&packet)?;
        let read = wire::Packet::parse(&self.bytes, Checksums::Verify)?;
        let (ports, content) = match read.transport {
            Transport::Tcp(tcp) => {
                let ports = (tcp.source, tcp.destination);
                (ports, Content::Tcp(Segment::of_header(tcp, read.payload)))
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
        // What the link counts may differ from the true length by the preset of TCP.
        let place = (packet.host(), read.ip.ecn());
        Ok(Packet::new(content, packet.to, place, packet.len))
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
                let ports = (source.port(), destination.port());
                let (tcp, payload) = segment.clone().into_header(ports.0, ports.1);
                (Transport::Tcp(tcp), payload)
            }
            Content::Saratoga(frame) => {
                let udp = Udp {
                    source: source.port(),
                    destination: destination.port(),
                };
                (Transport::Udp(udp), Payload::from(octets(frame)?))
            }
        };
        let mut ip = Ip::between(source.ip(), destination.ip()).ok_or(SimError::Misread)?;
        ip.set_ecn(packet.ecn());
        let written = wire::Packet {
            ip,
            transport,
            payload,
        };
        self.bytes.clear();
        written.emit(&mut self.bytes)?;
        Ok(())
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
