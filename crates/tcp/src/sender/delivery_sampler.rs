//! Samples of the delivery rate, for a congestion control that models the path: draft-ietf-ccwg-bbr-06, section 4.1
//! (`tcp_rate.c` in Linux), counted in segments.
//!
//! With each transmission it notes what had been delivered before and how much was in flight. Noted transmissions are
//! kept beside the scoreboard, which so stays small under controls that do not ask.
//!
//! Deviation: of a segment sent again of which it is not certain which transmission arrived there is no sample (the
//! draft's section 4.1.3.5, second approach) where the recovery keeps the least round-trip time; else its interval
//! decides, as in Linux.

use super::Sender;
use bentpipe_base::Instant;
use bentpipe_cc::{Congestion, Delivery, LostSegment, RateSample};
use bentpipe_scoreboard::{NewlyAcked, Order};
use std::collections::VecDeque;
use std::time::Duration;

/// What was noted with a transmission.
#[derive(Clone, Copy, Debug)]
struct Noted {
    /// When it was sent, and where the segment ends.
    order: Order,
    /// Segments delivered before (P.delivered), and when the last of them was (P.delivered_time).
    delivered: u64,
    delivered_at: Instant,
    /// When the segment was sent that was delivered last (P.first_send_time).
    first_sent: Instant,
    /// Segments in flight, this one included (P.tx_in_flight).
    in_flight: u32,
    /// Segments found lost before (P.lost).
    lost: u64,
    app_limited: bool,
}

/// What has been delivered, and what was noted of what is on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeliverySampler {
    /// In the order of sending.
    noted: VecDeque<Noted>,
    /// C.delivered, in segments, and C.delivered_time.
    delivered: u64,
    delivered_at: Instant,
    /// C.first_send_time.
    first_sent: Instant,
    /// C.lost, in segments.
    lost: u64,
    /// While less than this is delivered, the application limits the sender (C.app_limited); 0: it does not.
    app_limited: u64,
    /// The least round-trip time.
    min_rtt: Option<Duration>,
    /// The window was full when what ends here was sent.
    full_until: u64,
    /// What the acknowledgement being processed delivery, until the control takes it.
    delivery: Delivery,
    /// Segments found lost before the sampled segment of `delivery` was sent: what the acknowledgement shows to be lost is
    /// found after the sample is made, and belongs to it.
    lost_before: u64,
}

impl DeliverySampler {
    /// A segment that ends at `end` was sent at `now`; `before` and `after` were in flight.
    pub(super) fn sent(&mut self, end: u64, before: u32, after: u32, now: Instant) {
        if before == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        let noted = Noted {
            order: (now, end),
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            in_flight: after,
            lost: self.lost,
            app_limited: self.app_limited > 0,
        };
        let at = self
            .noted
            .partition_point(|other| other.order <= noted.order);
        self.noted.insert(at, noted);
    }

    /// What was noted with the last transmission of the segment whose place in the order of sending is `order`, or of
    /// a longer one that was cut up since.
    fn find(&self, order: Order) -> Option<&Noted> {
        let at = self.noted.partition_point(|other| other.order < order);
        self.noted.get(at).filter(|noted| noted.order.0 == order.0)
    }

    /// The application has no more to send than less than a segment, though the window has room: what is sent next is
    /// limited by it (CheckIfApplicationLimited), or by the control itself.
    pub(super) fn limit(&mut self, in_flight: u32) {
        self.app_limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// The window is full, and the last byte sent so far is before `max`.
    pub(super) fn fill(&mut self, max: u64) {
        self.full_until = self.full_until.max(max);
    }

    /// An acknowledgement arrived: all before `una` is acknowledged, and it gave the sample `rtt`.
    pub(super) fn acknowledge(
        &mut self,
        newly_acked: &NewlyAcked,
        (prior_in_flight, una): (u32, u64),
        rtt: Option<Duration>,
        now: Instant,
    ) {
        if let Some(rtt) = rtt {
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        }
        if newly_acked.delivered > 0 {
            self.delivered += u64::from(newly_acked.delivered);
            self.delivered_at = now;
        }
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let sample = newly_acked
            .latest
            .and_then(|latest| self.sample((latest.at, latest.to)));
        self.delivery = Delivery {
            total: self.delivered,
            newly: newly_acked.delivered,
            prior_in_flight,
            cwnd_full: una <= self.full_until,
            sample,
        };
        while self.noted.front().is_some_and(|noted| noted.order.1 <= una) {
            self.noted.pop_front();
        }
    }

    /// UpdateRateSample and GenerateRateSample, for the segment delivered that was sent last.
    fn sample(&mut self, order: Order) -> Option<RateSample> {
        let noted = *self.find(order)?;
        let (sent, _) = order;
        let send_elapsed = sent.since(noted.first_sent);
        let ack_elapsed = self.delivered_at.since(noted.delivered_at);
        self.first_sent = self.first_sent.max(sent);
        self.lost_before = noted.lost;
        let interval = send_elapsed.max(ack_elapsed);
        let reliable = self.min_rtt.is_none_or(|least| interval >= least);
        Some(RateSample {
            prior_delivered: noted.delivered,
            interval: Some(interval).filter(|_| reliable),
            app_limited: noted.app_limited,
            tx_in_flight: noted.in_flight,
            lost: 0,
        })
    }

    /// The segment at `order` was found lost; what the control is delivery of it.
    pub(super) fn lose(&mut self, order: Order, now: Instant) -> Option<LostSegment> {
        self.lost += 1;
        let noted = self.find(order)?;
        Some(LostSegment {
            now,
            delivered: self.delivered,
            tx_in_flight: noted.in_flight,
            lost: (self.lost - noted.lost).min(u64::from(u32::MAX)) as u32,
            app_limited: noted.app_limited,
        })
    }

    /// What the acknowledgement delivery, once; afterwards that nothing more was delivered.
    pub(super) fn take(&mut self) -> Delivery {
        if let Some(sample) = &mut self.delivery.sample {
            sample.lost = (self.lost - self.lost_before).min(u64::from(u32::MAX)) as u32;
        }
        let nothing = Delivery {
            newly: 0,
            sample: None,
            ..self.delivery
        };
        std::mem::replace(&mut self.delivery, nothing)
    }
}

/// What the sender tells its sampler, and a control that asks for samples.
impl Sender {
    /// Replaces the congestion control, before anything is sent.
    pub(crate) fn set_congestion(&mut self, congestion: Box<dyn Congestion>) {
        self.congestion = congestion;
        self.sample_deliveries();
    }

    pub(super) fn sample_deliveries(&mut self) {
        let samples = self.congestion.samples_deliveries();
        self.sampler = samples.then(Box::default);
        self.board.log_losses(samples);
    }

    /// Notes that the application limits the sender, where it does: there is less than a segment to send for the first
    /// time, nothing to send again, and room in the window. Called before there is more to send, and at each
    /// acknowledgement (draft-ietf-ccwg-bbr-06, section 4.1.2.4).
    pub(crate) fn check_app_limited(&mut self) {
        if self.sampler.is_none() {
            return;
        }
        let in_flight = self.board.pipe();
        let unsent = self.data_end().saturating_sub(self.next);
        let room = in_flight < self.window.cwnd && !self.board.has_lost();
        if unsent < u64::from(self.mss)
            && room
            && let Some(sampler) = &mut self.sampler
        {
            sampler.limit(in_flight);
        }
    }

    /// The congestion window is full.
    pub(crate) fn window_full(&mut self) {
        if let Some(sampler) = &mut self.sampler {
            sampler.fill(self.max);
        }
    }

    /// Whether congestion control is delivery of every acknowledgement.
    pub(crate) fn samples_deliveries(&self) -> bool {
        self.sampler.is_some()
    }

    /// Tells a congestion control that samples deliveries of the segments newly found lost.
    #[inline]
    pub(super) fn tell_losses(&mut self, now: Instant) {
        if self.sampler.is_some() {
            self.tell_sampled_losses(now);
        }
    }

    fn tell_sampled_losses(&mut self, now: Instant) {
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        for order in self.board.take_losses() {
            if let Some(lost) = sampler.lose(order, now) {
                self.congestion.on_lost(&self.window, &lost);
            }
        }
    }
}
