//! Helps connections that pass end to end by a policy with `action = "snoop"`: what their link loses is sent again from here.
//!
//! The kernel forwards their packets as it always does, but for a stop in a queue at the end of the forward hook, where
//! [`Snoop`] sees each of them. It lets them go on, keeps a copy of data on its way to the link that loses packets, and
//! holds back the duplicate acknowledgements that would tell the sender of a loss that it repairs itself. Copies that it
//! sends again go out as packets of this machine, by the interface by which the first went. When this process ends, when the queue is full, and
//! when the agent has no room, packets go on as without it. While the process hangs they do so too: they come to the queue
//! only as long as this thread holds a position of the gateway's switch, which lapses after [`LIFE`](bentpipe_os::nft::LIFE).

use bentpipe_base::{Bytes, Instant, Machine, Output};
use bentpipe_gateway_config::{Config, LegId};
use bentpipe_interception::{AdmissionSwitch, Marks, SNOOP_PRIORITY};
use bentpipe_os::nfqueue::{Queues, Verdict, Waiting};
use bentpipe_os::nft::{HoldTable, Holding, Hook, TableFamily};
use bentpipe_pep::snoop::{self, Snoop};
use bentpipe_pep::{Packet, SegmentView, Side};
use bentpipe_relay::{Counters, Lifecycle, Shared};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::raw_ip::RawIp;
use bentpipe_sockets::timer;
use bentpipe_wire::Checksums;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const QUEUE: u64 = 0;
const WAKE: u64 = 1;
/// Packets that wait at most; those beyond go on unseen.
const MOST: u32 = 4096;
/// How often the switch is held again.
const PERIOD: Duration = Duration::from_millis(100);
/// Where packets go that wait in the first queue, and in the second.
const DESTINATIONS: [LegId; 2] = [LegId::Lan, LegId::Sat];

/// The agent of one gateway, once it runs.
pub(crate) struct Snooper {
    // In this order: without the table nothing comes to the queues.
    _hold: HoldTable,
    queues: Queues,
    /// The last packet of each queue that goes on, if the kernel does not know it yet.
    passed: [Cell<Option<u32>>; DESTINATIONS.len()],
    raw: RawIp,
    epoll: Epoll,
    switch: Arc<AdmissionSwitch>,
    /// When the switch is to be held again.
    hold_again: Instant,
    /// The leg on whose far side data is lost.
    lossy: LegId,
    config: snoop::Config,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
}

impl Snooper {
    /// The packets of connections that `config` has snooped by the gateway with `marks` wait from now on, in the calling
    /// thread's namespace.
    ///
    /// # Errors
    /// The kernel cannot hold packets, or lets nobody send whole ones.
    pub(crate) fn new(
        config: &Config,
        (marks, switch): (Marks, Arc<AdmissionSwitch>),
        shared: Arc<Shared>,
        counters: Arc<Counters>,
    ) -> Result<Self, String> {
        let queues = Queues::open_whole(DESTINATIONS.len() as u16, MOST)
            .map_err(|error| format!("no queue ({error})"))?;
        let tags: Vec<_> = (queues.first()..)
            .zip(DESTINATIONS)
            .map(|(number, to)| (marks.snooped(to), number))
            .collect();
        let holding = Holding {
            hook: Hook::Forward,
            place: SNOOP_PRIORITY,
            queues: &tags,
            marked: None,
            looped: None,
        };
        let families = &[TableFamily::Ip, TableFamily::Ip6];
        let hold = HoldTable::load(families, &holding).map_err(|error| error.to_string())?;
        let raw = RawIp::open().map_err(|error| format!("no raw socket ({error})"))?;
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
            passed: Default::default(),
            raw,
            epoll,
            switch,
            hold_again: Instant::ZERO,
            lossy: config.snoop.toward.lossy(),
            config: snoop::Config::of_gateway(config),
            shared,
            counters,
        })
    }

    /// Works until the gateway stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut agent = Snoop::new(self.config.clone());
        let mut events = Events::with_capacity(2);
        let mut before = agent.tally();
        while self.shared.lifecycle() != Lifecycle::Stopped {
            self.hold();
            let due = agent.deadline().unwrap_or(Instant::MAX);
            let pause = due.min(self.hold_again).since(timer::now());
            self.epoll.wait(&mut events, Some(pause))?;
            self.take(&mut agent)?;
            agent.turn(None, timer::now(), |output| self.act(output));
            // Without a verdict they go when the queue does, as if the link had lost them.
            let _ = self.release();
            let now = agent.tally();
            self.count(&before, &now);
            before = now;
        }
        Ok(())
    }

    /// Packets come to the queue for a moment more. Where they do not, for want of the table, they go on.
    fn hold(&mut self) {
        let now = timer::now();
        if self.hold_again <= now {
            self.switch.hold_snooped();
            self.hold_again = now + PERIOD;
        }
    }

    /// Shows the agent every packet that has come to wait.
    fn take(&mut self, agent: &mut Snoop<Held>) -> io::Result<()> {
        loop {
            let come = self.queues.receive()?;
            let now = timer::now();
            while let Some(waiting) = self.queues.next_packet() {
                let (queue, id) = (waiting.queue, waiting.id);
                let held = Held::new(waiting);
                let from = self.side(DESTINATIONS[place(queue)]).opposite();
                let waits = Rc::clone(&held.0);
                agent.turn(Some((from, held)), now, |output| self.act(output));
                if waits.waits.take() {
                    // What has gathered may have to be told now; a failure is as at the end of a turn.
                    let _ = self.queues.give(queue, id, Verdict::Drop);
                }
            }
            if come < Queues::BATCH {
                return Ok(());
            }
            // While as many come as can be read, there is no end to this.
            let _ = self.release();
            self.hold();
        }
    }

    /// The side of the agent on which a leg is.
    fn side(&self, leg: LegId) -> Side {
        match leg == self.lossy {
            true => Side::Space,
            false => Side::Ground,
        }
    }

    /// Lets go on what has just come, and sends again what has gone on before.
    fn act(&self, output: Output<Side, Held, std::convert::Infallible>) {
        let held = match output {
            Output::Packet(_, held) => held.0,
            Output::Event(never) => match never {},
        };
        if held.waits.take() {
            // The agent keeps none back for later: those before it in its queue have gone on, or have been dropped.
            self.passed[place(held.queue)].set(Some(held.id));
            return;
        }
        // What was let go before goes before: the agent tells a loss by the order in which it sent.
        let _ = self.release();
        if self.raw.send(&held.bytes, held.leaves_by).is_err() {
            // Lost as on the link: the next timer, or the sender, helps.
            self.counters.snoop_unsent.one();
        }
    }

    /// Tells the kernel what becomes of all that came so far: one verdict for all of a queue that go on.
    fn release(&self) -> io::Result<()> {
        for (queue, passed) in (0..).zip(&self.passed) {
            if let Some(id) = passed.take() {
                self.queues.give_up_to(queue, id, Verdict::Pass);
            }
        }
        self.queues.tell()
    }

    fn count(&self, before: &snoop::Counters, now: &snoop::Counters) {
        let counters = &self.counters;
        counters.snoop_cached.many(now.cached - before.cached);
        counters.snoop_uncached.many(now.uncached - before.uncached);
        counters
            .snoop_retransmitted
            .many(now.retransmitted - before.retransmitted);
        counters.snoop_timeouts.many(now.timeouts - before.timeouts);
        counters
            .snoop_suppressed
            .many(now.suppressed - before.suppressed);
        counters.snoop_unread.many(now.unread - before.unread);
    }
}

/// The index of what belongs to a queue.
fn place(queue: u16) -> usize {
    usize::from(queue) % DESTINATIONS.len()
}

/// A packet that waits in a queue, or a copy of one that has gone on.
#[derive(Clone)]
struct Held(Rc<Inner>);

struct Inner {
    queue: u16,
    id: u32,
    /// The interface by which the kernel forwards it.
    leaves_by: u32,
    /// It has no verdict yet.
    waits: Cell<bool>,
    bytes: Box<[u8]>,
    /// Its headers; none where they cannot be read.
    packet: Option<bentpipe_wire::Packet>,
}

impl Held {
    fn new(waiting: Waiting<'_>) -> Self {
        Self(Rc::new(Inner {
            queue: waiting.queue,
            id: waiting.id,
            leaves_by: waiting.leaves_by,
            waits: Cell::new(true),
            bytes: waiting.packet.into(),
            packet: bentpipe_wire::Packet::parse_headers(waiting.packet, Checksums::Verify).ok(),
        }))
    }
}

impl Packet for Held {
    type Endpoint = SocketAddr;

    fn view(&self) -> Option<SegmentView<'_, SocketAddr>> {
        self.0.packet.as_ref()?.view()
    }

    fn wire_length(&self) -> Bytes {
        Bytes(self.0.bytes.len() as u64)
    }
}
