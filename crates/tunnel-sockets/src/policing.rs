//! Whether a sender that goes on whatever is lost meets a policer: something on the way that drops what is beyond a rate, and delays nothing.
//!
//! Two rounds in a row, a round-trip time each, of which more than a fifth is lost are more than a link corrupts, in bursts too. Then the pace falls to
//! nine tenths of what got through. Behind a policer the losses end with that; where as much is lost as before, it was the link, and the pace
//! comes back. A limit is lifted after a while, and after twice as long each time that it proves to be needed still.

use bentpipe_base::{Bytes, Instant, Probability, Rate};
use core::time::Duration;

/// A round is no shorter, and has at least so many packets.
const ROUND: Duration = Duration::from_millis(250);
const PACKETS: u64 = 150;
/// A round that has them only after so long is none.
const ROUND_MOST: Duration = Duration::from_secs(3);
/// The share that is too much, at least and at most, and in shares that the link is said to lose.
const SHARE: f64 = 0.2;
const SHARE_MOST: f64 = 0.6;
const TIMES: f64 = 4.0;
/// So many rounds in a row, of so many packets altogether: of fewer, a few bursts of a lossy link may be a fifth.
const ROUNDS: u8 = 2;
const PACKETS_IN_ROW: u64 = 600;
/// The part of what got through that is sent then, and the least.
const PART: f64 = 0.9;
const LEAST: Rate = Rate::from_bits_per_sec(64_000);
/// Where it was no policer, more than this part of the share is lost still, of at least so many packets.
const LEFT: f64 = 0.5;
const JUDGED: u64 = 20;
/// How long a limit holds at first and at most.
const HOLD: Duration = Duration::from_secs(30);
const HOLD_MOST: Duration = Duration::from_secs(3600);

/// What a connection has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) bytes: Bytes,
    /// Packets found lost.
    pub(crate) lost: u64,
    /// Its smoothed round-trip time.
    pub(crate) srtt: Duration,
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is policed, as it seems: that much gets through, and no more is to be sent.
    Policed(Rate),
    /// It was the link: the pace is to be as before.
    Refuted,
    /// The limit is lifted, to see whether it is needed still.
    TriedAgain,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Free,
    Limited(Limit),
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    since: Instant,
    /// The share that was lost before.
    share: f64,
    /// When the losses of the old pace were all told, and what had been done until then.
    settled: Option<(Instant, Sent)>,
    is_confirmed: bool,
}

/// What a round has come to.
struct Round {
    /// The share that was lost of the round before, whose losses this one tells.
    share: f64,
    /// Its packets, and what of it got through.
    packets: u64,
    delivered: Rate,
}

/// Cuts what is sent into rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    began: Instant,
    mark: Sent,
    /// Packets and bytes of the round before, and how long it took; `None`: they were too few.
    before: Option<(u64, Bytes, Duration)>,
}

impl Rounds {
    fn begin(&mut self, sent: Sent, now: Instant) {
        *self = Self {
            began: now,
            mark: sent,
            before: None,
        };
    }

    fn look(&mut self, sent: Sent, now: Instant) -> Option<Round> {
        let took = now.since(self.began);
        let packets = sent.packets.saturating_sub(self.mark.packets);
        if took < sent.srtt.max(ROUND) || (packets < PACKETS && took < ROUND_MOST) {
            return None;
        }
        let lost = sent.lost.saturating_sub(self.mark.lost);
        let bytes = Bytes(sent.bytes.0.saturating_sub(self.mark.bytes.0));
        let before = self.before;
        *self = Self {
            began: now,
            mark: sent,
            before: (packets >= PACKETS).then_some((packets, bytes, took)),
        };
        let (packets, bytes, took) = before?;
        let share = (lost as f64 / packets as f64).min(1.0);
        let bits = bytes.0 as f64 * 8.0 * (1.0 - share) / took.as_secs_f64();
        Some(Round {
            share,
            packets,
            delivered: Rate::from_bits_per_sec(bits as u64),
        })
    }
}

/// The packets that one end of a connection sends.
#[derive(Clone, Debug)]
pub(crate) struct Policing {
    /// The share that is too much.
    heavy: f64,
    state: State,
    rounds: Rounds,
    /// Rounds in a row of which too much was lost, and their packets.
    in_row: (u8, u64),
    hold: Duration,
    /// When the last limit ended.
    freed: Option<Instant>,
    /// Losses are the link's until then.
    ignores: Instant,
}

impl Policing {
    /// For a link that loses `expected` of its packets.
    pub(crate) fn new(expected: Probability) -> Self {
        Self {
            heavy: (expected.value() * TIMES).clamp(SHARE, SHARE_MOST),
            state: State::Free,
            rounds: Rounds::default(),
            in_row: (0, 0),
            hold: HOLD,
            freed: None,
            ignores: Instant::ZERO,
        }
    }

    /// Whether it is limited at present.
    pub(crate) const fn is_limited(&self) -> bool {
        matches!(self.state, State::Limited(_))
    }

    /// Looks at what was done until `now`, which is to happen several times in a round.
    pub(crate) fn look(&mut self, sent: Sent, now: Instant) -> Option<Verdict> {
        if let State::Limited(limit) = self.state {
            if now.since(limit.since) >= self.hold {
                return Some(self.free(Verdict::TriedAgain, sent, now));
            }
            if !limit.is_confirmed {
                return self.judge(limit, sent, now);
            }
        }
        if now < self.ignores {
            return None;
        }
        let round = self.rounds.look(sent, now)?;
        self.in_row = match round.share > self.heavy {
            true => (
                self.in_row.0.saturating_add(1),
                self.in_row.1 + round.packets,
            ),
            false => (0, 0),
        };
        let (rounds, packets) = self.in_row;
        (rounds >= ROUNDS && packets >= PACKETS_IN_ROW).then(|| self.limit(&round, now))
    }

    fn limit(&mut self, round: &Round, now: Instant) -> Verdict {
        if let (State::Free, Some(freed)) = (self.state, self.freed) {
            self.hold = match now.since(freed) < self.hold * 2 {
                true => (self.hold * 2).min(HOLD_MOST),
                false => HOLD,
            };
        }
        self.in_row = (0, 0);
        self.state = State::Limited(Limit {
            since: now,
            share: round.share,
            settled: None,
            is_confirmed: false,
        });
        Verdict::Policed(round.delivered.scaled(PART).max(LEAST))
    }

    /// Whether the losses have ended with the limit.
    fn judge(&mut self, limit: Limit, sent: Sent, now: Instant) -> Option<Verdict> {
        let Some((from, mark)) = limit.settled else {
            if now.since(limit.since) >= sent.srtt * 3 / 2 {
                let settled = Some((now, sent));
                self.state = State::Limited(Limit { settled, ..limit });
            }
            return None;
        };
        let packets = sent.packets.saturating_sub(mark.packets);
        if packets < JUDGED || now.since(from) < sent.srtt * 2 {
            return None;
        }
        let share = sent.lost.saturating_sub(mark.lost) as f64 / packets as f64;
        if share > limit.share * LEFT {
            self.ignores = now + self.hold;
            return Some(self.free(Verdict::Refuted, sent, now));
        }
        self.rounds.begin(sent, now);
        self.state = State::Limited(Limit {
            is_confirmed: true,
            ..limit
        });
        None
    }

    fn free(&mut self, verdict: Verdict, sent: Sent, now: Instant) -> Verdict {
        self.state = State::Free;
        self.freed = Some(now);
        self.rounds.begin(sent, now);
        self.in_row = (0, 0);
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::Stream;
    use std::collections::VecDeque;

    const ROUND_TRIP: Duration = Duration::from_millis(600);
    const TICK: Duration = Duration::from_millis(50);
    /// Of a packet, on the wire.
    const PACKET: f64 = 1500.0 * 8.0;
    const FULL: Rate = Rate::from_bits_per_sec(9_850_000);
    /// Of the policer's bucket: 100 ms at 10 Mbit/s.
    const DEPTH: f64 = 1e6;

    /// What loses packets besides a policer.
    enum Errors {
        /// A share, in bursts of so many on average; 1: each on its own.
        Bursts(f64, f64),
        /// Everything, for so long, once in so long.
        Outages(Duration, Duration),
    }

    /// A sender that goes on whatever is lost, and is told a round trip later; in virtual time.
    struct Path {
        policing: Policing,
        policer: Option<Rate>,
        tokens: f64,
        errors: Errors,
        in_burst: bool,
        chance: Stream,
        pace: Rate,
        /// The part of the pace that is made use of.
        part: f64,
        credit: f64,
        sent: Sent,
        /// Losses that nothing that got through has told yet; those that it has, and when.
        untold: u64,
        lost: VecDeque<(Instant, u64)>,
        delivered: u64,
        now: Instant,
        verdicts: Vec<(Instant, Verdict)>,
    }

    impl Path {
        fn new(errors: Errors, seed: u64) -> Self {
            Self {
                policing: Policing::new(Probability::new(0.05).unwrap()),
                policer: None,
                tokens: DEPTH,
                errors,
                in_burst: false,
                chance: Stream::new(seed, "path"),
                pace: FULL,
                part: 1.0,
                credit: 0.0,
                sent: Sent {
                    srtt: ROUND_TRIP,
                    ..Sent::default()
                },
                untold: 0,
                lost: VecDeque::new(),
                delivered: 0,
                now: Instant::ZERO,
                verdicts: Vec::new(),
            }
        }

        fn is_lost(&mut self) -> bool {
            let by_error = match self.errors {
                Errors::Bursts(share, length) => {
                    let begins = share / (1.0 - share) / length;
                    let goes_on = if self.in_burst {
                        1.0 - 1.0 / length
                    } else {
                        begins
                    };
                    self.in_burst = self.chance.uniform() < goes_on;
                    self.in_burst
                }
                Errors::Outages(time, every) => {
                    self.now.as_nanos() as u128 % every.as_nanos() < time.as_nanos()
                }
            };
            if self.policer.is_some() {
                if self.tokens < PACKET {
                    return true;
                }
                self.tokens -= PACKET;
            }
            by_error
        }

        fn run(&mut self, seconds: u64) {
            let until = self.now + Duration::from_secs(seconds);
            while self.now < until {
                self.now += TICK;
                let seconds = TICK.as_secs_f64();
                if let Some(rate) = self.policer {
                    let more = rate.bits_per_sec() as f64 * seconds;
                    self.tokens = (self.tokens + more).min(DEPTH);
                }
                self.credit += self.pace.bits_per_sec() as f64 * self.part * seconds / PACKET;
                let packets = self.credit as u64;
                self.credit -= packets as f64;
                let lost = (0..packets).filter(|_| self.is_lost()).count() as u64;
                self.sent.packets += packets;
                self.sent.bytes += Bytes(packets * 1472);
                self.delivered += packets - lost;
                self.untold += lost;
                if packets > lost {
                    let told = core::mem::take(&mut self.untold);
                    self.lost.push_back((self.now + ROUND_TRIP, told));
                }
                while { self.lost.front() }.is_some_and(|(at, _)| *at <= self.now)
                    && let Some((_, lost)) = self.lost.pop_front()
                {
                    self.sent.lost += lost;
                }
                let Some(verdict) = self.policing.look(self.sent, self.now) else {
                    continue;
                };
                self.verdicts.push((self.now, verdict));
                self.pace = match verdict {
                    Verdict::Policed(rate) => rate,
                    Verdict::Refuted | Verdict::TriedAgain => FULL,
                };
            }
        }

        fn polices(&mut self, rate: Option<Rate>) {
            self.policer = rate;
            self.verdicts.clear();
        }
    }

    /// 0.5, 2 and 5 of 10 Mbit/s, beside the losses of a link: it is found out within three seconds, and most of what gets through is used.
    #[test]
    fn a_policer_is_found_out_and_kept_to() {
        for (kbps, share) in [(500, 0.0), (2000, 0.01), (5000, 0.05), (5000, 0.0)] {
            for seed in 0..20 {
                let rate = Rate::from_bits_per_sec(kbps * 1000);
                let mut path = Path::new(Errors::Bursts(share, 3.0), seed);
                path.run(10);
                assert_eq!(path.verdicts, []);
                path.polices(Some(rate));
                let began = path.now;
                path.run(10);
                let [(at, Verdict::Policed(limit))] = path.verdicts[..] else {
                    panic!("{kbps} {share} {seed}: {:?}", path.verdicts);
                };
                let took = at.since(began);
                assert!(took <= Duration::from_secs(3), "{kbps}: {took:?}");
                assert!(
                    limit <= rate.scaled(1.02) && limit >= rate.scaled(0.7),
                    "{limit}"
                );
                let before = path.delivered;
                path.run(10);
                let goodput = (path.delivered - before) as f64 * PACKET / 10.0;
                assert!(goodput > kbps as f64 * 1000.0 * 0.7, "{kbps}: {goodput}");
            }
        }
    }

    /// What a link loses is none: 5% in bursts of up to ten, 15%, outages; also where a flow does not fill the link.
    #[test]
    fn losses_of_a_link_are_none() {
        let bursts = [(0.05, 1.0), (0.05, 3.0), (0.05, 10.0), (0.15, 1.0)];
        for (share, length) in bursts {
            for (seed, part) in [(0, 1.0), (1, 1.0), (2, 0.3), (3, 0.3), (4, 0.1)] {
                let mut path = Path::new(Errors::Bursts(share, length), seed);
                path.part = part;
                path.run(3600);
                assert_eq!(path.verdicts, [], "{share} {length} {seed}");
            }
        }
        for (out, every) in [(500, 20_000), (1500, 20_000), (5000, 60_000)] {
            let [out, every] = [out, every].map(Duration::from_millis);
            let mut path = Path::new(Errors::Outages(out, every), 0);
            path.run(600);
            assert_eq!(path.verdicts, [], "{out:?}");
        }
    }

    /// A link that does lose so much has its pace back within seconds, and is looked at again ever later.
    #[test]
    fn a_link_that_loses_so_much_is_not_limited_for_long() {
        let mut path = Path::new(Errors::Bursts(0.4, 1.0), 0);
        path.run(3600);
        let times: Vec<_> = { path.verdicts.chunks(2) }
            .map(|pair| {
                let [(from, Verdict::Policed(_)), (until, Verdict::Refuted)] = *pair else {
                    panic!("{pair:?}");
                };
                until.since(from)
            })
            .collect();
        assert!(
            times.iter().all(|time| *time < Duration::from_secs(4)),
            "{times:?}"
        );
        assert!((2..=8).contains(&times.len()), "{times:?}");
    }

    /// It is tried again after 30 s, and then ever later, and is undone once the policer is gone.
    #[test]
    fn it_is_tried_again_ever_later() {
        let mut path = Path::new(Errors::Bursts(0.01, 1.0), 0);
        path.polices(Some(Rate::from_bits_per_sec(2_000_000)));
        path.run(1000);
        let again: Vec<_> = { path.verdicts.iter() }
            .filter(|(_, verdict)| *verdict == Verdict::TriedAgain)
            .map(|(at, _)| at.since(Instant::ZERO).as_secs())
            .collect();
        // 30, 60, 120, 240, 480 s after what was found out 3 s after the last.
        assert!((4..=5).contains(&again.len()), "{again:?}");
        assert!((30..36).contains(&again[0]), "{again:?}");
        path.polices(None);
        path.run(1000);
        let [(_, Verdict::TriedAgain)] = path.verdicts[..] else {
            panic!("{:?}", path.verdicts);
        };
        assert!(!path.policing.is_limited());
        // Long after, it begins as at first.
        path.run(2000);
        path.polices(Some(Rate::from_bits_per_sec(2_000_000)));
        path.run(40);
        let [
            (from, Verdict::Policed(_)),
            (until, Verdict::TriedAgain),
            ..,
        ] = path.verdicts[..]
        else {
            panic!("{:?}", path.verdicts);
        };
        assert_eq!(until.since(from), HOLD);
    }
}
