//! `bentpipe saratoga` where something runs out in the middle of a transfer: the disk, a quota, the length of a file, memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "it is said what is skipped")]

#[path = "support/server.rs"]
mod server;
mod support;

use bentpipe_os::need;
use server::{Server, assert_code, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// What is moved, at a rate at which it takes some seconds, and the disk that it must share.
const LEN: usize = 6_000_000;
const RATE: &str = "--rate=16Mbit/s";
const DISK: &str = "size=12M";

/// A server of `folder`, begun by the shell after `before`.
fn serve(before: &str, folder: &Path) -> Server {
    Server::start(before, folder, &[RATE, "--allow=put"])
}

/// A file system in memory; unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf, options: &str) -> Self {
        Self::of(at, &["-t", "tmpfs", "-o", options, "none"])
    }

    fn of(at: PathBuf, what: &[&str]) -> Self {
        fs::create_dir_all(&at).unwrap();
        run(Command::new("mount").args(what).arg(&at));
        Self(at)
    }
}

fn run(command: &mut Command) {
    assert!(command.status().unwrap().success(), "{command:?}");
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// `put` or `get` of `name` at `server`, into `to`, where `from` is.
fn moves(
    before: &str,
    what: &str,
    server: &Server,
    (from, name): (&Path, &str),
    to: &Path,
) -> Child {
    let mut command = shell(before);
    command.current_dir(from);
    command
        .args(["saratoga", what, &server.address, name, "--to"])
        .arg(to);
    if what == "put" {
        command.arg(RATE);
    }
    command.stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child, code: i32) -> String {
    assert_code(&child.wait_with_output().unwrap(), code)
}

fn content() -> Vec<u8> {
    (0..LEN as u32).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Octets of the part of `a` in `folder`.
fn arrived(folder: &Path) -> u64 {
    let part = fs::metadata(folder.join(".a.saratoga-part"));
    part.map_or(0, |about| about.len())
}

/// Somebody else takes the room in the middle of a transfer, at either end: who receives says what to do, others'
/// transfers go on, what has come stays, and the same command goes on with it when there is room.
#[test]
fn a_disk_that_becomes_full_ends_one_transfer_and_it_goes_on_later() {
    need!(Root);
    for (what, early) in [("put", false), ("get", false), ("put", true), ("get", true)] {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for name in ["here", "there"] {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join("a"), content()).unwrap();
            fs::write(path(name).join("b"), content()).unwrap();
        }
        let at = if what == "put" {
            "there/small"
        } else {
            "here/small"
        };
        let disk = Disk::mount(path(at), DISK);
        let server = serve("", &path("there"));
        let to = if what == "put" {
            PathBuf::from("small")
        } else {
            disk.0.clone()
        };
        let moved = |server: &Server| moves("", what, server, (&path("here"), "a"), &to);
        let child = moved(&server);
        let other = moves("", "get", &server, (place.path(), "b"), place.path());
        let has_record = || disk.0.join(".a.saratoga-record").exists();
        until("it has begun", || {
            arrived(&disk.0) > 0 && (early || has_record())
        });
        // As much as there is.
        let filled = fs::write(disk.0.join("fill"), vec![0; 20 << 20]);
        assert!(filled.is_err(), "{filled:?}");
        let mut said = ended(child, 1);
        ended(other, 0);
        assert!(fs::read(path("b")).unwrap() == content());
        assert!(said.contains("a`"), "{said}");
        said += &server.end();
        assert!(
            said.contains("No space left") && said.contains("make room"),
            "{said}"
        );
        assert!(!said.contains("panicked"), "{said}");
        // Without a record nobody can go on with it.
        assert_eq!(arrived(&disk.0) > 0, has_record(), "{what} {early}");
        assert!(early || has_record(), "{what}");
        fs::remove_file(disk.0.join("fill")).unwrap();
        ended(moved(&serve("", &path("there"))), 0);
        assert!(fs::read(disk.0.join("a")).unwrap() == content(), "{what}");
    }
}

/// One that takes what it cannot keep ends the transfer when it says so, and when it can nothing of that is taken for whole.
#[test]
fn a_disk_that_loses_what_it_took_ends_the_transfer_and_all_comes_again() {
    need!(Root, Program("mkfs.ext4"), Program("losetup"));
    let (place, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(there.path().join("a"), content()).unwrap();
    let below = Disk::mount(place.path().join("below"), "size=4M");
    let image = below.0.join("image");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let mut make = Command::new("mkfs.ext4");
    make.args(["-q", "-F", "-O", "^has_journal", "-m", "0"]);
    run(make.arg(&image));
    let disk = ["-o", "loop", image.to_str().unwrap()];
    let disk = Disk::of(place.path().join("disk"), &disk);
    let options = ["--rate=8Mbit/s", "--checksum=none"];
    let server = Server::start("", there.path(), &options);
    let get = || moves("", "get", &server, (place.path(), "a"), &disk.0);
    let said = ended(get(), 1);
    // It says so on the way, or when all has come.
    assert!(said.contains("a`"), "{said}");
    assert_eq!(arrived(&disk.0), 0, "nothing of it is gone on with");
    let mut grow = Command::new("mount");
    run(grow.args(["-o", "remount,size=64M"]).arg(&below.0));
    ended(get(), 0);
    // What the kernel could not put there it has in memory until it wants that for something else.
    let mut forget = Command::new("dd");
    forget.args(["iflag=nocache", "count=0", "status=none"]);
    run(forget.arg(format!("if={}", disk.0.join("a").display())));
    assert!(fs::read(disk.0.join("a")).unwrap() == content());
}

/// What is read of a stream faster than the line carries it waits where there is little room for it.
#[test]
fn a_stream_is_longer_than_the_room_where_it_waits() {
    need!(Root);
    let place = tempfile::tempdir().unwrap();
    let there = place.path().join("there");
    fs::create_dir(&there).unwrap();
    fs::write(place.path().join("a"), content()).unwrap();
    let small = Disk::mount(place.path().join("small"), "size=3M");
    let server = serve("", &there);
    let mut put = shell("");
    put.current_dir(place.path()).env("TMPDIR", &small.0);
    put.args(["saratoga", "put", &server.address, "-", "--as=a", RATE]);
    put.stdin(fs::File::open(place.path().join("a")).unwrap());
    ended(put.stderr(Stdio::piped()).spawn().unwrap(), 0);
    assert!(fs::read(there.join("a")).unwrap() == content());
}

/// What a file system has no room for in another way: the quota of a user, the longest file of a process, inodes.
#[test]
fn other_bounds_of_a_disk_are_named_with_what_to_do() {
    need!(Root, Program("strace"));
    let (place, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(there.path().join("a"), content()).unwrap();
    let none = Disk::mount(place.path().join("none"), "size=12M,nr_inodes=1");
    let server = serve("", there.path());
    let quota = "set -- strace -D -qqf -o /dev/null -e trace=pwrite64 -e inject=pwrite64:error=EDQUOT:when=5+ \"$@\";";
    for (before, to, says) in [
        (quota, place.path(), "raise its quota"),
        ("ulimit -f 2000;", place.path(), "ulimit -f"),
        ("", &none.0, "df -i"),
    ] {
        let said = ended(moves(before, "get", &server, (there.path(), "a"), to), 1);
        assert!(said.contains("`a`") && said.contains(says), "{said}");
    }
    ended(
        moves("", "get", &server, (there.path(), "a"), place.path()),
        0,
    );
    assert!(fs::read(place.path().join("a")).unwrap() == content());
}

/// A cgroup with so much memory; removed when dropped.
struct Memory(PathBuf);

impl Memory {
    /// `None` where cgroups of memory cannot be made here.
    fn new(name: &str, limit: u64) -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let (root, file) = if root.join("memory/memory.limit_in_bytes").exists() {
            (root.join("memory"), "memory.limit_in_bytes")
        } else {
            (root.to_owned(), "memory.max")
        };
        let own = root.join(format!("bentpipe_{name}_{}", std::process::id()));
        fs::create_dir(&own).ok()?;
        let made = Self(own);
        fs::write(made.0.join(file), limit.to_string()).ok()?;
        Some(made)
    }

    /// Has the shell enter it.
    fn within(&self) -> String {
        format!("echo $$ > {}/cgroup.procs;", self.0.display())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let removed = || fs::remove_dir(&self.0).is_ok();
        until("nobody is in it", removed);
    }
}

/// A server in a cgroup of few megabytes serves long files and many short ones, and is not killed.
#[test]
fn a_server_lives_within_the_memory_of_its_cgroup() {
    need!(Root);
    let Some(memory) = Memory::new("files", 12_000_000) else {
        return println!("SKIPPED: no cgroup of memory can be made here");
    };
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    for name in ["here/short", "there"] {
        fs::create_dir_all(path(name)).unwrap();
    }
    let long: Vec<u8> = content().repeat(10);
    fs::write(path("there/a"), &long).unwrap();
    for i in 0..300 {
        fs::write(
            path("here/short").join(i.to_string()),
            vec![i as u8; 100_000],
        )
        .unwrap();
    }
    fs::write(path("here/c"), &long).unwrap();
    let within = memory.within();
    // What it has written leaves its memory as fast as the disk takes it, which is slow on a busy host.
    let patience = "--silence=3min";
    let arguments = [RATE, "--allow=put", patience];
    let mut server = Server::start(&within, &path("there"), &arguments);
    let all = [
        vec!["get", &server.address, "a", "--to=.."],
        vec!["put", &server.address, "--rate=400Mbit/s", "-r", "short"],
        vec!["put", &server.address, "--rate=400Mbit/s", "c"],
    ];
    let all = all.map(|words| {
        let mut command = shell("");
        command.current_dir(path("here")).arg("saratoga");
        command.args(words).arg(patience).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    for one in all {
        ended(one, 0);
    }
    assert!(fs::read(path("a")).unwrap() == long && fs::read(path("there/c")).unwrap() == long);
    assert_eq!(fs::read_dir(path("there/short")).unwrap().count(), 300);
    let killed = server.child.try_wait().unwrap().is_some();
    let said = server.end();
    assert!(!killed, "{said}");
}

/// An archive whose lists are longer together than the memory of the server's cgroup: who asks for all at once has them one after
/// the other, and somebody else has his beside them.
#[test]
fn a_server_lives_within_the_memory_of_its_cgroup_whatever_is_listed() {
    need!(Root);
    let Some(memory) = Memory::new("lists", 16 << 20) else {
        return println!("SKIPPED: no cgroup of memory can be made here");
    };
    let place = tempfile::tempdir().unwrap();
    for folder in 0..20 {
        let folder = place.path().join(format!("archive/{folder}"));
        fs::create_dir_all(&folder).unwrap();
        for i in 0..3_000 {
            let name = format!("{i:0245}");
            let file = fs::File::create(folder.join(name)).unwrap();
            // What is that young may have changed since it was copied.
            file.set_modified(UNIX_EPOCH + Duration::from_secs(1_700_000_000))
                .unwrap();
        }
    }
    let arguments = ["--rate=100Mbit/s"];
    let mut server = Server::start(&memory.within(), place.path(), &arguments);
    // What is there already is no more than listed.
    let update = |words: &[&str]| {
        let mut command = shell("");
        command.current_dir(place.path());
        command.args(["saratoga", "get", &server.address, "-ru"]);
        command.args(words).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all = update(&["archive", "--parallel=30"]);
    let one = ended(update(&["archive/7", "--to=archive"]), 0);
    let all = ended(all, 0);
    let killed = server.child.try_wait().unwrap().is_some();
    let said = server.end();
    assert!(!killed, "{said}");
    assert!(one.contains("3000 files were there"), "{one}");
    assert!(all.contains("60000 files were there"), "{all}");
}
