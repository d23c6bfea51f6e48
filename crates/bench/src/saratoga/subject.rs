use std::fmt;

/// One line of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Ours: `saratoga serve` and `saratoga get`.
    Bentpipe,
    /// `iperf3 -u`, in packets of the same size, without a rate.
    IperfUdp,
    /// `iperf3` over TCP.
    IperfTcp,
}

impl Subject {
    /// Its name in the table and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bentpipe => "bentpipe",
            Self::IperfUdp => "iperf3-udp",
            Self::IperfTcp => "iperf3-tcp",
        }
    }

    /// What of a rival's goodput ours is to reach at least.
    pub(super) fn target(self) -> Option<f64> {
        match self {
            Self::Bentpipe => None,
            Self::IperfUdp => Some(1.0),
            Self::IperfTcp => Some(0.5),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
