//! ACK filtering: of a flow's acknowledgements that wait for a slow link only the newest is sent.
//!
//! RFC 3449, section 5.2.2; first in H. Balakrishnan, V. Padmanabhan, R. Katz, "The effects of asymmetry
//! on TCP performance", Mobile Networks and Applications 4 (1999). The agent stands at the sending end
//! of the slow link: at the terminal, where the acknowledgements of a download begin their way back.
//! It paces what it sends at the link's rate, so that packets wait in its own queue and not in the link's, which it could
//! not reach.
//!
//! An acknowledgement that waits as the last packet of its flow, and only acknowledges more data than the one before
//! it, is replaced by the next one that does the same. The newer one takes the place of the older one in the queue: it
//! is not sent later than that would have been, and overtakes no other packet of the flow. Everything else passes in
//! its order: duplicates, window updates and zero windows, SACK blocks, other options, data, SYN, FIN, RST and ECN
//! flags, and what cannot be read. Where the state of a flow is forgotten, one acknowledgement is not replaced.

use crate::{BuildPacket, Pep, SegmentView, Side};
use bentpipe_base::{Bytes, Instant, Machine, Rate, Seq};
use bentpipe_wire::Flags;
use core::convert::Infallible;
use std::collections::{BTreeMap, VecDeque};

/// Parameters of an [`AckFilter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The rate of the link; `None`: no bound, so that nothing ever waits.
    pub rate: Option<Rate>,
    /// Bytes that the link adds to each packet.
    pub overhead: Bytes,
    /// The most packets that may wait. A packet beyond is dropped, as it would be by the link's own queue, in whose place
    /// this one is.
    pub packets: usize,
    /// The most flows that are followed at once.
    pub flows: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate: None,
            overhead: Bytes(0),
            packets: 1000,
            flows: 65_536,
        }
    }
}

/// Counts since the agent began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets passed on, in both directions.
    pub passed: u64,
    /// Acknowledgements that newer ones replaced.
    pub replaced: u64,
    /// Packets for which there was no room.
    pub refused: u64,
    /// Packets that could not be read.
    pub unread: u64,
    /// Most packets that waited at once.
    pub most: u64,
}

/// A flow towards space: its source and its destination.
type Key<E> = (E, E);

struct Flow {
    /// The newest acknowledgement number.
    ack: Seq,
    /// The number of the last packet that arrived.
    last: u64,
    /// Whether that packet may be replaced.
    spare: bool,
}

/// The agent: see the module's head.
pub struct AckFilter<P: BuildPacket> {
    config: Config,
    waiting: VecDeque<P>,
    /// The number of the first packet that waits; packets towards space are numbered as they arrive.
    head: u64,
    flows: BTreeMap<Key<P::Endpoint>, Flow>,
    /// When the link will have sent all that it was given.
    free: Instant,
    out: VecDeque<(Side, P)>,
    buffered: Bytes,
    counters: Counters,
}

impl<P: BuildPacket> AckFilter<P> {
    /// An agent that has seen nothing.
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            waiting: VecDeque::new(),
            head: 0,
            flows: BTreeMap::new(),
            free: Instant::ZERO,
            out: VecDeque::new(),
            buffered: Bytes(0),
            counters: Counters {
                passed: 0,
                replaced: 0,
                refused: 0,
                unread: 0,
                most: 0,
            },
        }
    }

    /// What it has done so far.
    pub const fn tally(&self) -> Counters {
        self.counters
    }

    /// Flows that it knows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Packets that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// For a proxy that has one of these at its side towards space: `packet` comes, if there is one, and what leaves by
    /// `now` is appended to `out`.
    pub(crate) fn offer(&mut self, packet: Option<P>, now: Instant, out: &mut VecDeque<(Side, P)>) {
        match packet {
            Some(packet) => self.enqueue(packet, now),
            None => self.release(now),
        }
        out.append(&mut self.out);
    }

    /// Takes note of a packet towards space; returns the place in the queue of the one that it replaces, if it does.
    fn place(&mut self, packet: &P) -> Option<usize> {
        let Some(view) = packet.view() else {
            self.counters.unread += 1;
            return None;
        };
        let key = (view.source, view.destination);
        let number = self.head + self.waiting.len() as u64;
        // Ports are used again: a SYN begins another connection.
        if view.flags.contains(Flags::SYN) || view.flags.contains(Flags::RST) {
            self.flows.remove(&key);
        }
        let Some(flow) = self.flows.get_mut(&key) else {
            self.learn(key, &view, number);
            return None;
        };
        let advances = view.flags.contains(Flags::ACK) && view.ack > flow.ack;
        if advances {
            flow.ack = view.ack;
        }
        let bare = view.flags == Flags::ACK && view.payload == 0;
        let replaces = bare && advances && flow.spare && flow.last >= self.head;
        if !replaces {
            flow.last = number;
        }
        // Whether this one replaces the older does not depend on whether it may be replaced itself.
        flow.spare =
            bare && advances && view.window > 0 && view.sack.is_empty() && packet.is_plain();
        replaces.then_some((flow.last - self.head) as usize)
    }

    fn learn(&mut self, key: Key<P::Endpoint>, view: &SegmentView<'_, P::Endpoint>, number: u64) {
        let ends = view.flags.contains(Flags::RST) || !view.flags.contains(Flags::ACK);
        if ends || self.config.flows == 0 {
            return;
        }
        if self.flows.len() >= self.config.flows {
            self.flows.clear();
        }
        // The first one seen may be a duplicate of one that passed before it was followed.
        let flow = Flow {
            ack: view.ack,
            last: number,
            spare: false,
        };
        self.flows.insert(key, flow);
    }

    /// Sends the packets for which the link is free.
    fn release(&mut self, now: Instant) {
        while self.free <= now
            && let Some(packet) = self.waiting.pop_front()
        {
            self.head += 1;
            let length = packet.wire_length();
            self.buffered = self.buffered - length;
            if let Some(rate) = self.config.rate {
                self.free += rate.serialisation(length + self.config.overhead);
            }
            self.pass(Side::Space, packet);
        }
    }

    fn pass(&mut self, side: Side, packet: P) {
        self.counters.passed += 1;
        self.out.push_back((side, packet));
    }

    /// There is no room for `packet`: it is dropped, and the next packet that arrives, of whatever flow, has its number.
    fn refuse(&mut self, packet: &P) {
        self.counters.refused += 1;
        let key = packet.view().map(|view| (view.source, view.destination));
        if let Some(flow) = key.and_then(|key| self.flows.get_mut(&key)) {
            flow.spare = false;
        }
    }

    fn enqueue(&mut self, packet: P, now: Instant) {
        self.release(now);
        if self.free < now && self.waiting.is_empty() {
            self.free = now;
        }
        let place = self.place(&packet);
        let old = place.and_then(|at| self.waiting.get_mut(at));
        if let Some(old) = old {
            self.buffered = self.buffered - old.wire_length() + packet.wire_length();
            *old = packet;
            self.counters.replaced += 1;
            return;
        }
        if self.waiting.len() >= self.config.packets && self.free > now {
            self.refuse(&packet);
            return;
        }
        self.buffered += packet.wire_length();
        self.waiting.push_back(packet);
        self.release(now);
        self.counters.most = self.counters.most.max(self.waiting.len() as u64);
    }
}

impl<P: BuildPacket> Machine for AckFilter<P> {
    type Packet = P;
    type Port = Side;
    type Event = Infallible;

    fn input(&mut self, port: Side, packet: P, now: Instant) {
        match port {
            Side::Ground => self.enqueue(packet, now),
            Side::Space => self.pass(Side::Ground, packet),
        }
    }

    fn timeout(&mut self, now: Instant) {
        self.release(now);
    }

    fn transmit(&mut self, _now: Instant) -> Option<(Side, P)> {
        self.out.pop_front()
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.free)
    }
}

impl<P: BuildPacket> Pep for AckFilter<P> {
    fn kind(&self) -> &'static str {
        "ack-filter"
    }

    fn buffered(&self) -> Bytes {
        self.buffered
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Counters {
            passed,
            replaced,
            refused,
            unread,
            most,
        } = self.counters;
        vec![
            ("passed", passed),
            ("replaced", replaced),
            ("refused", refused),
            ("unread", unread),
            ("most", most),
        ]
    }
}
