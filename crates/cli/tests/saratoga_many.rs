//! `bentpipe saratoga` with many files and with names of every kind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the figures of a run are for the docs")]

#[path = "support/relay.rs"]
mod relay;
mod support;

use relay::Relay;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::PROGRAM;
use tempfile::TempDir;

/// A server; killed when dropped.
struct Server {
    child: Child,
    address: String,
    folder: TempDir,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(PROGRAM)
            .args(["saratoga", "serve"])
            .arg(folder.path())
            .args(["--allow", "put,delete"])
            .args(options)
            .args((!options.contains(&"--listen")).then_some("--listen=127.0.0.1:0"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let address = support::address_of(&mut child);
        Self {
            child,
            address,
            folder,
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `bentpipe saratoga COMMAND ADDRESS ARGUMENTS` in `folder`.
fn saratoga(command: &str, address: &str, arguments: &[&str], folder: &Path) -> Output {
    Command::new(PROGRAM)
        .args(["saratoga", command, address])
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn assert_done(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
}

/// Regular files in and below `folder`, by path, with their content.
fn tree(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                let name = path.strip_prefix(folder).unwrap();
                let name = name.to_str().unwrap().to_owned();
                found.push((name, fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// `count` files of up to 1000 octets in `folder`.
fn fill(folder: &Path, count: usize) {
    fs::create_dir_all(folder).unwrap();
    for i in 0..count {
        let content = format!("{i:>width$}", width = 1 + i % 1000);
        fs::write(folder.join(format!("file {i}")), content).unwrap();
    }
}

/// Files of the tests below: the issue names 10,000.
fn count() -> usize {
    let count = std::env::var("BENTPIPE_FILES").ok();
    count.map_or(600, |count| count.parse().unwrap())
}

/// 64 sessions at once are 16 with one address: every client is refused most of the time.
#[test]
fn whole_directories_go_both_ways_at_the_first_try_though_the_server_takes_few_at_once() {
    let server = Server::start(&["--rate", "100Mbit/s", "--max-sessions", "64"]);
    let here = tempfile::tempdir().unwrap();
    fill(&here.path().join("many"), count());
    let rate = ["--rate", "100Mbit/s"];
    let began = Instant::now();
    let put = saratoga(
        "put",
        &server.address,
        &["-r", "many", rate[0], rate[1]],
        here.path(),
    );
    assert_done(&put);
    let put_took = began.elapsed();
    assert_eq!(tree(server.path()), tree(here.path()));
    let back = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let get = saratoga(
        "get",
        &server.address,
        &["-r", "many", "--parallel", "32"],
        back.path(),
    );
    assert_done(&get);
    println!(
        "{} files: put {put_took:?}, get {:?}",
        count(),
        began.elapsed()
    );
    assert_eq!(tree(back.path()), tree(here.path()));
    let give = saratoga(
        "give",
        &server.address,
        &["-r", "many", "--to", "given", rate[0], rate[1]],
        here.path(),
    );
    assert_done(&give);
    assert_eq!(tree(here.path()), []);
    assert_eq!(tree(&server.path().join("given")), tree(back.path()));
}

#[test]
fn three_clients_of_one_address_all_get_there() {
    let server = Server::start(&["--rate", "100Mbit/s", "--max-sessions", "64"]);
    let clients: Vec<_> = (0..3)
        .map(|i| {
            let here = tempfile::tempdir().unwrap();
            let name = format!("client {i}");
            fill(&here.path().join(&name), count() / 3);
            (here, name)
        })
        .collect();
    let start = |command: &str, name: &str, place: &Path, more: &[&str]| {
        let mut client = Command::new(PROGRAM);
        client.args(["saratoga", command, &server.address, "-r", name]);
        let client = client.args(more).current_dir(place);
        client.stderr(Stdio::piped()).spawn().unwrap()
    };
    let rate = ["--rate", "100Mbit/s"];
    let puts = clients
        .iter()
        .map(|(here, name)| start("put", name, here.path(), &rate));
    for put in puts.collect::<Vec<_>>() {
        assert_done(&put.wait_with_output().unwrap());
    }
    let gets = clients.iter().map(|(here, name)| {
        let back = tempfile::tempdir().unwrap();
        let get = start("get", name, back.path(), &[]);
        (here, name, back, get)
    });
    for (here, name, back, get) in gets.collect::<Vec<_>>() {
        assert_done(&get.wait_with_output().unwrap());
        let sent = tree(here.path());
        assert_eq!(
            tree(&server.path().join(name)),
            tree(&here.path().join(name))
        );
        assert_eq!(tree(back.path()), sent);
    }
}

/// A server with room for one session a peer, which another client has: the others wait, and say so only if asked.
#[test]
fn a_server_without_room_is_waited_for() {
    let server = Server::start(&["--rate", "8Mbit/s", "--max-sessions", "4"]);
    fs::write(server.path().join("long"), vec![7; 3_000_000]).unwrap();
    fs::write(server.path().join("short"), "short").unwrap();
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let long = Command::new(PROGRAM)
        .args(["saratoga", "get", &server.address, "long"])
        .current_dir(first.path())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let third = tempfile::tempdir().unwrap();
    let short = Command::new(PROGRAM)
        .args(["saratoga", "get", &server.address, "short"])
        .current_dir(second.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = saratoga("get", &server.address, &["-v", "short"], third.path());
    assert_done(&told);
    assert!(said(&told).contains("no room: it is asked for again"));
    let short = short.wait_with_output().unwrap();
    assert_done(&short);
    assert_eq!(said(&short), "");
    assert_done(&long.wait_with_output().unwrap());
    assert_eq!(fs::read(second.path().join("short")).unwrap(), b"short");
}

/// What cannot be listed is named, and the rest goes.
#[test]
fn a_directory_that_cannot_be_listed_keeps_nothing_else_back() {
    use std::os::unix::ffi::OsStrExt;
    let server = Server::start(&["--rate", "80Mbit/s", "--allow", "put"]);
    let here = tempfile::tempdir().unwrap();
    fs::create_dir_all(here.path().join("a/b")).unwrap();
    fs::write(here.path().join("a/x"), "x").unwrap();
    // Longer than any path may be, though each directory can be made beneath its parent.
    let name = std::ffi::OsStr::from_bytes(&[b'n'; 250]);
    let mut deep = fs::File::open(here.path().join("a/b")).unwrap();
    for _ in 0..20 {
        rustix::fs::mkdirat(&deep, name, 0o755.into()).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        let below = rustix::fs::openat(&deep, name, flags, 0.into()).unwrap();
        deep = below.into();
    }
    let put = saratoga(
        "put",
        &server.address,
        &["-r", "a", "--rate=80Mbit/s"],
        here.path(),
    );
    assert_eq!(put.status.code(), Some(1), "{}", said(&put));
    assert!(said(&put).contains("it cannot be listed"), "{}", said(&put));
    assert_eq!(fs::read(server.path().join("a/x")).unwrap(), b"x");
}

/// One job would delete what the other sends.
#[test]
fn what_is_deleted_afterwards_goes_to_one_place() {
    let server = Server::start(&["--rate", "80Mbit/s", "--allow", "put,delete"]);
    let here = tempfile::tempdir().unwrap();
    for root in [here.path(), server.path()] {
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/x"), "x").unwrap();
    }
    let beside = tempfile::tempdir().unwrap();
    let link = beside.path().join("link");
    std::os::unix::fs::symlink(here.path().join("a"), &link).unwrap();
    let link = link.to_str().unwrap();
    let before = [here.path(), server.path()].map(tree);
    for (command, arguments) in [
        ("give", ["-r", "a", "a/b", "--rate=80Mbit/s"]),
        ("give", ["-r", "./a/b/x", "a", "--rate=80Mbit/s"]),
        ("give", ["-r", "a", link, "--rate=80Mbit/s"]),
        ("take", ["-r", "a", "a//b", "--to=."]),
        ("take", ["-r", ".", "a", "--to=."]),
    ] {
        let refused = saratoga(command, &server.address, &arguments, here.path());
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        assert!(
            said(&refused).contains("goes to one place"),
            "{}",
            said(&refused)
        );
    }
    assert_eq!([here.path(), server.path()].map(tree), before);
}

/// A round trip of 600 ms: what is many and short takes a few of them, not one after the other.
#[test]
fn many_small_files_over_a_satellite_take_a_few_round_trips() {
    let server = Server::start(&["--rate", "8Mbit/s"]);
    for i in 0..30 {
        let folder = server.path().join(format!("dirs/dir {i}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a"), format!("{i}")).unwrap();
    }
    let files = server.path().join("files");
    fs::create_dir(&files).unwrap();
    for i in 0..100 {
        fs::write(files.join(format!("{i}")), vec![i; 1000]).unwrap();
    }
    let relay = Relay::new(&server.address, Duration::from_millis(300));
    let address = relay.address.to_string();
    let here = tempfile::tempdir().unwrap();
    // What the same takes without the path is this host's own, and on a busy one not little.
    let timed = |command: &str, arguments: &[&str]| {
        let took = [&server.address, &address].map(|address| {
            let took = (0..3).map(|_| {
                let began = Instant::now();
                let output = saratoga(command, address, arguments, here.path());
                assert_done(&output);
                began.elapsed()
            });
            took.min().unwrap()
        });
        let [near, far] = took;
        println!("{command} {arguments:?}: {far:?}, {near:?} without the delay");
        far.saturating_sub(near)
    };
    let most = Duration::from_secs(3);
    assert!(timed("get", &["-r", "dirs"]) <= most);
    assert!(timed("get", &["-r", "files"]) <= most);
    assert!(timed("put", &["-r", "files", "--to", "back"]) <= most);
    let back = server.path().join("back/files");
    assert_eq!(
        tree(&here.path().join("dirs")),
        tree(&server.path().join("dirs"))
    );
    assert_eq!(tree(&here.path().join("files")), tree(&files));
    assert_eq!(tree(&back), tree(&files));
}

#[test]
fn names_are_kept_and_paths_may_be_written_in_any_way() {
    let server = Server::start(&["--rate", "100Mbit/s"]);
    for folder in ["images", ".git", "a", "b"] {
        fs::create_dir(server.path().join(folder)).unwrap();
    }
    let files = [
        (".conf", "hidden"),
        ("conf", "plain"),
        (".git/config", "hidden"),
        ("images/i", "i"),
        ("a/x", "of a"),
        ("b/x", "of b"),
    ];
    for (name, content) in files {
        fs::write(server.path().join(name), content).unwrap();
    }
    let address = &server.address;
    for path in [".", "./", ""] {
        let here = tempfile::tempdir().unwrap();
        assert_done(&saratoga("get", address, &["-r", path], here.path()));
        assert_eq!(tree(here.path()), tree(server.path()), "{path:?}");
    }
    let here = tempfile::tempdir().unwrap();
    for path in [
        "images",
        "images/",
        "./images",
        ".//images/.",
        "./images//i",
    ] {
        let listed = path.ends_with('i') || {
            let list = saratoga("ls", address, &[path], here.path());
            assert_done(&list);
            String::from_utf8(list.stdout).unwrap().trim() == "1  i"
        };
        assert!(listed, "{path}");
        let here = tempfile::tempdir().unwrap();
        assert_done(&saratoga("get", address, &["-r", path], here.path()));
        let name = if path.ends_with('i') { "i" } else { "images/i" };
        assert_eq!(tree(here.path()), [(name.to_owned(), b"i".to_vec())]);
    }
    // Two that would meet in one place: neither is lost, and nothing is taken.
    for command in ["get", "take"] {
        let two = saratoga(command, address, &["a/x", "b/x"], here.path());
        assert_eq!(two.status.code(), Some(2));
        assert!(said(&two).contains("`a/x` and `b/x`"), "{}", said(&two));
    }
    assert_eq!(tree(here.path()), []);
    let once = saratoga("take", address, &["./a/x", "a//x"], here.path());
    assert_done(&once);
    assert!(!server.path().join("a/x").exists());
    fs::write(server.path().join("a/x"), "of a").unwrap();
    // Also where that is found out on the way: `a/x` and the directory `c/a` with an `x`.
    fs::create_dir_all(server.path().join("c/a")).unwrap();
    fs::write(server.path().join("c/a/x"), "of c").unwrap();
    let met = tempfile::tempdir().unwrap();
    let two = saratoga("take", address, &["-r", "a", "c/a"], met.path());
    assert_eq!(two.status.code(), Some(1));
    assert!(said(&two).contains("was left out"), "{}", said(&two));
    let left = ["a/x", "c/a/x"].map(|path| server.path().join(path).exists());
    assert!(
        left[0] != left[1],
        "just the other is still there: {left:?}"
    );
    // And puts.
    for folder in ["one", "two"] {
        fs::create_dir(met.path().join(folder)).unwrap();
        fs::write(met.path().join(folder).join("x"), folder).unwrap();
    }
    let two = saratoga(
        "put",
        address,
        &["one/x", "two/x", "--rate", "1Mbit/s"],
        met.path(),
    );
    assert_eq!(two.status.code(), Some(2));
    assert!(said(&two).contains("`one/x` and `two/x`"), "{}", said(&two));
    assert!(!server.path().join("x").exists());
}

/// A name that is not UTF-8 cannot be asked for: all others arrive, and the command says that one is missing.
#[test]
fn a_file_whose_name_is_not_utf_8_is_missed_on_either_side() {
    let server = Server::start(&["--rate", "100Mbit/s"]);
    let here = tempfile::tempdir().unwrap();
    let folder = here.path().join("d");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a"), "a").unwrap();
    let odd = OsStr::from_bytes(b"odd\xff");
    fs::write(folder.join(odd), "odd").unwrap();
    let rate = ["--rate", "1Mbit/s"];
    let put = saratoga(
        "put",
        &server.address,
        &["-r", "d", rate[0], rate[1]],
        here.path(),
    );
    assert_eq!(put.status.code(), Some(1), "{}", said(&put));
    assert!(said(&put).contains("not UTF-8"), "{}", said(&put));
    assert_eq!(tree(server.path()), [("d/a".to_owned(), b"a".to_vec())]);
    fs::write(server.path().join("d").join(odd), "odd").unwrap();
    let back = tempfile::tempdir().unwrap();
    let get = saratoga("get", &server.address, &["-r", "d"], back.path());
    assert_eq!(get.status.code(), Some(1), "{}", said(&get));
    assert!(said(&get).contains("not UTF-8"), "{}", said(&get));
    assert_eq!(tree(back.path()), [("d/a".to_owned(), b"a".to_vec())]);
}

#[test]
fn that_nothing_listens_is_said_at_once() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("a"), "a").unwrap();
    for (command, arguments) in [
        ("get", &["a"][..]),
        ("put", &["a"]),
        ("put", &["a", "--rate", "1Mbit/s"]),
    ] {
        let began = Instant::now();
        let output = saratoga(command, "127.0.0.1:9", arguments, here.path());
        assert_eq!(output.status.code(), Some(1));
        assert!(
            said(&output).contains("nothing listens"),
            "{}",
            said(&output)
        );
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
    }
}

/// The route would answer from 127.0.0.1.
#[test]
fn a_server_answers_from_the_address_that_was_asked() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let server = Server::start(&["--rate", "8Mbit/s", "--listen", listen]);
        fs::write(server.path().join("a"), vec![7; 100_000]).unwrap();
        let port = server.address.rsplit(':').next().unwrap();
        let (here, address) = (tempfile::tempdir().unwrap(), format!("127.0.0.7:{port}"));
        assert_done(&saratoga("get", &address, &["a"], here.path()));
        assert_done(&saratoga("put", &address, &["a", "--to", "b"], here.path()));
        assert_eq!(tree(&server.path().join("b"))[0].1, [7; 100_000]);
    }
}

/// As `get --to - | less`: who reads stops for longer than a peer may be silent.
#[test]
fn a_reader_that_takes_its_time_gets_all() {
    let server = Server::start(&["--rate", "100Mbit/s", "--silence", "2s"]);
    let content: Vec<u8> = (0..3_000_000u32)
        .map(|i| (i * 31 + i / 253) as u8)
        .collect();
    fs::write(server.path().join("log"), &content).unwrap();
    let mut get = Command::new(PROGRAM)
        .args(["saratoga", "get", &server.address, "log"])
        .args(["--to", "-", "--silence", "2s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = get.stdout.take().unwrap();
    let mut got = vec![0; 100_000];
    out.read_exact(&mut got).unwrap();
    std::thread::sleep(Duration::from_secs(6));
    out.read_to_end(&mut got).unwrap();
    assert_done(&get.wait_with_output().unwrap());
    assert!(got == content);
}

/// What is taken to standard output is deleted when that has all, however long it takes, and stays where that fails.
#[test]
fn what_standard_output_did_not_take_is_not_deleted() {
    let server = Server::start(&["--rate", "100Mbit/s", "--silence", "2s"]);
    let log = server.path().join("log");
    let content = vec![7; 300_000];
    fs::write(&log, &content).unwrap();
    let take = |out: Stdio| {
        let mut take = Command::new(PROGRAM);
        take.args(["saratoga", "take", &server.address, "log"]);
        take.args(["--to", "-", "--silence", "2s"]);
        take.stdout(out).stderr(Stdio::piped()).spawn().unwrap()
    };
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let output = take(full.into()).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(log.exists());

    let mut taken = take(Stdio::piped());
    let mut out = taken.stdout.take().unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert!(log.exists(), "deleted before it was read");
    let mut got = Vec::new();
    out.read_to_end(&mut got).unwrap();
    assert_done(&taken.wait_with_output().unwrap());
    assert!(got == content && !log.exists());
}

/// A directory in which a transfer was interrupted can be sent, and a deletion that was is ended; what only has such a name stays.
#[test]
fn what_an_interrupted_transfer_left_is_not_sent() {
    let server = Server::start(&["--rate", "100Mbit/s"]);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a", ".b.saratoga-part", ".b.saratoga-record", "c"] {
        fs::write(path(name), "1").unwrap();
    }
    fs::write(path(".7.saratoga-going"), "1").unwrap();
    let was = fs::metadata(path("c")).unwrap();
    let was = [was.ino() as i64, 1, was.mtime(), was.mtime_nsec()].map(|n| n.to_string());
    let going = path(&format!(".{}.saratoga-going", was.join(".")));
    std::thread::sleep(Duration::from_millis(20));
    fs::rename(path("c"), &going).unwrap();
    let mut give = Command::new(PROGRAM);
    give.args(["saratoga", "give", &server.address, "-r", "."]);
    let given = give.current_dir(folder.path()).output().unwrap();
    assert_done(&given);
    assert!(path(".b.saratoga-part").exists());
    assert!(path(".7.saratoga-going").exists() && !going.exists());
    let said = String::from_utf8(given.stderr).unwrap();
    assert!(said.contains(".7.saratoga-going` stays"), "{said}");
    assert_eq!(fs::read_dir(server.path()).unwrap().count(), 1);
}

/// What is taken from where nothing can be deleted is told before it comes.
#[test]
fn a_take_from_a_read_only_place_fails() {
    bentpipe_os::need!(Root, Program("unshare"));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "a").unwrap();
    let script = "mount --bind \"$1\" \"$1\"; mount -o remount,ro,bind \"$1\"; shift; exec \"$@\"";
    let mut child = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(folder.path())
        .args([PROGRAM, "saratoga", "serve"])
        .arg(folder.path())
        .args([
            "--listen",
            "127.0.0.1:0",
            "--allow",
            "delete",
            "--rate",
            "1Mbit/s",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let address = support::address_of(&mut child);
    let server = Server {
        child,
        address,
        folder,
    };
    let here = tempfile::tempdir().unwrap();
    let take = saratoga("take", &server.address, &["a"], here.path());
    assert_eq!(take.status.code(), Some(1), "{}", said(&take));
    assert!(said(&take).contains("not deleted"), "{}", said(&take));
    assert_eq!(
        fs::read_dir(here.path()).unwrap().count(),
        0,
        "nothing came"
    );
    assert_eq!(fs::read(server.path().join("a")).unwrap(), b"a");
}
