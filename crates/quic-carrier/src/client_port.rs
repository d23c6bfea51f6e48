//! Takes clients' UDP off the forward hook for the tunnels, and sends the answers as the servers would.
//!
//! A datagram waits in a queue behind the operator's forward chains (chain `client_udp` of `bentpipe-interception`) until the tunnels' thread
//! has decided. What a tunnel carries is dropped there, so that conntrack never confirms it; its answers leave through the output hook,
//! untracked by their mark.

use crate::icmp;
use bentpipe_gateway_config::CarriedUdp;
use bentpipe_interception::{AdmissionSwitch, CLIENT_UDP_PRIORITY, Marks, QueueReader};
use bentpipe_os::nft::{HoldTable, Holding, Hook, TableFamily};
use bentpipe_relay::{AdmissionMode, Shared};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use bentpipe_sockets::raw_ip::{RawIp, Way};
use bentpipe_tunnel_sockets::{ClientDatagram, ClientPort, ClientVerdict, UdpBounds, UdpEnds};
use bentpipe_wire::{Checksums, Ip, Ipv4, Packet, Transport, Udp};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

/// The most datagrams that wait in the queue. Those beyond pass end to end.
const MOST: u32 = 4096;

/// What the port is made of, beside its queue.
#[derive(Clone)]
pub struct PortParts {
    /// The gateway's marks.
    pub marks: Marks,
    /// Its switch.
    pub switch: Arc<AdmissionSwitch>,
    /// What its threads share.
    pub shared: Arc<Shared>,
}

/// Where clients' UDP comes from in the namespace of the thread that has made it.
pub(crate) struct GatewayPort {
    // In this order: without the table nothing comes to the queue.
    _hold: HoldTable,
    queues: Queues,
    raw: RawIp,
    parts: PortParts,
    /// What finds no tunnel is refused.
    refuses: bool,
    budget: icmp::Budget,
}

impl GatewayPort {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel cannot hold packets, or sends none that are made here.
    pub(crate) fn open(parts: PortParts, refuses: bool) -> Result<Self, String> {
        let queues = Queues::open_whole(1, MOST).map_err(|error| format!("no queue ({error})"))?;
        let [tag, _] = parts.marks.client_udp();
        let holding = Holding {
            hook: Hook::Forward,
            place: CLIENT_UDP_PRIORITY,
            queues: &[(tag, queues.first())],
            marked: None,
            looped: None,
        };
        let families = &[TableFamily::Ip, TableFamily::Ip6];
        let hold = HoldTable::load(families, &holding).map_err(|error| error.to_string())?;
        let raw = RawIp::open().map_err(|error| format!("no raw socket ({error})"))?;
        Ok(Self {
            _hold: hold,
            queues,
            raw,
            parts,
            refuses,
            budget: icmp::Budget::default(),
        })
    }

    /// Tells a client that its datagram was too long for a tunnel, where it did not let it be fragmented.
    fn tell_too_long(&mut self, packet: &[u8], interface: u32, room: usize) {
        if !self.budget.take() {
            return;
        }
        let Some(error) = icmp::too_big(packet, room) else {
            return;
        };
        let way = self.way(interface);
        if let Err(error) = self.raw.send(&error, &way) {
            tracing::debug!(%error, "a client was not told of the path's MTU");
        }
    }

    fn way(&self, interface: u32) -> Way {
        Way {
            interface,
            router: None,
            mark: self.parts.marks.udp_answer(),
        }
    }
}

/// A datagram as `packet` has it; `None`: it is none, or a fragment, or for a group.
fn datagram(
    packet: &[u8],
    interface: u32,
    checksums: Checksums,
) -> Option<(ClientDatagram<'_>, bool)> {
    let parsed = Packet::parse_headers(packet, checksums).ok()?;
    let Transport::Udp(Udp {
        source,
        destination,
    }) = parsed.transport
    else {
        return None;
    };
    let ends = UdpEnds {
        client: SocketAddr::new(parsed.ip.source(), source),
        server: SocketAddr::new(parsed.ip.destination(), destination),
    };
    // The far end's socket takes ::ffff:a.b.c.d for a.b.c.d, of which this end's rules for IPv4 have not been asked.
    let is_mapped = |ip: IpAddr| ip.to_canonical() != ip;
    if ends.server.ip().is_multicast()
        || ends.client.port() == 0
        || [ends.server, ends.client]
            .iter()
            .any(|end| is_mapped(end.ip()))
    {
        return None;
    }
    let may_be_fragmented = match &parsed.ip {
        Ip::V4(ip) => ip.flags_and_offset & Ipv4::DONT_FRAGMENT == 0,
        Ip::V6(_) => false,
    };
    let start = parsed.ip.header_len() + Udp::LEN;
    let payload = packet.get(start..start + parsed.payload.len())?;
    let datagram = ClientDatagram {
        ends,
        interface,
        payload,
    };
    Some((datagram, may_be_fragmented))
}

impl ClientPort for GatewayPort {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.queues.as_fd()
    }

    fn attend(&mut self, up: bool) {
        self.parts.shared.reader_beats(QueueReader::Tunnels);
        if up || self.refuses {
            self.parts.switch.hold_queue(QueueReader::Tunnels);
        }
    }

    fn admits(&self) -> bool {
        self.parts.shared.mode() == AdmissionMode::Serving && !self.parts.shared.is_retired()
    }

    fn receive(
        &mut self,
        judge: &mut dyn FnMut(&ClientDatagram<'_>) -> ClientVerdict,
    ) -> io::Result<()> {
        self.queues.receive()?;
        let mut too_long = Vec::new();
        while let Some(waiting) = self.queues.next_packet() {
            let checksums = match waiting.is_unverified {
                true => Checksums::Verify,
                false => Checksums::Ignore,
            };
            let whole = Some(waiting.packet).filter(|_| !waiting.is_cut);
            let read = whole.and_then(|packet| datagram(packet, waiting.arrives_by, checksums));
            let refuse = Verdict::PassMarked(self.parts.marks.refused());
            let verdict = match read {
                None => Verdict::Pass,
                Some((datagram, may_be_fragmented)) => match judge(&datagram) {
                    ClientVerdict::Taken => Verdict::Drop,
                    ClientVerdict::NoTunnel if self.refuses => refuse,
                    ClientVerdict::NoTunnel | ClientVerdict::Passes => Verdict::Pass,
                    ClientVerdict::TooLong(room) => {
                        if !may_be_fragmented && too_long.len() < icmp::MOST {
                            let packet = waiting.packet.to_vec();
                            too_long.push((packet, waiting.arrives_by, room));
                        }
                        Verdict::Drop
                    }
                },
            };
            let (queue, id) = (waiting.queue, waiting.id);
            self.queues.give(queue, id, verdict)?;
        }
        self.queues.tell()?;
        for (packet, interface, room) in too_long {
            self.tell_too_long(&packet, interface, room);
        }
        Ok(())
    }

    fn answer(&mut self, ends: UdpEnds, interface: u32, payload: &[u8]) -> io::Result<()> {
        let ip = Ip::between(ends.server.ip(), ends.client.ip());
        let packet = Packet {
            ip: ip.ok_or(io::ErrorKind::InvalidInput)?,
            transport: Transport::Udp(Udp {
                source: ends.server.port(),
                destination: ends.client.port(),
            }),
            payload: payload.into(),
        };
        let packet = packet.to_vec().map_err(io::Error::other)?;
        self.raw.send(&packet, &self.way(interface))
    }
}

/// The bounds that a leg has, where what finds no tunnel is refused, or passes.
pub(crate) fn bounds(udp: &CarriedUdp, refuses: bool) -> UdpBounds {
    UdpBounds {
        flows: udp.flows,
        idle: udp.idle,
        asks_again: refuses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_wire::{Ipv6, Payload};

    #[test]
    fn an_ipv6_address_that_means_one_of_ipv4_is_not_carried() {
        let carried = |source: &str, destination: &str| {
            let packet = Packet {
                ip: Ip::V6(Ipv6::new(source.parse().unwrap(), destination.parse().unwrap()).into()),
                transport: Transport::Udp(Udp {
                    source: 1024,
                    destination: 443,
                }),
                payload: Payload::Absent,
            };
            datagram(&packet.to_vec().unwrap(), 1, Checksums::Verify).is_some()
        };
        assert!(carried("2001:db8::1", "2001:db8::2"));
        assert!(!carried("2001:db8::1", "::ffff:192.0.2.1"));
        assert!(!carried("::ffff:192.0.2.1", "2001:db8::2"));
        assert!(!carried("2001:db8::1", "ff02::1"));
    }
}
