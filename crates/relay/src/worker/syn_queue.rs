//! The queue in which the kernel holds clients' SYNs until this worker has decided about them.
//!
//! The verdict on a SYN is to drop it, to let it pass unsplit, or to loop it over `lo` to a listener of this worker. Most
//! often the far side's answer to the dial decides which.

use super::Worker;
use super::tunnelled_flows::tunnels_of;
use crate::counters::{Counter, Counters};
use crate::dial::{DialFor, Dialled, dial, next_hop};
use crate::flow_guard::FlowGuard;
use crate::handshake::{
    AcceptedFar, DescriptorReserve, HandshakeTable, HeldSyn, LetIn, QueuedPacket, Room,
    SynBacklogLimit, SynStatus, WaitingSyn, embryonic_resets,
};
use crate::tunnel::FarSide;
use bentpipe_base::{Instant, Seq};
use bentpipe_gateway_config::{Ends, Handshake, LegId, Syn, lower_mss};
use bentpipe_interception::Marks;
use bentpipe_os::neighbour::Neighbour;
use bentpipe_sockets::epoll::{Event, Interest};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use bentpipe_sockets::{socket, tcp, timer};
use std::io;
use std::time::Duration;

/// More packets than any queue holds.
const QUEUED: usize = 65_536;
/// How often expired SYNs and the kernel's settings are looked at.
const TICK: Duration = Duration::from_secs(1);
/// The event of a dial that has ended, either way.
const ENDED: Interest = Interest::WRITE.and(Interest::ONCE);

/// The kernel's queues of SYNs for one worker, and the SYNs that have come by them.
pub struct SynQueue {
    /// The kernel's queues.
    pub queues: Queues,
    /// For each entrance the leg that its SYNs arrive by, and their profile.
    pub entrances: Vec<(LegId, usize)>,
    /// Our own TCP carries a leg, and speaks SCPS-TP.
    pub carries: bool,
    /// When a SYN is answered.
    pub handshake: Handshake,
    /// The marks of the gateway.
    pub marks: Marks,
    /// How many SYNs the listeners answer without SYN cookies.
    pub backlog_limit: SynBacklogLimit,
    /// The SYNs that have come and are not decided or not confirmed.
    pub table: HandshakeTable,
    /// A descriptor for each client whose far side has one.
    pub reserve: DescriptorReserve,
    /// How many workers there are.
    pub workers: usize,
    /// When expired SYNs were last looked for.
    pub looked: Instant,
}

impl SynQueue {
    /// How long the worker may sleep before it has to look for expired SYNs.
    pub(super) fn tick(&self) -> Option<Duration> {
        (!self.table.is_idle()).then_some(TICK)
    }

    pub(super) fn give(&self, packet: QueuedPacket, verdict: Verdict) {
        warn_of(self.queues.give(packet.queue, packet.id, verdict));
    }

    /// Gives the verdict on `packet`, which is the SYN `bytes` and goes on with an MSS option of at most `segment`: the listener
    /// sends no larger ones then, nor does the answer ask for larger ones (`mss` of `bentpipe-interception`). What the far side has
    /// said holds on the client's path too, as without a gateway: a server may know that the path swallows more.
    fn give_bounded(
        &self,
        packet: QueuedPacket,
        (bytes, segment): (&mut [u8], Option<u16>),
        verdict: Verdict,
    ) {
        let is_changed = segment.is_some_and(|segment| lower_mss(bytes, segment));
        let bytes = is_changed.then_some(&*bytes);
        warn_of(self.queues.give_as(packet.queue, packet.id, verdict, bytes));
    }

    /// The leg that the SYN `packet` came by, and its profile.
    pub(super) fn entrance(&self, packet: QueuedPacket) -> Option<(LegId, usize)> {
        let entrance = usize::from(packet.queue) / self.workers;
        self.entrances.get(entrance).copied()
    }

    /// Why a SYN is to pass unsplit, by the counter of the reason.
    fn refusal<'a>(&self, syn: &Syn, room: Room, counters: &'a Counters) -> Option<&'a Counter> {
        if syn.foreign_option.is_some() || syn.scps && !self.carries {
            return Some(&counters.foreign_options);
        }
        if self.backlog_limit.cookies {
            return Some(&counters.syn_cookies);
        }
        if room != Room::Free {
            return Some(&counters.over_half_open);
        }
        (!self.table.fits(&self.backlog_limit)).then_some(&counters.over_backlog)
    }
}

fn warn_of(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(%error, "SYNs wait until the kernel gives them up");
    }
}

impl Worker {
    /// The queues are readable: handles the SYNs that have come.
    pub(super) fn on_syns(&mut self) -> io::Result<()> {
        if let Some(syn_queue) = &mut self.syn_queue {
            syn_queue.queues.receive()?;
            syn_queue.backlog_limit.look_before(timer::now());
        }
        self.on_gone();
        // It may also have been stopped after it woke up and before it read them.
        if self.freeze_detector.was_frozen() {
            return self.pass_all();
        }
        while let Some(syn_queue) = &mut self.syn_queue
            && let Some(waiting) = syn_queue.queues.next_packet()
        {
            let packet = QueuedPacket::of(&waiting);
            // Of what local senders leave to their network card the kernel has made the checksum for the queue.
            match Syn::parse_forwarded(waiting.packet) {
                Some(syn) => {
                    let bytes = Box::from(waiting.packet);
                    self.on_syn(packet, &syn, bytes);
                }
                None => syn_queue.give(packet, Verdict::Pass),
            }
        }
        if let Some(syn_queue) = &mut self.syn_queue {
            let overrun = syn_queue.queues.take_overrun();
            self.counters.queue_overrun.many(overrun);
        }
        Ok(())
    }

    /// Goes on with the SYNs that have waited for room and have it now.
    fn on_room(&mut self) {
        while let Some(syn_queue) = &mut self.syn_queue
            && let Some(next) = syn_queue.table.next_with_room(self.settings.half_open)
        {
            match Syn::parse_forwarded(&next.bytes) {
                Some(syn) => self.on_syn(next.packet, &syn, next.bytes),
                None => syn_queue.give(next.packet, Verdict::Pass),
            }
        }
    }

    /// Lets all SYNs pass that have been received and are in the queues: this thread was stopped, and their clients have sent again and passed meanwhile.
    pub(super) fn pass_all(&mut self) -> io::Result<()> {
        let Some(syn_queue) = &mut self.syn_queue else {
            return Ok(());
        };
        for late in syn_queue.table.waiting_syns.clear() {
            self.counters.unattended.one();
            syn_queue.give(late.packet, Verdict::Pass);
        }
        let mut left = QUEUED;
        loop {
            while let Some(waiting) = syn_queue.queues.next_packet() {
                let packet = QueuedPacket::of(&waiting);
                self.counters.unattended.one();
                left = left.saturating_sub(1);
                syn_queue.give(packet, Verdict::Pass);
            }
            if left == 0 || syn_queue.queues.receive()? == 0 {
                return Ok(());
            }
        }
    }

    /// Tells the kernel what was decided in this turn, all at once.
    pub(super) fn tell_verdicts(&self) {
        if let Some(syn_queue) = &self.syn_queue {
            warn_of(syn_queue.queues.tell());
        }
    }

    fn on_syn(&mut self, packet: QueuedPacket, syn: &Syn, mut bytes: Box<[u8]>) {
        let (deliver, tracked) = (self.deliver(), self.tracks_dials());
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        let now = (timer::now(), embryonic_resets as fn() -> u64);
        match syn_queue.table.meet(packet, syn, tracked, now) {
            SynStatus::New => {}
            SynStatus::Held(others) => {
                self.counters.repeated.one();
                if let Some(held) = syn_queue.table.held_between(&syn.ends) {
                    held.bytes = bytes;
                }
                let others = others.into_iter().flatten();
                return others.for_each(|other| syn_queue.give(other, Verdict::Drop));
            }
            SynStatus::Passes => {
                self.counters.repeated.one();
                return syn_queue.give(packet, Verdict::Pass);
            }
            SynStatus::Looped => {
                // The listener has answered the first SYN. That answer was lost, or is on its way.
                self.counters.repeated.one();
                let segment = syn_queue.table.segment(&syn.ends);
                return syn_queue.give_bounded(packet, (&mut bytes, segment), deliver);
            }
            SynStatus::Lost { maybe_reset } => return self.on_lost(packet, syn, maybe_reset),
        }
        let before = syn_queue.table.stop_waiting(&syn.ends);
        if let Some(before) = before {
            self.counters.repeated.one();
            syn_queue.give(before, Verdict::Drop);
        }
        let room = syn_queue.table.room(&syn.ends, self.settings.half_open);
        let retired = self.shared.is_retired();
        let may_wait = room == Room::Soon && before.is_none() && !retired;
        if may_wait && syn_queue.refusal(syn, Room::Free, &self.counters).is_none() {
            return syn_queue.table.waiting_syns.enter(WaitingSyn {
                ends: syn.ends,
                packet,
                bytes,
                since: timer::now(),
            });
        }
        let refusal = retired.then_some(&self.counters.unattended);
        let refusal = refusal.or_else(|| syn_queue.refusal(syn, room, &self.counters));
        let limit = || self.shared.limit().map(|limit| self.counters.over(limit));
        let tunnels = { syn_queue.entrance(packet) }
            .and_then(|entrance| tunnels_of(&self.tunnels, &self.settings, entrance));
        let early = tunnels.map_or(syn_queue.handshake == Handshake::Early, |plan| {
            plan.answers_early(syn.ends.0.ip())
        }) || syn_queue.table.wants_proof(&syn.ends);
        let share = || {
            // What is held counts as a flow, what is answered early does not.
            let table = &syn_queue.table;
            let answered = early.then(|| table.answered_early(&syn.ends));
            let has_room = self
                .shared
                .has_room_for(syn.ends.0.ip(), answered.unwrap_or_default());
            (!has_room).then_some(&self.counters.over_client_flows)
        };
        let silence = || {
            let silence = self.shared.unanswered_dials();
            let now = timer::now();
            let is_before = silence.should_pass(&syn.ends, now)
                || syn_queue.table.was_challenged(&syn.ends, now);
            is_before.then_some(&self.counters.unanswered)
        };
        if let Some(counter) = refusal.or_else(limit).or_else(share).or_else(silence) {
            counter.one();
            return syn_queue.give(packet, Verdict::Pass);
        }
        if let Some(plan) = tunnels
            && !plan.tunnels.is_up()
        {
            self.counters.tunnel_down.one();
            return syn_queue.give(packet, syn_queue.without_tunnel(plan));
        }
        if early {
            self.counters.early.one();
            let now = timer::now();
            let said = LetIn {
                seq: syn.seq,
                fragments: syn.service.fragments,
                segment: None,
            };
            syn_queue.table.let_in((syn.ends, packet), said, None, now);
            return syn_queue.give(packet, deliver);
        }
        match tunnels.cloned() {
            Some(plan) => self.ask_for(packet, (syn, bytes), &plan),
            None => self.dial_for(packet, syn, bytes),
        }
    }

    /// Holds a SYN and dials for it.
    fn dial_for(&mut self, packet: QueuedPacket, syn: &Syn, bytes: Box<[u8]>) {
        let tracked = self.tracks_dials();
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        let Some((leg, profile)) = syn_queue.entrance(packet) else {
            return syn_queue.give(packet, Verdict::Pass);
        };
        let leg = &self.settings.legs.of(profile)[leg.other() as usize];
        // Before the dial, whose SYN cannot be taken back.
        let needed = syn_queue.table.far_sockets() + 1;
        let reserved = syn_queue.reserve.keep(needed, &self.epoll);
        let begin = || dial(leg, syn.ends, syn.service, tracked, DialFor::Held);
        let dialled = reserved.and_then(|()| match begin() {
            // The descriptor that is missing may be one that is kept for the next.
            Err(error)
                if socket::is_exhausted(&error) && syn_queue.reserve.keep_at_most(needed) =>
            {
                begin()
            }
            other => other,
        });
        match dialled {
            Ok(dialled) => self.on_dial(packet, (syn, bytes), dialled),
            Err(error) => {
                let verdict = self.on_failure(syn.ends, &error);
                self.give(packet, verdict);
            }
        }
    }

    pub(super) fn give(&self, packet: QueuedPacket, verdict: Verdict) {
        if let Some(syn_queue) = &self.syn_queue {
            syn_queue.give(packet, verdict);
        }
    }

    /// The verdict that loops a SYN to a listener of this worker.
    pub(super) fn deliver(&self) -> Verdict {
        let marks = self.syn_queue.as_ref().map(|syn_queue| syn_queue.marks);
        let mark = marks.map_or(0, |marks| marks.for_worker(self.number));
        Verdict::PassMarked(mark)
    }

    fn on_dial(&mut self, packet: QueuedPacket, (syn, bytes): (&Syn, Box<[u8]>), dialled: Dialled) {
        self.counters.held.one();
        if dialled.other_port {
            self.counters.other_port.one();
        }
        if dialled.control_lost {
            self.counters.other_control.one();
            self.shared.control_lost();
        }
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        let held = HeldSyn {
            ends: syn.ends,
            seq: syn.seq,
            packet,
            far: FarSide::Socket(dialled.socket),
            watched: !dialled.answered,
            begun: timer::now(),
            repeated: false,
            later: false,
            spare: None,
            fragments: syn.service.fragments,
            bytes,
            guard: FlowGuard::new(&self.shared, syn.ends.0.ip()),
        };
        let index = syn_queue.table.hold(held);
        if dialled.answered {
            return self.accept_held(index);
        }
        let far = { syn_queue.table.held(index) }.and_then(|held| held.far.socket());
        let watched = far.map(|far| {
            let token = super::DIAL | u64::from(index);
            self.epoll.add(far, token, ENDED)
        });
        if let Some(Err(error)) = watched {
            tracing::warn!(%error, "cannot watch a dial: its SYN passes unsplit");
            self.counters.over_descriptors.one();
            self.release(index, Verdict::Pass);
        }
    }

    /// A dial failed: returns the verdict on its SYN, which passes, so that the client gets the true answer.
    fn on_failure(&self, (client, server): Ends, error: &io::Error) -> Verdict {
        if socket::is_exhausted(error) {
            self.counters.over_descriptors.one();
            self.shared.out_of_descriptors();
            return Verdict::Pass;
        }
        tracing::debug!(%client, %server, %error, "the far side cannot be dialled");
        match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                self.counters.refused.one();
                self.shared
                    .unanswered_dials()
                    .record_answer(&(client, server), timer::now());
            }
            _ => self.counters.unreachable.one(),
        }
        Verdict::Pass
    }

    /// Handles an event on the socket that was dialled for a held SYN.
    pub(super) fn on_dial_ended(&mut self, event: Event) {
        let index = event.token as u32;
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        let Some(held) = syn_queue.table.held(index) else {
            return;
        };
        let Some(far) = held.far.socket() else {
            return;
        };
        let error = if event.failed() {
            socket::take_error(far).err()
        } else {
            None
        };
        let ends = held.ends;
        if error.is_some() && tcp::tell_rest(far).is_err() {
            // Its error is taken: without this, the pump could not tell a reset from an end.
            return self.release(index, Verdict::Pass);
        }
        if let Some(error) = error
            && !matches!(
                error.kind(),
                // The connection was established, and reset before this event was read; the pump will find the reset.
                io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            )
        {
            let verdict = self.on_failure(ends, &error);
            return self.release(index, verdict);
        }
        self.accept_held(index);
    }

    /// The far side of a held SYN has accepted: the SYN goes on to a listener.
    pub(super) fn accept_held(&mut self, index: u32) {
        let deliver = self.deliver();
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        syn_queue.backlog_limit.look_before(timer::now());
        if syn_queue.backlog_limit.cookies {
            self.counters.syn_cookies.one();
            return self.release(index, Verdict::Pass);
        }
        let Some(mut held) = syn_queue.table.release(index) else {
            return;
        };
        let segment = syn_queue.entrance(held.packet).and_then(|(leg, profile)| {
            let far = &self.settings.legs.of(profile)[leg.other() as usize];
            far.segment_beyond(held.far.socket()?)
        });
        // Its connection waits for the client, whose SYN goes on.
        let far = Some(AcceptedFar {
            side: held.far,
            watched: held.watched,
            begun: held.begun,
            guard: held.guard,
        });
        let now = timer::now();
        let said = LetIn {
            seq: held.seq,
            fragments: held.fragments,
            segment,
        };
        let (packet, other) = match held.spare {
            Some(spare) => (spare, Some(held.packet)),
            None => (held.packet, None),
        };
        syn_queue.table.let_in((held.ends, packet), said, far, now);
        syn_queue.give_bounded(packet, (&mut held.bytes, segment), deliver);
        if let Some(other) = other {
            syn_queue.give(other, Verdict::Drop);
        }
    }

    /// The client of `ends` has confirmed its handshake: returns the far side, if that had accepted before.
    pub(super) fn confirm(&mut self, ends: &Ends) -> Option<AcceptedFar> {
        let syn_queue = self.syn_queue.as_mut()?;
        let confirmed = syn_queue.table.confirm(ends, timer::now())?;
        syn_queue.reserve.keep_about(syn_queue.table.far_sockets());
        self.shared
            .unanswered_dials()
            .record_answer(ends, timer::now());
        Some(confirmed)
    }

    /// Gives up dials to neighbours, or by way of routers, that do not answer ARP or neighbour discovery. If their SYNs
    /// were passed on, the kernel would ask for the neighbour again before it told the client.
    pub(super) fn release_to_dead_neighbours(&mut self, dead_neighbours: &[Neighbour]) {
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        let verdict = Verdict::PassMarked(syn_queue.marks.unreachable());
        for index in syn_queue.table.find(|_| true) {
            let Some(syn_queue) = &mut self.syn_queue else {
                return;
            };
            let held = syn_queue.table.held(index);
            let hop = held.and_then(|held| next_hop(&self.routes, held.far.socket()?, held.ends.1));
            if hop.is_some_and(|hop| dead_neighbours.contains(&hop)) {
                self.counters.unreachable.one();
                self.release(index, verdict);
            }
        }
    }

    /// Gives up all dials for held SYNs, because a successor handles these SYNs when they come again, and could not
    /// dial from the same ports. The held SYNs pass, unless the kernel has dropped them at the successor's start.
    pub(super) fn on_retirement(&mut self) {
        if !self.shared.is_retired() {
            return;
        }
        let held = self
            .syn_queue
            .as_mut()
            .map(|syn_queue| syn_queue.table.find(|_| true));
        for index in held.into_iter().flatten() {
            self.counters.unattended.one();
            self.release(index, Verdict::Pass);
        }
        if let Some(syn_queue) = &mut self.syn_queue {
            for waiting in syn_queue.table.waiting_syns.clear() {
                self.counters.unattended.one();
                syn_queue.give(waiting.packet, Verdict::Pass);
            }
        }
    }

    /// Drops held SYNs whose far side has been silent for too long: the client hears nothing either, as without a gateway.
    pub(super) fn on_syn_tick(&mut self) {
        let now = timer::now();
        self.on_silent_dials(now);
        self.on_room();
        let Some(syn_queue) = &mut self.syn_queue else {
            return;
        };
        if now.since(syn_queue.looked) < TICK {
            return syn_queue.table.settle();
        }
        syn_queue.looked = now;
        syn_queue.backlog_limit.look();
        let reset = syn_queue.table.expire(now);
        while let Some(late) = syn_queue.table.waiting_syns.late(now) {
            self.counters.over_half_open.one();
            syn_queue.give(late.packet, Verdict::Pass);
        }
        for index in syn_queue.table.silent(now) {
            self.counters.abandoned.one();
            self.release(index, Verdict::Drop);
        }
        for _ in 0..reset {
            self.counters.abandoned.one();
        }
        if let Some(syn_queue) = &mut self.syn_queue {
            syn_queue.table.settle();
            syn_queue
                .reserve
                .keep_at_most(syn_queue.table.far_sockets());
        }
    }

    /// Ends a dial, then decides about its SYN, whose answer must not meet the dial's socket.
    pub(super) fn release(&mut self, index: u32, verdict: Verdict) {
        if let Some((packet, syn, later)) = self.end_dial(index) {
            self.after_dial(packet, syn, later, verdict);
        }
    }

    /// Ends a dial; returns its SYN, and whether that came after the dial had begun.
    pub(super) fn end_dial(&mut self, index: u32) -> Option<(QueuedPacket, (Ends, Seq), bool)> {
        let syn_queue = self.syn_queue.as_mut()?;
        let held = syn_queue.table.release(index)?;
        let HeldSyn { packet, ends, .. } = held;
        let (seq, later) = (held.seq, held.later);
        drop((held.far, held.guard));
        syn_queue.reserve.keep_about(syn_queue.table.far_sockets());
        if let Some(spare) = held.spare {
            self.give(spare, Verdict::Drop);
        }
        Some((packet, (ends, seq), later))
    }

    /// The dial between `ends` is closed: gives the verdict on their SYN. It is `later` where that SYN came after the dial had
    /// begun, so that conntrack took it for a part of the dial.
    pub(super) fn after_dial(
        &mut self,
        packet: QueuedPacket,
        (ends, seq): (Ends, Seq),
        later: bool,
        verdict: Verdict,
    ) {
        if !self.tracks_dials() {
            return self.give(packet, verdict);
        }
        self.forget_tracked(ends);
        if verdict != Verdict::Pass || !later {
            return self.give(packet, verdict);
        }
        // Conntrack has taken it for a part of the dial; the next one it takes for a connection of its own.
        self.give(packet, Verdict::Drop);
        if let Some(syn_queue) = &mut self.syn_queue {
            syn_queue.table.pass_next(ends, seq, timer::now());
        }
    }
}
