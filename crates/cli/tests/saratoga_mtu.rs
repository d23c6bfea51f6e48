//! `bentpipe saratoga` over paths on which long packets vanish without a word.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use bentpipe_base::Bytes;
use bentpipe_os::need;
use bentpipe_os::netlink::{Route, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use machines::serve;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use support::PROGRAM;

/// A client, a router and a server, which send packets one by one and say nothing of what they drop.
struct Routed {
    client: Netns,
    server: Netns,
    _router: Netns,
    _wires: [Veth; 2],
}

impl Routed {
    /// The router drops what `rules` of its forward chain say, in either direction; its link to the server carries packets
    /// of `mtu` octets.
    fn new(label: &str, mtu: u64, rules: &[&str]) -> Self {
        let [client, router, server] = ["client", "router", "server"]
            .map(|end| Netns::create(&format!("{label}_{end}")).unwrap());
        let wire = |end: &Netns, name, number: u8| {
            let [near, far] = [end, &router].map(|netns| VethEnd { netns, name });
            let wire = Veth::create(near, far).unwrap();
            wire.disable_offloads().unwrap();
            wire.set_up().unwrap();
            for (netns, host) in [(end, 2), (&router, 1)] {
                let netlink = netns.netlink().unwrap();
                for address in [
                    format!("10.0.{number}.{host}/24"),
                    format!("fd00:{number}::{host}/64"),
                ] {
                    netlink.add_address(name, address.parse().unwrap()).unwrap();
                }
            }
            for (all, gateway) in [
                ("0.0.0.0/0", format!("10.0.{number}.1")),
                ("::/0", format!("fd00:{number}::1")),
            ] {
                let route = Route::via(all.parse().unwrap(), gateway.parse().unwrap());
                end.netlink().unwrap().add_route(&route).unwrap();
            }
            wire
        };
        let wires = [wire(&client, "near", 1), wire(&server, "far", 2)];
        let netlink = router.netlink().unwrap();
        netlink.set_mtu("far", Bytes(mtu)).unwrap();
        for key in ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"] {
            router.set_sysctl(key, "1").unwrap();
        }
        let rules = rules.join("\n");
        let table = format!(
            "table inet path {{
                chain way {{ type filter hook forward priority 0;
                    {rules}
                }}
                chain own {{ type filter hook output priority 0;
                    icmp type destination-unreachable drop
                    icmpv6 type packet-too-big drop
                }}
            }}"
        );
        let set = router.command("nft").arg(table).output().unwrap();
        assert!(set.status.success(), "{set:?}");
        Self {
            client,
            server,
            _router: router,
            _wires: wires,
        }
    }

    /// Moves 1 MB at 4 Mbit/s, both ways and over both protocols, all at once: how long each takes.
    fn move_all(&self) -> Vec<(String, Duration)> {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let content: Vec<u8> = (0..1_000_000)
            .map(|i: u32| (i * 31 + i / 251) as u8)
            .collect();
        let mut command = self.server.command(PROGRAM);
        command.args(["saratoga", "serve", "--rate=8Mbit/s", "--allow=put"]);
        command.arg(there.path());
        let _server = serve(command);
        let begin = |address: &str, what: &str| {
            let name = format!("{what}{}", address.len());
            let (from, to): (&Path, &Path) = match what {
                "put" => (here.path(), there.path()),
                _ => (there.path(), here.path()),
            };
            fs::write(from.join(&name), &content).unwrap();
            let mut command = self.client.command(PROGRAM);
            command.args(["saratoga", what, address, &name]);
            if what == "put" {
                command.arg("--rate=4Mbit/s");
            }
            command.current_dir(here.path());
            (name.clone(), to.join(name), command)
        };
        let mut jobs = Vec::new();
        for address in ["10.0.2.2", "fd00:2::2"] {
            for what in ["put", "get"] {
                jobs.push(begin(address, what));
            }
        }
        let run = |(name, place, mut command): (String, PathBuf, Command)| {
            let began = Instant::now();
            let output = command.output().unwrap();
            let took = began.elapsed();
            assert_eq!(output.status.code(), Some(0), "{name} {took:?}: {output:?}");
            assert!(fs::read(place).unwrap() == content, "{name}");
            (name, took)
        };
        let run = &run;
        thread::scope(|scope| {
            let start = |job| scope.spawn(move || run(job));
            let running: Vec<_> = jobs.into_iter().map(start).collect();
            running.into_iter().map(|it| it.join().unwrap()).collect()
        })
    }
}

/// What 1 MB takes at 4 Mbit/s, with as much again for a busy machine, and what may be lost once.
const MOST: Duration = Duration::from_secs(2 * 2 + 10);

fn tried(label: &str, mtu: u64, rules: &[&str]) {
    need!(Root);
    let took = Routed::new(label, mtu, rules).move_all();
    assert!(
        took.iter().all(|(_, took)| *took < MOST),
        "{label}: {took:?}"
    );
}

/// Over IPv4 some packets passed in fragments, for batches had gone without DF.
#[test]
fn a_router_may_say_nothing_of_its_narrow_link() {
    tried("narrow", 1300, &[]);
}

#[test]
fn long_packets_may_vanish() {
    tried("hole", 1500, &["meta length > 1280 drop"]);
}

#[test]
fn long_packets_may_vanish_where_others_are_lost() {
    let rules = ["meta length > 1400 drop", "numgen random mod 100 == 0 drop"];
    tried("hole_loss", 1500, &rules);
}

#[test]
fn long_packets_may_pass_now_and_then() {
    let rules = ["meta length > 1280 numgen random mod 1000 > 0 drop"];
    tried("hole_seldom", 1500, &rules);
}

/// Shorter than those of every path over IPv6, and than what is begun with.
#[test]
fn all_but_the_shortest_packets_may_vanish() {
    tried("hole_short", 1500, &["meta length > 700 drop"]);
}
