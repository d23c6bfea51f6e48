//! `bentpipe saratoga` on an odd host: few descriptors, no standard output, a terminal that believes what it reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/server.rs"]
mod server;
mod support;

use bentpipe_wire::saratoga::{Entry, Frame, Kind, Metadata};
use server::{Server, assert_code, shell, under};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::PROGRAM;

/// Names come from anybody: in the log they neither drive the terminal nor begin a line.
#[test]
fn names_do_not_write_the_log() {
    let there = tempfile::tempdir().unwrap();
    let server = Server::start("", there.path(), &["-v"]);
    let name = "a\u{1b}]0;owned\u{7}\u{1b}[2J\nforged line";
    let asked = shell("")
        .args(["saratoga", "get", &server.address, name, "--to"])
        .arg(there.path())
        .output()
        .unwrap();
    let answer = assert_code(&asked, 1);
    assert!(!answer.contains('\u{1b}'), "{answer:?}");
    let said = server.end();
    assert!(
        said.contains("refused") && said.contains("forged line"),
        "{said:?}"
    );
    assert!(!said.contains(['\u{1b}', '\u{7}']), "{said:?}");
    assert!(
        !said.lines().any(|line| line.starts_with("forged")),
        "{said:?}"
    );
}

/// It can be looked into, and is empty: neither side is left to think that there is nothing to get.
#[test]
fn a_directory_that_was_removed_is_told_on_both_sides() {
    let place = tempfile::tempdir().unwrap();
    let there = place.path().join("there");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(place.path().join("a"), "content").unwrap();
    let server = Server::start("", &there, &["--allow", "put,delete"]);
    std::fs::remove_dir(&there).unwrap();
    // One made in its place is another.
    std::fs::create_dir(&there).unwrap();
    for arguments in [["ls", "."], ["get", "a"], ["put", "a"], ["rm", "a"]] {
        let [command, path] = arguments;
        let mut asked = shell("");
        asked.current_dir(place.path());
        asked.args(["saratoga", command, &server.address, path]);
        let asked = asked.output().unwrap();
        let answer = assert_code(&asked, 1);
        assert!(answer.contains("the log of the peer says more"), "{answer}");
    }
    let said = server.end();
    let told = said.matches("it was removed; make it again").count();
    // On a busy host a question is asked twice.
    assert!(told >= 4, "{said}");
}

/// What is put would lie where nobody sees it.
#[test]
fn a_directory_over_which_something_is_mounted_is_told_on_both_sides() {
    bentpipe_os::need!(Root);
    let place = tempfile::tempdir().unwrap();
    let there = place.path().join("there");
    std::fs::create_dir(&there).unwrap();
    std::fs::write(place.path().join("a"), "content").unwrap();
    let server = Server::start("", &there, &["--allow", "put"]);
    let told = |command: &str, arguments: &[&str]| {
        let done = Command::new(command).args(arguments).arg(&there).status();
        assert!(done.unwrap().success(), "{command}");
    };
    told("mount", &["-t", "tmpfs", "none"]);
    let mut given = shell("");
    given.current_dir(place.path());
    let given = given
        .args(["saratoga", "give", &server.address, "a"])
        .output();
    told("umount", &["-l"]);
    assert_code(&given.unwrap(), 1);
    assert!(place.path().join("a").exists());
    let said = server.end();
    assert!(said.contains("another file system is there now"), "{said}");
}

/// It would replace what is there by nothing.
#[test]
fn what_nobody_can_write_is_not_put() {
    let there = tempfile::tempdir().unwrap();
    std::fs::write(there.path().join("a"), "content").unwrap();
    let server = Server::start("", there.path(), &["--allow", "put"]);
    for from in ["<&-", "0>/dev/null"] {
        let put = Command::new("sh")
            .args(["-c", &format!("exec \"$@\" {from}"), "sh", PROGRAM])
            .args(["saratoga", "put", &server.address, "-", "--as", "a"])
            .arg("--rate=8Mbit/s")
            .output()
            .unwrap();
        assert!(assert_code(&put, 2).contains("standard input is closed"));
        assert_eq!(std::fs::read(there.path().join("a")).unwrap(), b"content");
    }
}

/// Nothing of what came would be kept, and the server would delete its own.
#[test]
fn what_nobody_can_read_is_not_taken() {
    let there = tempfile::tempdir().unwrap();
    std::fs::write(there.path().join("a"), "content").unwrap();
    let server = Server::start("", there.path(), &["--allow", "delete"]);
    for to in [">&-", "1</dev/null", "1<\"$0\""] {
        let taken = Command::new("sh")
            .args(["-c", &format!("exec \"$@\" {to}"), PROGRAM, PROGRAM])
            .args(["saratoga", "take", &server.address, "a", "--to", "-"])
            .output()
            .unwrap();
        assert!(assert_code(&taken, 2).contains("standard output is closed"));
        assert!(there.path().join("a").exists());
    }
    let kept = shell("")
        .args(["saratoga", "take", &server.address, "a", "--to", "-"])
        .output()
        .unwrap();
    assert_code(&kept, 0);
    assert_eq!(kept.stdout, b"content");
}

/// Whoever has few descriptors does less at once, on either side, and all files arrive.
#[test]
fn few_descriptors_make_it_slow_and_nothing_else() {
    const FILES: usize = 300;
    for (at_server, at_client) in [
        ("ulimit -n 64;", ""),
        ("", "ulimit -n 64;"),
        ("ulimit -Sn 64;", ""),
    ] {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = here.path().join("files");
        std::fs::create_dir(&from).unwrap();
        for i in 0..FILES {
            std::fs::write(from.join(i.to_string()), i.to_string()).unwrap();
        }
        let server = Server::start(at_server, there.path(), &["--allow", "put"]);
        let mut puts: Vec<Child> = ["one", "two"]
            .map(|to| {
                shell(at_client)
                    .args(["saratoga", "put", &server.address, "-r", "--to", to])
                    .arg(&from)
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .into();
        for put in puts.drain(..) {
            assert_code(&put.wait_with_output().unwrap(), 0);
        }
        let back = here.path().join("back");
        std::fs::create_dir(&back).unwrap();
        let got = shell(at_client)
            .args(["saratoga", "get", &server.address, "-r", "one", "--to"])
            .arg(&back)
            .output()
            .unwrap();
        assert_code(&got, 0);
        let count = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
        let folders = [
            there.path().join("one/files"),
            there.path().join("two/files"),
            back.join("one/files"),
        ];
        for folder in folders {
            assert_eq!(count(&folder), FILES, "{}", folder.display());
        }
    }
}

/// Who sends files that are refused, under any number of forged names and addresses, does not fill a disk with what the log says of it.
#[test]
fn strangers_do_not_fill_the_log() {
    let there = tempfile::tempdir().unwrap();
    let server = Server::start("", there.path(), &["--allow", "put", "--max-size", "500B"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut buffer = [0; 100];
    let timeout = Some(Duration::from_millis(50));
    socket.set_read_timeout(timeout).unwrap();
    let mut refused = 0;
    let begun = Instant::now();
    for session in 0..500 {
        let entry = Entry::file("a", 1000);
        let mut datagram = Vec::new();
        let metadata = Metadata::new(session, Kind::File, entry);
        Frame::Metadata(metadata).emit(&mut datagram).unwrap();
        socket.send_to(&datagram, &server.address).unwrap();
        refused += usize::from(socket.recv(&mut buffer).is_ok());
    }
    let said = server.end();
    assert!(refused > 100, "only {refused} of 500 were refused");
    // Each second one more, and one that says how many were left out.
    let most = 25 + 2 * begun.elapsed().as_secs() as usize;
    let lines = said.lines().count();
    assert!((20..=most).contains(&lines), "{lines} lines: {said}");
    assert!(said.contains("than the 500 allowed"), "{said}");
}

/// Whoever may have few threads does less at once, on either side, and all files arrive.
#[test]
fn few_threads_make_it_slow_and_nothing_else() {
    bentpipe_os::need!(Root, Program("setpriv"), Program("prlimit"));
    const FILES: usize = 100;
    // The bound counts the threads of one user, and does not hold for root.
    let few = |user: u32| format!("exec setpriv --reuid {user} --clear-groups prlimit --nproc=5");
    for (at_server, at_client) in [
        (few(65432), "exec".to_owned()),
        ("exec".to_owned(), few(65433)),
    ] {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = here.path().join("files");
        let back = here.path().join("back");
        for folder in [&from, &back] {
            std::fs::create_dir(folder).unwrap();
        }
        for i in 0..FILES {
            std::fs::write(from.join(i.to_string()), i.to_string()).unwrap();
        }
        for folder in [there.path(), here.path(), &from, &back] {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(folder, mode).unwrap();
        }
        let server = Server::begin(under(&at_server), there.path(), &["--allow", "put"]);
        let put = under(&at_client)
            .args(["saratoga", "put", &server.address, "-r"])
            .arg(&from)
            .output()
            .unwrap();
        assert_code(&put, 0);
        let got = under(&at_client)
            .args(["saratoga", "get", &server.address, "-r", "files", "--to"])
            .arg(&back)
            .output()
            .unwrap();
        assert_code(&got, 0);
        for folder in [there.path().join("files"), back.join("files")] {
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), FILES);
        }
    }
}

/// What a server has not enough for is said when it starts, and what to do; it serves fewer at once then, or not at all.
#[test]
fn a_server_says_at_its_start_what_it_has_not_enough_for() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(there.path().join("a"), "content").unwrap();
    let none = under("ulimit -n 35; exec timeout 20")
        .args([
            "saratoga",
            "serve",
            "--rate=1Mbit/s",
            "--listen=127.0.0.1:0",
        ])
        .arg(there.path())
        .output()
        .unwrap();
    assert!(assert_code(&none, 2).contains("ulimit -n"));
    let server = Server::start("ulimit -n 64;", there.path(), &[]);
    let got = Command::new(PROGRAM)
        .args(["saratoga", "get", &server.address, "a", "--to"])
        .arg(here.path())
        .output()
        .unwrap();
    assert_code(&got, 0);
    let said = server.end();
    assert!(
        said.contains("at most 8 sessions at once, not 1024"),
        "{said}"
    );
    assert!(
        said.contains("4128") && said.contains("--max-sessions 8"),
        "{said}"
    );
}

/// A server whose standard output is full or closed, as that of a service may be, serves all the same.
#[test]
fn a_server_that_cannot_print_its_address_serves() {
    for to in ["> /dev/full", ">&-"] {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(there.path().join("a"), "content").unwrap();
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let mut shell = Command::new("sh");
        let mut child = shell
            .args([
                "-c",
                &format!("exec \"$@\" {to}"),
                "sh",
                PROGRAM,
                "saratoga",
                "serve",
            ])
            .arg(there.path())
            .args(["--rate=1Mbit/s", "--listen", &address])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = child.stderr.take();
        let server = Server {
            child,
            address,
            said,
        };
        let until = Instant::now() + Duration::from_secs(30);
        while !here.path().join("a").exists() {
            assert!(Instant::now() < until, "{to}: {}", server.end());
            let mut get = Command::new(PROGRAM);
            get.args(["saratoga", "get", &server.address, "a", "--to"]);
            // It may not listen yet.
            get.arg(here.path()).output().unwrap();
        }
        let said = server.end();
        // What is closed at the start is /dev/null then.
        assert!(
            to == ">&-" || said.contains("cannot print where it serves"),
            "{said}"
        );
    }
}

/// A process that has descriptors for no session at all says so, and does not wait for ten minutes.
#[test]
fn too_few_descriptors_for_anything_are_an_error() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(there.path().join("a"), "content").unwrap();
    let server = Server::start("", there.path(), &[]);
    for (few, code) in [(5, 2), (6, 1)] {
        let begun = Instant::now();
        let got = under(&format!("ulimit -n {few}; exec timeout 40"))
            .args(["saratoga", "get", &server.address, "a", "--to"])
            .arg(here.path())
            .output()
            .unwrap();
        let said = assert_code(&got, code);
        assert!(said.contains("ulimit -n"), "{few}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(30), "{few}: {said}");
    }
}

/// What is to be deleted and cannot be keeps its name, on the side that has it.
#[test]
fn what_cannot_be_deleted_keeps_its_name() {
    bentpipe_os::need!(Program("strace"));
    let fails = "strace -D -qqf -o /dev/null -e trace=unlinkat -e inject=unlinkat:error=EIO";
    for (at_server, what) in [(true, "take"), (false, "give")] {
        let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (own, fault, before) = if at_server {
            (there.path(), format!("exec {fails}"), "exec".to_owned())
        } else {
            (here.path(), "exec".to_owned(), format!("exec {fails}"))
        };
        std::fs::write(own.join("a"), "content").unwrap();
        let server = Server::begin(under(&fault), there.path(), &["--allow=put,delete"]);
        let mut moved = under(&before);
        moved.args(["saratoga", what, &server.address, "a"]);
        if what == "give" {
            moved.args(["--rate=10Mbit/s", "--to=b"]);
        }
        let moved = moved.current_dir(here.path()).output().unwrap();
        assert_code(&moved, 1);
        assert_eq!(std::fs::read(own.join("a")).unwrap(), b"content", "{what}");
        let mut names = std::fs::read_dir(own).unwrap();
        let going = names.find(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            name.to_string_lossy().ends_with("-going")
        });
        assert!(going.is_none(), "{what}: {going:?}");
    }
}

/// The client is told that the server's log says why: it does, without `-v`.
#[test]
fn what_the_server_could_not_do_is_in_its_log() {
    let there = tempfile::tempdir().unwrap();
    std::fs::create_dir(there.path().join("folder")).unwrap();
    let server = Server::start("", there.path(), &["--allow", "delete"]);
    let removed = Command::new(PROGRAM)
        .args(["saratoga", "rm", &server.address, "folder"])
        .output()
        .unwrap();
    assert!(assert_code(&removed, 1).contains("the server's log says why"));
    let said = server.end();
    assert!(
        said.contains("not deleted") && said.contains("folder"),
        "{said}"
    );
}

/// `--key-file <(pass show key)`: a pipe has it once.
#[test]
fn a_key_may_come_out_of_a_pipe() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let key = "0123456789abcdef";
    std::fs::write(here.path().join("key"), key).unwrap();
    let file = here.path().join("key").display().to_string();
    let options = ["--allow=put,delete", "--key-file", &file];
    let server = Server::start("", there.path(), &options);
    std::fs::write(here.path().join("a"), "content").unwrap();
    for [command, path] in [
        ["put", "a"],
        ["ls", "."],
        ["get", "a"],
        ["rm", "a"],
        ["give", "a"],
        ["take", "a"],
    ] {
        let mut asked = shell("")
            .current_dir(here.path())
            .args(["saratoga", command, &server.address, path])
            .args(["--key-file", "/dev/stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = asked.stdin.take().unwrap();
        std::io::Write::write_all(&mut pipe, key.as_bytes()).unwrap();
        drop(pipe);
        assert_code(&asked.wait_with_output().unwrap(), 0);
    }
    assert!(here.path().join("a").exists() && !there.path().join("a").exists());
    // One of the two would be empty.
    let both = shell("")
        .args(["saratoga", "put", &server.address, "-", "--as", "b"])
        .args(["--key-file", "/dev/stdin"])
        .stdin(std::fs::File::open(here.path().join("key")).unwrap())
        .output()
        .unwrap();
    assert_code(&both, 2);
    assert!(!there.path().join("b").exists());
}
