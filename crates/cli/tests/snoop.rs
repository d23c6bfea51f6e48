//! `bentpipe snoop`: two hosts with a bridge between them, behind which every fiftieth segment is lost.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_os::need;
use bentpipe_os::netlink::{Veth, VethEnd};
use bentpipe_os::netns::Netns;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;
use support::PROGRAM;

const LENGTH: usize = 4_000_000;
const PORTS: [&str; 2] = ["near", "far"];

struct Net {
    middle: Netns,
    hosts: [Netns; 2],
    _veths: [Veth; 2],
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([100, 64, 9, 1 + host as u8], 5_000))
}

fn run(netns: &Netns, words: &[&str]) {
    let status = netns.command(words[0]).args(&words[1..]).status().unwrap();
    assert!(status.success(), "{words:?}");
}

impl Net {
    fn new() -> Self {
        let middle = Netns::create("snoop-bridge").unwrap();
        let hosts = PORTS.map(|label| Netns::create(label).unwrap());
        run(&middle, &["ip", "link", "add", "bridge0", "type", "bridge"]);
        let veths = [0, 1].map(|i| {
            let [middle, host] = [(&middle, PORTS[i]), (&hosts[i], "eth")]
                .map(|(netns, name)| VethEnd { netns, name });
            Veth::create(middle, host).unwrap()
        });
        for (i, veth) in veths.iter().enumerate() {
            veth.set_up().unwrap();
            run(
                &middle,
                &["ip", "link", "set", PORTS[i], "master", "bridge0"],
            );
            // An acknowledgement that advances would tell the sender of later losses by SACK.
            run(&hosts[i], &["sysctl", "-qw", "net.ipv4.tcp_sack=0"]);
            // Single segments, with the bridge alone too.
            run(
                &hosts[i],
                &["ip", "link", "set", "eth", "gso_max_segs", "1"],
            );
            let address = format!("{}/24", address(i).ip());
            run(&hosts[i], &["ip", "address", "add", &address, "dev", "eth"]);
        }
        run(&middle, &["ip", "link", "set", "bridge0", "up"]);
        // Behind the bridge, where its copies pass too.
        let loss = "add table netdev loss; \
            add chain netdev loss ingress { type filter hook ingress device eth priority 0; }; \
            add rule netdev loss ingress tcp dport 5000 meta length > 1000 numgen inc mod 50 == 7 drop";
        run(&hosts[1], &["nft", loss]);
        Self {
            middle,
            hosts,
            _veths: veths,
        }
    }

    /// A stream from the near host to the far one; returns how many segments the near host sent again.
    fn transfer(&self) -> u64 {
        let listener = self.hosts[1].run(|| TcpListener::bind(address(1)).unwrap());
        let listener = listener.unwrap();
        let bytes: Vec<u8> = (0..LENGTH).map(|i| (i * 31 + i / 251) as u8).collect();
        let before = self.resent();
        thread::scope(|scope| {
            let reads = scope.spawn(|| {
                let mut all = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
                all
            });
            let stream = self.hosts[0]
                .run(|| TcpStream::connect_timeout(&address(1), Duration::from_secs(10)).unwrap());
            stream.unwrap().write_all(&bytes).unwrap();
            assert!(reads.join().unwrap() == bytes, "other bytes arrived");
        });
        self.resent() - before
    }

    /// Segments that the near host's TCP sent again so far (RFC 1213, tcpRetransSegs).
    fn resent(&self) -> u64 {
        let out = self.hosts[0]
            .command("cat")
            .arg("/proc/self/net/snmp")
            .output();
        let text = String::from_utf8(out.unwrap().stdout).unwrap();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let mut names = lines.next().unwrap().split(' ');
        let place = names.position(|name| name == "RetransSegs").unwrap();
        lines
            .next()
            .unwrap()
            .split(' ')
            .nth(place)
            .unwrap()
            .parse()
            .unwrap()
    }
}

/// The program in the middle, and what it says, a line at a time.
fn snoops(net: &Net) -> (Child, Receiver<String>) {
    let mut child = net.middle.command(PROGRAM);
    child.args(["snoop", "near", "far"]).stderr(Stdio::piped());
    let mut child: Child = child.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (say, said) = channel();
    thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .try_for_each(|line| say.send(line))
    });
    let first = said.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(first, "snoops between `near` and `far`");
    (child, said)
}

#[test]
fn what_is_lost_behind_the_bridge_is_sent_again_from_it() {
    need!(Root, Nft);
    let net = Net::new();
    let alone = net.transfer();
    assert!(alone > 30, "{alone} segments: the path does not lose");
    let (mut child, said) = snoops(&net);
    let helped = net.transfer();
    let interrupted = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let lines: Vec<String> = said.iter().collect();
    let report = lines
        .iter()
        .rfind(|line| line.contains("frames carried"))
        .unwrap();
    let number = |behind: &str| -> u64 {
        let (before, _) = report.split_once(behind).unwrap();
        before
            .rsplit(' ')
            .next()
            .unwrap()
            .trim_start_matches('[')
            .parse()
            .unwrap()
    };
    let again = number(" segments sent again");
    assert!(again > 30, "{report}");
    assert!(number(" duplicate acknowledgements") > again, "{report}");
    assert!(
        number(" frames carried") > (LENGTH / 1_448) as u64,
        "{report}"
    );
    assert!(helped < alone / 4, "{helped} of {alone}: {report}");
    // The kernel's bridge carries again.
    net.transfer();
}

#[test]
fn mistakes_are_told_with_the_next_step() {
    need!(Root, Nft);
    let netns = Netns::create("snoop-bad").unwrap();
    for (words, said) in [
        (
            &["nothing", "lo"][..],
            "cannot read the frames of interface `nothing`",
        ),
        (&["lo", "lo"], "give the command two interfaces"),
        (&["lo"], "<FAR>"),
    ] {
        let out = netns
            .command(PROGRAM)
            .arg("snoop")
            .args(words)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
    }
}
