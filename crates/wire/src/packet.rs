use crate::ip::{Ipv4, Ipv6, protocol};
use crate::{Ecn, Error, Ip, PartialChecksum, Payload, Segment, Tcp, Udp};
use bentpipe_base::Bytes;

/// One packet, from its IP header to the end of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The network header.
    pub ip: Ip,
    /// The transport header.
    pub transport: Transport,
    /// What follows the headers.
    pub payload: Payload,
}

// The simulator moves packets by value.
const _: () = assert!(size_of::<Packet>() <= 120);

/// The transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp(Udp),
    /// Any other protocol, or a fragment of any: all that follows the IP header is payload.
    Other {
        /// The protocol's number.
        protocol: u8,
    },
}

/// What to do about checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Refuse a packet with a wrong one.
    Verify,
    /// Do not look: they may be left to the network card.
    Ignore,
}

impl Packet {
    /// The packet that carries `segment` behind `ip`, between two ports.
    pub fn of_segment(ip: Ip, source: u16, destination: u16, segment: Segment) -> Self {
        let (tcp, payload) = segment.into_header(source, destination);
        Self {
            ip,
            transport: Transport::Tcp(tcp),
            payload,
        }
    }

    /// This packet with `ecn` in its IP header.
    #[must_use]
    pub fn with_ecn(mut self, ecn: Ecn) -> Self {
        self.ip.set_ecn(ecn);
        self
    }

    /// Reads the packet at the start of `bytes`; what follows it (padding of the link) is ignored.
    ///
    /// # Errors
    /// What is cut short, malformed or damaged, and UDP with bytes beyond its length.
    pub fn parse(bytes: &[u8], checksums: Checksums) -> Result<Self, Error> {
        let (ip, transport, payload) = Self::parse_parts(bytes, checksums)?;
        Ok(Self {
            ip,
            transport,
            payload: payload.into(),
        })
    }

    /// The same without a copy of the payload, of which there is but the length ([`Payload::Virtual`]): for who keeps the
    /// packet's bytes anyway.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_headers(bytes: &[u8], checksums: Checksums) -> Result<Self, Error> {
        let (ip, transport, payload) = Self::parse_parts(bytes, checksums)?;
        // An IP packet is shorter than 2^32 bytes.
        let len = payload.len() as u32;
        Ok(Self {
            ip,
            transport,
            payload: match len {
                0 => Payload::Absent,
                len => Payload::Virtual { offset: 0, len },
            },
        })
    }

    fn parse_parts(bytes: &[u8], checksums: Checksums) -> Result<(Ip, Transport, &[u8]), Error> {
        let version = bytes.first().map_or(0, |byte| byte >> 4);
        let (ip, protocol, body) = match version {
            _ if bytes.is_empty() => {
                return Err(Error::Truncated {
                    what: "the IP header",
                    need: Ipv4::BARE,
                    have: 0,
                });
            }
            4 => {
                let (ip, protocol, body) = Ipv4::parse(bytes, checksums)?;
                (Ip::V4(ip), protocol, body)
            }
            6 => {
                let (ip, protocol, body) = Ipv6::parse(bytes)?;
                (Ip::V6(Box::new(ip)), protocol, body)
            }
            other => return Err(Error::Version(other)),
        };
        let (transport, payload) = Transport::parse(&ip, protocol, body, checksums)?;
        Ok((ip, transport, payload))
    }

    /// Appends the packet's bytes to `out`, with right lengths and checksums; `out` is unchanged on
    /// error.
    ///
    /// # Errors
    /// A packet that is too long or contradicts itself.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let start = out.len();
        let done = self.emit_parts(out);
        if done.is_err() {
            out.truncate(start);
        }
        done
    }

    /// The packet's bytes.
    ///
    /// # Errors
    /// As [`Self::emit`].
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        self.emit(&mut out)?;
        Ok(out)
    }

    /// Bytes from the first of the IP header to the last of the payload.
    pub fn length(&self) -> Bytes {
        let headers = self.ip.header_len() + self.transport.header_len();
        Bytes((headers + self.payload.len()) as u64)
    }

    /// Appends the headers of the packet as if `payload` bytes stood behind them, in place of its own; the transport
    /// checksum covers the pseudo-header alone, and is left to who segments the packet or sends it. `out` is unchanged on
    /// error.
    ///
    /// # Errors
    /// As [`Self::emit`].
    pub fn emit_headers(
        &self,
        payload: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<PartialChecksum>, Error> {
        let start = out.len();
        let done = self.emit_heads(payload, out);
        if done.is_err() {
            out.truncate(start);
        }
        let partial = done?;
        if let Some(partial) = partial {
            let at = start + partial.start + partial.offset;
            let body = self.transport.header_len() + payload;
            let sum = !self
                .ip
                .pseudo_header(self.transport.protocol(), body)
                .finish();
            out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        Ok(partial)
    }

    /// Headers with a checksum of zero, and where it stands.
    fn emit_heads(
        &self,
        payload: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<PartialChecksum>, Error> {
        self.check()?;
        let packet = out.len();
        let body = self.transport.header_len() + payload;
        self.ip.emit(self.transport.protocol(), body, out)?;
        let start = out.len() - packet;
        let at = |offset| Some(PartialChecksum { start, offset });
        Ok(match &self.transport {
            Transport::Tcp(tcp) => {
                tcp.emit(out)?;
                at(16)
            }
            Transport::Udp(udp) => {
                udp.emit(payload, out);
                at(6)
            }
            Transport::Other { .. } => None,
        })
    }

    fn emit_parts(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let packet = out.len();
        let partial = self.emit_heads(self.payload.len(), out)?;
        self.payload.emit(out);
        if let Some(PartialChecksum { start, offset }) = partial {
            let body = &out[packet + start..];
            let protocol = self.transport.protocol();
            let pseudo = self.ip.pseudo_header(protocol, body.len());
            let mut sum = pseudo.with(body).finish();
            // In UDP zero means "not computed".
            if sum == 0 && matches!(self.transport, Transport::Udp(_)) {
                sum = 0xffff;
            }
            let at = packet + start + offset;
            out[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        Ok(())
    }

    /// Refuses what would read back as another packet.
    fn check(&self) -> Result<(), Error> {
        let fragment = self.ip.is_fragment();
        let read = matches!(self.transport.protocol(), protocol::TCP | protocol::UDP);
        match self.transport {
            Transport::Other { .. } if read && !fragment => Err(Error::Inconsistent {
                why: "TCP or UDP outside a fragment has its own header type",
            }),
            Transport::Tcp(_) | Transport::Udp(_) if fragment => Err(Error::Inconsistent {
                why: "a fragment has no transport header that could be read",
            }),
            _ => Ok(()),
        }
    }
}

impl Transport {
    fn parse<'a>(
        ip: &Ip,
        protocol: u8,
        body: &'a [u8],
        checksums: Checksums,
    ) -> Result<(Self, &'a [u8]), Error> {
        let sum = || ip.pseudo_header(protocol, body.len()).with(body).finish();
        let wrong = || checksums == Checksums::Verify && sum() != 0;
        match protocol {
            protocol::TCP if !ip.is_fragment() => {
                let (tcp, payload) = Tcp::parse(body)?;
                if wrong() {
                    return Err(Error::Checksum {
                        what: "the TCP segment",
                    });
                }
                Ok((Self::Tcp(tcp), payload))
            }
            protocol::UDP if !ip.is_fragment() => {
                let (udp, summed, payload) = Udp::parse(body)?;
                // IPv4 may go without; IPv6 may not (RFC 8200, section 8.1).
                let optional = matches!(ip, Ip::V4(_));
                if (summed || !optional) && wrong() {
                    return Err(Error::Checksum {
                        what: "the UDP datagram",
                    });
                }
                Ok((Self::Udp(udp), payload))
            }
            _ => Ok((Self::Other { protocol }, body)),
        }
    }

    /// The protocol's number.
    pub const fn protocol(&self) -> u8 {
        match self {
            Self::Tcp(_) => protocol::TCP,
            Self::Udp(_) => protocol::UDP,
            Self::Other { protocol } => *protocol,
        }
    }

    /// Bytes of the header, options included.
    pub fn header_len(&self) -> usize {
        match self {
            Self::Tcp(tcp) => tcp.header_len(),
            Self::Udp(_) => Udp::LEN,
            Self::Other { .. } => 0,
        }
    }
}
