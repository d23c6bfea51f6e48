//! Every proxy in the table.

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_pep::snoop::{Config, Preset};
use bentpipe_pep::{AnyPep, Pep, Settings, Side, find, registry};
use bentpipe_wire::Packet;
use core::time::Duration;
use support::data;

#[test]
fn every_proxy_is_what_its_entry_says_and_forwards() {
    for entry in registry::<Packet>() {
        assert!(find::<Packet>(entry.name).is_some());
        assert!(
            !entry.summary.is_empty() && entry.summary.len() <= 100,
            "{}",
            entry.name
        );
        let mut proxy = (entry.build)(&Settings::default());
        assert_eq!(proxy.kind(), entry.name);
        proxy.input(Side::Ground, data(0), Instant::ZERO);
        assert_eq!(proxy.transmit(Instant::ZERO), Some((Side::Space, data(0))));
        assert_eq!(proxy.event(), None);
        assert!(proxy.counters().iter().any(|(_, count)| *count > 0));
    }
    assert!(find::<Packet>("warp").is_none());
}

#[test]
fn a_proxy_of_others_is_driven_alike() {
    let built_in = || bentpipe_pep::snoop::Snoop::<Packet>::new(Config::standard());
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
