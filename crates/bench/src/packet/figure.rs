//! The figures.

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Figure {
    /// Bytes that the subject sends to the kernel, one connection.
    ToKernel,
    /// Bytes that it takes from it.
    FromKernel,
    /// One byte there and back.
    RoundTrip,
    /// Memory of one connection that carried a little and is idle.
    IdleMemory,
    /// Connections that are made and accepted, in virtual time: by the processor time that it takes.
    Accepts,
}

impl Figure {
    /// The figures of a TCP over a TUN interface.
    pub(super) const OVER_TUN: [Self; 3] = [Self::ToKernel, Self::FromKernel, Self::RoundTrip];

    /// Its name in the table and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToKernel => "to_kernel",
            Self::FromKernel => "from_kernel",
            Self::RoundTrip => "round_trip",
            Self::IdleMemory => "idle_memory",
            Self::Accepts => "accepts",
        }
    }

    /// The unit of its values.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::ToKernel | Self::FromKernel => "Gbit/s",
            Self::RoundTrip => "µs",
            Self::IdleMemory => "B/connection",
            Self::Accepts => "1/s",
        }
    }

    /// Whether less is better.
    pub const fn lower_is_better(self) -> bool {
        matches!(self, Self::RoundTrip | Self::IdleMemory)
    }
}
