//! The table of one worker's pending handshakes: SYNs that are held, and SYNs that were let in and are not confirmed.

use super::{Quota, Quotas, SynBacklogLimit, WaitingSyn, WaitingSyns};
use crate::client_flows::Answered;
use crate::deferred_slab::DeferredSlab;
use crate::flow_guard::FlowGuard;
use crate::tunnel::FarSide;
use bentpipe_base::{Instant, Seq};
use bentpipe_gateway_config::{Ends, Syn};
use bentpipe_sockets::nfqueue::Waiting;
use std::collections::HashMap;
use std::time::Duration;

/// How long the far side has to answer. If the client sends another SYN after that, a new dial begins.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a client has to confirm before the far side, which has accepted, is reset. The listener sends its SYN-ACK
/// at 0, 1 and 3 s.
const CONFIRMATION: Duration = Duration::from_secs(5);
/// How long the kernel keeps a SYN that it has answered (see [`crate::listen`]), plus a second.
const UNCONFIRMED: Duration = Duration::from_secs(16);
/// How long a SYN is remembered whose connection is established, and how many of them at most.
const MEMORY: Duration = Duration::from_secs(4);
const REMEMBERED: usize = 65_536;
/// How long a SYN is remembered that is to pass when it comes again. Clients repeat a SYN after 64 s at most.
const PASSING: Duration = Duration::from_secs(65);
/// SYNs of one source prefix, and to one destination, that may be pending before any client has confirmed.
const INITIAL: usize = 64;
/// Connections to one destination, and from one prefix, that may be unconfirmed before others are
/// answered early: the destination is known to accept.
const UNCONFIRMED_TO_ONE: usize = 16;
const UNCONFIRMED_FROM_ONE: usize = 64;
const UNCONFIRMED_AT_ALL: usize = 256;
/// Linux answers no two SYNs for a connection that stands by a challenge ACK within half a second
/// (`net.ipv4.tcp_invalid_ratelimit`), and has answered the dial's. A client whose SYN passes sooner would hear nothing, and
/// would have to send it again.
const CHALLENGES: Duration = Duration::from_millis(510);
/// When a SYN that was let in comes again so soon, it may have waited in the queue meanwhile.
const PROMPT: Duration = Duration::from_millis(250);
/// When so many of a prefix, or to a destination, were given up recently, or so many at all, new SYNs are answered early.
const SUSPECT: usize = 8;
const SUSPECT_AT_ALL: usize = 64;
/// What a host may have pending whatever others of its prefix have, and a prefix of a destination that is known to accept.
const OWN: usize = 8;

/// A packet in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueuedPacket {
    pub(crate) queue: u16,
    pub(crate) id: u32,
}

impl QueuedPacket {
    pub(crate) fn of(waiting: &Waiting<'_>) -> Self {
        Self {
            queue: waiting.queue,
            id: waiting.id,
        }
    }
}

/// A held SYN, and the dial that decides about it.
#[derive(Debug)]
pub(crate) struct HeldSyn {
    pub(crate) ends: Ends,
    pub(crate) seq: Seq,
    pub(crate) packet: QueuedPacket,
    pub(crate) far: FarSide,
    /// The dial's socket is watched.
    pub(crate) watched: bool,
    pub(crate) begun: Instant,
    /// The SYN has come again meanwhile.
    pub(crate) repeated: bool,
    /// `packet` is not the first copy of the SYN, but one that came after the dial had begun.
    pub(crate) later: bool,
    /// The last copy of the SYN that came, where `packet` is still the first, which the kernel may have dropped.
    pub(crate) spare: Option<QueuedPacket>,
    /// See [`bentpipe_gateway_config::SynOptions`].
    pub(crate) fragments: bool,
    /// The SYN as it came last.
    pub(crate) bytes: Box<[u8]>,
    pub(crate) guard: FlowGuard,
}

/// What is remembered of a SYN that goes on to a listener.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LetIn {
    pub(crate) seq: Seq,
    /// See [`bentpipe_gateway_config::SynOptions`]. It is kept here because the kernel sets DF on the looped copy.
    pub(crate) fragments: bool,
    /// The largest segment that the far side takes, where that is known and the SYN says more.
    pub(crate) segment: Option<u16>,
}

/// A far side that has accepted, and whose client has yet to confirm.
#[derive(Debug)]
pub(crate) struct AcceptedFar {
    pub(crate) side: FarSide,
    /// See [`HeldSyn::watched`].
    pub(crate) watched: bool,
    /// When the client's SYN came.
    pub(crate) begun: Instant,
    pub(crate) guard: FlowGuard,
}

/// A SYN that has gone on to a listener.
#[derive(Debug)]
struct LoopedSyn {
    said: LetIn,
    /// When the SYN was last let in, with which packet, and, where that was the second time, how many answered SYNs the kernel had
    /// dropped by then upon resets.
    looped: Instant,
    packet: QueuedPacket,
    again: Option<u64>,
    /// The kernel had dropped that packet.
    dropped: bool,
    /// The far side that has accepted, and the time until which its client may confirm.
    far: Option<(AcceptedFar, Instant)>,
    /// The client has not confirmed yet.
    waits: bool,
    until: Instant,
}

/// Whether there is room for a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// There may be, when those before it are confirmed.
    Soon,
    Full,
}

/// What is known of a SYN that comes.
#[derive(Debug)]
pub(crate) enum SynStatus {
    /// Nothing is known: the SYN begins a connection.
    New,
    /// A SYN between the same ends is held already. These are the packets that are no longer needed.
    Held([Option<QueuedPacket>; 2]),
    /// The SYN comes again after it was let in.
    Looped,
    /// The SYN was let in twice and has reached no listener, or it would not have come into the queue again; unless its client
    /// has reset the answers, as it would those to somebody who forges its address.
    Lost {
        /// The kernel has dropped answered SYNs upon resets since.
        maybe_reset: bool,
    },
    /// The SYN was dropped earlier, and is to pass now.
    Passes,
}

/// The SYNs of one worker.
#[derive(Debug)]
pub struct HandshakeTable {
    held: DeferredSlab<HeldSyn>,
    /// Where in `held` the SYN of a connection is.
    places: HashMap<Ends, u32>,
    /// SYNs that were let in recently. A copy of one may have waited in the queue while the first became a connection.
    let_in: HashMap<Ends, LoopedSyn>,
    /// SYNs that were dropped and are to pass when they come again, and until when.
    passing: HashMap<Ends, (Seq, Instant)>,
    /// Ends between which a dial was challenged, and until when SYNs between them pass.
    challenged: HashMap<Ends, Instant>,
    /// How many of these wait for their clients, and how many have a far side.
    waiting: usize,
    unconfirmed: usize,
    /// How many of these have a SYN that the kernel dropped and that has not come again yet.
    dropped: usize,
    /// How many were given up recently; the count halves every four seconds.
    abandoned: usize,
    quotas: Quotas,
    pub(crate) waiting_syns: WaitingSyns,
    /// The number of tables (workers) that share the limits.
    tables: usize,
}

impl HandshakeTable {
    /// The table of one of `tables` workers.
    pub fn new(tables: usize) -> Self {
        Self {
            held: DeferredSlab::new(),
            places: HashMap::new(),
            let_in: HashMap::new(),
            passing: HashMap::new(),
            challenged: HashMap::new(),
            waiting: 0,
            unconfirmed: 0,
            dropped: 0,
            abandoned: 0,
            quotas: Quotas::default(),
            waiting_syns: WaitingSyns::new(tables),
            tables,
        }
    }

    /// Whether there is nothing to wait for or to forget.
    pub(crate) fn is_idle(&self) -> bool {
        self.places.is_empty()
            && self.let_in.is_empty()
            && self.passing.is_empty()
            && self.challenged.is_empty()
            && self.abandoned == 0
            && self.waiting_syns.is_empty()
            && self.quotas.are_empty()
    }

    /// What is known of `syn`, which waits with `packet`. Of a SYN that comes again the first is kept too where dials are
    /// `tracked`: conntrack takes the others for a part of the dial. `resets` says how many answered SYNs the kernel has dropped upon
    /// resets.
    pub(crate) fn meet(
        &mut self,
        packet: QueuedPacket,
        syn: &Syn,
        tracked: bool,
        (now, resets): (Instant, fn() -> u64),
    ) -> SynStatus {
        let place = self.places.get(&syn.ends).copied();
        if let Some(held) = place.and_then(|index| self.held.get_mut(index)) {
            // A client that has begun a new connection accepts an answer to that one only.
            held.repeated = true;
            if tracked && held.seq == syn.seq {
                return SynStatus::Held([held.spare.replace(packet), None]);
            }
            held.seq = syn.seq;
            held.later = true;
            let before = std::mem::replace(&mut held.packet, packet);
            return SynStatus::Held([Some(before), held.spare.take()]);
        }
        match self.let_in.get_mut(&syn.ends) {
            Some(before) if before.waits => {
                let dropped = std::mem::take(&mut before.dropped);
                self.dropped -= usize::from(dropped);
                if before.said.seq != syn.seq {
                    // The client has reset the connection that we answered, and begins a new one.
                    (before.said.seq, before.looped, before.again) = (syn.seq, now, None);
                } else if dropped {
                    before.looped = now;
                } else if now.since(before.looped) >= PROMPT {
                    let count = resets();
                    if let Some(earlier) = before.again {
                        let maybe_reset = count != earlier;
                        return SynStatus::Lost { maybe_reset };
                    }
                    (before.looped, before.again) = (now, Some(count));
                }
                if dropped && let Some((_, until)) = &mut before.far {
                    // The client can have the answer from now on, so its time to confirm begins.
                    *until = now + CONFIRMATION;
                }
                before.packet = packet;
                before.until = now + UNCONFIRMED;
                SynStatus::Looped
            }
            Some(before) if before.said.seq == syn.seq => SynStatus::Looped,
            _ => self.meet_passing(syn, now),
        }
    }

    fn meet_passing(&mut self, syn: &Syn, now: Instant) -> SynStatus {
        match self.passing.get_mut(&syn.ends) {
            Some((seq, until)) if *seq == syn.seq => {
                *until = now + PASSING;
                SynStatus::Passes
            }
            _ => SynStatus::New,
        }
    }

    /// Remembers a SYN that is dropped now, so that it passes when it comes again.
    pub(crate) fn pass_next(&mut self, ends: Ends, seq: Seq, now: Instant) {
        if self.passing.len() < REMEMBERED {
            self.passing.insert(ends, (seq, now + PASSING));
        }
    }

    /// Remembers that a dial between `ends` was challenged: all SYNs between them pass for a while, or somebody who forges them would
    /// take the packets of the connection that stands there again and again.
    pub(crate) fn pass_between(&mut self, ends: Ends, now: Instant) {
        if self.challenged.len() < REMEMBERED {
            self.challenged.insert(ends, now + PASSING);
        }
    }

    /// Whether a dial between `ends` was challenged.
    pub(crate) fn was_challenged(&self, ends: &Ends, now: Instant) -> bool {
        self.challenged.get(ends).is_some_and(|until| now < *until)
    }

    /// Whether the limit `half_open` of all tables together leaves room for a SYN between `ends`. One prefix has at
    /// most a quarter of it and one destination half; both begin with [`INITIAL`], beyond which [`OWN`] remain.
    pub(crate) fn room(&self, ends: &Ends, half_open: usize) -> Room {
        let most = half_open.div_ceil(self.tables);
        let (prefix, destination) = self.quotas.of(ends);
        let is_within = self.places.len() + self.waiting < most
            && prefix.pending < most.div_ceil(4)
            && destination.pending < most.div_ceil(2);
        let of_prefix = !self.is_beyond(prefix) || self.quotas.of_host(ends) < OWN;
        let of_destination = !self.is_beyond(destination)
            || destination.is_known_to_accept() && prefix.pending < OWN;
        // Where clients are missing, what is pending may be forged.
        let is_suspect = prefix.abandoned > 0 || destination.abandoned > 0;
        // Who has nothing pending would wait for others to confirm, which a forger of their addresses does not.
        let may_earn = self.quotas.of_host(ends) > 0 && !is_suspect;
        match (is_within, of_prefix && of_destination) {
            (true, true) => Room::Free,
            (true, false) if may_earn && !self.waiting_syns.is_full() => Room::Soon,
            _ => Room::Full,
        }
    }

    /// The packet of the SYN between `ends` that waits for room: it waits no longer.
    pub(crate) fn stop_waiting(&mut self, ends: &Ends) -> Option<QueuedPacket> {
        let place = self.waiting_syns.place_of(|waiting| waiting == ends)?;
        Some(self.waiting_syns.leave(place)?.packet)
    }

    /// The first SYN that has waited for room and has it now.
    pub(crate) fn next_with_room(&mut self, half_open: usize) -> Option<WaitingSyn> {
        if self.waiting_syns.is_empty() || !self.quotas.take_more() {
            return None;
        }
        let has_room = |ends: &Ends| self.room(ends, half_open) == Room::Free;
        let next = self.waiting_syns.place_of(has_room)?;
        // There may be room for others too.
        self.quotas.has_more = true;
        self.waiting_syns.leave(next)
    }

    /// Whether all that it began with and has earned is pending.
    fn is_beyond(&self, quota: Quota) -> bool {
        quota.pending >= INITIAL.div_ceil(self.tables) + quota.credit
    }

    /// Whether the listeners answer one more SYN without a cookie.
    pub(crate) fn fits(&self, backlog: &SynBacklogLimit) -> bool {
        self.places.len() + self.waiting < backlog.capacity
    }

    /// Whether the client of `ends` must first prove that its address is not forged, by being answered early. That protects a
    /// server that accepts; of any other the client is to hear the truth.
    pub(crate) fn wants_proof(&self, ends: &Ends) -> bool {
        let of_each = |all: usize| all.div_ceil(self.tables);
        let (prefix, destination) = self.quotas.of(ends);
        destination.is_known_to_accept()
            && (prefix.abandoned >= SUSPECT
                || destination.abandoned >= SUSPECT
                || self.abandoned >= SUSPECT_AT_ALL
                || self.unconfirmed >= of_each(UNCONFIRMED_AT_ALL)
                || prefix.unconfirmed >= of_each(UNCONFIRMED_FROM_ONE)
                || destination.unconfirmed >= of_each(UNCONFIRMED_TO_ONE)
                || self.is_beyond(destination))
    }

    /// How many SYNs of the client of `ends` and of its prefix are answered early at all workers: so many as wait here, at each of
    /// them.
    pub(crate) fn answered_early(&self, ends: &Ends) -> Answered {
        let (prefix, _) = self.quotas.of(ends);
        Answered {
            of_client: self.quotas.of_host(ends) * self.tables,
            of_prefix: prefix.pending * self.tables,
        }
    }

    /// Holds a SYN; returns its number.
    pub(crate) fn hold(&mut self, held: HeldSyn) -> u32 {
        self.quotas.begin(&held.ends);
        let ends = held.ends;
        let index = self.held.insert(held);
        self.places.insert(ends, index);
        index
    }

    pub(crate) fn held(&mut self, index: u32) -> Option<&mut HeldSyn> {
        self.held.get_mut(index)
    }

    /// Takes a held SYN out of the table.
    pub(crate) fn release(&mut self, index: u32) -> Option<HeldSyn> {
        let held = self.held.remove(index)?;
        self.places.remove(&held.ends);
        self.quotas.end(&held.ends);
        Some(held)
    }

    /// Records that a SYN goes on to a listener. With `far` the far side has accepted; otherwise it is dialled when the
    /// client has confirmed.
    pub(crate) fn let_in(
        &mut self,
        (ends, packet): (Ends, QueuedPacket),
        said: LetIn,
        far: Option<AcceptedFar>,
        now: Instant,
    ) {
        if self.let_in.len() >= REMEMBERED {
            self.let_in.retain(|_, before| before.waits);
        }
        self.quotas.begin(&ends);
        self.waiting += 1;
        if far.is_some() {
            self.quotas.answer(&ends);
            self.unconfirmed += 1;
        }
        let far = far.map(|far| (far, now + CONFIRMATION));
        let until = now + UNCONFIRMED;
        let entry = LoopedSyn {
            said,
            looped: now,
            packet,
            again: None,
            dropped: false,
            far,
            waits: true,
            until,
        };
        self.let_in.insert(ends, entry);
    }

    /// The client of `ends` has confirmed: returns the far side, if that has accepted already.
    pub(crate) fn confirm(&mut self, ends: &Ends, now: Instant) -> Option<AcceptedFar> {
        let entry = self.let_in.get_mut(ends).filter(|entry| entry.waits)?;
        entry.waits = false;
        entry.until = now + MEMORY;
        self.dropped -= usize::from(std::mem::take(&mut entry.dropped));
        self.waiting -= 1;
        self.quotas.end(ends);
        self.quotas.earn(ends);
        let (far, _) = entry.far.take()?;
        self.unconfirmed -= 1;
        self.quotas.reset(ends);
        Some(far)
    }

    /// Whether the SYN between `ends` that was let in said that packets may be cut into fragments.
    pub(crate) fn allows_fragments(&self, ends: &Ends) -> bool {
        self.let_in
            .get(ends)
            .is_some_and(|entry| entry.said.fragments)
    }

    /// What the MSS option of the SYN between `ends` that was let in is lowered to.
    pub(crate) fn segment(&self, ends: &Ends) -> Option<u16> {
        self.let_in.get(ends)?.said.segment
    }

    /// The number of the SYN between `ends` that is held.
    pub(crate) fn place(&self, ends: &Ends) -> Option<u32> {
        self.places.get(ends).copied()
    }

    /// The SYN between `ends` that is held.
    pub(crate) fn held_between(&mut self, ends: &Ends) -> Option<&mut HeldSyn> {
        self.held.get_mut(*self.places.get(ends)?)
    }

    /// The SYN between `ends` has come to no listener: forgets it, and resets the far side; says whether there was one.
    pub(crate) fn lose(&mut self, ends: &Ends) -> bool {
        let Some(entry) = self.let_in.remove(ends).filter(|entry| entry.waits) else {
            return false;
        };
        self.waiting -= 1;
        self.dropped -= usize::from(entry.dropped);
        self.quotas.end(ends);
        if entry.far.is_none() {
            return false;
        }
        self.unconfirmed -= 1;
        self.quotas.reset(ends);
        true
    }

    /// The kernel had dropped these packets before it heard that they were let in: their clients' SYNs come again, as if
    /// for the first time.
    pub(crate) fn were_dropped(&mut self, packets: &[QueuedPacket]) {
        for entry in self.let_in.values_mut() {
            if entry.waits && !entry.dropped && packets.contains(&entry.packet) {
                entry.dropped = true;
                self.dropped += 1;
            }
        }
    }

    /// The ends whose SYNs the kernel has dropped, and which have not come again.
    pub(crate) fn dropped(&self) -> Vec<Ends> {
        if self.dropped == 0 {
            return Vec::new();
        }
        let all = self.let_in.iter().filter(|(_, entry)| entry.dropped);
        all.map(|(ends, _)| *ends).collect()
    }

    /// The numbers of the held SYNs to which `is_meant` applies.
    pub(crate) fn find(&mut self, is_meant: impl Fn(&HeldSyn) -> bool) -> Vec<u32> {
        let mut numbers = self.held.numbers();
        numbers.retain(|index| self.held.get_mut(*index).is_some_and(|held| is_meant(held)));
        numbers
    }

    /// Held SYNs whose far side has been silent for too long.
    pub(crate) fn silent(&mut self, now: Instant) -> Vec<u32> {
        self.find(|held| now.since(held.begun) >= PATIENCE)
    }

    /// Held SYNs that have come again, and whose far side has been silent for `patience`.
    pub(crate) fn silent_for(&mut self, patience: Duration, now: Instant) -> Vec<u32> {
        self.find(|held| {
            let waits = held.repeated && now.since(held.begun) >= patience;
            // An answer may have arrived whose event has not been read yet.
            waits && held.far.is_unanswered()
        })
    }

    /// Held SYNs whose addresses and ports are those of a connection that the far side has already, as soon as it will answer
    /// them too.
    pub(crate) fn challenged(&mut self, now: Instant) -> Vec<u32> {
        self.find(|held| now.since(held.begun) >= CHALLENGES && held.far.is_challenged())
    }

    /// How many far sides there are whose clients are yet to be accepted.
    pub(crate) fn far_sockets(&self) -> usize {
        self.places.len() + self.unconfirmed
    }

    /// Whether any SYN is held.
    pub(crate) fn holds(&self) -> bool {
        !self.places.is_empty()
    }

    /// Forgets expired entries, and resets the far sides whose clients have not confirmed in time; returns how many of
    /// those there were. To be called once a second.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        self.abandoned -= self.abandoned.div_ceil(6);
        self.quotas.age();
        self.passing.retain(|_, (_, until)| now < *until);
        self.challenged.retain(|_, until| now < *until);
        let mut reset = 0;
        self.let_in.retain(|ends, entry| {
            // Where the kernel dropped the SYN, the missing confirmation is no sign of a forger.
            let forged = usize::from(!entry.dropped);
            if entry.far.as_ref().is_some_and(|(_, until)| *until <= now) {
                entry.far = None;
                reset += 1;
                self.abandoned += forged;
                self.unconfirmed -= 1;
                self.quotas.reset(ends);
                if !entry.dropped {
                    self.quotas.lose(ends);
                }
            }
            if now < entry.until {
                return true;
            }
            if entry.waits {
                self.abandoned += forged;
                if !entry.dropped {
                    self.quotas.suspect(ends);
                }
                self.waiting -= 1;
                self.dropped -= usize::from(entry.dropped);
                self.quotas.end(ends);
            }
            false
        });
        reset
    }

    /// Makes the slots of the SYNs that were released so far free for others.
    pub(crate) fn settle(&mut self) {
        self.held.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_nothing_pending_waits_for_nobody() {
        let mut table = HandshakeTable::new(1);
        let ends = |client: &str| -> Ends {
            let client = client.parse().unwrap();
            (client, "192.0.2.1:80".parse().unwrap())
        };
        let many = |port: usize| ends(&format!("10.0.0.1:{}", 1024 + port));
        for port in 0..INITIAL {
            assert_eq!(table.room(&many(port), 1024), Room::Free);
            let packet = QueuedPacket { queue: 0, id: 0 };
            let said = LetIn::default();
            table.let_in((many(port), packet), said, None, Instant::ZERO);
        }
        assert_eq!(table.room(&many(INITIAL), 1024), Room::Soon);
        // Those whose shares are used up by the one above, of its prefix and of others.
        assert_eq!(table.room(&ends("10.0.0.2:1024"), 1024), Room::Full);
        assert_eq!(table.room(&ends("10.0.9.2:1024"), 1024), Room::Full);
    }
}
