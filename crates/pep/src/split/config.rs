//! How a split behaves.

use super::leg_config::{LegError, tcp_config};
use crate::Side;
use bentpipe_base::Bytes;
use bentpipe_gateway_config::Leg;
use bentpipe_tcp as tcp;
use core::time::Duration;
use std::sync::Arc;

/// Who answers a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setup {
    /// The far end; the proxy takes over when the handshake is done, and neither end notices.
    #[default]
    EndToEnd,
    /// The proxy, at once; then it connects to the far end.
    Early,
}

impl Setup {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::EndToEnd, Self::Early];

    /// As scenarios write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndToEnd => "end-to-end",
            Self::Early => "early",
        }
    }
}

/// How a split behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// The endpoint towards the ground.
    pub ground: Arc<tcp::Config>,
    /// The endpoint towards space.
    pub space: Arc<tcp::Config>,
    /// Who answers a SYN.
    pub setup: Setup,
    /// Payload bytes held at most of each flow and direction: received in order and not acknowledged
    /// by the far end. The window that the sender sees shrinks as they fill. `None`: without bound.
    pub buffer: Option<Bytes>,
    /// Both ends of every connection stand from the start and are configured like this: a flow is
    /// split at its first data segment. `None`: connections have handshakes.
    pub standing: Option<Arc<tcp::Config>>,
    /// Most connections known at once.
    pub flows: usize,
    /// A connection this long without a packet is reset and forgotten.
    pub idle: Duration,
    /// Keys the initial sequence numbers of [`Setup::Early`].
    pub seed: u64,
}

impl Config {
    /// As the paper has it: set-up end to end, a buffer without bound; 65,536 connections, two hours
    /// of silence.
    pub fn new(ground: tcp::Config, space: tcp::Config) -> Self {
        Self {
            ground: Arc::new(ground),
            space: Arc::new(space),
            setup: Setup::EndToEnd,
            buffer: None,
            standing: None,
            flows: 1 << 16,
            idle: Duration::from_secs(7200),
            seed: 0,
        }
    }

    /// As the gateway with the same policies: its buffers are what a direction holds, those of the
    /// receiving and of the sending leg together, half of them payload.
    ///
    /// # Errors
    /// A control or variant that there is not.
    pub fn of_legs(ground: &Leg, space: &Leg) -> Result<Self, LegError> {
        let policy = |leg: &Leg| tcp_config(leg, tcp::Config::rfc());
        let (near, far) = (policy(ground)?, policy(space)?);
        let there = near.receive_buffer + far.send_buffer;
        let back = far.receive_buffer + near.send_buffer;
        Ok(Self {
            buffer: Some(there.max(back)),
            ..Self::new(near, far)
        })
    }

    pub(super) fn leg(&self, side: Side) -> &Arc<tcp::Config> {
        match side {
            Side::Ground => &self.ground,
            Side::Space => &self.space,
        }
    }

    /// The legs' buffers within the bound: they receive no more, and send all that is given to them.
    pub(super) fn bounded(mut self) -> Self {
        for leg in [&mut self.ground, &mut self.space] {
            let leg = Arc::make_mut(leg);
            leg.send_buffer = Bytes(u64::MAX);
            if let Some(most) = self.buffer {
                leg.receive_buffer = leg.receive_buffer.min(most).max(Bytes(1));
            }
        }
        self
    }
}
