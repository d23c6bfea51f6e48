//! The porter: one thread that holds clients' SYNs and dials the far side.

use super::answered::Answered;
use crate::counters::Counters;
use crate::dial::{Dialled, dial, is_behind};
use crate::mark::Marks;
use crate::shared::{Settings, Shared, Stage};
use crate::slab::Slab;
use crate::watchdog::Standstill;
use bentpipe_base::{Instant, Seq};
use bentpipe_os::epoll::{Epoll, Event, Events, Interest};
use bentpipe_os::nfqueue::{Queues, Verdict};
use bentpipe_os::socket::{self, Dial};
use bentpipe_os::timer;
use bentpipe_policy::Which;
use bentpipe_policy::{Ends, Syn};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Tokens from here on are not dials.
const QUEUE: u64 = 1 << 40;
const WAKE: u64 = 1 << 41;
/// SYNs taken before answers have their turn.
const BATCH: usize = 64;
/// How long the far side, and then the client, has to answer. The next SYN of a client that still
/// waits begins anew.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a SYN that was let in is remembered, and how many are at most.
const MEMORY: Duration = Duration::from_secs(4);
const REMEMBERED: usize = 65_536;
/// How often it is looked for those that have not.
const TICK: Duration = Duration::from_secs(1);

/// What a porter is made of.
pub(crate) struct Plan {
    /// Its place among those that hear of silent neighbours.
    pub(crate) number: usize,
    pub(crate) queues: Queues,
    /// For each queue the leg that its SYNs arrive by, and their profile.
    pub(crate) doors: Vec<(Which, usize)>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) answered: Arc<Answered>,
    pub(crate) marks: Marks,
}

pub(crate) struct Porter {
    plan: Plan,
    settings: Arc<Settings>,
    edition: u64,
    epoll: Epoll,
    held: Slab<Held>,
    /// Where in `held` the SYN of a connection is.
    places: HashMap<Ends, u32>,
    /// SYNs let in of late. One that comes again may have waited in the queue while the first became
    /// a connection.
    let_in: HashMap<Ends, (Seq, Instant)>,
    looked: Instant,
    standstill: Standstill,
}

/// A packet in a queue.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    queue: u16,
    id: u32,
}

/// A SYN in a queue, and the dial that decides about it.
#[derive(Debug)]
struct Held {
    ends: Ends,
    seq: Seq,
    ticket: Ticket,
    far: OwnedFd,
    begun: Instant,
    until: Instant,
}

impl Porter {
    pub(crate) fn new(plan: Plan) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(&plan.queues, QUEUE, Interest::READ)?;
        epoll.add(plan.shared.wake(), WAKE, Interest::READ | Interest::EDGE)?;
        plan.shared.beat(plan.number);
        let edition = plan.shared.edition();
        Ok(Self {
            settings: plan.shared.settings(),
            edition,
            plan,
            epoll,
            held: Slab::new(),
            places: HashMap::new(),
            let_in: HashMap::new(),
            looked: timer::now(),
            standstill: Standstill::new(),
        })
    }

    /// Works until the gateway stops.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        while self.plan.shared.stage() != Stage::Stopped {
            let idle =
                self.places.is_empty() && self.let_in.is_empty() && self.plan.answered.is_empty();
            self.epoll.wait(&mut events, (!idle).then_some(TICK))?;
            if self.standstill.wakes() {
                self.pass_all()?;
            }
            for index in 0..events.len() {
                match events.at(index) {
                    Some(Event { token: QUEUE, .. }) => self.on_syns()?,
                    Some(Event { token: WAKE, .. }) => self.on_wake()?,
                    Some(event) => self.on_answer(event)?,
                    None => {}
                }
            }
            self.expire()?;
            self.held.settle();
        }
        Ok(())
    }

    /// Lets all go that waits in the queues: their clients have sent again, and were let pass.
    fn pass_all(&mut self) -> io::Result<()> {
        for _ in 0..REMEMBERED {
            let Some(waiting) = self.plan.queues.receive()? else {
                return Ok(());
            };
            let ticket = Ticket {
                queue: waiting.queue,
                id: waiting.id,
            };
            self.plan.counters.unattended.one();
            self.give(ticket, Verdict::Pass)?;
        }
        Ok(())
    }

    fn on_syns(&mut self) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(waiting) = self.plan.queues.receive()? else {
                return Ok(());
            };
            let ticket = Ticket {
                queue: waiting.queue,
                id: waiting.id,
            };
            match Syn::parse(waiting.packet) {
                Some(syn) => self.on_syn(ticket, &syn)?,
                None => self.give(ticket, Verdict::Pass)?,
            }
        }
        Ok(())
    }

    fn on_syn(&mut self, ticket: Ticket, syn: &Syn) -> io::Result<()> {
        let counters = &self.plan.counters;
        let place = self.places.get(&syn.ends).copied();
        if let Some(held) = place.and_then(|index| self.held.get_mut(index)) {
            counters.repeated.one();
            // It replaces the one before: a client that has begun anew listens to it alone.
            held.seq = syn.seq;
            let before = std::mem::replace(&mut held.ticket, ticket);
            return self.give(before, Verdict::Drop);
        }
        if self.was_let_in(syn) || self.plan.answered.has(&syn.ends) {
            // Our answer was lost, or is on its way.
            counters.repeated.one();
            return self.give(ticket, self.deliver());
        }
        if syn.foreign_option.is_some() {
            counters.foreign_options.one();
            return self.give(ticket, Verdict::Pass);
        }
        let half_open = self.places.len() + self.plan.answered.len();
        if half_open >= self.settings.half_open {
            counters.over_half_open.one();
            return self.give(ticket, Verdict::Pass);
        }
        if let Some(limit) = self.plan.shared.limit() {
            counters.over(limit).one();
            return self.give(ticket, Verdict::Pass);
        }
        let Some(&(leg, profile)) = self.plan.doors.get(usize::from(ticket.queue)) else {
            return self.give(ticket, Verdict::Pass);
        };
        let (client, server) = syn.ends;
        match dial(
            &self.settings.legs.of(profile)[leg.other() as usize],
            client,
            server,
            syn.service,
        ) {
            Ok(dialled) => self.on_dialled(ticket, syn, dialled),
            Err(error) => {
                self.on_no_dial(syn.ends, &error);
                self.give(ticket, Verdict::Pass)
            }
        }
    }

    fn was_let_in(&self, syn: &Syn) -> bool {
        let before = self.let_in.get(&syn.ends);
        before.is_some_and(|(seq, _)| *seq == syn.seq)
    }

    fn give(&self, ticket: Ticket, verdict: Verdict) -> io::Result<()> {
        self.plan.queues.give(ticket.queue, ticket.id, verdict)
    }

    fn deliver(&self) -> Verdict {
        Verdict::PassMarked(self.plan.marks.answered())
    }

    fn on_dialled(&mut self, ticket: Ticket, syn: &Syn, dialled: Dialled) -> io::Result<()> {
        let counters = &self.plan.counters;
        counters.held.one();
        if dialled.other_port {
            counters.other_port.one();
        }
        if dialled.control_lost {
            counters.other_control.one();
            self.plan.shared.control_lost();
        }
        self.plan.shared.flow_began();
        let begun = timer::now();
        let held = Held {
            ends: syn.ends,
            seq: syn.seq,
            ticket,
            far: dialled.socket,
            begun,
            until: begun + PATIENCE,
        };
        if dialled.begun == Dial::Connected {
            return self.let_in(held);
        }
        let interest = Interest::WRITE | Interest::EDGE;
        let index = self.held.insert(held);
        self.places.insert(syn.ends, index);
        let watched = self.held.get_mut(index).map(|held| {
            let token = u64::from(index);
            self.epoll.add(&held.far, token, interest)
        });
        if let Some(Err(error)) = watched {
            tracing::warn!(%error, "cannot watch a dial: its SYN passes unsplit");
            self.plan.counters.over_descriptors.one();
            return self.release(index, Verdict::Pass);
        }
        Ok(())
    }

    fn on_no_dial(&self, (client, server): Ends, error: &io::Error) {
        let counters = &self.plan.counters;
        if socket::is_exhausted(error) {
            counters.over_descriptors.one();
            return self.plan.shared.out_of_descriptors();
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => counters.refused.one(),
            _ => counters.unreachable.one(),
        }
        tracing::debug!(%client, %server, %error, "the far side cannot be dialled");
    }

    /// The far side of a held SYN has something to say.
    fn on_answer(&mut self, event: Event) -> io::Result<()> {
        let index = event.token as u32;
        let Some(held) = self.held.get_mut(index) else {
            return Ok(());
        };
        let error = match event.failed() {
            true => socket::take_error(&held.far).err(),
            false => None,
        };
        let ends = held.ends;
        match error {
            None if !event.writable() => return Ok(()),
            // It did stand, and was reset before we looked: the worker will see that.
            None => {}
            Some(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ) => {}
            Some(error) => {
                self.on_no_dial(ends, &error);
                return self.release(index, Verdict::Pass);
            }
        }
        let Some(held) = self.take(index) else {
            return Ok(());
        };
        self.epoll.remove(&held.far)?;
        self.let_in(held)
    }

    /// The far side has accepted: its connection waits for the client, whose SYN goes on.
    fn let_in(&mut self, held: Held) -> io::Result<()> {
        let now = timer::now();
        if self.let_in.len() >= REMEMBERED {
            self.let_in.clear();
        }
        self.let_in.insert(held.ends, (held.seq, now + MEMORY));
        let until = now + PATIENCE;
        let answered = &self.plan.answered;
        answered.put(held.ends, held.far, held.begun, until);
        self.give(held.ticket, self.deliver())
    }

    /// There may be new settings, for dials from now on, or silent neighbours.
    fn on_wake(&mut self) -> io::Result<()> {
        self.plan.shared.beat(self.plan.number);
        let edition = self.plan.shared.edition();
        if edition != self.edition {
            self.edition = edition;
            self.settings = self.plan.shared.settings();
        }
        self.on_silent()
    }

    /// Dials to or by neighbours that do not answer are over. Passed on, their SYNs would have the
    /// kernel ask for the neighbour again before it tells the client.
    fn on_silent(&mut self) -> io::Result<()> {
        let told = Verdict::PassMarked(self.plan.marks.unreachable());
        let silent = self.plan.shared.take_silent(self.plan.number);
        if silent.is_empty() {
            return Ok(());
        }
        for index in self.held.numbers() {
            let server = self.held.get_mut(index).map(|held| held.ends.1.ip());
            if server.is_some_and(|server| is_behind(&silent, server)) {
                self.plan.counters.unreachable.one();
                self.release(index, told)?;
            }
        }
        Ok(())
    }

    /// Gives up those who have not answered for too long: to silence, silence.
    fn expire(&mut self) -> io::Result<()> {
        let now = timer::now();
        if now.since(self.looked) < TICK {
            return Ok(());
        }
        self.looked = now;
        for index in self.held.numbers() {
            if self
                .held
                .get_mut(index)
                .is_some_and(|held| held.until <= now)
            {
                self.plan.counters.abandoned.one();
                self.release(index, Verdict::Drop)?;
            }
        }
        self.let_in.retain(|_, (_, until)| now < *until);
        for _ in 0..self.plan.answered.expire(now) {
            self.plan.counters.abandoned.one();
            self.plan.shared.flow_ended();
        }
        Ok(())
    }

    /// Ends a dial, then decides about its SYN, whose answer must not meet the dial's socket.
    fn release(&mut self, index: u32, verdict: Verdict) -> io::Result<()> {
        let Some(Held { ticket, .. }) = self.take(index) else {
            return Ok(());
        };
        self.plan.shared.flow_ended();
        self.give(ticket, verdict)
    }

    fn take(&mut self, index: u32) -> Option<Held> {
        let held = self.held.remove(index)?;
        self.places.remove(&held.ends);
        Some(held)
    }
}
