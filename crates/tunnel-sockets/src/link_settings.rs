//! The link of a leg over QUIC, as an endpoint of the stack is told of it.

use crate::tcp_port::TcpSettings;
use bentpipe_base::Rate;
use bentpipe_bpf::{LazyControls, RATE, is_ours};
use bentpipe_cc::{LinkParams, Settings};
use bentpipe_gateway_config::{Leg, QuicPath};
use bentpipe_quic::{Config, CongestionControl, Identity, Path, PublicKey, UnusableControl};
use std::time::{Duration, Instant, SystemTime};

/// The rate that windows have room for where none is known.
const UNKNOWN: u64 = 100_000_000;
/// Datagrams that leave together at most: a burst of the bucket's ten milliseconds at 20 Mbit/s.
const SEGMENTS: usize = 16;
/// Nothing is heard of the other end for so long: it is gone, or the link is.
const IDLE: Duration = Duration::from_secs(30);
/// Bytes of a full packet that are headers: IPv6, or IPv4 with some to spare, and TCP with timestamps.
const TCP_HEADERS: f64 = 72.0;
/// A shorter path's windows hold what a busy host does not take at once.
const WINDOW_FLOOR: Duration = Duration::from_millis(20);

/// A congestion control of QUIC, as users call the kernel's of the same rules.
pub(crate) fn in_kernel(name: &str) -> &str {
    bentpipe_cc::find(name)
        .and_then(|control| control.kernel)
        .unwrap_or(name)
}

/// One end of a leg over QUIC.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What it carries towards the other end, and how connections share it.
    pub params: LinkParams,
    /// Its path.
    pub path: QuicPath,
    /// The congestion control; `None`: the rate control where the rate is known, and CUBIC where it is not.
    pub control: Option<String>,
}

impl Link {
    /// How HTTP/2 is carried beside it, on sockets with `mark`: by the leg's own congestion control, which is rate where the rate is
    /// known. One of `controls` is loaded for it, and told of the link. Where the kernel takes none, its own control stays within the
    /// link's rate, as far as that is known.
    pub fn tcp(&self, mark: u32, controls: &mut LazyControls) -> TcpSettings {
        let usual = self.params.rate.map(|_| RATE);
        let control = self.control.as_deref().map(in_kernel).or(usual);
        let configured = control.filter(|name| is_ours(name)).map(|_| {
            let controls = controls.load().map_err(ToString::to_string)?;
            { controls.configure(mark, &self.params) }.map_err(|error| error.to_string())
        });
        let lack = configured.clone().and_then(Result::err);
        let mtu = self.path.mtu.0 as f64;
        let wire = mtu + self.params.overhead.0 as f64;
        let part = self.params.pace.value() * (mtu - TCP_HEADERS) / wire;
        TcpSettings {
            rate: self.params.rate.map(|rate| rate.scaled(part)),
            mark,
            control: control.filter(|_| lack.is_none()).map(str::to_owned),
            lack,
        }
    }

    /// That of a gateway's `leg` with `path`.
    pub fn of_leg(leg: &Leg, path: &QuicPath) -> Self {
        let usual = Leg::satellite(leg.link.rate).congestion;
        // The kernel's usual control of a satellite leg is none that was asked for.
        let control = leg.congestion.clone();
        Self {
            params: leg.link.clone(),
            path: path.clone(),
            control: control.filter(|name| Some(name) != usual.as_ref()),
        }
    }

    /// The configuration of an endpoint with `identity` that trusts `peers`, over IPv6 if `ipv6`.
    ///
    /// # Errors
    /// [`UnusableControl`].
    pub fn config(
        &self,
        identity: Identity,
        peers: Vec<PublicKey>,
        ipv6: bool,
    ) -> Result<Config, UnusableControl> {
        let known = self.params.rate;
        let rates = [known, self.path.receive_rate.or(known)];
        let rate = rates.into_iter().flatten().max();
        let path = Path {
            // Of both ways: one window of the stack's is for what is sent, and one for what comes.
            rate: rate.unwrap_or(Rate::from_bits_per_sec(UNKNOWN)),
            round_trip: self.path.round_trip,
            loss: self.path.loss,
            mtu: self.path.mtu,
            overhead: self.params.overhead,
            ipv6,
        };
        let usual = if known.is_some() { "rate" } else { "cubic" };
        let settings = Settings {
            link: self.params.clone(),
            window_floor: WINDOW_FLOOR,
            ..Settings::default()
        };
        let control = CongestionControl::new(self.control.as_deref().unwrap_or(usual), settings)?;
        let config = Config::new(path, control, identity, peers, Instant::now());
        Ok(Config {
            segments: SEGMENTS,
            fec: self.path.fec,
            idle_timeout: IDLE,
            time_of_day: { SystemTime::UNIX_EPOCH.elapsed() }.unwrap_or_default(),
            ..config
        })
    }
}
