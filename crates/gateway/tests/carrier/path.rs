//! What the path over the link does to the carrier's packets: it marks them, or takes none so long.

use super::carried;
use super::support::ends::{AMOUNT, carry_both_ways};
use super::support::pair::{Pair, SCPS, split_one};
use super::support::{Ip, pattern};
use bentpipe_base::Bytes;
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_os::nft;
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;

/// What named counters of the table `seen` have counted.
fn counted<const N: usize>(netns: &Netns, names: [&str; N]) -> [u64; N] {
    let counts = netns.run(|| {
        let mut tally = nft::Tally::open().unwrap();
        tally.read(nft::TableFamily::Inet, "seen").unwrap()
    });
    let counts = counts.unwrap();
    names.map(|name| {
        let count = counts.iter().find(|count| count.name == name);
        count.unwrap().packets
    })
}

/// Where the gateway's sockets ask for ECN and the far end grants it, the carrier's data is marked as capable of it on the link; what the
/// link marks is echoed, and the sender says that it has heard.
#[test]
fn marks_of_the_link_are_echoed() {
    need!(Root, Nft, Tproxy);
    const COUNT: &str = "table inet seen {
      counter capable {
      }
      counter echoed {
      }
      counter heard {
      }
      chain counts {
        type filter hook prerouting priority -500; policy accept;
        iifname != sat0 accept
        ip ecn ect0 counter name capable
        ip6 ecn ect0 counter name capable
        tcp flags & (syn | ecn) == ecn counter name echoed
        tcp flags & (syn | cwr) == cwr counter name heard
      }
      chain marks {
        type filter hook prerouting priority -450; policy accept;
        iifname != sat0 accept
        ip ecn ect0 numgen inc mod 20 == 1 ip ecn set ce
        ip6 ecn ect0 numgen inc mod 20 == 1 ip6 ecn set ce
      }
    }";
    for ip in Ip::BOTH {
        let pair = Pair::new();
        for netns in [&pair.client, &pair.near, &pair.far, &pair.server] {
            netns.set_sysctl("net.ipv4.tcp_ecn", "1").unwrap();
        }
        for netns in [&pair.near, &pair.far] {
            netns.run(|| nft::apply(COUNT).unwrap()).unwrap();
        }
        let gateways = pair.split(SCPS);
        carry_both_ways(carried(&pair, ip, &gateways[0]));
        for netns in [&pair.near, &pair.far] {
            let [capable, echoed, heard] = counted(netns, ["capable", "echoed", "heard"]);
            let each = capable > 100 && echoed > 0 && heard > 0;
            assert!(each, "{ip:?}: {capable}, {echoed}, {heard}");
        }
        for gateway in &gateways {
            let counters = gateway.meter.read();
            assert_eq!((counters.carried, counters.carrier_outages), (1, 0));
        }
    }
}

/// A hop of the path takes no packets so long as the interfaces at its ends: what is told of those in flight is heeded.
#[test]
fn a_narrow_hop_is_learnt() {
    need!(Root, Nft, Tproxy);
    for ip in Ip::BOTH {
        let pair = Pair::new();
        // A router here, which takes all from the link, and forwards less.
        let router = pair.far.netlink().unwrap();
        router.set_mtu("lan0", Bytes(1300)).unwrap();
        let near = split_one(&pair.near, SCPS);
        let (mut client, mut server) = pair.pair(ip);
        let writes = thread::spawn(move || client.write_all(&pattern(AMOUNT)).map(|()| client));
        let mut got = vec![0; AMOUNT];
        server.read_exact(&mut got).unwrap();
        assert!(got == pattern(AMOUNT), "{ip:?}");
        drop(writes.join().unwrap().unwrap());
        let counters = near.meter.read();
        assert_eq!(counters.carried_plain, 1, "{counters:?}");
        assert!(counters.carrier_sent_again > 0, "{counters:?}");
    }
}

/// The satellite interfaces of both gateways get a smaller MTU while the connection stands, or what leads to their own sockets does. The
/// kernel refuses what is longer.
#[test]
fn an_interface_that_takes_less_than_before_is_heeded() {
    need!(Root, Nft, Tproxy);
    for (ip, interface) in [
        (Ip::V4, "sat0"),
        (Ip::V6, "sat0"),
        (Ip::V4, "lo"),
        (Ip::V6, "lo"),
    ] {
        let pair = Pair::new();
        let gateways = pair.split(SCPS);
        let ends = carried(&pair, ip, &gateways[0]);
        for netns in [&pair.near, &pair.far] {
            let netlink = netns.netlink().unwrap();
            netlink.set_mtu(interface, Bytes(1300)).unwrap();
        }
        carry_both_ways(ends);
        for gateway in &gateways {
            let counters = gateway.meter.read();
            assert!(counters.carrier_unsent < 1000, "{counters:?}");
        }
    }
}

/// Rules and routes that lead packets to the gateway's sockets are made again where somebody removes them, or puts others before them;
/// connections that stand go on, and others begin.
#[test]
fn what_leads_to_the_sockets_is_made_again() {
    need!(Root, Nft, Tproxy);
    let pair = Pair::new();
    let gateways = pair.split(SCPS);
    let main = ["-4", "-6"].map(|family| format!("{family} rule add lookup main pref 32766"));
    let removed = ["-4 rule flush".to_owned(), "-6 rule flush".to_owned()];
    let routes =
        ["-4", "-6"].map(|family| format!("{family} route flush table all type local proto 98"));
    let first = ["-4", "-6"].map(|family| format!("{family} rule add lookup main"));
    let ends = Ip::BOTH.map(|ip| carried(&pair, ip, &gateways[0]));
    for commands in [&[removed, main].concat()[..], &routes, &first] {
        for netns in [&pair.near, &pair.far] {
            for command in commands {
                let done = netns.command("ip").args(command.split(' ')).status();
                assert!(done.unwrap().success(), "{command}");
            }
        }
        thread::sleep(Duration::from_millis(1500));
        carry_both_ways(carried(&pair, Ip::V4, &gateways[0]));
        carry_both_ways(carried(&pair, Ip::V6, &gateways[0]));
    }
    ends.into_iter().for_each(carry_both_ways);
}

/// And what is sent meanwhile does not go by another way to who has other numbers. The ends have one kernel here, and so nearly the same.
#[test]
fn what_leads_to_the_sockets_may_be_removed_under_traffic() {
    need!(Root, Nft, Tproxy);
    const TIMES: usize = 100;
    let pair = Pair::new();
    let gateways = pair.split(SCPS);
    let (client, server) = carried(&pair, Ip::V4, &gateways[0]);
    let chunk = pattern(64 << 10);
    thread::scope(|scope| {
        for mut end in [&client, &server] {
            let chunk = &chunk;
            scope.spawn(move || {
                for _ in 0..TIMES {
                    end.write_all(chunk).unwrap();
                    thread::sleep(Duration::from_millis(20));
                }
            });
            scope.spawn(move || {
                let mut got = vec![0; chunk.len()];
                for _ in 0..TIMES {
                    end.read_exact(&mut got).unwrap();
                    assert!(got == *chunk);
                }
            });
        }
        thread::sleep(Duration::from_millis(500));
        for command in ["rule flush", "rule add lookup main pref 32766"] {
            let done = pair.near.command("ip").args(command.split(' ')).status();
            assert!(done.unwrap().success(), "{command}");
        }
    });
}
