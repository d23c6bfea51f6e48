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
}

impl Subject {
    /// All, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::Kernel,
        Self::Haproxy,
        Self::HaproxySpliceAuto,
        Self::Bentpipe,
        Self::BentpipeEarly,
    ];

    /// Its name in the table, in JSON and for `--subjects`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Haproxy => "haproxy",
            Self::HaproxySpliceAuto => "haproxy-splice-auto",
            Self::Bentpipe => "bentpipe",
            Self::BentpipeEarly => "bentpipe-early",
        }
    }

    /// Whether this is HAProxy, however configured.
    pub fn is_haproxy(self) -> bool {
        matches!(self, Self::Haproxy | Self::HaproxySpliceAuto)
    }

    /// Whether this is ours, however configured.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Bentpipe | Self::BentpipeEarly)
    }
}
