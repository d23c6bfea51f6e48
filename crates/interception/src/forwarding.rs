//! Whether the kernel forwards between the legs: only what it would forward is split.

use std::fs;

/// Says in the log where the interfaces of the legs forward nothing: IPv4 at all, and IPv6 where they have a
/// global address of it.
pub fn warn(legs: [&[String]; 2]) {
    let names: Vec<&str> = legs.into_iter().flatten().map(String::as_str).collect();
    // Without IPv6 there is no such file.
    let addresses = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let v6: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| is_global(&addresses, name))
        .collect();
    for (family, names, mend) in [
        ("IPv4", names, "net.ipv4.ip_forward"),
        ("IPv6", v6, "net.ipv6.conf.all.forwarding"),
    ] {
        let closed: Vec<&str> = names
            .into_iter()
            .filter(|name| !forwards(family, name))
            .collect();
        if !closed.is_empty() {
            tracing::warn!(
                "{family} is not forwarded by {}: nothing passes, and nothing is split; set {mend} to 1",
                closed.join(", "),
            );
        }
    }
}

/// Whether `interface` passes packets on; where that cannot be read, it is believed to.
fn forwards(family: &str, interface: &str) -> bool {
    let family = family.to_lowercase();
    let path = format!("/proc/sys/net/{family}/conf/{interface}/forwarding");
    fs::read_to_string(path).map_or(true, |text| text.trim() != "0")
}

/// Whether `interface` has an address of global scope in `table`, which is as `/proc/net/if_inet6`: address,
/// index, prefix, scope, flags, name.
fn is_global(table: &str, interface: &str) -> bool {
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, _, _, "00", _, name] if name == interface)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_global_addresses_count() {
        let table = "\
fe800000000000000000000000000001 02 40 20 80     eth0
20010db8000000000000000000000001 02 40 00 80     eth1
";
        assert!(is_global(table, "eth1"));
        assert!(!is_global(table, "eth0") && !is_global(table, "eth"));
    }
}
