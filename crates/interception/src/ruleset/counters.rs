//! The names of the table's counters.

/// The table's counters beside those of policies.
pub(super) const COUNTERS: [&str; 17] = [
    // New connections that passed unsplit: at a limit, because the operator wanted it, while the
    // gateway drained, while it did not attend, and for MPTCP, TCP-MD5 or TCP-AO. Where SYNs are held the
    // workers count some of these.
    "limit_flows",
    "limit_descriptors",
    "limit_buffered",
    "bypassed",
    "draining",
    "unattended",
    "foreign_options",
    // These passed because their answers would not go back by the leg that they came by, or their destination is
    // translated, or policies of IPsec judge them otherwise where they are split.
    "asymmetric",
    "translated",
    // These passed because they have few hops left: a traceroute sent them.
    "few_hops",
    // These passed without a look at them, because their source prefix has sent too many that passed.
    "crowded",
    // These were to be snooped, and pass without help: as many are remembered already.
    "snoop_full",
    // Packets that passed, by kind; to UDP port 443 also those that were refused.
    "unsplit_tcp",
    "unsplit_quic",
    "rejected_quic",
    "unsplit_ipsec",
    "unsplit_other",
];
