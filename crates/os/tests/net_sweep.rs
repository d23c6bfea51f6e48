//! What a killed process leaves behind is swept; what a living one holds is not, nor what is not
//! ours.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

mod net_support;

use bentpipe_os::diag::Diag;
use bentpipe_os::need;
use bentpipe_os::netlink::{
    Family, Mark, Netlink, Prefix, Route, Rule, RuleAction, Table, Veth, VethEnd,
};
use bentpipe_os::netns::Netns;
use bentpipe_os::nft::{self, OwnerTable, TableFamily};
use bentpipe_os::owner::Owner;
use bentpipe_os::sweep::{end_connections, sweep};
use bentpipe_os::tun::{Tun, TunConfig};
use net_support::{Actor, playing, ready, within};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Everything a gateway or a lab makes in the namespace it is started in.
#[test]
#[ignore = "a role in the tests of this file"]
fn maker_role() {
    if !playing("maker_role") {
        return;
    }
    let owner = Owner::current().unwrap();
    let here = Netns::current().unwrap();
    let netlink = here.netlink().unwrap();
    let namespace = Netns::create("left").unwrap();
    let (near, far) = (format!("n{}", owner.pid), format!("f{}", owner.pid));
    // Both ends here: with one in the namespace it would go along.
    let ends = (
        VethEnd {
            netns: &here,
            name: &near,
        },
        VethEnd {
            netns: &here,
            name: &far,
        },
    );
    let _veth = Veth::create(ends.0, ends.1).unwrap();
    let mark = Mark::exact(owner.pid);
    let diversion = netlink.divert(&Family::ALL, mark, 100, 0).unwrap();
    let _owned = OwnerTable::load(TableFamily::Inet, "owned", "chain c { }").unwrap();
    let free = format!("inet {}", owner.name("free"));
    nft::apply(&format!("table {free} {{ }}")).unwrap();
    let _tun = Tun::open(&format!("t{}", owner.pid), TunConfig::default()).unwrap();
    ready(&[
        namespace.name().unwrap(),
        &near,
        &far,
        &diversion.table().to_string(),
    ]);
}

struct Traces {
    namespace: bool,
    interfaces: usize,
    rules: usize,
    routes: usize,
    tables: usize,
}

impl Traces {
    fn of(actor: &Actor) -> Self {
        let text = |program: &str, args: &[&str]| {
            let out = Command::new(program).args(args).output().unwrap();
            assert!(out.status.success(), "{program} {args:?}");
            String::from_utf8(out.stdout).unwrap()
        };
        let [namespace, near, far, table] = &actor.words[..] else {
            panic!("{:?}", actor.words)
        };
        let links = text("ip", &["-br", "link"]);
        let tun = format!("t{}", actor.pid());
        let named = |name: &String| {
            links
                .lines()
                .any(|line| line.split(['@', ' ']).next() == Some(name))
        };
        let lookup = format!("lookup {table} ");
        let count = |list: String, what: &str| {
            list.lines()
                .filter(|line| format!("{line} ").contains(what))
                .count()
        };
        let route = format!("table {table} ");
        let pid = format!("bentpipe_{}_", actor.pid());
        Self {
            namespace: text("ip", &["netns", "list"]).contains(namespace),
            interfaces: [near, far, &tun]
                .into_iter()
                .filter(|name| named(name))
                .count(),
            rules: count(text("ip", &["rule"]), &lookup)
                + count(text("ip", &["-6", "rule"]), &lookup),
            routes: count(text("ip", &["-4", "route", "show", "table", "all"]), &route)
                + count(text("ip", &["-6", "route", "show", "table", "all"]), &route),
            tables: count(nft::list(&["tables"]).unwrap(), &pid),
        }
    }

    fn counts(&self) -> (bool, usize, usize, usize, usize) {
        (
            self.namespace,
            self.interfaces,
            self.rules,
            self.routes,
            self.tables,
        )
    }
}

#[test]
fn the_dead_are_swept_and_the_living_are_not() {
    need!(Root, Nft, Tun, Program("ip"));
    let host = Netns::create("host").unwrap();
    let mut dead = Actor::start(&host, "maker_role");
    let alive = Actor::start(&host, "maker_role");
    host.run(move || {
        // Three rules of each family.
        let all = (true, 3, 6, 2, 2);
        assert_eq!(Traces::of(&dead).counts(), all);
        assert_eq!(Traces::of(&alive).counts(), all);
        let report = sweep();
        assert_eq!(
            report.interfaces.len() + report.rules.len() + report.tables.len(),
            0,
            "{report}"
        );
        assert_eq!(Traces::of(&dead).counts(), all, "swept while it lived");

        dead.kill();
        // Not collected by its parent, and yet dead.
        let left = (true, 2, 6, 2, 1);
        let gone = within(Duration::from_secs(2), || {
            Traces::of(&dead).counts() == left
        });
        assert!(
            gone.is_some(),
            "owner table and TUN vanish: {:?}",
            Traces::of(&dead).counts()
        );

        // What it held is closed a moment before the process counts as ended.
        let (owner, _) = Owner::parse(&dead.words[0]).unwrap();
        let ended = within(Duration::from_secs(2), || !owner.is_alive());
        assert!(ended.is_some(), "a killed process ends");

        let report = sweep();
        assert_eq!(Traces::of(&dead).counts(), (false, 0, 0, 0, 0), "{report}");
        assert_eq!(Traces::of(&alive).counts(), all, "{report}");
        assert_eq!(report.failures, [""; 0]);
        // Namespaces are everyone's: another sweep may have been faster.
        let counts = (
            report.interfaces.len(),
            report.rules.len(),
            report.routes.len(),
            report.tables.len(),
        );
        assert_eq!(counts, (1, 6, 2, 1), "{report}");
        assert!(
            report
                .to_string()
                .contains(&format!("fwmark {:#x}/0xffffffff", dead.pid()))
        );

        let again = sweep();
        assert_eq!(
            (again.rules.len(), again.tables.len(), again.failures.len()),
            (0, 0, 0),
            "{again}"
        );

        drop(alive);
        sweep();
    })
    .unwrap();
}

#[test]
fn a_later_process_of_the_same_pid_keeps_nothing_alive() {
    need!(Root, Nft, Program("ip"));
    let host = Netns::create("host").unwrap();
    let me = Owner::current().unwrap();
    let earlier = Owner {
        start: me.start - 1,
        ..me
    };
    host.run(|| {
        let netlink = Netlink::open().unwrap();
        for name in [earlier.name("table"), me.name("table")] {
            nft::apply(&format!("table ip {name} {{ }}")).unwrap();
        }
        // One diversion as the earlier process would have made it, one of our own.
        let table = Table::owned(earlier, 1);
        let metric = u32::try_from(earlier.start).unwrap();
        let route = Route::local_default(Family::V4)
            .in_table(table)
            .with_metric(metric);
        netlink.add_route(&route).unwrap();
        // In another pid namespace it may have had the pid at the same time, and our table.
        netlink
            .add_route(&route.in_table(Table::owned(me, 0)))
            .unwrap();
        let rule = Rule {
            family: Family::V4,
            mark: Some(Mark::exact(1)),
            action: RuleAction::Lookup,
            table,
            priority: 9,
        };
        netlink.add_rule(&rule).unwrap();
        let _ours = netlink
            .divert(&[Family::V4], Mark::exact(2), 10, 0)
            .unwrap();

        let report = sweep();
        assert_eq!(report.tables, [format!("ip {}", earlier.name("table"))]);
        assert_eq!(report.rules, [rule.to_string()]);
        assert_eq!(report.routes.len(), 2);
        let left: Vec<_> = netlink
            .rules()
            .unwrap()
            .iter()
            .map(|rule| rule.priority)
            .collect();
        assert_eq!(left, [10, 11, 12]);
    })
    .unwrap();
}

#[test]
fn what_is_not_ours_is_never_touched() {
    need!(Root, Nft, Program("ip"));
    let host = Netns::create("host").unwrap();
    let dead = Owner {
        pid: 4_194_303,
        start: 1,
    };
    assert!(!dead.is_alive());
    host.run(|| {
        let ip = |line: &str| {
            assert!(
                Command::new("ip")
                    .args(line.split(' '))
                    .status()
                    .unwrap()
                    .success(),
                "ip {line}"
            );
        };
        nft::apply("table inet bentpipe { }\ntable ip bentpipe_1_2 { }\ntable ip filter { }")
            .unwrap();
        ip("link add foreign type veth peer name foreign2");
        ip(&format!("link set foreign alias my-{}", dead.name("x")));
        // Our protocol number in a table out of our range, our range with another protocol, and a
        // rule in a dead process's table that somebody else added.
        let foreign = Table::owned(dead, 0).number();
        ip("rule add fwmark 1 lookup 77 protocol 98");
        ip(&format!(
            "rule add fwmark 2 lookup {foreign} protocol static"
        ));
        ip("route add local default dev lo table 77 proto 98");
        ip(&format!(
            "route add local default dev lo table {foreign} proto static"
        ));
        let netlink = Netlink::open().unwrap();
        let lo = Route::device("10.77.0.0/16".parse::<Prefix>().unwrap(), "lo");
        netlink.add_route(&lo).unwrap();

        let report = sweep();
        let swept = (
            report.tables.len(),
            report.interfaces.len(),
            report.rules.len(),
            report.routes.len(),
        );
        assert_eq!(swept, (0, 0, 0, 0), "{report}");
        assert_eq!(nft::list(&["tables"]).unwrap().lines().count(), 3);
        assert!(netlink.has_link("foreign").unwrap());
        let rules = Command::new("ip").arg("rule").output().unwrap().stdout;
        let rules = String::from_utf8(rules).unwrap();
        assert!(
            rules.contains("lookup 77") && rules.contains(&format!("lookup {foreign}")),
            "{rules}"
        );
    })
    .unwrap();
}

/// Another program may have such marks on its sockets. Its connections that it has closed are at this machine's
/// addresses, where a gateway has none.
#[test]
fn connections_of_another_program_with_such_a_mark_stay() {
    need!(Root);
    let netns = Netns::create("marks").unwrap();
    netns
        .run(|| {
            let netlink = Netlink::open().unwrap();
            let prefix = Prefix::host("10.1.2.3".parse().unwrap());
            netlink.add_address("lo", prefix).unwrap();
            assert!(netlink.addresses().unwrap().contains(&prefix.address()));
            for host in ["127.0.0.1:0", "[::1]:0", "10.1.2.3:0"] {
                let listener = TcpListener::bind(host).unwrap();
                let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                bentpipe_sockets::socket::set_mark(&near, 0x6200_0001).unwrap();
                let _far = listener.accept().unwrap();
                near.shutdown(Shutdown::Write).unwrap();
                drop(near);
                let ended = end_connections(&mut Diag::open().unwrap()).unwrap();
                assert_eq!(ended, 0, "{host}");
            }
        })
        .unwrap();
}
