//! The kernel settings of a node: all that shape TCP are set, and all of TCP's are read back for
//! the manifest. A new namespace would otherwise take some of them from the machine's own.

use crate::plan::NodePlan;
use bentpipe_os::netns::{Netns, SysctlError, read_sysctl, write_sysctl};
use bentpipe_scenario::{BufferRange, EcnMode, Ip};
use std::collections::BTreeMap;

/// What shapes a transfer beside the scenario's own keys, at the kernel's defaults since 4.19 or
/// longer (Documentation/networking/ip-sysctl.rst); metrics are not saved, so that no connection
/// learns from another.
const STOCK: &[(&str, &str)] = &[
    ("tcp_adv_win_scale", "1"),
    ("tcp_autocorking", "1"),
    ("tcp_dsack", "1"),
    ("tcp_early_retrans", "3"),
    ("tcp_ecn_fallback", "1"),
    ("tcp_fastopen", "1"),
    ("tcp_frto", "2"),
    ("tcp_min_rtt_wlen", "300"),
    ("tcp_moderate_rcvbuf", "1"),
    ("tcp_mtu_probing", "0"),
    ("tcp_no_metrics_save", "1"),
    ("tcp_notsent_lowat", "4294967295"),
    ("tcp_pacing_ca_ratio", "120"),
    ("tcp_pacing_ss_ratio", "200"),
    ("tcp_recovery", "1"),
    ("tcp_reordering", "3"),
    ("tcp_retries2", "15"),
    ("tcp_slow_start_after_idle", "1"),
    ("tcp_syn_retries", "6"),
    ("tcp_synack_retries", "5"),
    ("tcp_timestamps", "1"),
    ("tcp_window_scaling", "1"),
];

/// A secret of the machine's, and root's alone.
const SECRET: &str = "tcp_fastopen_key";

/// Gives a node its settings, before it has interfaces: those of `conf.default` count for each that
/// comes.
pub(crate) fn set(netns: &Netns, node: &NodePlan, ip: Ip) -> Result<(), SysctlError> {
    netns.run(|| write(node, ip))?
}

/// The settings in force, by name such as `net.ipv4.tcp_rmem`.
pub(crate) fn read_back(netns: &Netns) -> Result<BTreeMap<String, String>, SysctlError> {
    Ok(netns.run(read)?)
}

fn write(node: &NodePlan, ip: Ip) -> Result<(), SysctlError> {
    for (name, value) in STOCK {
        write_sysctl(&format!("net.ipv4.{name}"), value)?;
    }
    let range = |range: &BufferRange| {
        let BufferRange { min, default, max } = range;
        format!("{} {} {}", min.0, default.0, max.0)
    };
    write_sysctl("net.ipv4.tcp_rmem", &range(&node.tcp.receive_buffer))?;
    write_sysctl("net.ipv4.tcp_wmem", &range(&node.tcp.send_buffer))?;
    write_sysctl("net.ipv4.tcp_sack", if node.tcp.sack { "1" } else { "0" })?;
    let ecn = match node.tcp.ecn {
        EcnMode::Off => "0",
        EcnMode::Accept => "2",
        EcnMode::Ask => "1",
    };
    write_sysctl("net.ipv4.tcp_ecn", ecn)?;
    default_control(&node.tcp.congestion_control)?;
    let forwards = if node.forwards { "1" } else { "0" };
    match ip {
        Ip::V4 => {
            write_sysctl("net.ipv4.ip_forward", forwards)?;
            // Paths may differ by direction: no test of where a packet came from.
            write_sysctl("net.ipv4.conf.all.rp_filter", "0")?;
            write_sysctl("net.ipv4.conf.default.rp_filter", "0")?;
            // No packets of the node's own making.
            write_sysctl("net.ipv4.conf.all.send_redirects", "0")?;
            write_sysctl("net.ipv4.conf.default.send_redirects", "0")
        }
        Ip::V6 => {
            write_sysctl("net.ipv6.conf.all.forwarding", forwards)?;
            write_sysctl("net.ipv6.conf.default.forwarding", forwards)?;
            write_sysctl("net.ipv6.conf.default.accept_ra", "0")?;
            write_sysctl("net.ipv6.conf.default.router_solicitations", "0")?;
            // Addresses are usable at once: ours are unique by construction.
            write_sysctl("net.ipv6.conf.all.accept_dad", "0")?;
            write_sysctl("net.ipv6.conf.default.accept_dad", "0")
        }
    }
}

/// Outside the machine's own namespace only controls that the machine allows to every user can be
/// the default (tcp_set_default_congestion_control in net/ipv4/tcp_cong.c). Where ours is none of
/// these, the default is Reno, which always is: no host takes the machine's. The flows do not
/// depend on it; each socket is given its control by name.
///
/// Asking all the same is no way to find out: the kernel refuses, but keeps a reference to the
/// control, and one that is a BPF program then stays registered until the machine is restarted.
fn default_control(name: &str) -> Result<(), SysctlError> {
    let allowed = read_sysctl("net.ipv4.tcp_allowed_congestion_control")?;
    let is_allowed = allowed.split_whitespace().any(|other| other == name);
    let control = if is_allowed { name } else { "reno" };
    write_sysctl("net.ipv4.tcp_congestion_control", control)
}

fn read() -> BTreeMap<String, String> {
    let listed = std::fs::read_dir("/proc/sys/net/ipv4")
        .into_iter()
        .flatten();
    let tcp = listed
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("tcp_") && name != SECRET)
        .map(|name| format!("net.ipv4.{name}"));
    let forwarding = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];
    let names = tcp.chain(forwarding.map(str::to_owned));
    names
        .filter_map(|name| {
            let value = read_sysctl(&name).ok()?;
            Some((name, value))
        })
        .collect()
}
