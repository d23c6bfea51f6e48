//! Loss recovery: which segments are taken for lost, when they are sent again, and how the window
//! is held meanwhile. One file each, apart from congestion control, as in ns-3 and Linux; those of
//! ns-2, whose rules differ, are in [`ns2`].

mod newreno;
mod prr_newreno;
mod rack;
mod reno;
mod sack_detection;
mod sack_recovery;
mod snack;
mod tahoe;
mod tail_loss_probe;
mod undo;

pub use crate::sender::{AckSample, NextSend, RecoveryContext};

use crate::{Config, ns2};
use bentpipe_base::Instant;
use std::fmt::Debug;

/// A loss recovery of one connection.
pub trait Recovery: Debug + Send {
    /// Its name in [`REGISTRY`].
    fn name(&self) -> &'static str;

    /// New data was acknowledged, `sample` tells what; lets the window grow by `RecoveryContext::grow`,
    /// and sees to the retransmission timer.
    fn on_ack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample);

    /// An acknowledgement repeated the last one with data in flight (RFC 5681, section 2), or told
    /// something new by SACK.
    fn on_dupack(&mut self, tx: &mut RecoveryContext<'_>, sample: &AckSample);

    /// The retransmission timer expired.
    fn on_rto(&mut self, tx: &mut RecoveryContext<'_>, now: Instant);

    /// The peer echoed marks, and the threshold was reduced for them ([`Phase::Cwr`](bentpipe_cc::Phase::Cwr)); whether the
    /// window shrinks to it in the course of the round trip, and not at once.
    fn on_marks(&mut self, _tx: &mut RecoveryContext<'_>) -> bool {
        false
    }

    /// The link was out, and the peer is heard again: what is under way may be lost. The window stays.
    fn on_resume(&mut self, tx: &mut RecoveryContext<'_>, now: Instant) {
        self.on_rto(tx, now);
    }

    /// What to send next; asked until [`NextSend::Nothing`].
    fn pick(&mut self, tx: &mut RecoveryContext<'_>) -> NextSend;

    /// Bytes `[from, to)` were sent, as picked.
    fn on_sent(&mut self, _tx: &mut RecoveryContext<'_>, _from: u64, _to: u64) {}

    /// An acknowledgement came with nothing in flight, and told nothing but that the bytes of `duplicate` arrived twice
    /// (RFC 2883), if so much.
    fn on_idle(
        &mut self,
        _tx: &mut RecoveryContext<'_>,
        _duplicate: Option<(u64, u64)>,
        _now: Instant,
    ) {
    }

    /// The recovery's own timer expired.
    fn on_timer(&mut self, _tx: &mut RecoveryContext<'_>, _now: Instant) {}
}

/// One loss recovery by name.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// How scenarios and commands call it.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// It reads SACK blocks; this one takes its place with a peer that does not speak SACK (RFC 6675, section 1).
    pub without_sack: Option<&'static str>,
    /// It needs a peer that speaks SCPS-TP with SNACK; this one takes its place with a peer that speaks SACK alone.
    pub without_snack: Option<&'static str>,
    /// What [`Config::variant`] sets besides, because the recovery counts on it.
    pub adapt: Option<fn(&mut Config)>,
    /// Makes one.
    pub new: fn() -> Box<dyn Recovery>,
}

/// All of them.
pub const REGISTRY: &[Algorithm] = &[
    Algorithm {
        name: "tahoe",
        summary: "fast retransmit, then slow start from one segment",
        without_sack: None,
        without_snack: None,
        adapt: None,
        new: || Box::<tahoe::Tahoe>::default(),
    },
    Algorithm {
        name: "reno",
        summary: "fast recovery of RFC 5681: the window inflates by duplicate acknowledgements",
        without_sack: None,
        without_snack: None,
        adapt: None,
        new: || Box::<reno::Reno>::default(),
    },
    Algorithm {
        name: "newreno",
        summary: "fast recovery through partial acknowledgements (RFC 6582)",
        without_sack: None,
        without_snack: None,
        adapt: None,
        new: || Box::<newreno::NewReno>::default(),
    },
    Algorithm {
        name: "sack",
        summary: "selective retransmission by the pipe of RFC 6675",
        without_sack: Some("newreno"),
        without_snack: None,
        adapt: None,
        new: || Box::new(sack_recovery::SackRecovery::new(sack_detection::Sack)),
    },
    Algorithm {
        name: "fack",
        summary: "forward acknowledgement: lost is what lies three segments below the highest held",
        without_sack: Some("newreno"),
        without_snack: None,
        adapt: None,
        new: || Box::new(sack_recovery::SackRecovery::new(sack_detection::Fack)),
    },
    Algorithm {
        name: "prr-rack",
        summary: "loss by time (RFC 8985), the window reduced in proportion (RFC 9937)",
        without_sack: Some("prr-newreno"),
        without_snack: None,
        adapt: None,
        new: || Box::new(sack_recovery::SackRecovery::new(rack::Rack::default())),
    },
    Algorithm {
        name: "rack-tlp",
        summary: "as prr-rack, and a probe where the tail of a flight may be lost (RFC 8985 whole)",
        without_sack: Some("prr-newreno"),
        without_snack: None,
        adapt: None,
        new: || {
            Box::new(sack_recovery::SackRecovery::new(
                tail_loss_probe::RackTlp::default(),
            ))
        },
    },
    Algorithm {
        name: "prr-newreno",
        summary: "as newreno, the window reduced in proportion (RFC 9937): prr-rack for peers without SACK",
        without_sack: None,
        without_snack: None,
        adapt: None,
        new: || {
            Box::new(sack_recovery::SackRecovery::new(
                prr_newreno::DuplicateAcks::default(),
            ))
        },
    },
    Algorithm {
        name: "snack",
        summary: "what the receiver says that it misses (SNACK of SCPS-TP), and SACK beside it",
        without_sack: Some("newreno"),
        without_snack: Some("rack-tlp"),
        adapt: None,
        new: || Box::new(sack_recovery::SackRecovery::new(snack::Snack::default())),
    },
    Algorithm {
        name: "ns2-tahoe",
        summary: "Tahoe as ns-2 2.35 does it",
        without_sack: None,
        without_snack: None,
        adapt: None,
        new: || Box::<ns2::Tahoe>::default(),
    },
    Algorithm {
        name: "ns2-reno",
        summary: "Reno as ns-2 2.35 does it",
        without_sack: None,
        without_snack: None,
        adapt: None,
        new: || Box::new(ns2::Reno::new(false)),
    },
    Algorithm {
        name: "ns2-newreno",
        summary: "NewReno as ns-2 2.35 does it",
        without_sack: None,
        without_snack: None,
        adapt: None,
        new: || Box::new(ns2::Reno::new(true)),
    },
    Algorithm {
        name: "ns2-sack",
        summary: "Sack1 as ns-2 2.35 does it",
        without_sack: Some("ns2-newreno"),
        without_snack: None,
        adapt: None,
        new: || Box::<ns2::Sack>::default(),
    },
    Algorithm {
        name: "ns2-fack",
        summary: "Fack as ns-2 2.35 does it",
        without_sack: Some("ns2-newreno"),
        without_snack: None,
        adapt: Some(ns2::Fack::adapt),
        new: || Box::<ns2::Fack>::default(),
    },
    Algorithm {
        name: "ns2-vegas",
        summary: "Vegas's own recovery as ns-2 2.35 does it",
        without_sack: None,
        without_snack: None,
        adapt: Some(ns2::Vegas::adapt),
        new: || Box::<ns2::Vegas>::default(),
    },
];

/// The recovery called `name`.
pub fn find(name: &str) -> Option<&'static Algorithm> {
    REGISTRY.iter().find(|variant| variant.name == name)
}
