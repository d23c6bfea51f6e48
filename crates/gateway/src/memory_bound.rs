//! How much may wait in buffers where the configuration does not say it.

use bentpipe_base::Bytes;
use bentpipe_gateway_config::Limits;
use bentpipe_process::{cgroup, limits};

/// The bound on the bytes in buffers. The default is the kernel's own default for the memory of TCP at which it begins to
/// hold TCP back (`net.ipv4.tcp_mem`), and less where a cgroup has a limit, at which the kernel holds all connections
/// back alike: what is in use reaches twice the bound and more before those that take nothing give way, and the process
/// has its part of it.
pub(crate) fn buffered(config: &Limits) -> Bytes {
    config.buffered.unwrap_or_else(|| {
        let machine = limits::memory().0 / 16;
        let part = |limit: Option<Bytes>, part| limit.map_or(u64::MAX, |limit| limit.0 / part);
        let cgroups = part(cgroup::memory_limit(), 8).min(part(cgroup::tcp_memory_limit(), 4));
        Bytes(machine.min(cgroups.max(1 << 20)))
    })
}
