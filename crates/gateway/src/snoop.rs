//! Helps connections that pass end to end by a policy with `action = "snoop"`: what their link loses is sent again from here.
//!
//! The kernel forwards their packets as it always does, but for a stop in a queue at the end of the forward hook, where
//! [`Snoop`] sees each of them. It lets them go on, keeps a copy of data on its way to the link that loses packets, and
//! holds back the duplicate acknowledgements that would tell the sender of a loss that it repairs itself. Copies leave as the packet
//! did ([`copy_sender`]); a connection whose copies the kernel does not take is left to its sender. When this process ends, when the queue is full, and
//! when the agent has no room, packets go on as without it. While the process hangs they do so too: they come to the queue
//! only as long as this thread holds a position of the gateway's switch, which lapses after [`LIFE`](bentpipe_os::nft::LIFE).

mod copy_sender;
mod held_packet;

use crate::reader_heartbeat::ReaderHeartbeat;
use bentpipe_base::{Instant, Machine, Output};
use bentpipe_gateway_config::{Config, LegId};
use bentpipe_interception::{Interception, Marks, QueueReader, SNOOP_PRIORITY};
use bentpipe_os::nft::{HoldTable, Holding, Hook, TableFamily};
use bentpipe_pep::Side;
use bentpipe_pep::snoop::{self, Snoop};
use bentpipe_relay::{Counters, Lifecycle, Shared};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use bentpipe_sockets::timer;
use copy_sender::{CopySender, NotSent};
use held_packet::HeldPacket;
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;

const QUEUE: u64 = 0;
const WAKE: u64 = 1;
/// Packets that wait at most; those beyond go on unseen.
const MOST: u32 = 4096;
/// Copies that the kernel did not take, and where they were to go; the agent hears of it when it has time.
type Refused = RefCell<Vec<(Side, HeldPacket)>>;

/// Where packets go that wait in the first queue, and in the second.
const DESTINATIONS: [LegId; 2] = [LegId::Lan, LegId::Sat];

/// The agent of one gateway, once it runs.
pub(crate) struct Snooper {
    // In this order: without the table nothing comes to the queues.
    _hold: HoldTable,
    queues: Queues,
    /// The last packet of each queue that goes on, if the kernel does not know it yet.
    passed: [Cell<Option<u32>>; DESTINATIONS.len()],
    sender: CopySender,
    /// The log knows that some copies are not taken.
    logged: Cell<bool>,
    epoll: Epoll,
    heartbeat: ReaderHeartbeat,
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
        (marks, interception): (Marks, &Interception),
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
        let sender = CopySender::open(marks, interception.translates())?;
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
            sender,
            logged: Cell::new(false),
            epoll,
            heartbeat: ReaderHeartbeat::new(
                QueueReader::Snoop,
                interception.switch(),
                Arc::clone(&shared),
            ),
            lossy: config.snoop.toward.lossy(),
            config: snoop::Config::of_gateway(config),
            shared,
            counters,
        })
    }

    /// Works until the gateway stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut agent = Snoop::new(self.config.clone());
        let refused = Refused::default();
        let mut events = Events::with_capacity(2);
        let mut before = agent.tally();
        while self.shared.lifecycle() != Lifecycle::Stopped {
            self.heartbeat.beat();
            let due = agent.deadline().unwrap_or(Instant::MAX);
            let pause = due.min(self.heartbeat.due()).since(timer::now());
            self.epoll.wait(&mut events, Some(pause))?;
            self.take(&mut agent, &refused)?;
            agent.turn(None, timer::now(), |output| self.act(output, &refused));
            tell_refused(&refused, &mut agent);
            // Without a verdict they go when the queue does, as if the link had lost them.
            let _ = self.release();
            let now = agent.tally();
            self.count(&before, &now);
            before = now;
        }
        Ok(())
    }

    /// Shows the agent every packet that has come to wait.
    fn take(&mut self, agent: &mut Snoop<HeldPacket>, refused: &Refused) -> io::Result<()> {
        loop {
            let come = self.queues.receive()?;
            let now = timer::now();
            while let Some(waiting) = self.queues.next_packet() {
                let held = HeldPacket::new(&waiting);
                let from = self.side(destination(&held)).opposite();
                let input = (from, held.clone());
                agent.turn(Some(input), now, |output| self.act(output, refused));
                if held.decide() {
                    let (queue, id) = held.place();
                    // What has gathered may have to be told now; a failure is as at the end of a turn.
                    let _ = self.queues.give(queue, id, Verdict::Drop);
                }
                tell_refused(refused, agent);
            }
            if come < Queues::BATCH {
                return Ok(());
            }
            // While as many come as can be read, there is no end to this.
            let _ = self.release();
            self.heartbeat.beat();
        }
    }

    /// The side of the agent on which a leg is.
    fn side(&self, leg: LegId) -> Side {
        if leg == self.lossy {
            Side::Space
        } else {
            Side::Ground
        }
    }

    /// Lets go on what has just come, and sends again what has gone on before.
    fn act(&self, output: Output<Side, HeldPacket, std::convert::Infallible>, refused: &Refused) {
        let (to, held) = match output {
            Output::Packet(to, held) => (to, held),
            Output::Event(never) => match never {},
        };
        if held.decide() {
            // The agent keeps none back for later: those before it in its queue have gone on, or have been dropped.
            let (queue, id) = held.place();
            self.passed[place(queue)].set(Some(id));
            return;
        }
        // What was let go before goes before: the agent tells a loss by the order in which it sent.
        let _ = self.release();
        match self.sender.send(&held, destination(&held)) {
            Ok(()) => {}
            // Lost as on the link: the next timer, or the sender, helps.
            Err(NotSent::Busy) => self.counters.snoop_unsent.one(),
            Err(NotSent::Refused(why)) => {
                self.counters.snoop_unsent.one();
                if !self.logged.replace(true) {
                    tracing::warn!(
                        "what is lost of connections with `action = \"snoop\"` cannot be sent again: {why}; such connections pass without help"
                    );
                }
                refused.borrow_mut().push((to, held));
            }
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
        counters.snoop_evicted.many(now.evicted - before.evicted);
        counters.snoop_given_up.many(now.given_up - before.given_up);
        counters
            .snoop_unwatched
            .many(now.unwatched - before.unwatched);
    }
}

/// The index of what belongs to a queue.
fn place(queue: u16) -> usize {
    usize::from(queue) % DESTINATIONS.len()
}

/// The leg to which a packet goes.
fn destination(held: &HeldPacket) -> LegId {
    DESTINATIONS[place(held.place().0)]
}

/// Has the agent leave those connections to their senders whose copies the kernel does not take.
fn tell_refused(refused: &Refused, agent: &mut Snoop<HeldPacket>) {
    for (to, held) in refused.borrow_mut().drain(..) {
        agent.refused(to, &held);
    }
}
