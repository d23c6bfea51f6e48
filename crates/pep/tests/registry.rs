//! Every proxy in the table.

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_pep::ack_filter::AckFilter;
use bentpipe_pep::snoop::{Config, Preset, Settings, Snoop};
use bentpipe_pep::split::{self, Split};
use bentpipe_pep::{AnyPep, Pep, REGISTRY, Side};
use bentpipe_wire::Packet;
use core::time::Duration;
use support::data;

#[test]
fn every_proxy_is_in_the_table_and_forwards() {
    let split = split::Config::of_gateway(&Default::default(), &bentpipe_tcp::Config::rfc());
    let proxies: [AnyPep<Packet>; 3] = [
        AnyPep::AckFilter(Box::new(AckFilter::new(Default::default()))),
        AnyPep::Snoop(Box::new(Snoop::new(Config::standard()))),
        AnyPep::Split(Box::new(Split::new(
            split.expect("the default legs can be"),
        ))),
    ];
    let kinds = proxies.each_ref().map(|proxy| proxy.kind());
    assert_eq!(REGISTRY.iter().map(|it| it.name).collect::<Vec<_>>(), kinds);
    for (mut proxy, entry) in proxies.into_iter().zip(REGISTRY) {
        let summary = entry.summary;
        assert!(!summary.is_empty() && summary.len() <= 100, "{summary}");
        proxy.input(Side::Ground, data(0), Instant::ZERO);
        assert_eq!(proxy.transmit(Instant::ZERO), Some((Side::Space, data(0))));
        assert_eq!(proxy.event(), None);
        assert!(proxy.counters().iter().any(|(_, count)| *count > 0));
    }
}

#[test]
fn a_proxy_of_others_is_driven_alike() {
    let built_in = || Snoop::<Packet>::new(Config::standard());
    let mut other = AnyPep::Other(Box::new(built_in()));
    other.input(Side::Ground, data(0), Instant::ZERO);
    assert_eq!(other.transmit(Instant::ZERO), Some((Side::Space, data(0))));
    assert_eq!(other.buffered(), Bytes(540));
    assert!(other.deadline().is_some());
}

#[test]
fn the_cache_is_one_bandwidth_delay_product() {
    let mut settings = Settings {
        rate: Some(Rate::from_bits_per_sec(2_000_000)),
        rtt: Some(Duration::from_millis(500)),
        ..Settings::default()
    };
    assert_eq!(Config::of(&settings).bytes, Bytes(125_000));
    assert_eq!(Config::of(&settings).total, Bytes(500_000));
    settings.cache = Some(Bytes(7000));
    assert_eq!(Config::of(&settings).bytes, Bytes(7000));
    settings.cache = None;
    settings.preset = Preset::Ns2;
    let config = Config::of(&settings);
    assert_eq!((config.packets, config.bytes), (100, Bytes(u64::MAX)));
    settings.cache_packets = Some(271);
    assert_eq!(Config::of(&settings).packets, 271);
}

#[test]
fn presets_are_found_by_name() {
    for (name, summary, preset) in Preset::ALL {
        assert_eq!(Preset::find(name), Some(*preset));
        assert!(!summary.is_empty());
    }
    assert_eq!(Preset::find("ns3"), None);
}
