use crate::gateway::{BenchError, TrafficError};
use bentpipe_driver::DriverError;
use bentpipe_os::need::Missing;
use bentpipe_os::netlink::NetlinkError;
use bentpipe_os::netns::{NetnsError, SysctlError};
use bentpipe_os::tun::TunError;
use std::io;
use thiserror::Error;

/// Why the packet plane could not be measured.
#[derive(Debug, Error)]
pub enum PacketBenchError {
    /// The machine lacks something.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A namespace could not be made.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// An interface or address could not be made.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A kernel setting could not be made.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A TUN interface could not be made.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// The driver of our TCP failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The rival could not be started, or ended.
    #[error("smoltcp, the rival, {0}")]
    Rival(String),
    /// The traffic of a measurement failed.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A measurement failed.
    #[error("{figure} of {subject}: {source}")]
    Measurement {
        /// What was measured.
        figure: &'static str,
        /// The subject it was measured on.
        subject: &'static str,
        /// Why it failed.
        source: TrafficError,
    },
    /// The host half did not do what it was measured at.
    #[error("the host half made {made} connections of {asked}: please report this")]
    HostHalf {
        /// Connections made.
        made: usize,
        /// Connections asked for.
        asked: usize,
    },
    /// Snoop could not be compared with forwarding.
    #[error(transparent)]
    Snoop(#[from] BenchError),
}

impl PacketBenchError {
    /// Whether the user asked to stop.
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Traffic(source) | Self::Measurement { source, .. } => {
                matches!(source, TrafficError::Cancelled)
            }
            Self::Snoop(error) => error.is_cancelled(),
            _ => false,
        }
    }
}
