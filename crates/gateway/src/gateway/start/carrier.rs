//! Starts the thread that carries a leg.

use super::{StartError, system};
use crate::gateway::thread_set::{Role, ThreadSet};
use bentpipe_carrier::{Carrier, CarrierHandle};
use bentpipe_gateway_config::Config;
use bentpipe_interception::{AdmissionSwitch, CarrierPlace, Marks, QueueReader};
use bentpipe_relay::{Counters, Shared};
use std::sync::Arc;

/// Starts the thread that carries a leg by SCPS-TP, where one is to be carried so.
pub(super) fn spawn(
    thread_set: &mut ThreadSet,
    shared: &Arc<Shared>,
    (config, marks): (&Config, Marks),
    (place, switch): (Option<CarrierPlace>, Arc<AdmissionSwitch>),
    counters: Arc<Counters>,
) -> Result<Option<CarrierHandle>, StartError> {
    let (Some(leg), Some(place)) = (config.carried_leg(), place) else {
        return Ok(None);
    };
    let carrier = Carrier::new(
        (config, leg),
        (marks, place, switch),
        Arc::clone(shared),
        counters,
    )?;
    let handle = carrier.handle();
    thread_set
        .spawn(
            QueueReader::Carrier.name().to_owned(),
            Role::Reads(QueueReader::Carrier),
            shared,
            || carrier.run(),
        )
        .map_err(system("start a thread"))?;
    Ok(Some(handle))
}
