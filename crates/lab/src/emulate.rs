//! From a link of the scenario to a running emulator between two TUN interfaces.

use crate::LabError;
use crate::emulator::{Emulator, Frame, Spec, port_config};
use crate::stage::Stage;
use bentpipe_link::channel::{BitError, PacketError, Replay};
use bentpipe_link::queue::DropTail;
use bentpipe_link::{Channel, Limit, Settings};
use bentpipe_os::tun::Tun;
use bentpipe_scenario::{Direction, Link, Queue, QueueLimit};
use std::time::Duration;

/// What the emulator is told of link `name`.
pub(crate) fn spec(name: &str, link: &Link, seed: u64) -> Spec {
    Spec {
        name: name.to_owned(),
        seed,
        from_a: settings(&link.forward),
        from_b: settings(&link.reverse),
        changes: [link.forward.changes.clone(), link.reverse.changes.clone()],
        mtu: link.mtu,
        lateness_limit: lateness_limit(link),
        ..Spec::default()
    }
}

/// A twentieth of the shorter delay, where that is more than an emulator's own limit: what is late
/// lengthens the path.
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

fn settings(direction: &Direction) -> Settings<Frame> {
    let limit = match direction.queue {
        Queue::DropTail(QueueLimit::Packets(packets)) => Limit::Packets(packets as usize),
        Queue::DropTail(QueueLimit::Bytes(bytes)) => Limit::Bytes(bytes),
        // Refused by `simulated::refuse` before anything is built.
        Queue::Red(_) | Queue::Blue(_) => Limit::Infinite,
    };
    let mut channels: Vec<Box<dyn Channel>> = Vec::new();
    if direction.packet_error_rate.value() > 0.0 {
        channels.push(Box::new(PacketError::new(direction.packet_error_rate)));
    }
    if direction.bit_error_rate.value() > 0.0 {
        channels.push(Box::new(BitError::new(direction.bit_error_rate)));
    }
    if !direction.drops.is_empty() {
        channels.push(Box::new(Replay::new(direction.drops.iter().copied())));
    }
    Settings {
        rate: direction.rate,
        delay: direction.delay,
        overhead: direction.overhead,
        queue: DropTail::new(limit).into(),
        channels,
    }
}
