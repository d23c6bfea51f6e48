//! The table of all congestion controls.

use crate::bbr::Bbr;
use crate::bbr1::Bbr1;
use crate::bic::Bic;
use crate::compound::Compound;
use crate::cubic::Cubic;
use crate::cubic_rfc::CubicRfc;
use crate::hybla::{self, Hybla};
use crate::rate_control::{self, RateControl};
use crate::reno::Reno;
use crate::vegas::Vegas;
use crate::westwood::Westwood;
use crate::{Congestion, Settings};

/// One congestion control by name.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// How scenarios and commands call it.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    /// How it uses the rate of its link.
    pub rate: RateUse,
    /// Its name on kernel sockets, as users write it, where `bentpipe-bpf` has a program for it.
    pub kernel: Option<&'static str>,
    /// Makes one for a connection that has its link to itself.
    pub new: fn(&Settings) -> Box<dyn Congestion>,
}

/// How a congestion control uses the rate of the link that it sends over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateUse {
    /// It ignores the rate and finds its own.
    Ignores,
    /// It uses a rate that it is told. It runs on hosts, which know nothing of their path unless they are told.
    Heeds,
    /// It runs on a gateway that owns the link. It is told the link's rate, and its flows divide that among themselves.
    Shares,
}

/// All of them, by name.
pub const REGISTRY: &[Algorithm] = &[
    Algorithm {
        name: "bbr",
        summary: "BBR version 3: sends at the measured rate of the path, and little more than it holds",
        rate: RateUse::Ignores,
        kernel: None,
        new: |_| Box::new(Bbr::default()),
    },
    Algorithm {
        name: "bbr1",
        summary: "BBR version 1, as mainline Linux has it by the name `bbr`",
        rate: RateUse::Ignores,
        kernel: None,
        new: |_| Box::new(Bbr1::default()),
    },
    Algorithm {
        name: "bic",
        summary: "BIC: binary search for the window of the last loss, then probing beyond it",
        rate: RateUse::Ignores,
        kernel: None,
        new: |_| Box::new(Bic::default()),
    },
    Algorithm {
        name: "compound",
        summary: "Compound TCP: Reno's window and one that grows while the delay is small",
        rate: RateUse::Ignores,
        kernel: None,
        new: |_| Box::new(Compound::default()),
    },
    Algorithm {
        name: "cubic",
        summary: "CUBIC as Linux has it: a cubic function of the time since the last loss, with HyStart",
        rate: RateUse::Ignores,
        kernel: None,
        new: |settings| Box::new(Cubic::new(settings.slow_start)),
    },
    Algorithm {
        name: "cubic-rfc",
        summary: "CUBIC as RFC 9438 has it, with HyStart",
        rate: RateUse::Ignores,
        kernel: None,
        new: |settings| Box::new(CubicRfc::new(settings.slow_start)),
    },
    Algorithm {
        name: "hybla",
        summary: "TCP Hybla: grows as a flow of RTT0 would, whatever its round-trip time",
        rate: RateUse::Heeds,
        kernel: Some(hybla::KERNEL),
        new: |settings| Box::new(Hybla::new(settings)),
    },
    Algorithm {
        name: "rate",
        summary: "paced at a share of the link's known rate; loss is taken for corruption",
        rate: RateUse::Shares,
        kernel: Some(rate_control::KERNEL),
        new: |settings| Box::new(RateControl::new(settings)),
    },
    Algorithm {
        name: "reno",
        summary: "slow start and congestion avoidance of RFC 5681",
        rate: RateUse::Ignores,
        kernel: None,
        new: |settings| Box::new(Reno::new(settings.slow_start)),
    },
    Algorithm {
        name: "vegas",
        summary: "TCP Vegas: keeps alpha to beta segments in the queue of the bottleneck",
        rate: RateUse::Ignores,
        kernel: None,
        new: |settings| Box::new(Vegas::new(settings.vegas)),
    },
    Algorithm {
        name: "westwood",
        summary: "Westwood+: Reno that falls to the measured bandwidth times the smallest RTT",
        rate: RateUse::Ignores,
        kernel: None,
        new: |_| Box::new(Westwood::default()),
    },
];

impl Algorithm {
    /// One for a connection to `host` that shares `link` with others by the same control; `None` where the control
    /// does not share.
    pub fn sharing(
        &self,
        link: &rate_control::Link,
        host: u64,
        settings: &Settings,
    ) -> Option<Box<dyn Congestion>> {
        match self.rate {
            RateUse::Shares => Some(Box::new(RateControl::on(link.clone(), host, settings))),
            RateUse::Ignores | RateUse::Heeds => None,
        }
    }
}

/// The control called `name`, here or on kernel sockets.
pub fn find(name: &str) -> Option<&'static Algorithm> {
    { REGISTRY.iter() }.find(|variant| variant.name == name || variant.kernel == Some(name))
}

/// The twin of the BPF program that users call `name`.
pub fn twin(name: &str) -> Option<&'static Algorithm> {
    { REGISTRY.iter() }.find(|variant| variant.kernel == Some(name))
}
