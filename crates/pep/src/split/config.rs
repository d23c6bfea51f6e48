//! How a split behaves.

use super::leg_config::{LegError, tcp_config};
use crate::{Side, ack_filter};
use bentpipe_cc::Congestion;
use bentpipe_cc::rate_control::Link;
use bentpipe_gateway_config::{self as gateway_config, Handshake, Intercept, Leg, LegId, Limits};
use bentpipe_tcp as tcp;
use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::hash::DefaultHasher;
use std::sync::Arc;

/// How a split behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The endpoint towards the ground.
    pub ground: Arc<tcp::Config>,
    /// The ground are sockets of this machine, which take segments of any length: what goes there is as long as the MSS of the endpoint
    /// towards it allows, whatever their SYN says of packets on a link.
    pub ground_is_local: bool,
    /// The endpoint towards space.
    pub space: Arc<tcp::Config>,
    /// The endpoints towards the ground and towards space of connections to which their admission gives one of these.
    pub profiles: Vec<[Arc<tcp::Config>; 2]>,
    /// How acknowledgements that the space leg sends are thinned out; `None`: they are not. Only those of split
    /// connections wait: what passes does not.
    pub ack_filter: Option<ack_filter::Config>,
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
    /// Most handshakes known beside them that began in space and that nobody has answered: the oldest of who has most is forgotten. `None`: they are
    /// connections as others.
    pub half_open: Option<usize>,
    /// A connection this long without a packet is reset and forgotten; `None`: never.
    pub idle: Option<Duration>,
    /// How connections end that do not end in order.
    pub resets: Resets,
    /// Keys the initial sequence numbers where the proxy answers SYNs.
    pub seed: u64,
}

/// What a split does for the sake of resets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resets {
    /// Where one side has reset a connection, the other gets what came before for so long, and then its reset; zero: the
    /// reset at once.
    pub grace: Duration,
    /// No more is taken from the ground than space has a window for, so that a reset with the number of the ground's last byte is
    /// within that window.
    pub within_window: bool,
}

impl Config {
    /// Between endpoints `ground` and `space`: set-up end to end, and the gateway's bounds.
    pub fn new(ground: tcp::Config, space: tcp::Config) -> Self {
        let Limits { flows, idle, .. } = Limits::default();
        Self {
            ground: Arc::new(ground),
            ground_is_local: false,
            space: Arc::new(space),
            profiles: Vec::new(),
            ack_filter: None,
            handshake: Handshake::EndToEnd,
            intercept: Intercept::Both,
            without_handshake: None,
            flows,
            half_open: None,
            idle,
            resets: Resets::default(),
            seed: 0,
        }
    }

    /// As the gateway that is configured like this, its legs on endpoints like `base`.
    ///
    /// # Errors
    /// A leg that no endpoint can follow, by its table's name (`sat`, `leg.NAME`).
    pub fn of_gateway(
        gateway: &gateway_config::Config,
        base: &tcp::Config,
    ) -> Result<Self, (String, LegError)> {
        let endpoint = |name: String, leg: &Leg| {
            let config = tcp_config(leg, base.clone());
            config.map_err(|why| (name, why))
        };
        let plain = Self::new(
            endpoint(LegId::Lan.name().to_owned(), &gateway.lan)?,
            endpoint(LegId::Sat.name().to_owned(), &gateway.sat)?,
        );
        let profiles = gateway.profiles.iter().map(|profile| {
            let leg = Arc::new(endpoint(format!("leg.{}", profile.name), &profile.leg)?);
            Ok(match profile.like {
                LegId::Lan => [leg, Arc::clone(&plain.space)],
                LegId::Sat => [Arc::clone(&plain.ground), leg],
            })
        });
        Ok(Self {
            profiles: profiles.collect::<Result<_, _>>()?,
            ack_filter: gateway.sat.ack_rate.map(|rate| ack_filter::Config {
                rate: Some(rate),
                overhead: gateway.sat.link.overhead,
                ..ack_filter::Config::default()
            }),
            handshake: gateway.handshake,
            intercept: gateway.intercept,
            flows: gateway.limits.flows,
            idle: gateway.limits.idle,
            ..plain
        })
    }

    /// The endpoints of a connection with this profile, if with any, whose packets have IP headers of `header` bytes;
    /// `None`: of as many as is configured.
    pub(super) fn endpoints(&self, profile: Option<usize>, header: Option<u16>) -> Endpoints {
        let profile = profile.and_then(|place| self.profiles.get(place));
        let [ground, space] = match profile {
            Some([ground, space]) => [ground, space],
            None => [&self.ground, &self.space],
        };
        let of = |config: &Arc<tcp::Config>| match header {
            Some(header) => with_ip_header(config, header),
            None => Arc::clone(config),
        };
        Endpoints {
            ground: of(ground),
            space: of(space),
        }
    }

    /// Whether a connection is split whose first packet comes from `side`.
    pub(super) fn intercepts(&self, side: Side) -> bool {
        self.intercept.includes(match side {
            Side::Ground => LegId::Lan,
            Side::Space => LegId::Sat,
        })
    }
}

/// The endpoints of one connection's legs.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    ground: Arc<tcp::Config>,
    space: Arc<tcp::Config>,
}

impl Endpoints {
    /// That towards `side`.
    pub(super) const fn of(&self, side: Side) -> &Arc<tcp::Config> {
        match side {
            Side::Ground => &self.ground,
            Side::Space => &self.space,
        }
    }
}

/// `config` for packets with IP headers of `header` bytes: a segment has as much less room as the header has more.
fn with_ip_header(config: &Arc<tcp::Config>, header: u16) -> Arc<tcp::Config> {
    if config.ip_header == header {
        return Arc::clone(config);
    }
    let mss = config
        .mss
        .saturating_add(config.ip_header)
        .saturating_sub(header);
    Arc::new(tcp::Config {
        ip_header: header,
        mss: mss.max(1),
        ..tcp::Config::clone(config)
    })
}

/// The links of the two legs, each as the flows of its leg share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    ground: Link,
    space: Link,
}

impl Links {
    /// The congestion control of one more flow to `host`, of the leg `config` on `side`, where its flows share the link.
    pub(super) fn control(
        &self,
        side: Side,
        host: impl Hash,
        config: &tcp::Config,
    ) -> Option<Box<dyn Congestion>> {
        let link = match side {
            Side::Ground => &self.ground,
            Side::Space => &self.space,
        };
        let mut hasher = DefaultHasher::new();
        host.hash(&mut hasher);
        config
            .congestion
            .sharing(link, hasher.finish(), &config.settings)
    }
}
