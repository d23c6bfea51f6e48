//! The policy of one leg of a split connection: its congestion control, rate, pacing and buffers.
//!
//! Plain data, free of any operating system: the gateway puts it on its sockets, and the simulated split makes
//! endpoints of it (`pep::split::tcp_config`), so that both obey one policy.

use crate::quic::{QuicCarrier, QuicEnd};
use bentpipe_base::{Bytes, Rate};
use bentpipe_cc::LinkParams;
use bentpipe_cc::rate_control::KERNEL as RATE;
use std::time::Duration;

/// What carries a leg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// The kernel's.
    #[default]
    Kernel,
    /// Ours, as SCPS-TP, on packets.
    Scps,
    /// None of them: tunnels over QUIC to another gateway, which dials by its kernel's.
    Quic,
}

/// What the losses of a leg mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// The link damages packets: the rate stays.
    Corruption,
    /// A queue overflowed: congestion controls reduce their window.
    Congestion,
}

/// What QUIC connections that pass are told by SCONE, by direction; `None`: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SconeRates {
    /// Of what leaves for the satellite.
    pub to_sat: Option<Rate>,
    /// Of what comes from it.
    pub from_sat: Option<Rate>,
}

impl SconeRates {
    /// Whether anything is told.
    pub fn is_some(&self) -> bool {
        *self != Self::default()
    }
}

/// The policy of one leg.
#[derive(Clone, Debug, PartialEq)]
pub struct Leg {
    /// Whose TCP carries it; of a satellite leg alone it may be other than the kernel's.
    pub carrier: Carrier,
    /// The far end of a leg that QUIC carries.
    pub quic: Option<QuicCarrier>,
    /// Which end a leg that QUIC carries is in a scenario, which says that in place of `quic`.
    pub quic_end: Option<QuicEnd>,
    /// The congestion control wanted; `None` leaves the kernel's default.
    pub congestion: Option<String>,
    /// A TCP of the papers by name, congestion control and loss recovery at once, in the place of
    /// `congestion`. Only simulated legs know them.
    pub variant: Option<String>,
    /// First congestion window, in segments; `None` leaves it to the control. Only simulated legs
    /// can set it.
    pub initial_window: Option<u32>,
    /// Stop rather than use another control when the wanted one is not to be had.
    pub insist: bool,
    /// The link: what it carries for the gateway's flows together, all headers included, and how they share it.
    pub link: LinkParams,
    /// The most that may wait to be sent and acknowledged, for each flow; the kernel's own overhead
    /// counts, which for a satellite's single packets is about as much as the payload.
    pub send_buffer: Bytes,
    /// The most that may wait to be read by the gateway, for each flow, overhead included. Its peer
    /// sees a window of half of it, and more as segments turn out large.
    pub receive_buffer: Bytes,
    /// The rate that acknowledgements without data may take of the link; beyond it, waiting ones are replaced by newer
    /// ones. `None` sets no bound. Only the gateway's satellite leg has it; in the simulator an ACK filter does the
    /// same.
    pub ack_rate: Option<Rate>,
    /// What SCONE packets that cross the link are to say at most. Only the gateway's satellite leg has it.
    pub scone: SconeRates,
    /// Segments in order that one acknowledgement answers, and how long it waits for the last of them; `None` leaves it to the TCP. Only
    /// ours can set it.
    pub ack_every: Option<u32>,
    /// See [`Self::ack_every`].
    pub ack_delay: Option<Duration>,
    /// What losses mean where nothing else tells; `None` leaves it to the TCP. Only ours can set it.
    pub loss_cause: Option<LossCause>,
    /// Losses mean corruption for so long after the far end told that packets arrive damaged there, and it is told the same;
    /// `None`: it is neither believed nor told. Only ours can set it.
    pub corruption_experienced: Option<Duration>,
    /// Let no more than this wait unsent in the kernel; `None` lets the whole send buffer fill.
    pub notsent_lowat: Option<Bytes>,
    /// The largest segment that the leg sends and asks for, TCP options included (the MSS option of
    /// RFC 9293, section 3.7.1); `None` leaves it to the interface's MTU.
    pub mss: Option<Bytes>,
}

impl Leg {
    /// The size of a buffer without bound, which only simulated legs have.
    pub const UNBOUNDED: Bytes = Bytes(u64::MAX);

    /// The payload for which a socket's `buffer` has room: half of it, for the kernel needs the other for its bookkeeping
    /// (tcp_adv_win_scale 1).
    pub fn payload_of(buffer: Bytes) -> Bytes {
        match buffer {
            Self::UNBOUNDED => buffer,
            bounded => Bytes(bounded.0 / 2),
        }
    }

    /// The first key that is set and that only simulated legs understand.
    pub fn simulated_key(&self) -> Option<&'static str> {
        let keys = [
            ("variant", self.variant.is_some()),
            ("initial_window", self.initial_window.is_some()),
            ("send_buffer", self.send_buffer == Self::UNBOUNDED),
            ("receive_buffer", self.receive_buffer == Self::UNBOUNDED),
        ];
        keys.iter().find(|(_, said)| *said).map(|(key, _)| *key)
    }

    /// The satellite leg.
    ///
    /// The [rate control](RATE). With the rate known: [buffers](Self::buffer) for it, of which no more than
    /// 100 ms of the link's rate wait unsent, and at least 16 MiB to receive, for the way towards us
    /// may be faster; a guard of at least 16 full packets' time on the link, for ten leave unpaced at
    /// a flow's start. Unknown: what is in flight follows the link, within the product of 100 Mbit/s
    /// and 600 ms, and no more than 1 MiB waits unsent.
    pub fn satellite(rate: Option<Rate>) -> Self {
        let mut base = Self::terrestrial();
        base.link.rate = rate;
        let Some(rate) = rate else {
            return Self {
                congestion: Some(RATE.to_owned()),
                send_buffer: Bytes(64 << 20),
                receive_buffer: Bytes(16 << 20),
                notsent_lowat: Some(Bytes(1 << 20)),
                ..base
            };
        };
        let buffer = Self::buffer(rate);
        let unsent = rate.over(Duration::from_millis(100));
        let beginning = rate
            .serialisation(Bytes(16 * 1500))
            .min(LinkParams::LONGEST);
        base.link.guard = base.link.guard.map(|guard| guard.max(beginning));
        Self {
            congestion: Some(RATE.to_owned()),
            send_buffer: buffer,
            receive_buffer: buffer.max(Bytes(16 << 20)),
            notsent_lowat: Some(unsent.clamp(Bytes(128 << 10), Bytes(4 << 20))),
            ..base
        }
    }

    /// What a flow may fill on a link of `rate`: eight times the bandwidth-delay product at 600 ms,
    /// payload and overhead of four; 1 to 256 MiB.
    pub fn buffer(rate: Rate) -> Bytes {
        let product = rate.over(Duration::from_millis(600));
        (product * 8).clamp(Bytes(1 << 20), Bytes(256 << 20))
    }

    /// The terrestrial leg: the kernel's default control, 2 MiB of buffer each way.
    pub fn terrestrial() -> Self {
        Self {
            carrier: Carrier::Kernel,
            quic: None,
            quic_end: None,
            congestion: None,
            variant: None,
            initial_window: None,
            insist: false,
            link: LinkParams::default(),
            send_buffer: Bytes(2 << 20),
            receive_buffer: Bytes(2 << 20),
            ack_rate: None,
            scone: SconeRates::default(),
            ack_every: None,
            ack_delay: None,
            loss_cause: None,
            corruption_experienced: None,
            notsent_lowat: None,
            mss: None,
        }
    }

    /// What a flow's pacing keeps within, in payload, so that it does not overrun the link with segments of `payload` bytes behind
    /// `header` bytes of headers: for controls that do not heed the rate themselves.
    pub fn ceiling(&self, payload: u16, header: u64) -> Option<Rate> {
        let payload = f64::from(payload.max(1));
        let wire = payload + header as f64 + self.link.overhead.0 as f64;
        let part = self.link.pace.value() * payload / wire;
        self.link.rate.map(|rate| rate.scaled(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_satellite_leg_follows_from_its_rate() {
        let ten = Leg::satellite("10Mbit/s".parse().ok());
        assert_eq!(ten.congestion.as_deref(), Some(RATE));
        // 10 Mbit/s × 0.6 s = 750 kB.
        assert_eq!(ten.send_buffer, Bytes(6_000_000));
        assert_eq!(ten.receive_buffer, Bytes(16 << 20));
        assert_eq!(ten.link.guard, Some(Duration::from_millis(60)));
        // 16 packets of 24 ms.
        let slow = Leg::satellite("500kbit/s".parse().ok());
        assert_eq!(slow.link.guard, Some(Duration::from_millis(384)));
        // Where that is longer than a control takes.
        let slowest = Leg::satellite("8kbit/s".parse().ok());
        assert_eq!(slowest.link.fault(), None);
        assert_eq!(ten.notsent_lowat, Some(Bytes(128 << 10)));
        let unknown = Leg::satellite(None);
        assert_eq!(unknown.congestion.as_deref(), Some(RATE));
        assert_eq!(unknown.send_buffer, Bytes(64 << 20));
        assert_eq!(unknown.notsent_lowat, Some(Bytes(1 << 20)));
    }
}
