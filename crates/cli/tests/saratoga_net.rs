//! `bentpipe saratoga` between two machines: namespaces that a wire joins.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use bentpipe_base::Bytes;
use bentpipe_os::need;
use bentpipe_os::netlink::{Route, Veth, VethEnd};
use bentpipe_os::netns::Netns;
use machines::{Machines, serve};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use support::PROGRAM;

/// The lines of the README that move files, the folders of `places` in place of its own.
fn lines(places: &[(&str, &Path)]) -> Vec<Vec<String>> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let text = fs::read_to_string(readme).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("bentpipe saratoga "));
    let words = |line: &str| {
        let mut words = vec!["saratoga".to_owned()];
        words.extend(line.split_whitespace().map(|word| {
            let place = places.iter().find(|(name, _)| *name == word);
            place.map_or_else(|| word.to_owned(), |(_, path)| path.display().to_string())
        }));
        words
    };
    lines.map(words).collect()
}

/// Every file in and below `folder`, by path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            let below = files(&entry.path());
            found.extend(
                below
                    .into_iter()
                    .map(|(path, content)| (format!("{name}/{path}"), content)),
            );
        } else {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}

#[test]
fn two_machines_exchange_a_directory_by_the_lines_of_the_readme() {
    need!(Root);
    let machines = Machines::new("readme");
    let (data, archive) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let images = data.path().join("images");
    fs::create_dir_all(images.join("2026/11")).unwrap();
    let sizes = [
        ("a.tif", 700_000),
        ("empty", 0),
        ("2026/b.tif", 90_000),
        ("2026/11/c.tif", 1),
    ];
    for (name, size) in sizes {
        let content: Vec<u8> = (0..size).map(|i: u32| (i * 31 + i / 251) as u8).collect();
        fs::write(images.join(name), content).unwrap();
    }
    let lines = lines(&[("/data", data.path()), ("/archive", archive.path())]);
    let [server, client] = &lines[..] else {
        panic!("the README has {} lines", lines.len());
    };
    let mut command = machines.server.command(PROGRAM);
    command.args(server);
    let _server = serve(command);
    let got = machines
        .client
        .command(PROGRAM)
        .args(client)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&got.stderr);
    assert_eq!(got.status.code(), Some(0), "{said}");
    assert_eq!(files(archive.path()), files(data.path()));
    assert_eq!(files(archive.path()).len(), sizes.len());
    // And back: the first line allows it, and tells the rate.
    let back = archive.path().join("images");
    let put = machines
        .client
        .command(PROGRAM)
        .args(["saratoga", "put", "10.0.0.1", "-r", "--to=back"])
        .arg(back)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&put.stderr);
    assert!(said.contains("sending at 8Mbit/s"), "{said}");
    assert_eq!(
        put.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&put.stderr)
    );
    assert_eq!(files(&data.path().join("back")), files(archive.path()));
}

/// What routers say of packets that are too long for a link reaches the client's socket, and ends nothing.
#[test]
fn a_link_on_the_way_may_carry_shorter_packets() {
    need!(Root);
    let machines = Machines::new("narrow");
    let (router, far) = (&machines.server, Netns::create("narrow_far").unwrap());
    let [near_end, far_end] = [router, &far].map(|netns| VethEnd {
        netns,
        name: "narrow",
    });
    let narrow = Veth::create(near_end, far_end).unwrap();
    narrow.set_mtu(Bytes(1300)).unwrap();
    narrow.set_up().unwrap();
    for (netns, address) in [(router, "10.0.1.1/24"), (&far, "10.0.1.2/24")] {
        let netlink = netns.netlink().unwrap();
        let address = address.parse().unwrap();
        netlink.add_address("narrow", address).unwrap();
    }
    router.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    for (netns, gateway) in [(&machines.client, "10.0.0.1"), (&far, "10.0.1.1")] {
        let route = Route::via("0.0.0.0/0".parse().unwrap(), gateway.parse().unwrap());
        netns.netlink().unwrap().add_route(&route).unwrap();
    }
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(here.path().join("up"), vec![7; 300_000]).unwrap();
    let mut command = far.command(PROGRAM);
    command.args(["saratoga", "serve", "--rate=80Mbit/s", "--allow=put"]);
    command.arg(there.path());
    let _server = serve(command);
    let mut put = machines.client.command(PROGRAM);
    let put = put
        .args(["saratoga", "put", "10.0.1.2", "up", "--rate=8Mbit/s"])
        .current_dir(here.path())
        .output()
        .unwrap();
    assert_eq!(put.status.code(), Some(0), "{put:?}");
    assert_eq!(files(there.path()), files(here.path()));
}

/// Who is heard at `machine`: `wanted` of them, where that is so in the end.
fn heard(machine: &Netns, wanted: usize) -> Vec<Value> {
    let mut peers = Vec::new();
    // Servers send one every 5 s; on a busy machine one may be late.
    for _ in 0..3 {
        let heard = machine
            .command(PROGRAM)
            .args(["saratoga", "peers", "--time=6s", "--json"])
            .output()
            .unwrap();
        assert_eq!(heard.status.code(), Some(0), "{heard:?}");
        let heard: Value = serde_json::from_slice(&heard.stdout).unwrap();
        peers = heard["peers"].as_array().unwrap().clone();
        if peers.len() == wanted {
            break;
        }
    }
    peers
}

/// There is no route for groups in these namespaces: beacons go out on every link all the same.
#[test]
fn a_beacon_is_heard_over_both_protocols() {
    need!(Root);
    let machines = Machines::new("beacons");
    let folder = tempfile::tempdir().unwrap();
    let mut command = machines.server.command(PROGRAM);
    command
        .args([
            "saratoga",
            "serve",
            "--rate=1Mbit/s",
            "--beacon",
            "ground station",
        ])
        .arg(folder.path());
    let _server = serve(command);
    // Where it is listened for there is a server too, which has the port.
    let mut command = machines.client.command(PROGRAM);
    command
        .args(["saratoga", "serve", "--rate=1Mbit/s"])
        .arg(folder.path());
    let _beside = serve(command);
    let v6 = Path::new("/proc/sys/net/ipv6").exists();
    let wanted = if v6 { 2 } else { 1 };
    let peers = heard(&machines.client, wanted);
    assert_eq!(peers.len(), wanted, "{peers:?}");
    assert!(
        peers.iter().all(|peer| peer["name"] == "ground station"),
        "{peers:?}"
    );
    assert!(
        peers.iter().any(|peer| peer["address"] == "10.0.0.1"),
        "{peers:?}"
    );
    let local = |peer: &Value| peer["address"].as_str().unwrap().starts_with("fe80::");
    assert_eq!(peers.iter().any(local), v6, "{peers:?}");
    // What it prints is an address to ask.
    for peer in peers.iter().filter(|peer| local(peer)) {
        let address = peer["address"].as_str().unwrap();
        for server in [address.to_owned(), format!("[{address}]:7542")] {
            let mut list = machines.client.command(PROGRAM);
            let listed = list.args(["saratoga", "ls", &server]).output().unwrap();
            assert_eq!(listed.status.code(), Some(0), "{listed:?}");
        }
    }
    assert!(
        peers.iter().all(|peer| peer["rate"] == "1Mbit/s"),
        "{peers:?}"
    );
    // Nothing may be written there.
    assert!(
        peers.iter().all(|peer| peer["receives"] == "capable"),
        "{peers:?}"
    );
    // Without an IPv4 address it is told by the other alone, not as 0.0.0.0, at which nobody is reached.
    let mut remove = machines.server.command("ip");
    let removed = remove.args(["address", "del", "10.0.0.1/24", "dev", "wire"]);
    assert!(removed.status().unwrap().success());
    let left = heard(&machines.client, wanted - 1);
    assert_eq!(left.len(), wanted - 1, "{left:?}");
    assert!(left.iter().all(local), "{left:?}");
}
