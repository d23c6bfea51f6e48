//! How a split behaves.

use super::leg_config::{LegError, tcp_config};
use crate::Side;
use bentpipe_cc::Congestion;
use bentpipe_cc::rate_control::Link;
use bentpipe_gateway_config::{self as gateway_config, Handshake, Intercept, Leg, Limits};
use bentpipe_tcp as tcp;
use core::time::Duration;
use std::sync::Arc;

/// How a split behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The endpoint towards the ground.
    pub ground: Arc<tcp::Config>,
    /// The endpoint towards space.
    pub space: Arc<tcp::Config>,
    /// Who answers a SYN: the far end, and then the proxy takes over when the handshake is done and neither end
    /// notices; or the proxy, at once, and then it connects to the far end.
    pub handshake: Handshake,
    /// Whose connections are split, by the side from which their first packet comes.
    pub intercept: Intercept,
    /// Both ends of every connection are established from the start and are configured like this: a flow is split at
    /// its first data segment. `None`: connections have handshakes.
    pub without_handshake: Option<Arc<tcp::Config>>,
    /// Most connections known at once.
    pub flows: usize,
    /// A connection this long without a packet is reset and forgotten; `None`: never.
    pub idle: Option<Duration>,
    /// Keys the initial sequence numbers where the proxy answers SYNs.
    pub seed: u64,
}

impl Config {
    /// Between endpoints `ground` and `space`: set-up end to end, and the gateway's bounds.
    pub fn new(ground: tcp::Config, space: tcp::Config) -> Self {
        let Limits { flows, idle, .. } = Limits::default();
        Self {
            ground: Arc::new(ground),
            space: Arc::new(space),
            handshake: Handshake::EndToEnd,
            intercept: Intercept::Both,
            without_handshake: None,
            flows,
            idle,
            seed: 0,
        }
    }

    /// As the gateway that is configured like this, its legs on endpoints like `base`.
    ///
    /// # Errors
    /// A leg that no endpoint can follow, and which.
    pub fn of_gateway(
        gateway: &gateway_config::Config,
        base: &tcp::Config,
    ) -> Result<Self, (Side, LegError)> {
        let endpoint = |side, leg: &Leg| {
            let config = tcp_config(leg, base.clone());
            config.map_err(|why| (side, why))
        };
        let ground = endpoint(Side::Ground, &gateway.lan)?;
        let space = endpoint(Side::Space, &gateway.sat)?;
        Ok(Self {
            handshake: gateway.handshake,
            intercept: gateway.intercept,
            flows: gateway.limits.flows,
            idle: gateway.limits.idle,
            ..Self::new(ground, space)
        })
    }

    pub(super) fn leg(&self, side: Side) -> &Arc<tcp::Config> {
        match side {
            Side::Ground => &self.ground,
            Side::Space => &self.space,
        }
    }

    /// Whether a connection is split whose first packet comes from `side`.
    pub(super) fn intercepts(&self, side: Side) -> bool {
        self.intercept.includes(match side {
            Side::Ground => gateway_config::LegId::Lan,
            Side::Space => gateway_config::LegId::Sat,
        })
    }
}

/// The links of the two legs, each as the flows of its leg share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    ground: Link,
    space: Link,
}

impl Links {
    /// The congestion control of one more flow of the leg `config` on `side`, where its flows share the link.
    pub(super) fn control(&self, side: Side, config: &tcp::Config) -> Option<Box<dyn Congestion>> {
        let link = match side {
            Side::Ground => &self.ground,
            Side::Space => &self.space,
        };
        config.congestion.sharing(link, &config.settings)
    }
}
