//! Processing of packets that arrive: finds the connection or listener that each belongs to, or answers for nobody (RFC
//! 9293, section 3.10.7).

use crate::host::{Event, Host};
use crate::listener::ListenerId;
use crate::memory::press;
use crate::table::{ConnectionId, Owner};
use crate::time_wait::Verdict;
use crate::{Tuple, cookie, isn};
use bentpipe_base::{Instant, Seq};
use bentpipe_tcp::{Connection, State};
use bentpipe_wire::{Ecn, Flags, Ip, Packet, Payload, Segment, Transport, protocol};
use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl Host {
    pub(crate) fn receive(&mut self, packet: Packet, now: Instant) {
        let local = packet.ip.destination();
        let remote = packet.ip.source();
        if !self.addresses.contains(&local) || belongs_to_nobody(remote) {
            self.counters.misdirected += 1;
            return;
        }
        match packet.transport {
            Transport::Tcp(tcp) => {
                let tuple = Tuple {
                    local: SocketAddr::new(local, tcp.destination),
                    remote: SocketAddr::new(remote, tcp.source),
                };
                // A packet from an endpoint to itself is a "land" attack, and port 0 belongs to nobody.
                if tuple.local == tuple.remote || tcp.source == 0 || tcp.destination == 0 {
                    self.counters.misdirected += 1;
                    return;
                }
                let segment = Segment::of_header(tcp, packet.payload);
                self.on_segment(&tuple, segment, packet.ip.ecn(), now);
            }
            Transport::Other { protocol } if is_icmp(&packet.ip, protocol) => {
                self.on_icmp(&packet.ip, &packet.payload, now);
            }
            _ => self.counters.foreign += 1,
        }
    }

    fn on_segment(&mut self, tuple: &Tuple, segment: Segment, ecn: Ecn, now: Instant) {
        if let Some(id) = self.table.find(tuple) {
            return self.deliver(id, segment, ecn, now);
        }
        match self.time_waits.input(tuple, &segment, now) {
            Verdict::Unknown => self.on_unknown(tuple, (segment, ecn), None, now),
            Verdict::Opens(after, _) if self.listener(tuple.local).is_some() => {
                self.on_unknown(tuple, (segment, ecn), Some(after), now);
            }
            Verdict::Opens(_, answer) => {
                self.counters.time_wait += 1;
                self.reply(tuple, answer, now);
            }
            Verdict::Drop => self.counters.time_wait += 1,
            Verdict::Answer(answer) => {
                self.counters.time_wait += 1;
                self.reply(tuple, answer, now);
            }
        }
    }

    fn deliver(&mut self, id: ConnectionId, mut segment: Segment, ecn: Ecn, now: Instant) {
        self.counters.delivered += 1;
        let crowded = self.is_crowded();
        let Some(entry) = self.table.get_mut(id) else {
            return;
        };
        // A connection that is over but still held by the application takes no packets; they are for nobody, or for a
        // new connection.
        let over = entry.connection.state() == State::Closed;
        if over && entry.owner == Owner::Application {
            let tuple = entry.tuple;
            return self.reject(&tuple, &segment, now);
        }
        let connection = &entry.connection;
        let kept = connection.readable() == 0 && connection.expects(segment.seq);
        if crowded && !segment.payload.is_empty() && !kept && !segment.flags.contains(Flags::RST) {
            // The data is dropped because memory is short, although the window allowed it; the peer sends it again.
            self.counters.payloads_dropped += 1;
            segment.payload = Payload::Absent;
            let (flags, ends) = (segment.flags.bits(), Flags::FIN | Flags::PSH);
            segment.flags = Flags::from_bits(flags & !ends.bits());
        }
        self.paths
            .heard(entry.tuple.remote.ip(), id, &mut segment, now);
        entry.connection.receive_marked(&segment, ecn, now);
        self.take_events(id, now);
        self.probe_path(id, now);
        self.weigh(id);
        self.wake(id);
    }

    /// A segment of no connection; `after`: the last number of one that had the same four numbers.
    fn on_unknown(
        &mut self,
        tuple: &Tuple,
        (segment, ecn): (Segment, Ecn),
        after: Option<Seq>,
        now: Instant,
    ) {
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            self.counters.stray_resets += 1;
            return;
        }
        let Some(listener) = self.listener(tuple.local) else {
            return self.reject(tuple, &segment, now);
        };
        if flags.contains(Flags::ACK) {
            return self.on_cookie(listener, tuple, (segment, ecn), now);
        }
        if flags.contains(Flags::SYN) && !flags.contains(Flags::FIN) {
            return self.on_syn(listener, tuple, (segment, ecn), after, now);
        }
        // RFC 9293, section 3.10.7.2: neither RST, ACK nor SYN, or what no host sends.
        self.counters.unknown += 1;
    }

    /// Who listens at `local`, by that very address or by all.
    fn listener(&self, local: SocketAddr) -> Option<ListenerId> {
        let unspecified = match local.ip() {
            IpAddr::V4(_) => IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
        };
        let any = SocketAddr::new(unspecified, local.port());
        let found = self.listening.get(&local);
        found.or_else(|| self.listening.get(&any)).copied()
    }

    fn on_syn(
        &mut self,
        at: ListenerId,
        tuple: &Tuple,
        (syn, ecn): (Segment, Ecn),
        after: Option<Seq>,
        now: Instant,
    ) {
        let full = self.table.len() >= self.config.connections;
        let first = self.first_number(tuple, after, now);
        let Some(Some(listener)) = self.listeners.get_mut(at.0) else {
            return;
        };
        if full || listener.is_full() {
            // The SYN is dropped. The client repeats it, and some waiting connection may have been accepted by then.
            self.counters.syns_dropped += 1;
            return;
        }
        let config = Arc::clone(&listener.config);
        if listener.is_crowded() {
            if after.is_some() {
                // The number of a cookie cannot be chosen beyond the old connection's, so its TIME-WAIT entry is
                // removed first.
                self.counters.syns_dropped += 1;
                return;
            }
            listener.cookie_sent = Some(now);
            self.counters.cookies_sent += 1;
            let answer = cookie::answer(&self.secret, tuple, &syn, &config, now);
            let packet = self.packet(tuple, answer);
            self.out.push_back(packet);
            return;
        }
        self.counters.syns += 1;
        let mut connection = Connection::listen(config, first, now);
        connection.set_clock(isn::clock_offset(&self.secret, tuple));
        if self.buffered > self.config.buffered.0 {
            press(&mut connection);
        }
        let opens_early = self.judge_fast_open(at, tuple, &mut connection, &syn, now);
        connection.receive_marked(&syn, ecn, now);
        self.time_waits.remove(tuple);
        let id = self.table.insert(*tuple, connection, Owner::Listener(at));
        if opens_early {
            self.open_early(at, id);
        } else if let Some(Some(listener)) = self.listeners.get_mut(at.0) {
            listener.half_open.insert(id);
        }
        self.wake(id);
    }

    /// An acknowledgement of no connection, to a listener: it may bring a cookie back.
    fn on_cookie(
        &mut self,
        at: ListenerId,
        tuple: &Tuple,
        (ack, ecn): (Segment, Ecn),
        now: Instant,
    ) {
        let full = self.table.len() >= self.config.connections;
        let Some(Some(listener)) = self.listeners.get(at.0) else {
            return;
        };
        if !listener.expects_cookies(now) || ack.flags.contains(Flags::SYN) {
            return self.reject(tuple, &ack, now);
        }
        let config = Arc::clone(&listener.config);
        let Some(handshake) = cookie::check(&self.secret, tuple, &ack, &config, now) else {
            self.counters.cookies_false += 1;
            return self.reject(tuple, &ack, now);
        };
        if full || listener.is_full() {
            // The client believes that it is connected; its data bring the cookie again.
            self.counters.syns_dropped += 1;
            return;
        }
        self.counters.cookies_accepted += 1;
        let mut connection = Connection::taken_over(config, &handshake, now);
        if self.is_crowded() {
            press(&mut connection);
        }
        connection.receive_marked(&ack, ecn, now);
        let id = self.table.insert(*tuple, connection, Owner::Listener(at));
        if let Some(Some(listener)) = self.listeners.get_mut(at.0) {
            listener.waiting.push_back(id);
        }
        self.events.push_back(Event::Incoming(at));
        self.fit_path(id, now);
        self.wake(id);
    }

    /// Answers what belongs to nobody (RFC 9293, section 3.10.7.1).
    fn reject(&mut self, tuple: &Tuple, segment: &Segment, now: Instant) {
        self.counters.unknown += 1;
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            return;
        }
        let reset = if flags.contains(Flags::ACK) {
            Segment {
                seq: segment.ack,
                flags: Flags::RST,
                ..Segment::default()
            }
        } else {
            let space =
                u32::from(flags.contains(Flags::SYN)) + u32::from(flags.contains(Flags::FIN));
            Segment {
                ack: segment.seq + space + segment.payload.len() as u32,
                flags: Flags::RST | Flags::ACK,
                ..Segment::default()
            }
        };
        if self.reply(tuple, reset, now) {
            self.counters.resets_sent += 1;
        }
    }

    /// Sends `segment`, of no connection, unless too many such were sent; whether it was.
    fn reply(&mut self, tuple: &Tuple, segment: Segment, now: Instant) -> bool {
        let may = self.replies.take(now);
        if may {
            let packet = self.packet(tuple, segment);
            self.out.push_back(packet);
        } else {
            self.counters.replies_kept_back += 1;
        }
        may
    }

    fn on_icmp(&mut self, ip: &Ip, payload: &Payload, now: Instant) {
        let Payload::Bytes(body) = payload else {
            self.counters.icmp_ignored += 1;
            return;
        };
        self.on_icmp_message(ip, body, now);
    }
}

const fn is_icmp(ip: &Ip, number: u8) -> bool {
    match ip {
        Ip::V4(_) => number == protocol::ICMP,
        Ip::V6(_) => number == protocol::ICMPV6,
    }
}

/// Addresses that no packet can come from.
pub(crate) fn belongs_to_nobody(address: IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    address.is_unspecified() || address.is_multicast() || broadcast
}
