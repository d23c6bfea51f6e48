//! Thins out the gateway's own acknowledgements for a slow return link (`ack_rate` of the satellite leg).
//!
//! The gateway's sockets acknowledge every second segment of a download. On a link of 50 Mbit/s to the gateway and
//! 0.5 Mbit/s from it, that is more than the return link carries. So the kernel holds acknowledgements without data in a
//! queue, and [`AckFilter`] sends them at `ack_rate`: one that waits is replaced by the next of its flow that
//! acknowledges more. When this process ends or hangs, or the queue is full, packets go on as without it ([`crate::reader_heartbeat`]).

use crate::reader_heartbeat::ReaderHeartbeat;
use bentpipe_base::{Bytes, Instant, Machine, Output, Rate};
use bentpipe_interception::{ACKS_PRIORITY, AdmissionSwitch, Marks, QueueReader};
use bentpipe_os::nft::{HoldTable, Holding, Hook, TableFamily};
use bentpipe_pep::ack_filter::{AckFilter, Config};
use bentpipe_pep::{BuildPacket, Packet, SegmentView, Side, host_of};
use bentpipe_relay::{Counters, Lifecycle, Shared};
use bentpipe_sockets::epoll::{Epoll, Event, Events, Interest};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use bentpipe_sockets::timer;
use bentpipe_wire::{Checksums, Segment};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

const QUEUE: u64 = 0;
const WAKE: u64 = 1;
/// The most packets that wait, here and in the kernel's queue.
const MOST: u32 = 1000;

/// Thins out the acknowledgements of one gateway, once it runs.
pub(crate) struct AckThinner {
    // In this order: without the table nothing comes to the queue.
    _hold: HoldTable,
    queues: Queues,
    epoll: Epoll,
    heartbeat: ReaderHeartbeat,
    config: Config,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
}

impl AckThinner {
    /// Bounds the acknowledgements of a gateway's satellite leg in the calling thread's namespace to `rate`. The
    /// gateway has `marks`, and the link adds `overhead` to each packet.
    ///
    /// # Errors
    /// The kernel cannot hold packets.
    pub(crate) fn new(
        (rate, overhead): (Rate, Bytes),
        marks: Marks,
        switch: Arc<AdmissionSwitch>,
        (shared, counters): (Arc<Shared>, Arc<Counters>),
    ) -> Result<Self, String> {
        let queues = Queues::open(1, MOST).map_err(|error| format!("no queue ({error})"))?;
        let holding = Holding {
            hook: Hook::Output,
            place: ACKS_PRIORITY,
            queues: &[(marks.acknowledging(), queues.first())],
            marked: None,
            looped: None,
        };
        let families = &[TableFamily::Ip, TableFamily::Ip6];
        let hold = HoldTable::load(families, &holding).map_err(|e| e.to_string())?;
        let watch = || {
            let epoll = Epoll::new()?;
            epoll.add(&queues, QUEUE, Interest::READ)?;
            epoll.add(shared.wake(), WAKE, Interest::READ | Interest::EDGE)?;
            Ok(epoll)
        };
        let epoll = watch().map_err(|error: io::Error| error.to_string())?;
        Ok(Self {
            _hold: hold,
            queues,
            epoll,
            heartbeat: ReaderHeartbeat::new(QueueReader::Acks, switch, Arc::clone(&shared)),
            config: Config {
                rate: Some(rate),
                overhead,
                packets: MOST as usize,
                ..Config::default()
            },
            shared,
            counters,
        })
    }

    /// Works until the gateway stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut filter = AckFilter::new(self.config);
        let queues = Rc::new(RefCell::new(self.queues));
        let mut events = Events::with_capacity(2);
        let mut replaced = 0;
        while self.shared.lifecycle() != Lifecycle::Stopped {
            self.heartbeat.beat();
            let due = filter.deadline().unwrap_or(Instant::MAX);
            let pause = due.min(self.heartbeat.due()).since(timer::now());
            self.epoll.wait(&mut events, Some(pause))?;
            let came = |event| matches!(event, Some(Event { token: QUEUE, .. }));
            if (0..events.len()).any(|index| came(events.at(index))) {
                take(&queues, &mut filter)?;
            }
            filter.turn(None, timer::now(), pass);
            // Packets without a verdict are dropped with the queue, as if the link had lost these acknowledgements.
            let _ = queues.borrow().tell();
            let before = std::mem::replace(&mut replaced, filter.tally().replaced);
            self.counters.acks_thinned.many(replaced - before);
        }
        Ok(())
    }
}

fn take(queues: &Rc<RefCell<Queues>>, filter: &mut AckFilter<HeldAck>) -> io::Result<()> {
    queues.borrow_mut().receive()?;
    loop {
        let waiting = {
            let mut queues = queues.borrow_mut();
            let read = |bytes| bentpipe_wire::Packet::parse(bytes, Checksums::Ignore).ok();
            let waiting = queues.next_packet();
            waiting.map(|waiting| (waiting.queue, waiting.id, read(waiting.packet)))
        };
        let Some((queue, id, packet)) = waiting else {
            return Ok(());
        };
        let ticket = Ticket {
            queues: Rc::clone(queues),
            queue,
            id,
            passes: Cell::new(packet.is_none()),
        };
        if let Some(packet) = packet {
            let held = HeldAck {
                packet,
                ticket: Rc::new(ticket),
            };
            filter.turn(Some((Side::Ground, held)), timer::now(), pass);
        }
    }
}

/// Passes on what the filter sends.
fn pass(output: Output<Side, HeldAck, Infallible>) {
    match output {
        Output::Packet(_, held) => held.ticket.passes.set(true),
        Output::Event(never) => match never {},
    }
}

/// A packet in the queue. Its verdict is given when the last reference to it is dropped.
struct Ticket {
    queues: Rc<RefCell<Queues>>,
    queue: u16,
    id: u32,
    passes: Cell<bool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let verdict = if self.passes.get() {
            Verdict::Pass
        } else {
            Verdict::Drop
        };
        // The batch of verdicts may be full and be sent now. A failure means the same as at the end of a turn.
        let _ = self.queues.borrow().give(self.queue, self.id, verdict);
    }
}

#[derive(Clone)]
struct HeldAck {
    packet: bentpipe_wire::Packet,
    ticket: Rc<Ticket>,
}

impl Packet for HeldAck {
    type Endpoint = SocketAddr;
    type Host = IpAddr;

    fn host(end: SocketAddr) -> IpAddr {
        host_of(end.ip())
    }

    fn view(&self) -> Option<SegmentView<'_, SocketAddr>> {
        self.packet.view()
    }

    fn wire_length(&self) -> Bytes {
        self.packet.wire_length()
    }
}

impl BuildPacket for HeldAck {
    fn segment(&self) -> Option<Segment> {
        self.packet.segment()
    }

    fn is_plain(&self) -> bool {
        self.packet.is_plain()
    }

    fn ip_header(&self) -> Option<u16> {
        self.packet.ip_header()
    }

    fn build(_: SocketAddr, _: SocketAddr, _: Segment, _: Bytes) -> Option<Self> {
        None
    }
}
