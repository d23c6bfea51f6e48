//! A congestion control of [`bentpipe_cc`] as one of the QUIC stack: segments are full datagrams, and the phases of loss
//! recovery are those of RFC 9002, section 7.3, by which an acknowledged packet that was sent after a reduction ends it.

use crate::clock::Base;
use crate::network_path::Path;
use crate::protection::RepairShare;
use bentpipe_base::{Bytes, Instant, Rate, Seq};
use bentpipe_cc::rate_control::Link;
use bentpipe_cc::{Ack, Algorithm, Congestion, Phase, Settings, Signal, Window};
use core::fmt;
use core::time::Duration;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// First window of a control that is told no rate, in datagrams (RFC 9002, section 7.2).
const INITIAL_WINDOW: u32 = 10;
/// No window is smaller, in datagrams (RFC 9002, section 7.2).
const LEAST_WINDOW: u32 = 2;

/// Which congestion control the connections of an endpoint have.
#[derive(Clone)]
pub struct CongestionControl {
    algorithm: &'static Algorithm,
    settings: Settings,
    /// The link that they share, where the control shares.
    link: Link,
}

/// A congestion control that cannot be one of QUIC here.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnusableControl {
    /// There is none of the name.
    #[error("no congestion control is called `{0}`")]
    Unknown(String),
    /// The stack does not say which packet an acknowledgement is of.
    #[error(
        "the congestion control `{0}` models the path from single packets, of which QUIC's stack does not tell: use `rate`, `hybla` \
         or `cubic`"
    )]
    SamplesDeliveries(&'static str),
}

impl CongestionControl {
    /// The control of that name, of which all connections that are given a clone share one link.
    ///
    /// # Errors
    /// [`UnusableControl`].
    pub fn new(name: &str, settings: Settings) -> Result<Self, UnusableControl> {
        let algorithm =
            bentpipe_cc::find(name).ok_or_else(|| UnusableControl::Unknown(name.to_owned()))?;
        if (algorithm.new)(&settings).samples_deliveries() {
            return Err(UnusableControl::SamplesDeliveries(algorithm.name));
        }
        Ok(Self {
            algorithm,
            settings,
            link: Link::default(),
        })
    }

    /// The rate of the link that it knows.
    pub(crate) const fn rate(&self) -> Option<Rate> {
        self.settings.link.rate
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.algorithm.name
    }

    /// One for a new connection, the `nth` of its endpoint: to the guard of the link each peer is a receiver of its own.
    fn make(&self, nth: u64) -> Box<dyn Congestion> {
        { self.algorithm }
            .sharing(&self.link, nth, &self.settings)
            .unwrap_or_else(|| (self.algorithm.new)(&self.settings))
    }
}

impl fmt::Debug for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CongestionControl")
            .field(&self.algorithm.name)
            .finish()
    }
}

/// Makes the controls of one endpoint's connections.
pub(crate) struct Maker {
    pub(crate) control: CongestionControl,
    pub(crate) path: Path,
    pub(crate) base: Base,
    /// How many were made.
    pub(crate) made: Arc<core::sync::atomic::AtomicU64>,
    /// What the latest heeds, until it is taken for its connection.
    pub(crate) latest: Mutex<Option<RepairShare>>,
}

impl Maker {
    fn next(&self) -> Owned {
        let nth = self
            .made
            .fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        Owned(Mutex::new(self.control.make(nth)))
    }

    /// What the control heeds that was made since this was asked last.
    pub(crate) fn take_latest(&self) -> Option<RepairShare> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.take()
    }

    /// The window before anything is known: a product where the rate is, for pace alone bounds what is sent.
    fn first_window(&self, mss: u64) -> u32 {
        if self.control.settings.link.rate.is_none() {
            return INITIAL_WINDOW;
        }
        let segments = self.path.product().0 / mss.max(1);
        u32::try_from(segments)
            .unwrap_or(u32::MAX)
            .max(INITIAL_WINDOW)
    }
}

impl ControllerFactory for Maker {
    fn build(self: Arc<Self>, _now: std::time::Instant, mtu: u16) -> Box<dyn Controller> {
        let overhead = self.path.datagram_overhead();
        let mss = Bytes(u64::from(mtu));
        let control = self.next();
        let window = Window {
            cwnd: self.first_window(mss.0),
            ssthresh: u32::MAX,
            in_flight: 0,
            offered: u32::MAX,
            mss,
            wire: mss + overhead,
            pacing: None,
        };
        let repairs = RepairShare::default();
        *{ &self.latest }
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(repairs.clone());
        Box::new(Adapter {
            repairs,
            pace: self.control.settings.link.rate,
            control,
            maker: self,
            window,
            first: window.cwnd,
            begun: false,
            phase: Phase::Open,
            reduced: Instant::ZERO,
            flight: Flight::default(),
            round: Round::default(),
        })
    }
}

/// Bytes of datagrams, counted.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    sent: u64,
    in_flight: u64,
    /// Acknowledged, and not yet told the control as segments.
    acked: u64,
    /// Found lost, and not yet told.
    lost: u64,
    /// Datagrams' worth of bytes sent since this recovery began.
    in_recovery: u64,
}

/// One acknowledgement frame while it is taken in.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    bytes: u64,
    /// When the newest packet that it acknowledges was sent.
    newest: Option<Instant>,
    srtt: Option<Duration>,
}

/// A control that is only reached by who may change it, so that it can be shared: the stack's controls are [`Sync`], ours need
/// not be.
struct Owned(Mutex<Box<dyn Congestion>>);

impl Owned {
    fn get(&mut self) -> &mut dyn Congestion {
        // It is never locked, so never poisoned.
        &mut **self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A control and its window.
struct Adapter {
    control: Owned,
    maker: Arc<Maker>,
    window: Window,
    /// The first window.
    first: u32,
    /// The rate on the wire until the control has one, if the link's is known.
    pace: Option<Rate>,
    /// The first sample of the round-trip time has come.
    begun: bool,
    phase: Phase,
    /// When the last reduction was.
    reduced: Instant,
    flight: Flight,
    round: Round,
    /// What repairs take of the window.
    repairs: RepairShare,
}

impl Adapter {
    fn mss(&self) -> u64 {
        self.window.mss.0.max(1)
    }

    fn look(&mut self) {
        let in_flight = self.flight.in_flight.div_ceil(self.mss());
        self.window.in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
    }

    /// Takes whole segments off a count of bytes, at least one where there is any.
    fn segments(bytes: &mut u64, mss: u64) -> u32 {
        let whole = (*bytes / mss).max(u64::from(*bytes > 0));
        *bytes = bytes.saturating_sub(whole * mss);
        u32::try_from(whole).unwrap_or(u32::MAX)
    }

    fn enter(&mut self, phase: Phase) {
        if self.phase != phase {
            self.phase = phase;
            self.flight.in_recovery = 0;
            self.control.get().on_phase(&mut self.window, phase);
        }
    }

    /// The rate on the wire in bits a second.
    fn wire_rate(&self) -> Option<u64> {
        let Some(payload) = self.window.pacing else {
            // The control has not begun: no faster than it will go.
            let pace = self.maker.control.settings.link.pace.value();
            return { self.pace.filter(|_| !self.begun) }
                .map(|rate| rate.scaled(pace).bits_per_sec());
        };
        let wire = u128::from(payload.bits_per_sec()) * u128::from(self.window.wire.0);
        let wire = wire / u128::from(self.mss());
        Some(u64::try_from(wire).unwrap_or(u64::MAX))
    }
}

impl Controller for Adapter {
    fn on_sent(&mut self, now: std::time::Instant, bytes: u64, _last_packet_number: u64) {
        let starts = self.flight.in_flight == 0;
        self.flight.sent += bytes;
        self.flight.in_flight += bytes;
        self.flight.in_recovery += bytes;
        if starts && self.begun {
            let now = self.maker.base.to_ours(now);
            self.look();
            { self.control.get() }.on_signal(&mut self.window, Signal::Start, now);
        }
    }

    fn on_ack(
        &mut self,
        _now: std::time::Instant,
        sent: std::time::Instant,
        bytes: u64,
        _app_limited: bool,
        rtt: &RttEstimator,
    ) {
        let sent = self.maker.base.to_ours(sent);
        self.round.bytes += bytes;
        self.round.newest = self.round.newest.max(Some(sent));
        self.round.srtt = Some(rtt.get());
    }

    fn on_end_acks(
        &mut self,
        now: std::time::Instant,
        in_flight: u64,
        app_limited: bool,
        _largest_packet_num_acked: Option<u64>,
    ) {
        let now = self.maker.base.to_ours(now);
        let before = self.flight.in_flight;
        self.flight.in_flight = in_flight;
        let round = core::mem::take(&mut self.round);
        let Some(newest) = round.newest else {
            return;
        };
        let rtt = now.since(newest);
        self.look();
        let first = !self.begun;
        if first {
            self.begun = true;
            self.control.get().init(&mut self.window, now, Some(rtt));
        }
        if self.phase != Phase::Open && newest > self.reduced {
            self.enter(Phase::Open);
            self.control
                .get()
                .on_signal(&mut self.window, Signal::Reduced, now);
        }
        let mss = self.mss();
        self.flight.acked += round.bytes;
        let window = u64::from(self.window.cwnd) * mss;
        let ack = Ack {
            now,
            una: Seq((self.flight.sent.saturating_sub(in_flight)) as u32),
            next: Seq(self.flight.sent as u32),
            rtt: Some(rtt),
            // The stack's estimate is a guess until this sample is in it.
            srtt: if first { Some(rtt) } else { round.srtt },
            acked: Self::segments(&mut self.flight.acked, mss),
            lost: Self::segments(&mut self.flight.lost, mss),
            sent: u32::try_from(self.flight.in_recovery / mss).unwrap_or(u32::MAX),
            phase: self.phase,
            cwnd_limited: !app_limited && before + mss >= window,
            hungry: !app_limited,
            stamp: None,
            delivery: None,
        };
        // Elsewhere loss recovery sets the window until it ends.
        let grows = matches!(self.phase, Phase::Open | Phase::Loss);
        if grows || self.control.get().governs_recovery() {
            self.control.get().on_ack(&mut self.window, &ack);
        }
    }

    fn on_congestion_event(
        &mut self,
        now: std::time::Instant,
        sent: std::time::Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        let now = self.maker.base.to_ours(now);
        let sent = self.maker.base.to_ours(sent);
        self.flight.in_flight = self.flight.in_flight.saturating_sub(lost_bytes);
        self.flight.lost += lost_bytes;
        self.look();
        if sent > self.reduced || self.phase == Phase::Open {
            self.reduced = now;
            self.window.ssthresh = self.control.get().ssthresh(&self.window);
            if !self.control.get().governs_recovery() {
                self.window.cwnd = self.window.ssthresh.max(LEAST_WINDOW);
            }
            self.enter(Phase::Recovery);
        }
        if is_persistent_congestion {
            self.reduced = now;
            self.window.cwnd = 1;
            self.enter(Phase::Loss);
            { self.control.get() }.on_signal(&mut self.window, Signal::Timeout, now);
        }
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.window.mss = Bytes(u64::from(new_mtu));
        self.window.wire = self.window.mss + self.maker.path.datagram_overhead();
    }

    fn window(&self) -> u64 {
        let least = u64::from(LEAST_WINDOW) * self.mss();
        let window = u64::from(self.window.cwnd) * self.mss();
        self.repairs.of_window(window).max(least)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.ssthresh = (self.window.ssthresh != u32::MAX)
            .then(|| u64::from(self.window.ssthresh) * self.mss());
        // Where the driver reads the rate that it paces at, on the wire.
        metrics.pacing_rate = self.wire_rate();
        metrics
    }

    /// For another path to the same peer: with the window as it is, what the control has learnt is learnt again.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            control: self.maker.next(),
            maker: Arc::clone(&self.maker),
            window: Window {
                in_flight: 0,
                ..self.window
            },
            begun: false,
            phase: Phase::Open,
            flight: Flight::default(),
            round: Round::default(),
            repairs: self.repairs.clone(),
            ..*self
        })
    }

    fn initial_window(&self) -> u64 {
        u64::from(self.first) * self.mss()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
