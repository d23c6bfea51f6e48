//! Namespaces: made, entered, removed; children that do not outlive us.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

mod net_support;

use bentpipe_os::need;
use bentpipe_os::netns::{Netns, die_with_thread, read_sysctl, spawn_bound};
use bentpipe_os::owner::Owner;
use net_support::{Actor, act, playing, ready, within};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

fn listed() -> Vec<String> {
    let out = Command::new("ip").args(["netns", "list"]).output().unwrap();
    String::from_utf8(out.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect()
}

/// Which namespace the calling thread is in.
fn here() -> std::path::PathBuf {
    std::fs::read_link("/proc/thread-self/ns/net").unwrap()
}

fn id_in(command: &mut Command) -> String {
    let out = command.output().unwrap();
    assert!(out.status.success());
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_namespace_is_named_after_us_and_goes_with_its_guard() {
    need!(Root, Program("ip"));
    let before = here();
    let netns = Netns::create("Guard Test").unwrap();
    let name = netns.name().unwrap().to_owned();
    let (owner, label) = Owner::parse(&name).unwrap();
    assert_eq!(owner, Owner::current().unwrap());
    assert!(label.starts_with("guard_test_"), "{label}");
    assert!(listed().contains(&name), "ip netns list does not show it");
    assert_eq!(here(), before, "the calling thread moved");
    drop(netns);
    assert!(!listed().contains(&name), "still listed after the drop");
    assert!(Netns::open(&name).unwrap_err().to_string().contains(&name));
}

#[test]
fn work_runs_inside_and_returns_its_value() {
    need!(Root);
    let netns = Netns::create("work").unwrap();
    let outside = here();
    let inside = netns.run(here).unwrap();
    assert_ne!(inside, outside);
    let thread = netns.spawn_thread("worker", here).unwrap();
    assert_eq!(thread.join().unwrap(), inside);
    let by_name = Netns::open(netns.name().unwrap()).unwrap();
    assert_eq!(by_name.run(here).unwrap(), inside);
    let by_thread = netns.run(|| Netns::current().unwrap()).unwrap();
    assert_eq!(by_thread.run(here).unwrap(), inside);
    assert_eq!(
        id_in(netns.command("readlink").arg("/proc/self/ns/net")),
        inside.to_str().unwrap()
    );
    // `lo` is up, and a socket made inside is used outside.
    let listener = netns
        .run(|| TcpListener::bind("127.0.0.1:0").unwrap())
        .unwrap();
    let address = listener.local_addr().unwrap();
    netns.run(|| TcpStream::connect(address).unwrap()).unwrap();
    assert!(TcpStream::connect(address).is_err(), "reached from outside");
}

#[test]
fn a_panic_inside_is_a_panic_outside() {
    need!(Root);
    let netns = Netns::create("panic").unwrap();
    let result = std::panic::catch_unwind(|| netns.run(|| panic!("inside")));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"inside"));
}

#[test]
fn sysctls_are_those_of_the_namespace() {
    need!(Root);
    let outside = read_sysctl("net.ipv4.tcp_rmem").unwrap();
    let netns = Netns::create("sysctl").unwrap();
    netns
        .set_sysctl("net.ipv4.tcp_rmem", "4096 16777217 67108865")
        .unwrap();
    assert_eq!(
        netns.sysctl("net.ipv4.tcp_rmem").unwrap(),
        "4096 16777217 67108865"
    );
    assert_eq!(read_sysctl("net.ipv4.tcp_rmem").unwrap(), outside);
    let error = netns
        .set_sysctl("net.ipv4.tcp_rmem", "much")
        .unwrap_err()
        .to_string();
    assert!(error.contains("tcp_rmem to `much`"), "{error}");
}

#[test]
fn twenty_at_once_do_not_collide() {
    need!(Root, Program("ip"));
    let made: Vec<Netns> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| Netns::create("crowd").unwrap()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut ids: Vec<_> = made.iter().map(|netns| netns.run(here).unwrap()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
    let names: Vec<_> = made
        .iter()
        .map(|netns| netns.name().unwrap().to_owned())
        .collect();
    let shown = listed();
    assert!(names.iter().all(|name| shown.contains(name)));
    drop(made);
    let shown = listed();
    assert!(!names.iter().any(|name| shown.contains(name)));
}

#[test]
fn the_name_goes_although_a_process_is_inside() {
    need!(Root, Program("ip"));
    let netns = Netns::create("busy").unwrap();
    let name = netns.name().unwrap().to_owned();
    let mut command = netns.command("sleep");
    die_with_thread(command.arg("60"));
    let mut child = command.spawn().unwrap();
    drop(netns);
    assert!(!listed().contains(&name));
    assert_eq!(
        child.try_wait().unwrap(),
        None,
        "the process inside lives on"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[ignore = "a role in what_a_killed_parent_spawned_dies_with_it"]
fn parent_role() {
    if !playing("parent_role") {
        return;
    }
    // From a thread that ends at once: only `spawn_bound` keeps its child.
    let spawn = |bound: bool| {
        std::thread::spawn(move || {
            let mut command = Command::new("sleep");
            command.arg("60").stdout(Stdio::null());
            if bound {
                spawn_bound(command).unwrap().id().to_string()
            } else {
                die_with_thread(&mut command)
                    .spawn()
                    .unwrap()
                    .id()
                    .to_string()
            }
        })
        .join()
        .unwrap()
    };
    let (bound, threads) = (spawn(true), spawn(false));
    ready(&[&bound, &threads]);
}

fn runs(pid: &str) -> bool {
    // A corpse that nobody has collected yet is in state Z.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.contains("(sleep)") && !stat.contains(") Z "))
}

#[test]
fn what_a_killed_parent_spawned_dies_with_it() {
    need!(Root);
    let mut actor = Actor::start(&Netns::current().unwrap(), "parent_role");
    let [bound, threads] = &actor.words[..] else {
        panic!("{:?}", actor.words)
    };
    let (bound, threads) = (bound.clone(), threads.clone());
    assert!(
        within(Duration::from_secs(5), || !runs(&threads)).is_some(),
        "outlived its thread"
    );
    assert!(runs(&bound), "died with the thread that asked for it");
    actor.kill();
    assert!(
        within(Duration::from_secs(5), || !runs(&bound)).is_some(),
        "outlived its process"
    );
}

#[test]
fn a_bound_child_starts_where_its_caller_is() {
    need!(Root);
    let netns = Netns::create("spawn").unwrap();
    let inside = netns.run(here).unwrap();
    let ask = || {
        let mut command = Command::new("readlink");
        command.arg("/proc/self/ns/net").stdout(Stdio::piped());
        let out = spawn_bound(command).unwrap().wait_with_output().unwrap();
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(netns.run(ask).unwrap(), inside.to_str().unwrap());
    assert_eq!(ask(), here().to_str().unwrap());
}

#[test]
#[ignore = "a role in an_unmet_need_ends_the_test_and_is_noted"]
fn needy_role() {
    if !playing("needy_role") {
        return;
    }
    need!(Root, Program("no-such-program"));
    std::process::exit(3);
}

#[test]
fn an_unmet_need_ends_the_test_and_is_noted() {
    need!(Root);
    let log = std::env::temp_dir().join(Owner::current().unwrap().unique_name("skips"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    let out = act(&mut command, "needy_role")
        .env("BENTPIPE_SKIP_LOG", &log)
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "the test went on without what it needs: {}",
        out.status
    );
    let noted = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    assert_eq!(
        noted,
        "SKIPPED needy_role: program `no-such-program` is not installed: it is needed here; `apt-get install no-such-program`\n"
    );
    assert!(String::from_utf8(out.stderr).unwrap().contains(&noted));
}
