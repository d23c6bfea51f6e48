//! What befalls a gateway besides its flows: hands on its rules, translation that comes and goes, links that go,
//! forged SYNs.

use super::{Chance, Container, PORT};
use crate::support::{Ip, Stage, flood};
use bentpipe_os::need::find_program;
use bentpipe_os::netns::Netns;
use bentpipe_os::nft;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

/// Forged SYNs at a time.
const FLOOD: u32 = 3_000;
/// The longest that a link is down.
const DOWN_MS: u64 = 1_500;

const MASQUERADE: &str = "chain post {
  type nat hook postrouting priority srcnat; policy accept;
  oifname lan0 masquerade
}
";

/// One kind of trouble.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// The rules of routing go, all of them, and somebody makes the usual ones again.
    RulesFlushed,
    /// Routes that a program made go.
    RoutesFlushed,
    /// `nft flush ruleset`, as a firewall's restart does it.
    RulesetFlushed,
    /// `conntrack -F`.
    ConnectionsForgotten,
    /// Sources of what goes to the ground are translated from now on, or no more.
    Masquerade,
    /// The rules of containers go, or come again.
    Containers,
    /// The interface of a leg goes down, and comes up again.
    LinkDown(&'static str),
    /// SYNs of clients that are not there, to a server's port that is open.
    FloodOpen,
    /// To one that is closed.
    FloodClosed,
    /// To a server that is not there.
    FloodNobody,
}

impl Trouble {
    pub(crate) const ALL: [Self; 11] = [
        Self::RulesFlushed,
        Self::RoutesFlushed,
        Self::RulesetFlushed,
        Self::ConnectionsForgotten,
        Self::Masquerade,
        Self::Containers,
        Self::LinkDown("sat0"),
        Self::LinkDown("lan0"),
        Self::FloodOpen,
        Self::FloodClosed,
        Self::FloodNobody,
    ];

    /// Makes namespaces that it can befall: an interface keeps its addresses when it goes down.
    pub(crate) fn prepare(all: [&Netns; 4]) {
        for netns in all {
            let key = "net.ipv6.conf.all.keep_addr_on_down";
            netns.set_sysctl(key, "1").unwrap();
        }
    }

    /// The rules of containers are there before the gateway is.
    pub(crate) fn begin_containers(stage: &Stage) {
        set_table(&stage.gateway, "containers", Some(&Container::rules()));
    }

    /// Does it to the gateway of the stage.
    pub(crate) fn befall(self, stage: &Stage, chance: &mut Chance) {
        let gateway = &stage.gateway;
        match self {
            Self::RulesFlushed => {
                for family in ["-4", "-6"] {
                    run(gateway, "ip", &[family, "rule", "flush"]);
                    let usual = [family, "rule", "add", "lookup", "main", "pref", "32766"];
                    run(gateway, "ip", &usual);
                }
            }
            Self::RoutesFlushed => {
                for family in ["-4", "-6"] {
                    let ours = [family, "route", "flush", "table", "all", "proto", "98"];
                    run(gateway, "ip", &ours);
                }
            }
            Self::RulesetFlushed => run(gateway, "nft", &["flush", "ruleset"]),
            Self::ConnectionsForgotten => {
                if find_program("conntrack").is_some() {
                    run(gateway, "conntrack", &["-F"]);
                }
            }
            Self::Masquerade => {
                let begins = chance.next(2) == 0;
                set_table(gateway, "outgoing", begins.then_some(MASQUERADE));
            }
            Self::Containers => {
                let begins = chance.next(2) == 0;
                let rules = Container::rules();
                set_table(gateway, "containers", begins.then_some(&rules));
            }
            Self::LinkDown(interface) => {
                let netlink = gateway.netlink().unwrap();
                run(gateway, "ip", &["link", "set", interface, "down"]);
                std::thread::sleep(Duration::from_millis(chance.next(DOWN_MS)));
                netlink.set_up(interface).unwrap();
            }
            Self::FloodOpen => flood(stage, (Ip::V4.server(), PORT).into(), chance),
            Self::FloodClosed => flood(stage, (Ip::V4.server(), 9).into(), chance),
            Self::FloodNobody => flood(stage, (Ip::V4.nobody(), PORT).into(), chance),
        }
    }
}

/// Puts a table with this body in the place of the one before, or takes that away.
fn set_table(netns: &Netns, table: &str, body: Option<&str>) {
    let mut commands = format!("table inet {table}\ndelete table inet {table}\n");
    if let Some(body) = body {
        commands += &format!("table inet {table} {{\n{body}}}\n");
    }
    netns.run(|| nft::apply(&commands).unwrap()).unwrap();
}

/// What was there to be flushed may be gone.
fn run(netns: &Netns, program: &str, arguments: &[&str]) {
    let mut command = netns.command(program);
    let quiet = command.args(arguments).stderr(Stdio::null());
    quiet.stdout(Stdio::null()).status().unwrap();
}

fn flood(stage: &Stage, to: SocketAddr, chance: &mut Chance) {
    let first = chance.next(u64::from(u32::MAX - FLOOD)) as u32;
    // While the link is down there is no way.
    flood::send_each(stage, first..first + FLOOD, to, drop);
}
