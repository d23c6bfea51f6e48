//! The table of all proxies.

use crate::ack_filter::{self, AckFilter};
use crate::snoop::{Config, Preset, Snoop};
use crate::split::{self, Split};
use crate::{AnyPep, BuildPacket};
use bentpipe_base::{Bytes, Rate};
use bentpipe_gateway_config::{self as gateway_config, Leg};
use bentpipe_tcp as tcp;
use core::time::Duration;

/// What a scenario says about a proxy and its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Rate of the link towards space, where known.
    pub rate: Option<Rate>,
    /// Round-trip time of the link alone, where known.
    pub rtt: Option<Duration>,
    /// The preset of Snoop.
    pub preset: Preset,
    /// Snoop's cache for one flow, in bytes on the wire; `None`: as the preset has it.
    pub cache: Option<Bytes>,
    /// Snoop's cache for one flow, in packets; `None`: as the preset has it.
    pub cache_packets: Option<usize>,
}

/// One kind of proxy.
pub struct RegistryEntry<P: BuildPacket> {
    /// As scenarios name it.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// Makes one.
    pub build: fn(&Settings) -> AnyPep<P>,
}

/// Every kind of proxy.
pub const fn registry<P: BuildPacket>() -> &'static [RegistryEntry<P>] {
    &[
        RegistryEntry {
            name: "ack-filter",
            summary: "keeps of a flow's acknowledgements that wait for a slow link the newest alone",
            build: |settings| AnyPep::AckFilter(Box::new(AckFilter::new(filter_config(settings)))),
        },
        RegistryEntry {
            name: "snoop",
            summary: "keeps copies of TCP segments under way and sends lost ones again itself",
            build: |settings| AnyPep::Snoop(Box::new(Snoop::new(Config::of(settings)))),
        },
        RegistryEntry {
            name: "split",
            summary: "ends TCP connections on both sides and relays between them (spoofing)",
            build: |settings| AnyPep::Split(Box::new(Split::new(split_config(settings)))),
        },
    ]
}

fn filter_config(settings: &Settings) -> ack_filter::Config {
    ack_filter::Config {
        rate: settings.rate,
        ..ack_filter::Config::default()
    }
}

/// The configuration of a gateway whose operator says nothing but the rate of its satellite link.
fn split_config(settings: &Settings) -> split::Config {
    let gateway = gateway_config::Config {
        sat: Leg::satellite(settings.rate),
        ..gateway_config::Config::default()
    };
    let config = split::Config::of_gateway(&gateway, &tcp::Config::rfc());
    config.unwrap_or_else(|(_, why)| {
        unreachable!("the registry of controls has the legs', see the test: {why}")
    })
}

/// The kind called `name`.
pub fn find<P: BuildPacket>(name: &str) -> Option<&'static RegistryEntry<P>> {
    registry().iter().find(|entry| entry.name == name)
}
