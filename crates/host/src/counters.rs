/// What a host did with packets, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came in.
    pub received: u64,
    /// Packets among these for a connection.
    pub delivered: u64,
    /// Packets to an address that is not this host's, from one that nobody has, or from itself to itself ("land").
    pub misdirected: u64,
    /// Packets that are neither TCP nor ICMP, or fragments.
    pub foreign: u64,
    /// Segments of TCP, no resets, with bits or numbers that belong to no connection.
    pub unknown: u64,
    /// Resets of what this host does not know.
    pub stray_resets: u64,
    /// Packets for connections in TIME-WAIT.
    pub time_wait: u64,
    /// SYNs that a listener took.
    pub syns: u64,
    /// SYNs that were dropped: nobody accepts what waits, or there are too many connections.
    pub syns_dropped: u64,
    /// SYNs that were answered by a cookie: too many handshakes were under way.
    pub cookies_sent: u64,
    /// Acknowledgements that brought a true cookie back.
    pub cookies_accepted: u64,
    /// Acknowledgements that brought a false one.
    pub cookies_false: u64,
    /// SYNs that brought a good Fast Open cookie, and whose connections were opened early.
    pub fast_opens: u64,
    /// SYNs with a good one, or one that was, that came past the limit of such connections.
    pub fast_opens_refused: u64,
    /// SYNs that brought a cookie that is none of ours, or no longer.
    pub fast_open_cookies_false: u64,
    /// Fast Open cookies given.
    pub fast_open_cookies_sent: u64,
    /// Connections that this host opened whose data went with the SYN, and was acknowledged by the answer.
    pub fast_opens_answered: u64,
    /// Such whose data was not acknowledged, or whose SYN was lost.
    pub fast_opens_failed: u64,
    /// ICMP errors about a connection of ours.
    pub icmp: u64,
    /// ICMP messages of other kinds, damaged ones, and errors about bytes that are not on their way.
    pub icmp_ignored: u64,
    /// Payloads for connections whose application does not read, or beyond a gap, while all hold too much.
    pub payloads_dropped: u64,
    /// Packets that went out.
    pub sent: u64,
    /// Resets sent to what belongs to nobody.
    pub resets_sent: u64,
    /// Answers that the limit of them kept back.
    pub replies_kept_back: u64,
    /// Connections that ended before their bytes were delivered, for want of room for such that nobody holds.
    pub orphans_reset: u64,
    /// Paths that were found to swallow full-sized packets.
    pub black_holes: u64,
    /// Probes for larger packets than a path was taken for.
    pub path_probes: u64,
}
