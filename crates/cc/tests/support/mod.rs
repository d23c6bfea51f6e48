//! What the tests of the variants share: windows, acknowledgements, and a bottleneck without loss.
#![allow(
    dead_code,
    reason = "each test binary uses another part of what they share"
)]

pub(crate) mod path;

use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_cc::{Ack, Congestion, Phase, Settings, Window, find};
use std::collections::VecDeque;
use std::time::Duration;

pub(crate) const MSS: u32 = 1000;

/// The control of that name with the usual settings.
pub(crate) fn control(name: &str) -> Box<dyn Congestion> {
    (find(name).expect("registered").new)(&Settings::default())
}

/// A window of `cwnd` segments in congestion avoidance.
pub(crate) fn avoiding(cwnd: u32) -> Window {
    Window {
        cwnd,
        ssthresh: 2,
        in_flight: cwnd,
        offered: u32::MAX,
        mss: Bytes(MSS.into()),
        wire: Bytes(u64::from(MSS) + 40),
        pacing: None,
    }
}

/// One flow that always has data, acknowledged segment by segment: a bottleneck with an endless
/// queue that sends a segment in `tx`, and `delay` for the way there and back.
pub(crate) struct Flow {
    pub(crate) control: Box<dyn Congestion>,
    pub(crate) window: Window,
    pub(crate) now: Instant,
    /// The last sample of the round-trip time.
    pub(crate) rtt: Duration,
    tx: Duration,
    delay: Duration,
    una: Seq,
    next: Seq,
    busy: Instant,
    /// When each segment was sent, and when its acknowledgement comes.
    flying: VecDeque<(Instant, Instant)>,
}

impl Flow {
    pub(crate) fn new(name: &str, window: Window, tx: Duration, delay: Duration) -> Self {
        let mut flow = Self {
            control: control(name),
            window,
            now: Instant::ZERO,
            rtt: Duration::ZERO,
            tx,
            delay,
            una: Seq(u32::MAX - 5000),
            next: Seq(u32::MAX - 5000),
            busy: Instant::ZERO,
            flying: VecDeque::new(),
        };
        flow.control.init(&mut flow.window, Instant::ZERO, None);
        flow.send();
        flow
    }

    fn send(&mut self) {
        while self.flying.len() < self.window.cwnd as usize {
            self.busy = self.busy.max(self.now) + self.tx;
            self.flying.push_back((self.now, self.busy + self.delay));
            self.next = self.next + MSS;
        }
        self.window.in_flight = self.flying.len() as u32;
    }

    /// One acknowledgement.
    pub(crate) fn step(&mut self) {
        let (sent, arrives) = self.flying.pop_front().expect("a window is never empty");
        self.now = arrives;
        self.rtt = arrives - sent;
        self.una = self.una + MSS;
        self.window.in_flight = self.flying.len() as u32;
        let ack = Ack {
            now: self.now,
            una: self.una,
            next: self.next,
            rtt: Some(self.rtt),
            srtt: Some(self.rtt),
            acked: 1,
            phase: Phase::Open,
            cwnd_limited: true,
            ..Ack::default()
        };
        self.control.on_ack(&mut self.window, &ack);
        self.send();
    }

    /// A window's worth of acknowledgements.
    pub(crate) fn round(&mut self) {
        for _ in 0..self.flying.len() {
            self.step();
        }
    }

    /// The sender finds a loss and goes on from the threshold.
    pub(crate) fn lose(&mut self) {
        self.window.ssthresh = self.control.ssthresh(&self.window);
        self.window.cwnd = self.window.ssthresh;
    }

    /// A figure of the control's inner state.
    pub(crate) fn gauge(&self, name: &str) -> f64 {
        let gauges = self.control.gauges();
        let found = gauges.iter().find(|gauge| gauge.0 == name);
        found.expect("a gauge of that name").1
    }
}
