//! A path for controls that model it: a sender that paces and samples deliveries, a bottleneck with a finite queue, and
//! losses. Every segment is acknowledged by itself, and one is lost once the third after it has arrived.

use super::{MSS, control};
use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_cc::{Ack, Congestion, Delivery, LostSegment, Phase, RateSample, Signal, Window};
use std::collections::VecDeque;
use std::time::Duration;

/// A segment on its way.
#[derive(Clone, Copy)]
struct Flying {
    number: u64,
    sent: Instant,
    /// When its acknowledgement comes; `None`: it is dropped.
    acked: Option<Instant>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    in_flight: u32,
    lost: u64,
    app_limited: bool,
}

pub(crate) struct Path {
    pub(crate) control: Box<dyn Congestion>,
    pub(crate) window: Window,
    pub(crate) now: Instant,
    /// Time that the bottleneck takes for a segment, and the way there and back besides.
    pub(crate) tx: Duration,
    pub(crate) delay: Duration,
    /// Segments that the queue holds.
    pub(crate) buffer: u64,
    /// Whether the channel loses the segment of that number.
    pub(crate) loses: Box<dyn FnMut(u64) -> bool>,
    /// Nothing is sent before.
    pub(crate) idle_until: Instant,
    pub(crate) delivered: u64,
    pub(crate) lost: u64,
    /// The longest queue so far, in segments.
    pub(crate) longest_queue: u64,
    pub(crate) rtt: Duration,
    flying: VecDeque<Flying>,
    number: u64,
    busy: Instant,
    pace: Instant,
    delivered_at: Instant,
    first_sent: Instant,
    app_limited: u64,
    full_until: u64,
    recover: Option<u64>,
    min_rtt: Duration,
}

impl Path {
    /// `per_second` segments a second, a round-trip time of `delay` without the queue, and room for `buffer` segments.
    pub(crate) fn new(name: &str, per_second: u64, delay: Duration, buffer: u64) -> Self {
        let mut path = Self {
            control: control(name),
            window: Window {
                cwnd: 10,
                ssthresh: u32::MAX,
                in_flight: 0,
                offered: u32::MAX,
                mss: Bytes(MSS.into()),
                wire: Bytes(u64::from(MSS) + 40),
                pacing: None,
            },
            now: Instant::ZERO,
            tx: Duration::from_nanos(1_000_000_000 / per_second),
            delay,
            buffer,
            loses: Box::new(|_| false),
            idle_until: Instant::ZERO,
            delivered: 0,
            lost: 0,
            longest_queue: 0,
            rtt: delay,
            flying: VecDeque::new(),
            number: 0,
            busy: Instant::ZERO,
            pace: Instant::ZERO,
            delivered_at: Instant::ZERO,
            first_sent: Instant::ZERO,
            app_limited: 0,
            full_until: 0,
            recover: None,
            min_rtt: Duration::MAX,
        };
        let rtt = Some(delay + path.tx);
        path.control.init(&mut path.window, path.now, rtt);
        path
    }

    fn may_send(&mut self) -> bool {
        let room = self.window.in_flight < self.window.cwnd;
        if !room {
            self.full_until = self.number;
        }
        room
    }

    /// When the pacer lets the next segment go, if the window does.
    fn next_send(&mut self) -> Option<Instant> {
        self.may_send()
            .then(|| self.pace.max(self.now).max(self.idle_until))
    }

    fn send(&mut self) {
        if self.flying.is_empty() {
            (self.first_sent, self.delivered_at) = (self.now, self.now);
            if self.number > 0 {
                self.app_limited = self.delivered + 1;
                self.control
                    .on_signal(&mut self.window, Signal::Start, self.now);
            }
        }
        let queued = (self.busy.since(self.now).as_nanos() / self.tx.as_nanos()) as u64;
        let dropped = queued > self.buffer || (self.loses)(self.number);
        if !dropped {
            self.longest_queue = self.longest_queue.max(queued);
            self.busy = self.busy.max(self.now) + self.tx;
        }
        self.window.in_flight += 1;
        self.flying.push_back(Flying {
            number: self.number,
            sent: self.now,
            acked: (!dropped).then(|| self.busy + self.delay),
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight: self.window.in_flight,
            lost: self.lost,
            app_limited: self.app_limited > 0,
        });
        self.number += 1;
        if let Some(rate) = self.window.pacing {
            self.pace = self.pace.max(self.now) + rate.serialisation(Bytes(MSS.into()));
        }
    }

    fn next_ack(&self) -> Option<Instant> {
        self.flying.iter().find_map(|segment| segment.acked)
    }

    /// The next segment that arrives is acknowledged.
    fn acknowledge(&mut self) {
        let at = { self.flying.iter() }.position(|segment| segment.acked.is_some());
        let segment = at
            .and_then(|at| self.flying.remove(at))
            .expect("something is on its way");
        let prior_in_flight = self.window.in_flight;
        self.window.in_flight -= 1;
        self.delivered += 1;
        self.delivered_at = self.now;
        self.rtt = self.now.since(segment.sent);
        self.min_rtt = self.min_rtt.min(self.rtt);
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let lost = self.find_losses(segment.number);
        if self.recover.is_some_and(|end| segment.number > end) {
            self.recover = None;
            self.control.on_phase(&mut self.window, Phase::Open);
        }
        let sent = segment.sent.since(segment.first_sent);
        let interval = sent.max(self.now.since(segment.delivered_at));
        self.first_sent = segment.sent;
        let ack = Ack {
            now: self.now,
            una: Seq((segment.number as u32 + 1).wrapping_mul(MSS)),
            rtt: Some(self.rtt),
            srtt: Some(self.rtt),
            acked: 1,
            lost,
            phase: if self.recover.is_some() {
                Phase::Recovery
            } else {
                Phase::Open
            },
            delivery: Some(Delivery {
                total: self.delivered,
                newly: 1,
                prior_in_flight,
                cwnd_full: segment.number <= self.full_until,
                sample: Some(RateSample {
                    prior_delivered: segment.delivered,
                    interval: Some(interval).filter(|time| *time >= self.min_rtt),
                    app_limited: segment.app_limited,
                    tx_in_flight: segment.in_flight,
                    lost: (self.lost - segment.lost) as u32,
                }),
            }),
            ..Ack::default()
        };
        self.control.on_ack(&mut self.window, &ack);
        if self.control.holds_back() {
            self.app_limited = self.delivered + u64::from(self.window.in_flight);
        }
    }

    fn find_losses(&mut self, arrived: u64) -> u32 {
        let mut found = 0;
        while let Some(segment) = self.flying.front().copied()
            && segment.acked.is_none()
            && segment.number + 3 <= arrived
        {
            self.flying.pop_front();
            self.window.in_flight -= 1;
            self.lost += 1;
            found += 1;
            if self.recover.is_none() {
                self.window.ssthresh = self.control.ssthresh(&self.window);
                self.control.on_phase(&mut self.window, Phase::Recovery);
            }
            // Until what is sent again in its place has arrived.
            self.recover = Some(self.number);
            let lost = LostSegment {
                now: self.now,
                delivered: self.delivered,
                tx_in_flight: segment.in_flight,
                lost: (self.lost - segment.lost) as u32,
                app_limited: segment.app_limited,
            };
            self.control.on_lost(&self.window, &lost);
        }
        found
    }

    /// The next thing happens: a segment is sent, or one is acknowledged.
    pub(crate) fn step(&mut self) {
        let (send, ack) = (self.next_send(), self.next_ack());
        match (send, ack) {
            (Some(send), ack) if ack.is_none_or(|ack| send <= ack) => {
                self.now = send;
                self.send();
            }
            (_, Some(ack)) => {
                self.now = ack;
                self.acknowledge();
            }
            _ => panic!("all in flight are lost: {}", self.window.cwnd),
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// Runs until `done`, at most for `most`; panics if it does not come.
    pub(crate) fn until(&mut self, most: Duration, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now + most;
        while !done(self) {
            assert!(self.now < end, "in vain: {:?}", self.control.gauges());
            self.step();
        }
    }

    /// Segments a second delivered during the next `time`.
    pub(crate) fn goodput(&mut self, time: Duration) -> f64 {
        let before = (self.delivered, self.now);
        self.run(time);
        (self.delivered - before.0) as f64 / self.now.since(before.1).as_secs_f64()
    }

    /// A figure of the control's model; `None`: there is none now.
    pub(crate) fn gauge(&self, name: &str) -> Option<f64> {
        let gauges = self.control.gauges();
        { gauges.iter() }
            .find(|gauge| gauge.0 == name)
            .map(|gauge| gauge.1)
    }

    /// The figure, which must be there.
    pub(crate) fn known(&self, name: &str) -> f64 {
        self.gauge(name).unwrap_or_else(|| panic!("no {name}"))
    }
}
