use thiserror::Error;

/// Why bytes are no Saratoga frame, or a frame cannot become bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Fewer octets than the frame needs.
    #[error("{what} is cut short: {need} octets needed, {have} present; drop the datagram")]
    Truncated {
        /// The part.
        what: &'static str,
        /// Octets it takes.
        need: usize,
        /// Octets there are.
        have: usize,
    },
    /// Not version 1: version 0, flown by SSTL, is another protocol.
    #[error("Saratoga version {0} is not 1; drop the datagram")]
    Version(u8),
    /// A type that version 1 does not have.
    #[error("Saratoga frame type {0} is unknown; drop the datagram")]
    Type(u8),
    /// A field holds what it must not.
    #[error("{what} is malformed: {why}; drop the datagram")]
    Malformed {
        /// The part.
        what: &'static str,
        /// Its fault.
        why: &'static str,
    },
    /// A value that the chosen descriptor or field cannot hold.
    #[error("{what} does not fit its field; take a wider descriptor or a shorter text")]
    TooLong {
        /// The part.
        what: &'static str,
    },
    /// A frame that would read back as another.
    #[error("cannot emit the frame: {why}; build it as parse would")]
    Inconsistent {
        /// The contradiction.
        why: &'static str,
    },
}
