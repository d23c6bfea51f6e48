//! Who is measured.

/// One line of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Plain forwarding, no proxy.
    Kernel,
    /// HAProxy at its best.
    Haproxy,
    /// HAProxy with `option splice-auto`, which decides for itself when to splice; bulk only.
    HaproxySpliceAuto,
    /// Our gateway.
    Bentpipe,
}

impl Subject {
    /// All, in the order of the table.
    pub const ALL: [Self; 4] = [
        Self::Kernel,
        Self::Haproxy,
        Self::HaproxySpliceAuto,
        Self::Bentpipe,
    ];

    /// Its name in the table, in JSON and for `--subjects`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Haproxy => "haproxy",
            Self::HaproxySpliceAuto => "haproxy-splice-auto",
            Self::Bentpipe => "bentpipe",
        }
    }

    /// Whether this is HAProxy, however configured.
    pub fn is_haproxy(self) -> bool {
        matches!(self, Self::Haproxy | Self::HaproxySpliceAuto)
    }
}
