//! The names of all proxies.

/// One kind of proxy.
#[derive(Clone, Copy, Debug)]
pub struct RegistryEntry {
    /// What its [`kind`](crate::Pep::kind) is.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
}

/// Every kind of proxy.
pub const REGISTRY: &[RegistryEntry] = &[
    RegistryEntry {
        name: "ack-filter",
        summary: "keeps of a flow's acknowledgements that wait for a slow link the newest alone",
    },
    RegistryEntry {
        name: "snoop",
        summary: "keeps copies of TCP segments under way and sends lost ones again itself",
    },
    RegistryEntry {
        name: "split",
        summary: "ends TCP connections on both sides and relays between them (spoofing)",
    },
];
