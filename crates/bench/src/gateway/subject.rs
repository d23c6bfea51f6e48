//! The subjects of the comparison.

/// One line of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Plain forwarding, no proxy.
    Kernel,
    /// HAProxy at its best.
    Haproxy,
    /// HAProxy with `option splice-auto`, which decides for itself when to splice; bulk only.
    HaproxySpliceAuto,
    /// Our gateway as it comes: `handshake = "end-to-end"`.
    Bentpipe,
    /// Our gateway with `handshake = "early"`; short connections only.
    BentpipeEarly,
    /// Our gateway beside a rule that drops what is for a service of its own, so that packets go past the input and output
    /// chains by a queue. It takes part where it is asked for.
    BentpipePastChains,
    /// Our gateway with `action = "snoop"` for every connection: none is split. It takes part where it is asked for, in bulk
    /// and round trips.
    BentpipeSnoop,
    /// Two of our gateways, with SCPS-TP between them. It takes part where it is asked for, in bulk and round trips.
    BentpipeScps,
    /// Two of our gateways in a row, each of which splits by the kernel's TCP and answers a SYN at once, as the near end of a leg over
    /// QUIC does. It takes part where it is asked for, in bulk, round trips and short connections.
    BentpipeTwice,
    /// Our gateway and `bentpipe proxy`, with QUIC between them. It takes part as [`Self::BentpipeTwice`].
    BentpipeQuic,
}

impl Subject {
    /// All, in the order of the table.
    pub const ALL: [Self; 10] = [
        Self::Kernel,
        Self::Haproxy,
        Self::HaproxySpliceAuto,
        Self::Bentpipe,
        Self::BentpipeEarly,
        Self::BentpipePastChains,
        Self::BentpipeSnoop,
        Self::BentpipeScps,
        Self::BentpipeTwice,
        Self::BentpipeQuic,
    ];

    /// The subjects of a run that names none.
    pub fn usual() -> Vec<Self> {
        let usual = |subject: &Self| {
            !matches!(
                subject,
                Self::BentpipePastChains
                    | Self::BentpipeSnoop
                    | Self::BentpipeScps
                    | Self::BentpipeTwice
                    | Self::BentpipeQuic
            )
        };
        Self::ALL.into_iter().filter(usual).collect()
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.name() == name)
    }

    /// Its name in the table, in JSON and for `--subjects`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Haproxy => "haproxy",
            Self::HaproxySpliceAuto => "haproxy-splice-auto",
            Self::Bentpipe => "bentpipe",
            Self::BentpipeEarly => "bentpipe-early",
            Self::BentpipePastChains => "bentpipe-past-chains",
            Self::BentpipeSnoop => "bentpipe-snoop",
            Self::BentpipeScps => "bentpipe-scps",
            Self::BentpipeTwice => "bentpipe-twice",
            Self::BentpipeQuic => "bentpipe-quic",
        }
    }

    /// Whether this is HAProxy, however configured.
    pub fn is_haproxy(self) -> bool {
        matches!(self, Self::Haproxy | Self::HaproxySpliceAuto)
    }

    /// Whether this is ours, however configured.
    pub fn is_ours(self) -> bool {
        self != Self::Kernel && !self.is_haproxy()
    }

    /// Whether two of ours stand in a row.
    pub(super) fn is_pair(self) -> bool {
        matches!(
            self,
            Self::BentpipeScps | Self::BentpipeTwice | Self::BentpipeQuic
        )
    }
}
