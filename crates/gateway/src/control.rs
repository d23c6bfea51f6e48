//! Which congestion control a leg gets, and what it is told of the link.

use crate::leg::Leg;
use crate::legs::{Prepared, Which};
use bentpipe_base::Rate;
use bentpipe_os::{socket, tcp};
use std::net::{Ipv4Addr, SocketAddr};
use thiserror::Error;

/// What the kernel itself may offer for a long path, best first.
const KERNEL: [&str; 3] = ["hybla", "bbr", "cubic"];

/// A leg cannot have the congestion control it insists on.
#[derive(Debug, Error)]
#[error(
    "the {leg} leg insists on congestion control `{wanted}`, but {why}: choose another, or leave `insist` out"
)]
pub struct ControlError {
    leg: &'static str,
    wanted: String,
    why: String,
}

/// Finds the congestion control of a leg and makes its policy ready for sockets marked `mark`.
pub(crate) fn prepare(which: Which, leg: &Leg, mark: u32) -> Result<Prepared, ControlError> {
    let control = match &leg.congestion {
        None => None,
        Some(wanted) if offered(wanted) => Some(wanted.clone()),
        Some(wanted) => {
            let why = "this kernel does not offer it".to_owned();
            if leg.insist {
                return Err(ControlError {
                    leg: which.name(),
                    wanted: wanted.clone(),
                    why,
                });
            }
            let instead = KERNEL.into_iter().find(|name| offered(name));
            tracing::warn!(
                leg = which.name(),
                wanted,
                instead = instead.unwrap_or("the kernel's default"),
                why,
                "congestion control replaced"
            );
            instead.map(str::to_owned)
        }
    };
    // Controls that do not know the link are kept from overrunning it, one flow at a time.
    let knows = control
        .as_deref()
        .is_some_and(|name| name.starts_with("bentpipe_"));
    let ceiling = leg.rate.filter(|_| !knows).map(|rate| payload(rate, leg));
    Ok(Prepared {
        mark,
        control,
        ceiling,
        leg: leg.clone(),
    })
}

/// The part of the link's rate that is payload and that flows are paced at: 1448 of each 1500 bytes.
fn payload(rate: Rate, leg: &Leg) -> Rate {
    rate.scaled(leg.pacing.value() * 1448.0 / 1500.0)
}

fn offered(name: &str) -> bool {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    // Asking is the only sure way: the kernel loads a module for the name where it can.
    socket::stream(any).is_ok_and(|socket| tcp::set_congestion(&socket, name).is_ok())
}
