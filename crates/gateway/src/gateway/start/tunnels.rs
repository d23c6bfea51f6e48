//! Starts the thread of the tunnels.

use super::{StartError, system};
use crate::congestion::CongestionControls;
use crate::gateway::thread_set::{Role, ThreadSet};
use bentpipe_gateway_config::{CarriedUdp, Config};
use bentpipe_interception::{Marks, QueueReader};
use bentpipe_process::cgroup;
use bentpipe_process::sched;
use bentpipe_quic_carrier::{PortParts, QuicCarrier};
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The UDP that tunnels are to carry.
fn udp(config: &Config) -> Option<&CarriedUdp> {
    let carrier = config.tunnelled_leg()?.quic.as_ref()?;
    carrier.udp.as_ref()
}

/// The servers' ports of that.
pub(super) fn udp_ports(config: &Config) -> Vec<RangeInclusive<u16>> {
    udp(config).map_or_else(Vec::new, |udp| udp.ports.clone())
}

/// Opens the near end of the leg over QUIC, where there is one.
pub(super) fn open(
    config: &Config,
    marks: Marks,
    controls: &mut CongestionControls,
) -> Result<Option<QuicCarrier>, StartError> {
    let memory = cgroup::memory_limit();
    let open = |leg| QuicCarrier::new(leg, marks.beside_quic(), controls.shared(), memory);
    Ok({ config.tunnelled_leg() }.map(open).transpose()?)
}

/// Starts the thread of the tunnels, where a leg has any. It reads clients' UDP too, where that is to be carried and can be.
pub(super) fn spawn(
    thread_set: &mut ThreadSet,
    parts: PortParts,
    tunnels: Option<QuicCarrier>,
) -> Result<(), StartError> {
    let Some(mut tunnels) = tunnels else {
        return Ok(());
    };
    let shared = Arc::clone(&parts.shared);
    if let Err(why) = tunnels.carry_udp(parts) {
        let lack = format!("clients' UDP passes end to end, not by tunnels: {why}");
        tracing::warn!("{lack}");
        thread_set.lacks.push(lack);
    }
    if let Some(why) = tunnels.lack() {
        let lack =
            format!("HTTP/2 beside QUIC goes by a congestion control of the kernel's: {why}");
        tracing::warn!("{lack}");
        thread_set.lacks.push(lack);
    }
    thread_set.tunnels = Some(tunnels.handle());
    let role = match tunnels.carries_udp() {
        true => Role::Reads(QueueReader::Tunnels),
        false => Role::Aids,
    };
    let work = move || {
        sched::leave_signals_to_others();
        tunnels.run()
    };
    thread_set
        .spawn(QueueReader::Tunnels.name().to_owned(), role, &shared, work)
        .map_err(system("start a thread"))
}
