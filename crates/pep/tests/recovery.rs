//! The agent before a lossy link that keeps the order, with a sender that does nothing but send its
//! window and, in the end, time out, and a receiver with or without SACK.

mod support;

use bentpipe_base::{Instant, Machine, Seq, Stream};
use bentpipe_pep::Side;
use bentpipe_pep::snoop::{Config, Snoop};
use bentpipe_wire::{Packet, SackBlock};
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use support::{MSS, START, ack_at, data, leaving, tcp};

const ONE_WAY: Duration = Duration::from_millis(250);
const SPACING: Duration = Duration::from_millis(2);

struct World {
    agent: Snoop<Packet>,
    now: Instant,
    /// Under way, by time of arrival; a link keeps the order.
    down: VecDeque<(Instant, Packet)>,
    up: VecDeque<(Instant, Packet)>,
    /// When the link is free.
    free: Instant,
    chance: Stream,
    loss: f64,
    sacks: bool,
    arrived: BTreeSet<u32>,
    expected: u32,
    acknowledged: u32,
    dupacks: u32,
    sent: u32,
}

impl World {
    fn new(config: Config, loss: f64, sacks: bool, seed: u64) -> Self {
        Self {
            agent: Snoop::new(config),
            now: Instant::ZERO,
            down: VecDeque::new(),
            up: VecDeque::new(),
            free: Instant::ZERO,
            chance: Stream::new(seed, "link"),
            loss,
            sacks,
            arrived: BTreeSet::new(),
            expected: 0,
            acknowledged: 0,
            dupacks: 0,
            sent: 0,
        }
    }

    fn drain(&mut self) {
        for (side, packet) in leaving(&mut self.agent, self.now) {
            if side == Side::Space {
                self.free = self.free.max(self.now) + SPACING;
                if self.chance.uniform() >= self.loss {
                    self.down.push_back((self.free + ONE_WAY, packet));
                }
            } else {
                let n = tcp(&packet).ack.offset_from(Seq(START)) as u32 / MSS;
                self.dupacks += u32::from(n == self.acknowledged);
                self.acknowledged = self.acknowledged.max(n);
            }
        }
    }

    fn receive(&mut self, packet: &Packet) {
        let n = tcp(packet).seq.offset_from(Seq(START)) as u32 / MSS;
        assert_eq!(*packet, data(n), "a copy is what was sent");
        if n >= self.expected {
            self.arrived.insert(n);
        }
        while self.arrived.remove(&self.expected) {
            self.expected += 1;
        }
        let at = |n: u32| Seq(START) + n * MSS;
        let mut blocks: Vec<SackBlock> = Vec::new();
        for &n in self.arrived.iter().filter(|_| self.sacks) {
            match blocks.last_mut() {
                Some(last) if last.right == at(n) => last.right = at(n + 1),
                _ => blocks.push(SackBlock {
                    left: at(n),
                    right: at(n + 1),
                }),
            }
        }
        blocks.sort_by_key(|block| !(block.left <= at(n) && at(n) < block.right));
        blocks.truncate(3);
        let ack = ack_at(at(self.expected), &blocks);
        self.up.push_back((self.now + ONE_WAY, ack));
    }

    /// Sends `total` segments, at most `window` unacknowledged, and returns how long it took.
    fn run(&mut self, total: u32, window: u32) -> Duration {
        let mut steps = 0;
        while self.acknowledged < total {
            steps += 1;
            assert!(steps < 200_000, "stuck at {} of {total}", self.acknowledged);
            while self.sent < total.min(self.acknowledged + window) {
                self.agent.input(Side::Ground, data(self.sent), self.now);
                self.sent += 1;
                self.drain();
            }
            let heads = [self.down.front(), self.up.front()];
            let next = heads
                .into_iter()
                .flatten()
                .map(|(at, _)| *at)
                .chain(self.agent.deadline());
            self.now = self.now.max(next.min().expect("something is under way"));
            self.agent.timeout(self.now);
            self.drain();
            if let Some(packet) = due(&mut self.down, self.now) {
                self.receive(&packet);
            }
            if let Some(packet) = due(&mut self.up, self.now) {
                self.agent.input(Side::Space, packet, self.now);
                self.drain();
            }
        }
        self.now - Instant::ZERO
    }
}

/// The first packet, if it has arrived.
fn due(line: &mut VecDeque<(Instant, Packet)>, now: Instant) -> Option<Packet> {
    line.front().filter(|(at, _)| *at <= now)?;
    line.pop_front().map(|(_, packet)| packet)
}

/// The sender never helps: what the agent cannot repair would hang.
#[test]
fn the_standard_rules_repair_everything_alone() {
    for seed in 0..20 {
        for sacks in [false, true] {
            for loss in [0.01, 0.1, 0.3] {
                let mut world = World::new(Config::standard(), loss, sacks, seed);
                world.run(500, 100);
                let tally = world.agent.tally();
                // Each loss costs about one retransmission: the geometric mean of further losses,
                // and few that were not needed.
                let needed = 500.0 * loss / (1.0 - loss);
                let repaired = (tally.retransmitted + tally.timeouts) as f64;
                assert!(
                    repaired < needed * 1.6 + 15.0,
                    "{repaired} for {needed}: seed {seed} sack {sacks} loss {loss}"
                );
                assert!(
                    world.dupacks <= 2,
                    "{} dupacks, seed {seed} sack {sacks} loss {loss}",
                    world.dupacks
                );
            }
        }
    }
}

#[test]
fn sack_repairs_many_losses_in_few_round_trips() {
    let mut slow = 0.0;
    for seed in 0..20 {
        let mut world = World::new(Config::standard(), 0.1, true, seed);
        let taken = world.run(2000, 300).as_secs_f64();
        // 2000 segments take 4 s on the link; each window of 300 waits one and a bit round trips.
        slow += taken / 20.0;
    }
    assert!(slow < 15.0, "{slow} s on average");
}

#[test]
fn the_rules_of_ns2_repair_too() {
    for seed in 0..20 {
        let mut world = World::new(Config::ns2(), 0.01, false, seed);
        world.run(500, 60);
        assert!(world.agent.tally().suppressed > 0 || world.agent.tally().retransmitted == 0);
    }
}
