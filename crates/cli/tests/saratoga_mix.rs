//! `bentpipe saratoga` with a large file among many small ones, over a satellite's round trip.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the figures of a run are for the docs")]

#[path = "support/relay.rs"]
mod relay;
mod support;

use relay::Relay;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::PROGRAM;

/// Killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the large file takes.
const LARGE: usize = 2_000_000;
const SMALL: usize = 100;

/// The directories `large`, `small`, and `mixed` with what both have: the large file is the first.
fn fill(folder: &Path) {
    for name in ["large", "small", "mixed"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    for name in ["large", "mixed"] {
        fs::write(folder.join(name).join("a"), vec![7; LARGE]).unwrap();
    }
    for name in ["small", "mixed"] {
        for i in 0..SMALL {
            let content = vec![i as u8; 1000];
            fs::write(folder.join(name).join(format!("b{i}")), content).unwrap();
        }
    }
}

/// It takes no longer than the large file, and then the small ones.
#[test]
fn a_large_file_among_small_ones_leaves_the_line_no_idler_than_alone() {
    let [served, here] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fill(served.path());
    fill(here.path());
    fs::create_dir(here.path().join("get")).unwrap();
    let mut server = Command::new(PROGRAM)
        .args(["saratoga", "serve"])
        .arg(served.path())
        .args(["--allow", "put", "--rate", "8Mbit/s"])
        .args(["--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let address = support::address_of(&mut server);
    let _server = Server(server);
    let relay = Relay::new(&address, Duration::from_millis(300));
    let address = relay.address.to_string();
    for command in ["put", "get"] {
        let [large, small, mixed] = ["large", "small", "mixed"].map(|name| {
            let began = Instant::now();
            let done = Command::new(PROGRAM)
                .args(["saratoga", command, &address, "-r", name, "--to", command])
                .current_dir(here.path())
                .output()
                .unwrap();
            assert!(done.status.success(), "{done:?}");
            began.elapsed()
        });
        println!("{command}: {large:?} and {small:?} alone, {mixed:?} together");
        let side = if command == "put" { &served } else { &here };
        let arrived = side.path().join(command).join("mixed");
        assert_eq!(fs::read(arrived.join("a")).unwrap(), vec![7; LARGE]);
        assert_eq!(fs::read_dir(&arrived).unwrap().count(), 1 + SMALL);
        assert!(mixed <= (large + small).mul_f64(1.3), "{mixed:?}");
    }
}
