//! Takes memory back from stalled flows, whose receivers read nothing, while memory is short
//! ([`mod@crate::memory_pressure`]).
//!
//! Once a second each worker looks at its flows that have a full pump, at those that are closing, and at those whose sockets hold
//! more than is left to a flow: all of a download may have fit into the send buffer of a receiver that reads nothing, and what
//! has come out of order is in the receive buffer and cannot be read. What a carrier keeps in the place of the kernel's TCP
//! counts as if it were in the buffers of the leg's socket. A flow is stalled
//! when its receiver has acknowledged next to nothing for [`PAUSE`]. It is then shrunk: the bytes that wait are kept,
//! and no more are read. If the stalled flows of one client hold more than its share, then its other full flows and its
//! new ones are shrunk too. When three quarters of the bound are in use, flows are reset, the longest stalled first: those of
//! clients over their shares after a tenth of the configured time, but for one of each client, and then any after
//! all of that time. So nobody loses its only stalled flow early because many others have some, whose shares make its own
//! smaller than what a flow holds. A flow whose receiver reads again gets its room back.

use super::Worker;
use crate::client_identity::Client;
use crate::flow::{Flow, Phase, Side};
use crate::memory_pressure::{CarriedBytes, CarriedConnections, StalledBytes, StalledShares};
use crate::socket_policy::{End, LegPolicies};
use bentpipe_base::{Bytes, Instant};
use bentpipe_sockets::{socket, tcp, timer};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How often flows are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// A receiver that has acknowledged less than [`NOTHING`] for so long counts as stalled.
const PAUSE: Duration = Duration::from_secs(2);
/// Fewer bytes than this count as none, because a receiver that reads a byte now and then keeps as much memory occupied
/// as one that reads none.
const NOTHING: Bytes = Bytes(16 << 10);
/// A receiver that at its present pace would need longer than so many times [`PAUSE`] for the bytes that wait counts as
/// slow.
const LONG: u64 = 8;
/// A stalled flow of a client over its share that has others is reset after this fraction (one tenth) of the configured time.
const PART: u32 = 10;

/// What is known of a pump that is full or whose sockets hold much, or was shrunk.
#[derive(Debug)]
struct Watched {
    /// When its flow began. It tells whether the slot with this number has been given to another flow since.
    begun: Instant,
    client: Client,
    /// Bytes that the receiver had acknowledged at `since`.
    acked: Bytes,
    since: Instant,
    /// Bytes that it had acknowledged at a later time, at most [`PAUSE`] ago, by which its pace is measured.
    paced: (Bytes, Instant),
    /// The bytes that wait are too many for the pace between the last two of these times.
    slow: bool,
    looked: Instant,
    /// Bytes that wait in the pump.
    held: u64,
}

/// The pumps that a worker watches, by flow number and the side that they read from; empty while memory is not
/// short.
#[derive(Debug, Default)]
pub(super) struct Stalled {
    pumps: HashMap<(u32, Side), Watched>,
    looked: Option<Instant>,
    /// What stalled flows of all workers held at the last look.
    shares: StalledShares,
}

/// A flow of which a pump is stalled or slow.
#[derive(Clone, Copy, Debug)]
struct StalledFlow {
    index: u32,
    client: Client,
    /// Bytes that wait in its pumps.
    held: u64,
    /// Since when the receiver that is longest stalled has taken next to nothing.
    since: Instant,
}

impl Stalled {
    fn is_over_share(&self, client: Client) -> bool {
        let bytes = self.shares.bytes.get(&client);
        bytes.is_some_and(|bytes| *bytes > self.shares.share)
    }

    /// The flows that hold too much, the longest stalled first.
    fn flows(&self, now: Instant) -> Vec<StalledFlow> {
        let mut flows = HashMap::<u32, StalledFlow>::new();
        let pumps = self.pumps.iter();
        for ((index, _), pump) in pumps.filter(|(_, pump)| pump.holds_too_much(now)) {
            let flow = flows.entry(*index).or_insert(StalledFlow {
                index: *index,
                client: pump.client,
                held: 0,
                since: pump.since,
            });
            flow.held += pump.held;
            flow.since = flow.since.min(pump.since);
        }
        let mut flows: Vec<_> = flows.into_values().collect();
        flows.sort_unstable_by_key(|flow| flow.since);
        flows
    }

    /// How many of these flows of a client may be reset before the configured time: all but the last of each client.
    fn spare(&self, flows: &[StalledFlow]) -> HashMap<Client, usize> {
        let mut spare = HashMap::<Client, usize>::new();
        for flow in flows {
            *spare.entry(flow.client).or_default() += 1;
        }
        for (client, count) in &mut spare {
            *count -= usize::from(!self.shares.elsewhere.contains(client));
        }
        spare
    }
}

impl Worker {
    /// How long the worker may sleep for the sake of stalled flows.
    pub(super) fn stalled_tick(&self) -> Option<Duration> {
        let due = self.shared.memory().is_under_pressure() || !self.stalled.pumps.is_empty();
        due.then_some(LOOK)
    }

    /// Looks at pumps that hold something, shrinks those that are stalled, and resets flows where memory has to be reclaimed.
    pub(super) fn on_stalled(&mut self) {
        if self.stalled_tick().is_none() {
            return;
        }
        let now = timer::now();
        let early = |last: Instant| now.since(last) < LOOK;
        if self.stalled.looked.is_some_and(early) {
            return;
        }
        self.stalled.looked = Some(now);
        self.watch_pumps(now);
        let stalled = self.stalled.flows(now);
        let mut bytes = StalledBytes::new();
        for flow in &stalled {
            *bytes.entry(flow.client).or_default() += flow.held;
        }
        self.stalled.shares = self.shared.memory().report_stalled(self.number, bytes);
        self.resize_pumps(now);
        self.make_room(&stalled, now);
    }

    /// Gives a new flow less room from the start if memory is short and its client's stalled flows hold more than its
    /// share.
    pub(super) fn begin_shrunk(&mut self, index: u32) {
        if self.stalled.shares.bytes.is_empty() || !self.shared.memory().is_under_pressure() {
            return;
        }
        let Some(flow) = self.flows.get_mut(index) else {
            return;
        };
        let Ok(client) = client(flow) else {
            return;
        };
        if !self.stalled.is_over_share(client) {
            return;
        }
        let now = timer::now();
        for side in Side::BOTH {
            let watched = Watched {
                begun: flow.begun,
                client,
                acked: Bytes(0),
                since: now,
                paced: (Bytes(0), now),
                slow: false,
                looked: now,
                held: 0,
            };
            self.stalled.pumps.insert((index, side), watched);
            self.counters.shrunk.one();
            set_room(flow, side, &self.settings.legs, true);
        }
    }

    fn watch_pumps(&mut self, now: Instant) {
        let pumps = &mut self.stalled.pumps;
        if self.shared.memory().is_under_pressure() {
            let much = self.shared.memory().worth_watching(self.shared.flows());
            let carried = self.shared.memory().carried();
            for (index, flow) in self.flows.iter_mut() {
                let always = match flow.phase {
                    Phase::Open => Side::BOTH.map(|side| flow.pump(side).is_full()),
                    Phase::Closing | Phase::Delivering { .. } => [true; 2],
                    Phase::Dialling | Phase::ResetPending { .. } => continue,
                };
                // A socket whose state cannot be read is about to fail; the flow ends then.
                let Ok(waiting) = waiting(flow, &carried) else {
                    continue;
                };
                for (side, always) in Side::BOTH.into_iter().zip(always) {
                    let (source, sink) = (&waiting[side as usize], &waiting[side.other() as usize]);
                    let held = source.received() + sink.queued() + flow.pump(side).waiting();
                    if always || held >= much {
                        let has = (held, sink.carried.sent);
                        let _ = watch(pumps.entry((index, side)), flow, (side, has), now);
                    }
                }
            }
        }
        // Pumps that are not watched any more remain in the table until `resize_pumps` has given them their room back.
    }

    /// Shrinks the pumps that hold too much, and gives the others their usual room.
    fn resize_pumps(&mut self, now: Instant) {
        let mut pumps = std::mem::take(&mut self.stalled.pumps);
        let short = self.shared.memory().is_under_pressure();
        pumps.retain(|(index, side), watched| {
            let Some(flow) = self.flows.get_mut(*index) else {
                return false;
            };
            if flow.begun != watched.begun {
                return false;
            }
            let over = short && self.stalled.is_over_share(watched.client);
            let shrunk = over || watched.holds_too_much(now);
            if flow.pump(*side).shrunk != shrunk {
                if shrunk {
                    self.counters.shrunk.one();
                }
                set_room(flow, *side, &self.settings.legs, shrunk);
            }
            shrunk || watched.looked == now
        });
        self.stalled.pumps = pumps;
    }

    /// Resets flows of `stalled` until enough memory is reclaimed: first those of clients that hold more than their shares by
    /// several, then those that have been stalled for the configured time; of each the longest stalled first.
    fn make_room(&mut self, stalled: &[StalledFlow], now: Instant) {
        let load = self.shared.memory();
        // Each worker reclaims an equal part.
        let wanted = load.to_reclaim().div_ceil(load.workers());
        if wanted == 0 {
            return;
        }
        let bound = self.settings.stalled;
        let soon = (bound / PART).max(PAUSE).min(bound);
        let mut spare = self.stalled.spare(stalled);
        let mut given = 0;
        for flow in stalled.iter().filter(|flow| now.since(flow.since) >= soon) {
            let left = spare.entry(flow.client).or_default();
            if given < wanted && *left > 0 && self.stalled.is_over_share(flow.client) {
                *left -= 1;
                given += self.give_up(flow);
            }
        }
        for flow in stalled.iter().filter(|flow| now.since(flow.since) >= bound) {
            if given < wanted {
                given += self.give_up(flow);
            }
        }
    }

    /// Resets a stalled flow, unless that was done already; returns how many bytes it held.
    fn give_up(&mut self, flow: &StalledFlow) -> u64 {
        if self.flows.get_mut(flow.index).is_none() {
            return 0;
        }
        if let Some(bytes) = self.stalled.shares.bytes.get_mut(&flow.client) {
            *bytes = bytes.saturating_sub(flow.held);
        }
        self.counters.stalled.one();
        self.drop_flow(flow.index);
        flow.held
    }
}

impl Watched {
    /// Whether the receiver is stalled, or slow for the bytes that wait.
    fn holds_too_much(&self, now: Instant) -> bool {
        self.looked == now && (self.slow || now.since(self.since) >= PAUSE)
    }
}

/// The client that began a flow. Our socket towards the server is bound to the client's address.
fn client(flow: &Flow) -> io::Result<Client> {
    let address = socket::local_address(flow.socket(Side::Far))?;
    Ok(Client::of(address.ip()))
}

/// What waits at a socket of a flow.
struct Waiting {
    socket: socket::Waiting,
    /// In what carries its leg.
    carried: CarriedBytes,
}

impl Waiting {
    fn of(socket: BorrowedFd<'_>, carried: &CarriedConnections) -> io::Result<Self> {
        let of_ends = || {
            let ends = (
                socket::local_address(socket).ok()?,
                socket::peer_address(socket).ok()?,
            );
            carried.get(&ends).copied()
        };
        let carried = if carried.is_empty() { None } else { of_ends() };
        Ok(Self {
            socket: socket::waiting(socket)?,
            carried: carried.unwrap_or_default(),
        })
    }

    fn received(&self) -> u64 {
        self.socket.received.0 + self.carried.received
    }

    fn queued(&self) -> u64 {
        self.socket.queued.0 + self.carried.sent
    }
}

/// What waits at the sockets of a flow, by side.
fn waiting(flow: &Flow, carried: &CarriedConnections) -> io::Result<[Waiting; 2]> {
    Ok([
        Waiting::of(flow.socket(Side::Near), carried)?,
        Waiting::of(flow.socket(Side::Far), carried)?,
    ])
}

/// Records the state of the pump that reads from `side`, where so many bytes are held, and a carrier has so many of them that
/// it has acknowledged in the receiver's place.
fn watch(
    entry: Entry<'_, (u32, Side), Watched>,
    flow: &mut Flow,
    (side, (held, carried)): (Side, (u64, u64)),
    now: Instant,
) -> io::Result<()> {
    let taken = tcp::info(flow.socket(side.other()))?.bytes_acked;
    let acked = Bytes(taken.0.saturating_sub(carried));
    let begun = flow.begun;
    let new = |client| Watched {
        begun,
        client,
        acked,
        since: now,
        paced: (acked, now),
        slow: false,
        looked: now,
        held,
    };
    match entry {
        Entry::Occupied(mut seen) if seen.get().begun == begun => {
            let seen = seen.get_mut();
            (seen.looked, seen.held) = (now, held);
            let (before, then) = seen.paced;
            if now.since(then) >= PAUSE {
                seen.slow = held / LONG > acked.0.saturating_sub(before.0);
                seen.paced = (acked, now);
            }
            if acked.0.saturating_sub(seen.acked.0) >= NOTHING.0 {
                (seen.acked, seen.since) = (acked, now);
            }
        }
        entry => {
            entry.insert_entry(new(client(flow)?));
        }
    }
    Ok(())
}

/// Gives the pump that reads from `side`, and both its sockets, less room or the usual one.
fn set_room(flow: &mut Flow, side: Side, legs: &LegPolicies, shrunk: bool) {
    let (outward, legs) = (flow.outward(side), legs.of(flow.profile()));
    let (pump, from, to) = flow.parts(side);
    pump.shrunk = shrunk;
    let result = legs[outward.other() as usize]
        .resize(from, End::Receives, shrunk)
        .and_then(|()| legs[outward as usize].resize(to, End::Sends, shrunk));
    if let Err(error) = result {
        tracing::debug!(%error, "a connection keeps its buffers");
    }
}
