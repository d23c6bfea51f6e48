//! Hosts and wires as the benchmarks have them: namespaces with stock settings, plain veth.
//!
//! Addresses are those that RFC 2544 sets aside for benchmarks.

use bentpipe_os::netlink::{NetlinkError, Prefix, Veth, VethEnd};
use bentpipe_os::netns::{Netns, NetnsError, SysctlError};
use std::net::Ipv4Addr;

const PREFIX_BITS: u8 = 16;

/// The stock buffers of a Linux host; a fresh namespace would inherit whatever ours has.
const SETTINGS: &[(&str, &str)] = &[
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
    ("net.ipv4.tcp_no_metrics_save", "1"),
    // Short connections name ports below these.
    ("net.ipv4.ip_local_port_range", "32768 60999"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
];

/// A host named after `label`, and its congestion control.
pub(super) fn host<E>(label: &str) -> Result<(Netns, &'static str), E>
where
    E: From<NetnsError> + From<SysctlError>,
{
    let netns = Netns::create(label)?;
    for (key, value) in SETTINGS {
        netns.set_sysctl(key, value)?;
    }
    let congestion = set_congestion(&netns)?;
    Ok((netns, congestion))
}

/// Cubic where a namespace may choose it, else reno, which every namespace may; the same for all
/// subjects and endpoints.
fn set_congestion(netns: &Netns) -> Result<&'static str, SysctlError> {
    const KEY: &str = "net.ipv4.tcp_congestion_control";
    if netns.set_sysctl(KEY, "cubic").is_ok() {
        return Ok("cubic");
    }
    netns.set_sysctl(KEY, "reno")?;
    Ok("reno")
}

/// How hosts are set: a line.
pub(super) fn conditions(congestion: &str, mtu: u32) -> String {
    let why = if congestion == "cubic" {
        ""
    } else {
        " (net.ipv4.tcp_allowed_congestion_control here does not let a namespace choose cubic)"
    };
    format!(
        "everywhere: {congestion} congestion control{why}, stock buffers, plain veth, MTU {mtu}"
    )
}

/// A host, the name of its interface and the address there.
pub(super) type End<'a> = (&'a Netns, &'a str, Ipv4Addr);

/// A wire between two hosts, up and with addresses.
pub(super) fn wire<E>(ends: [End<'_>; 2]) -> Result<Veth, E>
where
    E: From<NetnsError> + From<NetlinkError>,
{
    let [near, far] = ends.map(|(netns, name, _)| VethEnd { netns, name });
    let veth = Veth::create(near, far)?;
    veth.set_up()?;
    for (netns, name, address) in ends {
        netns.netlink()?.add_address(name, prefix(address))?;
    }
    Ok(veth)
}

/// The network of `address`, and itself in it.
pub(super) fn prefix(address: Ipv4Addr) -> Prefix {
    Prefix::new(address.into(), PREFIX_BITS).expect("16 bits fit an IPv4 address")
}
