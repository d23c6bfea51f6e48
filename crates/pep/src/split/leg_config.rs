//! From the policy of a leg, which the gateway shares, to an endpoint of our TCP.

use bentpipe_base::Bytes;
use bentpipe_cc::{self as cc, RateUse};
use bentpipe_gateway_config::{Carrier, Leg, LossCause};
use bentpipe_tcp::{self as tcp, UnknownVariant};
use thiserror::Error;

/// The endpoint that follows the policy of `leg`: `base` with what that says. Without a rate that its
/// control heeds, a known rate is a ceiling on the pacing of each flow, as on the gateway's
/// sockets; of the buffers, half counts as payload.
///
/// # Errors
/// A control or variant that there is not.
pub fn tcp_config(leg: &Leg, base: tcp::Config) -> Result<tcp::Config, LegError> {
    let base = match leg.carrier {
        // No scenario has a leg over QUIC yet, and is refused one.
        Carrier::Kernel | Carrier::Quic => base,
        Carrier::Scps => scps_on(base),
    };
    let mut config = match &leg.variant {
        Some(variant) => base.variant(variant)?,
        None => base,
    };
    if let Some(name) = leg.congestion.as_ref().filter(|_| leg.variant.is_none()) {
        config.congestion = cc::find(name).ok_or_else(|| LegError::Control {
            control: name.clone(),
            known: known(),
        })?;
    }
    config.initial_window = leg.initial_window.unwrap_or(config.initial_window);
    if leg.carrier == Carrier::Scps {
        config.ack_every = leg.ack_every.unwrap_or(config.ack_every);
        config.delayed_ack = leg.ack_delay.unwrap_or(config.delayed_ack);
        config.loss_cause = match leg.loss_cause {
            Some(LossCause::Corruption) => tcp::LossCause::Corruption,
            Some(LossCause::Congestion) => tcp::LossCause::Congestion,
            None => config.loss_cause,
        };
        if let Some(scps) = &mut config.scps {
            scps.corruption_experienced = leg.corruption_experienced;
        }
    }
    if let Some(mss) = leg.mss {
        config.mss = config.mss.min(u16::try_from(mss.0).unwrap_or(u16::MAX));
    }
    let payload_of = match leg.carrier {
        Carrier::Kernel | Carrier::Quic => Leg::payload_of,
        // No socket of the kernel's is behind it, and its buffers hold nothing but payload.
        Carrier::Scps => core::convert::identity,
    };
    config.receive_buffer = payload_of(leg.receive_buffer).min(WIDEST);
    config.send_buffer = payload_of(leg.send_buffer);
    config.settings.link = leg.link.clone();
    if config.congestion.rate == RateUse::Ignores {
        let header = u64::from(config.data_header());
        config.pacing = leg.ceiling(config.mss, header).or(config.pacing);
    }
    Ok(config)
}

/// The endpoint of SCPS-TP in packets like those of `base`.
fn scps_on(base: tcp::Config) -> tcp::Config {
    tcp::Config {
        mss: base.mss,
        ip_header: base.ip_header,
        syn_length: base.syn_length,
        time_wait: base.time_wait,
        // Who sends to the leg has decided what waits.
        nagle: false,
        ..tcp::Config::scps()
    }
}

/// More than a scaled window field can say (RFC 7323, section 2.3).
const WIDEST: Bytes = Bytes(1 << 30);

/// A leg's policy that no endpoint can follow.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LegError {
    /// There is no such congestion control.
    #[error("there is no congestion control `{control}`; there are {known}")]
    Control {
        /// What was asked for.
        control: String,
        /// What there is.
        known: String,
    },
    /// There is no such variant.
    #[error(transparent)]
    Variant(#[from] UnknownVariant),
}

fn known() -> String {
    let names: Vec<_> = cc::REGISTRY.iter().map(|variant| variant.name).collect();
    names.join(", ")
}
