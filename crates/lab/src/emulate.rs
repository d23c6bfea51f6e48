//! From a link of the scenario to a running emulator between two TUN interfaces.

use crate::LabError;
use crate::emulator::{Emulator, Spec, port_config};
use crate::stage::Stage;
use bentpipe_os::tun::Tun;
use bentpipe_plan::links;
use bentpipe_scenario::Link;
use std::time::Duration;

/// What the emulator is told of link `name`.
pub(crate) fn spec(name: &str, link: &Link, seed: u64) -> Result<Spec, LabError> {
    let [from_a, from_b] = links::settings(link).map_err(|error| LabError::Emulator {
        link: name.to_owned(),
        why: error.to_string(),
    })?;
    Ok(Spec {
        name: name.to_owned(),
        seed,
        from_a,
        from_b,
        mtu: link.mtu,
        lateness_limit: lateness_limit(link),
        ..Spec::default()
    })
}

/// The limit on lateness: a twentieth of the shorter delay, where that is more than the emulator's own limit, because
/// late packets lengthen the path by that.
fn lateness_limit(link: &Link) -> Duration {
    let shorter = link.forward.delay.min(link.reverse.delay);
    (shorter / 20).max(Spec::default().lateness_limit)
}

/// Emulates `link` between interfaces of its name at both its ends.
pub(crate) fn start(stage: &Stage, link: &Link, spec: Spec) -> Result<Emulator, LabError> {
    let name = spec.name.clone();
    let failed = |why: String| LabError::Emulator {
        link: name.clone(),
        why,
    };
    let open = |end: &str| {
        let open = || Tun::open(&name, port_config(link.mtu));
        match stage.node(end).run(open) {
            Ok(Ok(tun)) => Ok(tun),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    };
    let [a, b] = &link.ends;
    Emulator::start(spec, open(a)?, open(b)?).map_err(|error| failed(error.to_string()))
}
