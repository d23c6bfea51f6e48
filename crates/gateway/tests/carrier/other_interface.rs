//! Packets for carried connections that come by another interface than the leg's.

use super::support::pair::{Pair, SCPS, split_one};
use super::support::{Ip, exchange, pattern};
use bentpipe_os::need;
use bentpipe_os::netlink::{Prefix, Route, Veth, VethEnd};
use std::io::{Read as _, Write as _};
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

/// In the middle of transfers the router beyond sends what is for the client by an interface of no leg, and later by the
/// leg's again: all of it passes our own TCP, and every byte arrives.
#[test]
fn what_comes_by_another_interface_is_carried_all_the_same() {
    need!(Root, Nft, Tproxy);
    const WHOLE: usize = 4 << 20;
    for (ip, alone) in [true, false]
        .map(|alone| Ip::BOTH.map(|ip| (ip, alone)))
        .concat()
    {
        let pair = Pair::new();
        let end = |netns| VethEnd {
            netns,
            name: "sat1",
        };
        let _other = Veth::create(end(&pair.near), end(&pair.far)).unwrap();
        let (near, bits) = match ip {
            Ip::V4 => ("10.77.6.1", 24),
            Ip::V6 => ("fd77:6::1", 64),
        };
        let near: IpAddr = near.parse().unwrap();
        for (netns, address) in [(&pair.near, near), (&pair.far, next(near))] {
            let netlink = netns.netlink().unwrap();
            let prefix = Prefix::new(address, bits).unwrap();
            netlink.add_address("sat1", prefix).unwrap();
            netlink.set_up("sat1").unwrap();
        }
        let gateways = [&pair.near, &pair.far].map(|netns| {
            let text = SCPS.replace("200Mbit/s", "16Mbit/s");
            (!alone || std::ptr::eq(netns, &pair.near)).then(|| split_one(netns, &text))
        });
        let transfers: Vec<_> = [true, false]
            .map(|up| {
                let mut ends = pair.pair(ip);
                exchange(&mut ends);
                let (client, server) = ends;
                let (mut from, mut to) = if up {
                    (client, server)
                } else {
                    (server, client)
                };
                let writes = thread::spawn(move || {
                    from.write_all(&pattern(WHOLE)).unwrap();
                    from
                });
                let reads = thread::spawn(move || {
                    let mut got = vec![0; WHOLE];
                    let patience = Some(Duration::from_secs(30));
                    to.set_read_timeout(patience).unwrap();
                    to.read_exact(&mut got).unwrap();
                    assert!(got == pattern(WHOLE));
                });
                (writes, reads)
            })
            .into();
        let far = pair.far.netlink().unwrap();
        let by_the_other = Route::via(Prefix::host(ip.client()), near);
        thread::sleep(Duration::from_millis(500));
        for _ in 0..2 {
            let held = far.hold_route(&by_the_other).unwrap();
            thread::sleep(Duration::from_millis(700));
            drop(held);
            thread::sleep(Duration::from_millis(300));
        }
        for (writes, reads) in transfers {
            reads.join().unwrap();
            writes.join().unwrap();
        }
        for gateway in gateways.iter().flatten() {
            assert_eq!(gateway.meter.read().accepted, 2);
        }
    }
}

/// The address behind `address`.
fn next(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => (u32::from(address) + 1).to_be_bytes().into(),
        IpAddr::V6(address) => (u128::from(address) + 1).to_be_bytes().into(),
    }
}
