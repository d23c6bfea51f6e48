use thiserror::Error;

/// Why bytes are no packet, or a packet cannot become bytes. Names the header at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// Fewer bytes than the header says or needs.
    #[error("{what} is cut short: {need} bytes needed, {have} present; pass the packet on unread")]
    Truncated {
        /// The header.
        what: &'static str,
        /// Bytes it takes.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// Neither 4 nor 6.
    #[error("IP version {0} is neither 4 nor 6; pass the packet on unread")]
    Version(u8),
    /// A field holds what it must not.
    #[error("{what} is malformed: {why}; pass the packet on unread")]
    Malformed {
        /// The header.
        what: &'static str,
        /// The field and its fault.
        why: &'static str,
    },
    /// Damaged on the way, or not filled in (checksum offload).
    #[error(
        "the checksum of {what} is wrong; drop the packet, or read it with Checksums::Ignore where offload leaves checksums empty"
    )]
    Checksum {
        /// The header.
        what: &'static str,
    },
    /// More than the format can hold.
    #[error("{what} is too long to emit: {have} bytes, at most {most}; shorten it")]
    TooLong {
        /// The part.
        what: &'static str,
        /// Its bytes.
        have: usize,
        /// What fits.
        most: usize,
    },
    /// Parts of a packet that contradict each other, so that it would read back as another.
    #[error("cannot emit the packet: {why}; build it as parse would")]
    Inconsistent {
        /// The contradiction.
        why: &'static str,
    },
}
