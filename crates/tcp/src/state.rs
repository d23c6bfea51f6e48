//! The states of a connection, the events that it tells its user, and why it may end out of order.

/// Connection states (RFC 9293, section 3.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum State {
    /// No connection.
    #[default]
    Closed,
    /// Waiting for a SYN.
    Listen,
    /// SYN sent.
    SynSent,
    /// SYN received and answered.
    SynReceived,
    /// Data flows.
    Established,
    /// Closed here, FIN sent.
    FinWait1,
    /// Our FIN is acknowledged, the peer still sends.
    FinWait2,
    /// The peer is done, we may still send.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer was done first; our FIN is not acknowledged.
    LastAck,
    /// Waiting for the peer's last retransmissions to die out.
    TimeWait,
}

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The handshake is done.
    Connected,
    /// There are bytes to read that were not there before.
    Readable,
    /// Data was acknowledged: there is room to write again.
    Writable,
    /// All that was written, and the FIN if closed, is acknowledged.
    Drained,
    /// The peer will send no more: end of its stream.
    PeerClosed,
    /// The connection is over, in order.
    Closed,
    /// The connection is over, not in order.
    Aborted(Cause),
}

/// Why a connection ended out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The peer sent a reset.
    Reset,
    /// The peer refused the connection.
    Refused,
    /// The network says that no way leads to the peer.
    Unreachable,
    /// Retransmissions or probes went unanswered.
    TimedOut,
    /// The application gave up.
    Local,
}
