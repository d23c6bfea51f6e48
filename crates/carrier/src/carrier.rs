//! The thread that carries a leg: its queues, its sockets, and the proxy between them.

use crate::handle::CarrierHandle;
use crate::memory::Memory;
use crate::outgoing::Outgoing;
use crate::packet::{self, Carried, Held};
use bentpipe_base::{Bytes, Instant, Machine, Seq};
use bentpipe_gateway_config::{Config, Leg};
use bentpipe_interception::{AdmissionSwitch, CarrierPlace, Marks, QueueReader};
use bentpipe_os::netlink::{Family, Mark, Netlink, NetlinkError, TurnedBack};
use bentpipe_os::nft::{HoldTable, Holding, Hook, NftError, TableFamily};
use bentpipe_pep::Side;
use bentpipe_pep::split::{self, Counters as Tally, LegError, Resets, Split};
use bentpipe_relay::{Counters, Lifecycle, Shared};
use bentpipe_sockets::epoll::{Epoll, Events, Interest};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use bentpipe_sockets::raw_ip::{self, RawIp, Way};
use bentpipe_sockets::{timer, udp};
use bentpipe_tcp as tcp;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// The packets of the machine's own sockets, and those from space: the order of queues, senders and marks.
const SIDES: [Side; 2] = [Side::Ground, Side::Space];
const HOOKS: [Hook; 2] = [Hook::Output, Hook::Prerouting];
/// Tokens of the epoll set: the queues have their place in [`SIDES`].
const WAKE: u64 = 2;
const ORDERS: u64 = 3;
/// Packets that wait at most in a queue; those beyond go on, as if the carrier were not there.
const MOST: u32 = 4096;
/// How often the switch is held again.
const PERIOD: Duration = Duration::from_millis(100);
/// How often rules and routes are looked after that lead its packets: somebody may remove them (`ip rule flush`).
const LEADING_PERIOD: Duration = Duration::from_secs(1);
/// How often the log hears at most that connections are not carried.
const WARNING_PERIOD: Duration = Duration::from_secs(60);
/// How often the connections that have not ended are counted while the gateway drains.
const DRAIN_PERIOD: Duration = Duration::from_millis(10);
/// What waits for the socket of a connection, and for the link beside the leg's own buffers.
const LOCAL_BUFFER: Bytes = Bytes(512 << 10);
/// The MSS towards a socket of this machine: a packet with its buffer's books fits 16 KiB, where the kernel finds memory at once.
const LOCAL_MSS: u16 = 14_492;
/// Of IPv6 and TCP, which an MSS leaves room for.
const HEADERS: u32 = 60;
/// The first window towards a socket of this machine, in segments: nothing is lost on the way there.
const LOCAL_WINDOW: u32 = 36;

/// How long the bytes before a reset have, as in the relay.
const RESET_GRACE: Duration = Duration::from_secs(5);

/// A leg cannot be carried.
#[derive(Debug, Error)]
pub enum CarrierError {
    /// The leg's settings suit no endpoint.
    #[error(
        "the leg with `carrier = \"scps\"`: {0}; leave `congestion_control` out for the rate control of SCPS-TP"
    )]
    Leg(#[from] LegError),
    /// No packets can be had.
    #[error("packets cannot wait for the carrier: {0}")]
    Hold(#[from] NftError),
    /// No packets lead back to sockets of this machine.
    #[error("packets of the carrier cannot be led to this machine's sockets: {0}")]
    Lead(#[from] NetlinkError),
    /// The kernel refused something small.
    #[error("the carrier has no {what} ({source}): {next}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        source: io::Error,
        /// What to do.
        next: &'static str,
    },
}

fn system(what: &'static str, next: &'static str) -> impl Fn(io::Error) -> CarrierError {
    move |source| CarrierError::System { what, source, next }
}

/// Carries a leg, once it runs.
pub struct Carrier {
    // In this order: without the tables nothing comes to the queues.
    _holds: Vec<HoldTable>,
    queues: [Queues; 2],
    senders: [RawIp; 2],
    ways: [Way; 2],
    led: Vec<TurnedBack>,
    /// When it is seen to that these are there.
    lead_again: Instant,
    epoll: Epoll,
    config: split::Config,
    /// The queue, by its place, with passes that the kernel has not been told of.
    passing: Option<usize>,
    /// Packets of the batch in hand that wait, and that the proxy has not let pass.
    waiting: usize,
    /// What has gathered to leave.
    outgoing: Outgoing,
    /// Packets that were longer than their interface takes, one of each connection: to which side, ends, number, and length.
    too_long: Vec<(Side, (SocketAddr, SocketAddr), Seq, Bytes)>,
    switch: Arc<AdmissionSwitch>,
    /// When the switch is to be held again.
    hold_again: Instant,
    memory: Memory,
    /// When the log may hear again of connections that are not carried.
    warn_again: Instant,
    handle: CarrierHandle,
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    counted: Tally,
}

impl Carrier {
    /// Carries `leg` of the gateway of `config` with `marks`, in the calling thread's namespace. Packets wait at `place`.
    ///
    /// # Errors
    /// The kernel cannot hold packets, or lets nobody send whole ones.
    pub fn new(
        (config, leg): (&Config, &Leg),
        (marks, place, switch): (Marks, CarrierPlace, Arc<AdmissionSwitch>),
        shared: Arc<Shared>,
        counters: Arc<Counters>,
    ) -> Result<Self, CarrierError> {
        let config = endpoints(config, leg)?;
        let kernel = "a kernel with CONFIG_NETFILTER_NETLINK_QUEUE and CONFIG_NFT_QUEUE has";
        let open = || Queues::open_gathered(1, MOST).map_err(system("queue for packets", kernel));
        // What this machine's sockets or its network cards have gathered is one segment here.
        let mut queues = [open()?, open()?];
        let mut holds = Vec::new();
        for (side, queue) in queues.iter().enumerate() {
            let holding = Holding {
                hook: HOOKS[side],
                place: place.priorities()[side],
                queues: &[(marks.to_carry()[side], queue.first())],
                marked: None,
                looped: None,
            };
            holds.push(HoldTable::load(
                &[TableFamily::Ip, TableFamily::Ip6],
                &holding,
            )?);
        }
        let raw = || RawIp::open().map_err(system("raw socket", "it wants CAP_NET_RAW"));
        let led = lead(Mark::exact(marks.carrying()[0]))?;
        let reason = "see the kernel's reason";
        let handle = CarrierHandle::new().map_err(system("eventfd", reason))?;
        let mut watch = || {
            let epoll = Epoll::new()?;
            for (token, queue) in (0..).zip(&mut queues) {
                // When this process is killed, resets by the kernel's sockets are to go out.
                queue.close_first()?;
                epoll.add(&*queue, token, Interest::READ)?;
            }
            epoll.add(shared.wake(), WAKE, Interest::READ | Interest::EDGE)?;
            epoll.add(&handle.0.waker, ORDERS, Interest::READ)?;
            Ok(epoll)
        };
        let epoll = watch().map_err(system("epoll set", reason))?;
        switch.hold_queue(QueueReader::Carrier);
        Ok(Self {
            _holds: holds,
            queues,
            senders: [raw()?, raw()?],
            ways: marks.carrying().map(|mark| Way {
                interface: 0,
                router: None,
                mark,
            }),
            led,
            lead_again: Instant::ZERO,
            epoll,
            config,
            passing: None,
            waiting: 0,
            outgoing: Outgoing::default(),
            too_long: Vec::new(),
            switch,
            hold_again: Instant::ZERO,
            memory: Memory::default(),
            warn_again: Instant::ZERO,
            handle,
            shared,
            counters,
            counted: Tally::default(),
        })
    }

    /// Gives it orders.
    pub fn handle(&self) -> CarrierHandle {
        self.handle.clone()
    }

    /// Works until the gateway stops; then all connections are reset.
    ///
    /// # Errors
    /// It cannot wait for packets any more.
    pub fn run(mut self) -> io::Result<()> {
        let mut proxy = Split::new(self.config.clone());
        let mut events = Events::with_capacity(4);
        while self.shared.lifecycle() != Lifecycle::Stopped {
            self.hold();
            self.tell_memory(&mut proxy);
            let drains = self.shared.lifecycle() == Lifecycle::Draining;
            let due = proxy.deadline().unwrap_or(Instant::MAX);
            let mut pause = due.min(self.hold_again).since(timer::now());
            if drains {
                pause = pause.min(DRAIN_PERIOD);
            }
            self.epoll.wait(&mut events, Some(pause))?;
            let is_ready = |token| events.iter().any(|event| event.token == token);
            // Packets of this machine's sockets go first: their acknowledgements make room.
            for place in 0..SIDES.len() {
                if is_ready(place as u64) {
                    self.take(place, &mut proxy)?;
                }
            }
            if is_ready(ORDERS) {
                self.handle.0.waker.drain();
            }
            let now = timer::now();
            if let Some(is_up) = self.handle.0.take_link() {
                proxy.set_link(is_up, now);
            }
            if proxy.deadline().is_some_and(|due| due <= now) {
                proxy.timeout(now);
            }
            self.send(&mut proxy, now);
            self.count(&proxy.tally());
            if drains {
                self.handle.0.tell(|| proxy.unfinished());
            }
        }
        let now = timer::now();
        proxy.abort_all(now);
        self.send(&mut proxy, now);
        Ok(())
    }

    /// The thread lives: packets from space come to their queue for a moment more, and what is sent to this machine's sockets finds
    /// them.
    fn hold(&mut self) {
        self.shared.reader_beats(QueueReader::Carrier);
        let now = timer::now();
        if self.hold_again > now {
            return;
        }
        self.switch.hold_queue(QueueReader::Carrier);
        self.hold_again = now + PERIOD;
        if self.lead_again > now {
            return;
        }
        self.lead_again = now + LEADING_PERIOD;
        for led in &self.led {
            match led.restore() {
                Ok(false) => {}
                Ok(true) => tracing::warn!(
                    "somebody removed the rule or route of the carrier, or put a rule before its own: it is made again"
                ),
                Err(error) => {
                    tracing::debug!(%error, "the carrier's rule or route cannot be made again")
                }
            }
        }
    }

    /// What the proxy keeps counts towards what may wait in buffers; where that is too much, those who take nothing are reset.
    fn tell_memory(&mut self, proxy: &mut Split<Carried>) {
        let now = timer::now();
        let stalled = self.memory.tell(proxy, &self.shared, now);
        if stalled > 0 {
            self.counters.stalled.many(stalled);
            self.send(proxy, now);
        }
    }

    /// Hands the proxy the packets that have come to wait in the queue number `place`, and sends what it answers to them together: a
    /// batch at most, for while they come as fast as they can be read, the other queue and the timers of pacing have their turn too.
    fn take(&mut self, place: usize, proxy: &mut Split<Carried>) -> io::Result<()> {
        self.queues[place].receive()?;
        let now = timer::now();
        self.waiting = 0;
        let mut last = None;
        while let Some(waiting) = self.queues[place].next_packet() {
            let held = Held {
                place,
                id: waiting.id,
            };
            let packet = packet::read(&waiting);
            self.waiting += 1;
            last = Some(held.id);
            match packet {
                Ok(packet) => {
                    if SIDES[place] == Side::Space
                        && let Some((ends, seq, mtu)) = packet::too_long(&packet)
                    {
                        proxy.lower_path_mtu(Side::Space, ends, (seq, mtu), now);
                    }
                    let waits = Some(held);
                    proxy.input(SIDES[place], Carried { packet, waits }, now);
                }
                Err(error) => {
                    if SIDES[place] == Side::Space
                        && let Some(ends) = packet::damaged(&waiting, error)
                    {
                        proxy.note_damaged(ends);
                    }
                    // Nobody takes what is damaged.
                    self.let_pass(held);
                }
            }
        }
        self.send(proxy, now);
        // What does not pass has been taken.
        if let Some(last) = last.filter(|_| self.waiting > 0) {
            self.queues[place].give_up_to(0, last, Verdict::Drop);
        }
        self.tell(place);
        Ok(())
    }

    /// Sends what the proxy has to send, and lets those of the packets that wait go on that it lets pass. What was longer than its
    /// interface takes, which may be another than before, or have another MTU, is cut anew.
    fn send(&mut self, proxy: &mut Split<Carried>, now: Instant) {
        self.send_made(proxy, now);
        let too_long = std::mem::take(&mut self.too_long);
        for (towards, ends, seq, length) in &too_long {
            if let Some(mtu) = packet::path_mtu(ends.1, *length) {
                proxy.lower_path_mtu(*towards, *ends, (*seq, mtu), now);
            }
        }
        if !too_long.is_empty() {
            self.send_made(proxy, now);
        }
    }

    fn send_made(&mut self, proxy: &mut Split<Carried>, now: Instant) {
        let mut before = 0;
        while let Some((to, carried)) = proxy.transmit(now) {
            if let Some(held) = carried.waits {
                self.let_pass(held);
                continue;
            }
            let place = match to {
                Side::Ground => 0,
                Side::Space => 1,
            };
            if place != before || self.outgoing.is_full() {
                self.flush(before);
            }
            before = place;
            if let Err(error) = self.outgoing.push(&carried.packet) {
                self.counters.carrier_unsent.one();
                tracing::debug!(%error, ?to, "a packet of the carrier cannot be");
            }
        }
        self.flush(before);
    }

    /// Sends the packets that have gathered for the side number `place`.
    fn flush(&mut self, place: usize) {
        if self.outgoing.is_empty() {
            return;
        }
        // A socket would hear a connection's first data before the acknowledgement that passes to it.
        if let Some(passing) = self.passing {
            self.tell(passing);
        }
        let (sender, way, unsent) = (
            &self.senders[place],
            &self.ways[place],
            &self.counters.carrier_unsent,
        );
        let too_long = &mut self.too_long;
        self.outgoing.send(sender, way, |packet, error| {
            // Lost as on the link: it is sent again.
            unsent.one();
            if raw_ip::is_too_long(&error)
                && let Some((ends, seq)) = packet::ends_and_number(packet)
                && !too_long.iter().any(|(_, other, ..)| *other == ends)
            {
                too_long.push((SIDES[place], ends, seq, Bytes(packet.len() as u64)));
            }
            tracing::debug!(%error, place, "a packet of the carrier did not leave");
        });
    }

    /// The packet goes on. The kernel hears of it at [`Carrier::tell`].
    fn let_pass(&mut self, held: Held) {
        self.passing = Some(held.place);
        self.waiting = self.waiting.saturating_sub(1);
        // What has gathered may have to be told now; a failure is as at the end of a turn.
        let _ = self.queues[held.place].give(0, held.id, Verdict::Pass);
    }

    fn tell(&mut self, place: usize) {
        self.passing = None;
        // Without a verdict they are dropped with the queue, as if the link had lost them.
        let _ = self.queues[place].tell();
    }

    fn count(&mut self, now: &Tally) {
        let (before, counters) = (self.counted, &self.counters);
        counters.carried.many(now.scps - before.scps);
        counters.carried_plain.many(now.plain - before.plain);
        counters
            .carrier_sent_again
            .many(now.again_space - before.again_space);
        counters.carrier_snacks.many(now.snacks - before.snacks);
        counters
            .carrier_snacks_sent
            .many(now.snacks_sent - before.snacks_sent);
        counters.carrier_outages.many(now.outages - before.outages);
        let forgotten = now.over_half_open - before.over_half_open;
        let refused = now.refused - before.refused;
        counters.carrier_over_half_open.many(forgotten);
        counters.carrier_over_flows.many(refused);
        if forgotten + refused > 0 && self.warn_again <= timer::now() {
            self.warn_again = timer::now() + WARNING_PERIOD;
            tracing::warn!(
                forgotten,
                refused,
                "connections may not be carried: SYNs from space are more than `half_open`, or connections than `flows`; \
                 see `carrier_over_half_open` and `carrier_over_flows` in the status"
            );
        }
        self.counted = *now;
    }
}

/// The endpoints of the proxy: to sockets of this machine, and over the link.
fn endpoints(config: &Config, leg: &Leg) -> Result<split::Config, LegError> {
    let mut space = split::tcp_config(leg, tcp::Config::linux())?;
    space.keep_alive = Some(config.limits.keepalive);
    let ground = tcp::Config {
        mss: local_mss(),
        initial_window: LOCAL_WINDOW,
        // Its packets are few and long, and its window opens with each acknowledgement.
        delayed_ack: Duration::ZERO,
        receive_buffer: LOCAL_BUFFER,
        send_buffer: LOCAL_BUFFER,
        nagle: false,
        ..tcp::Config::linux()
    };
    Ok(split::Config {
        ground_is_local: true,
        flows: config.limits.flows,
        half_open: Some(config.limits.half_open),
        idle: None,
        // When this process is killed, the kernel resets the far end with the number of what it has handed us last. Within its
        // window the far end asks who is there (RFC 5961), and hears the other host's reset.
        resets: Resets {
            grace: RESET_GRACE,
            within_window: true,
        },
        ..split::Config::new(ground, space)
    })
}

/// The MSS towards sockets of this machine, as far as the loopback interface takes packets so long.
fn local_mss() -> u16 {
    let Ok(most) = udp::path_mtu((Ipv4Addr::LOCALHOST, 9).into()) else {
        return LOCAL_MSS;
    };
    let most = most.saturating_sub(HEADERS).max(1);
    u16::try_from(most).map_or(LOCAL_MSS, |most| most.min(LOCAL_MSS))
}

/// Leads packets with `mark` that this machine sends to itself, by a table that no gateway of this process has.
fn lead(mark: Mark) -> Result<Vec<TurnedBack>, NetlinkError> {
    let netlink = Netlink::open()?;
    let mut led = Vec::new();
    for family in [Family::V4, Family::V6] {
        match turn_back(&netlink, family, mark) {
            // A machine without IPv6 has no such connections.
            Err(_) if family == Family::V6 => {}
            result => led.push(result?),
        }
    }
    Ok(led)
}

fn turn_back(netlink: &Netlink, family: Family, mark: Mark) -> Result<TurnedBack, NetlinkError> {
    let mut slot = 2;
    loop {
        match netlink.turn_back(family, mark, slot) {
            Err(NetlinkError::Refused { source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists && slot > 0 =>
            {
                slot -= 1;
            }
            result => return result,
        }
    }
}
