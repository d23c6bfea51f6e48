//! Chooses the congestion control of each leg, and tells it of the link.

use bentpipe_bpf::{ChooseError, ConfigureError, FALLBACKS, LazyControls, is_ours, kernel_name};
use bentpipe_gateway_config::{Carrier, Config, Leg, LegId};
use bentpipe_interception::Marks;
use bentpipe_relay::{LegPolicies, SocketPolicy};
use bentpipe_sockets::{socket, tcp};
use std::iter;
use std::net::{Ipv4Addr, SocketAddr};
use thiserror::Error;

/// A leg cannot have the congestion control it wants.
#[derive(Debug, Error)]
pub enum CongestionError {
    /// It is missing, and the leg insists or nothing can stand in for it.
    #[error("the {leg} leg: {source}")]
    Choose {
        /// Which leg.
        leg: &'static str,
        /// Why.
        source: ChooseError,
    },
    /// It does not take the parameters of the link.
    #[error("the {leg} leg: {source}")]
    Configure {
        /// Which leg.
        leg: &'static str,
        /// Why.
        source: ConfigureError,
    },
}

/// The BPF controls, if a leg wants one and the kernel takes them.
#[derive(Debug, Default)]
pub(crate) struct CongestionControls(LazyControls);

impl CongestionControls {
    /// Makes the legs' policies ready for sockets with those marks, profiles included. Loads the BPF
    /// controls if a leg wants one and they are not loaded yet.
    pub(crate) fn prepare_all(
        &mut self,
        config: &Config,
        marks: Marks,
    ) -> Result<LegPolicies, CongestionError> {
        let variants = config.profiles.iter().map(|profile| &profile.leg);
        if [&config.lan, &config.sat]
            .into_iter()
            .chain(variants)
            .any(|leg| wanted(leg).is_some_and(|control| is_ours(control)))
        {
            // Where that fails, the choice says why.
            let _ = self.0.load();
        }
        let plain = self.prepare_both(&config.lan, &config.sat, marks)?;
        let profiles = config.profiles.iter().map(|profile| {
            let mut legs = plain.clone();
            legs[profile.like as usize] = self.prepare(profile.like, &profile.leg, marks)?;
            Ok(legs)
        });
        let mut legs = LegPolicies {
            profiles: profiles.collect::<Result<_, CongestionError>>()?,
            plain,
        };
        legs.probe_after(config.limits.keepalive);
        Ok(legs)
    }

    /// Those of this gateway, for whoever else has sockets on its legs.
    pub(crate) const fn shared(&mut self) -> &mut LazyControls {
        &mut self.0
    }

    /// The same for both legs alone, with the controls that are loaded.
    pub(crate) fn prepare_both(
        &mut self,
        lan: &Leg,
        sat: &Leg,
        marks: Marks,
    ) -> Result<[SocketPolicy; 2], CongestionError> {
        Ok([
            self.prepare(LegId::Lan, lan, marks)?,
            self.prepare(LegId::Sat, sat, marks)?,
        ])
    }

    /// Finds the congestion control of a leg, tells it of the link, and makes the leg's policy ready
    /// for sockets with the leg's mark.
    fn prepare(
        &mut self,
        leg_id: LegId,
        leg: &Leg,
        marks: Marks,
    ) -> Result<SocketPolicy, CongestionError> {
        let control = match wanted(leg) {
            None => None,
            Some(wanted) => Some(self.choose(leg_id, wanted, leg.insist)?),
        };
        let knows = control.as_deref().is_some_and(is_ours);
        if knows && let Some(controls) = self.0.loaded() {
            controls
                .configure(marks.leg(leg_id), &leg.link)
                .map_err(|source| CongestionError::Configure {
                    leg: leg_id.name(),
                    source,
                })?;
        }
        // Controls that do not know the link are kept from overrunning it, one flow at a time.
        let ceiling = leg.ceiling(PAYLOAD, HEADER).filter(|_| !knows);
        // Without the file, the kernel has no ECN.
        let asks = tcp::asks_for_ecn().unwrap_or(false);
        let default = tcp::default_congestion().ok();
        let usual_control = !leg.insist && control.is_some() && control == default;
        // The carrier keeps the rate. Connections that are tracked, because addresses are translated, are not carried.
        let (mark, ceiling, tracked_ceiling) = match leg.carrier {
            Carrier::Scps => (marks.carried(), None, ceiling),
            // What QUIC does not carry, such as what comes from space, is the kernel's.
            Carrier::Kernel | Carrier::Quic => (marks.leg(leg_id), ceiling, None),
        };
        Ok(SocketPolicy {
            mark,
            tracked: marks.tracked(leg_id),
            tracked_ceiling,
            control,
            usual_control,
            ceiling,
            without_ecn: asks.then_some(marks.without_ecn()),
            keepalive: None,
            leg: leg.clone(),
        })
    }

    fn choose(&self, leg_id: LegId, wanted: &str, insist: bool) -> Result<String, CongestionError> {
        // Asking is what loads the module of a control, where there is one.
        for name in iter::once(wanted).chain(FALLBACKS) {
            if ask_for(name) {
                break;
            }
        }
        let choice = bentpipe_bpf::choose(wanted, insist, self.0.failed()).map_err(|source| {
            CongestionError::Choose {
                leg: leg_id.name(),
                source,
            }
        })?;
        if let Some(note) = choice.note {
            tracing::warn!(leg = leg_id.name(), "{note}");
        }
        Ok(choice.name)
    }
}

/// The congestion control that the sockets of a leg are to have. That of a carried one is the carrier's, also where it is for a socket
/// (`Link::tcp` of the tunnels).
fn wanted(leg: &Leg) -> Option<&String> {
    let control = leg.congestion.as_ref();
    control.filter(|_| leg.carrier == Carrier::Kernel)
}

fn ask_for(name: &str) -> bool {
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    socket::stream(any).is_ok_and(|socket| tcp::set_congestion(&socket, kernel_name(name)).is_ok())
}

/// What a full segment carries at the MTU of Ethernet, with timestamps, over IPv4.
const PAYLOAD: u16 = 1448;
/// The headers before it.
const HEADER: u64 = 52;
