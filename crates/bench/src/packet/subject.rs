//! Who is measured.

use super::Figure;
use super::report::Aim;
use std::path::Path;

/// A TCP at the other end of a TUN interface, or a part of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// Our host and driver, single segments.
    Bentpipe,
    /// The same with `IFF_VNET_HDR`.
    BentpipeOffloads,
    /// smoltcp, on the interface that its own crate makes: single segments.
    Smoltcp,
    /// The kernel's TCP in another namespace, behind a TUN interface there; a loop copies packets between the two.
    Kernel,
    /// The same with `IFF_VNET_HDR`.
    KernelOffloads,
    /// Our host half, without driver and interface.
    HostHalf,
}

impl Subject {
    /// Those over TUN that can be measured here: without the program `smoltcp` a note says what to do.
    pub(super) fn measured(smoltcp: &Path, notes: &mut Vec<String>) -> Vec<Self> {
        let mut subjects = vec![
            Self::Bentpipe,
            Self::BentpipeOffloads,
            Self::Kernel,
            Self::KernelOffloads,
        ];
        if smoltcp.exists() {
            subjects.push(Self::Smoltcp);
        } else {
            notes.push(format!(
                "SKIPPED smoltcp: `{}` is not there; `make bench-packet` builds it",
                smoltcp.display()
            ));
        }
        subjects
    }

    /// Its name in the table and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bentpipe => "bentpipe",
            Self::BentpipeOffloads => "bentpipe-offloads",
            Self::Smoltcp => "smoltcp",
            Self::Kernel => "kernel",
            Self::KernelOffloads => "kernel-offloads",
            Self::HostHalf => "bentpipe-host",
        }
    }

    /// Whether its interface has `IFF_VNET_HDR`.
    pub(super) const fn has_offloads(self) -> bool {
        matches!(self, Self::BentpipeOffloads | Self::KernelOffloads)
    }

    /// Whom it is compared with.
    pub(super) const fn rivals(self) -> &'static [Self] {
        match self {
            Self::Bentpipe => &[Self::Smoltcp, Self::Kernel],
            Self::BentpipeOffloads => &[Self::Smoltcp, Self::KernelOffloads],
            _ => &[],
        }
    }

    /// What it is to reach.
    pub(super) fn aim(self, figure: Figure) -> Option<Aim> {
        use Figure::{Accepts, FromKernel, IdleMemory, RoundTrip, ToKernel};
        match (self, figure) {
            (Self::Bentpipe, ToKernel | FromKernel) => Some(Aim::Value(1.5)),
            (Self::BentpipeOffloads, ToKernel | FromKernel) => Some(Aim::Value(5.0)),
            (Self::Bentpipe, RoundTrip) => Some(Aim::Ratio(Self::Kernel, 1.5)),
            (Self::BentpipeOffloads, RoundTrip) => Some(Aim::Ratio(Self::KernelOffloads, 1.5)),
            (Self::HostHalf, IdleMemory) => Some(Aim::Value(2048.0)),
            (Self::HostHalf, Accepts) => Some(Aim::Value(50_000.0)),
            _ => None,
        }
    }
}
