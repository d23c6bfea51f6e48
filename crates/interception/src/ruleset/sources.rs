//! What rules tell sources apart by, where one is not to have what is there for all: the host, and then the prefix that one
//! customer commonly has.

/// One way to tell sources apart.
pub(super) struct Source {
    /// A part of the names of its sets.
    pub(super) name: &'static str,
    /// The part of an address by which it is known, by family.
    v4: &'static str,
    v6: &'static str,
}

/// A host: an address, and where IPv6 gives each host a network of its own, that network.
pub(super) const HOST: Source = Source {
    name: "host",
    v4: "ip saddr",
    v6: "ip6 saddr & ffff:ffff:ffff:ffff::",
};
/// A customer, as for the quotas of `bentpipe-relay`: /24 and /56.
pub(super) const PREFIX: Source = Source {
    name: "prefix",
    v4: "ip saddr & 255.255.255.0",
    v6: "ip6 saddr & ffff:ffff:ffff:ff00::",
};

impl Source {
    /// nft's words for the source of a packet whose header is `ip`.
    pub(super) fn of(&self, ip: &str) -> &'static str {
        match ip {
            "ip" => self.v4,
            _ => self.v6,
        }
    }
}

/// A set of sources of one family, remembered for `seconds`.
pub(super) fn set(name: &str, ip: &str, size: u32, seconds: u32) -> String {
    format!(
        "\
set {name} {{
  typeof {ip} saddr
  flags dynamic, timeout
  size {size}
  timeout {seconds}s
}}
"
    )
}
