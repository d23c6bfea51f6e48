//! `bentpipe saratoga` as a user meets it: killed on either side and begun again, and a full disk.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::PROGRAM;

/// A server; killed when dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, listen: &str) -> Self {
        Self::by(Command::new(PROGRAM), folder, listen, &["--rate=20Mbit/s"])
    }

    /// By a command that runs the program.
    fn by(mut command: Command, folder: &Path, listen: &str, options: &[&str]) -> Self {
        let mut child = command
            .args(["saratoga", "serve"])
            .arg(folder)
            .args(["--allow", "put,delete", "--listen", listen])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let address = support::address_of(&mut child);
        Self { child, address }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(server: &Server, command: &str, arguments: &[&str], to: &Path) -> Command {
    let mut client = Command::new(PROGRAM);
    client
        .args(["saratoga", command, &server.address])
        .args(arguments)
        .arg("--to")
        .arg(to)
        .stderr(Stdio::piped());
    client
}

fn content() -> Vec<u8> {
    (0..8_000_000u32)
        .map(|i| (i * 31 + i / 253) as u8)
        .collect()
}

/// Waits until the part of `name` in `folder` is recorded to have arrived beyond a megabyte.
fn recorded(folder: &Path, name: &str) -> PathBuf {
    let record = folder.join(format!(".{name}.saratoga-record"));
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let text = std::fs::read_to_string(&record).unwrap_or_default();
        let last = text
            .rsplit('-')
            .next()
            .and_then(|to| to.parse::<u64>().ok());
        if last.is_some_and(|to| to > 1_000_000) {
            return record;
        }
        assert!(Instant::now() < until, "no record: {text:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn assert_done(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn a_get_survives_the_kill_of_either_side() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(there.path().join("a"), content()).unwrap();
    let mut server = Server::start(there.path(), "127.0.0.1:0");
    let mut first = client(&server, "get", &["a"], here.path()).spawn().unwrap();
    recorded(here.path(), "a");
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(!here.path().join("a").exists());
    let began = Instant::now();
    let second = client(&server, "get", &["a"], here.path()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.kill();
    let _again = Server::start(there.path(), &server.address);
    let output = second.wait_with_output().unwrap();
    assert_done(&output);
    assert!(began.elapsed() < Duration::from_secs(25));
    assert_eq!(std::fs::read(here.path().join("a")).unwrap(), content());
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 1);
}

/// What has gone to standard output cannot be taken back: a server that begins anew ends it there, and has its file.
#[test]
fn what_has_gone_to_standard_output_does_not_come_twice() {
    let there = tempfile::tempdir().unwrap();
    let original = there.path().join("a");
    std::fs::write(&original, content()).unwrap();
    let mut server = Server::start(there.path(), "127.0.0.1:0");
    let mut take = client(&server, "take", &["a"], Path::new("-"));
    let mut take = take.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = take.stdout.take().unwrap();
    let mut got = vec![0; 100_000];
    out.read_exact(&mut got).unwrap();
    server.kill();
    let _again = Server::start(there.path(), &server.address);
    out.read_to_end(&mut got).unwrap();
    let output = take.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("run it again"), "{said}");
    assert!(content().starts_with(&got) && original.exists());
}

/// The stretches of a record that are on the disk, and those that are written.
fn stretches(record: &str) -> [Vec<(usize, usize)>; 2] {
    let mut stretches = [Vec::new(), Vec::new()];
    let mut which = 0;
    for line in record.lines().skip(1) {
        match line.split_once('-') {
            Some((from, to)) if !line.starts_with("boot ") => {
                stretches[which].push((from.parse().unwrap(), to.parse().unwrap()));
            }
            _ => which = 1,
        }
    }
    stretches
}

/// A power cut: the machine starts anew, and of what was written only that is there which was on the disk. Without
/// any checksum nothing would find that out later.
#[test]
fn a_power_cut_costs_what_was_not_on_the_disk_and_the_rest_goes_on() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(there.path().join("a"), content()).unwrap();
    let options = ["--rate=8Mbit/s", "--checksum=none"];
    let server = Server::by(Command::new(PROGRAM), there.path(), "127.0.0.1:0", &options);
    let mut first = client(&server, "get", &["a"], here.path()).spawn().unwrap();
    let record = recorded(here.path(), "a");
    let until = Instant::now() + Duration::from_secs(20);
    let text = loop {
        let text = std::fs::read_to_string(&record).unwrap_or_default();
        let [on_disk, written] = stretches(&text);
        if !on_disk.is_empty() && on_disk != written {
            break text;
        }
        assert!(Instant::now() < until, "nothing is on the disk: {text}");
        std::thread::sleep(Duration::from_millis(5));
    };
    first.kill().unwrap();
    first.wait().unwrap();
    let [on_disk, written] = stretches(&text);
    let part = here.path().join(".a.saratoga-part");
    let mut cut = vec![0; written.last().unwrap().1];
    let before = std::fs::read(&part).unwrap();
    for (from, to) in on_disk {
        cut[from..to].copy_from_slice(&before[from..to]);
    }
    assert!(cut != before[..cut.len()], "something was lost");
    std::fs::write(&part, cut).unwrap();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let other = text.replace(boot.trim(), "9d2f5c9e-3a43-4f9c-8c1c-6f0d5ab3f0c1");
    assert_ne!(other, text);
    std::fs::write(&record, other).unwrap();
    assert_done(
        &client(&server, "get", &["a"], here.path())
            .output()
            .unwrap(),
    );
    assert!(std::fs::read(here.path().join("a")).unwrap() == content());
}

/// Before a sender hears that all is there, content, name and every new directory on the way are on the disk.
#[test]
fn what_is_said_to_be_there_is_on_the_disk_with_the_way_to_it() {
    bentpipe_os::need!(Program("strace"));
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let log = here.path().join("log");
    std::fs::write(here.path().join("x"), "x").unwrap();
    let mut strace = Command::new("strace");
    strace
        .args(["-D", "-f", "-y", "-e", "trace=fsync,rename,renameat2", "-o"])
        .arg(&log)
        .arg(PROGRAM);
    let server = Server::by(strace, there.path(), "127.0.0.1:0", &["--rate=20Mbit/s"]);
    let mut put = Command::new(PROGRAM);
    put.args([
        "saratoga",
        "put",
        &server.address,
        "--rate=20Mbit/s",
        "x",
        "--to=a/b",
    ]);
    assert_done(&put.current_dir(here.path()).output().unwrap());
    let log = std::fs::read_to_string(log).unwrap();
    let root = there.path().canonicalize().unwrap();
    let at = |what: String| {
        log.find(&what)
            .unwrap_or_else(|| panic!("no {what} in {log}"))
    };
    let sync = |path: &Path| format!("<{}>)", path.display());
    let part = at(sync(&root.join("a/b/.x.saratoga-part")));
    let name = at("\".x.saratoga-part\", ".to_owned());
    assert!(part < name, "{log}");
    for folder in [&root, &root.join("a"), &root.join("a/b")] {
        let behind = &log[name..];
        assert!(
            behind.contains(&sync(folder)),
            "{}: {log}",
            folder.display()
        );
    }
}

/// What is taken by standard output to a file is deleted when the disk has it, and stays where that fails.
#[test]
fn what_is_taken_to_a_file_by_the_shell_is_on_the_disk_first() {
    bentpipe_os::need!(Program("strace"));
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (original, log) = (there.path().join("a"), here.path().join("log"));
    std::fs::write(&original, content()).unwrap();
    let options = ["--rate=100Mbit/s", "--allow=delete"];
    let server = Server::by(Command::new(PROGRAM), there.path(), "127.0.0.1:0", &options);
    let take = |fault: &[&str]| {
        let out = std::fs::File::create(here.path().join("out")).unwrap();
        let mut take = Command::new("strace");
        take.args(["-D", "-f", "-e", "trace=fsync", "-o"]).arg(&log);
        take.args(fault).arg(PROGRAM);
        take.args(["saratoga", "take", &server.address, "a", "--to", "-"]);
        take.stdout(out).output().unwrap()
    };
    let failed = take(&["-e", "inject=fsync:error=EIO"]);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output"), "{said}");
    assert!(original.exists(), "{said}");
    assert_done(&take(&[]));
    assert!(!original.exists());
    assert!(std::fs::read(here.path().join("out")).unwrap() == content());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("fsync(1)"), "{log}");
}

#[test]
fn a_put_survives_the_kill_of_either_side() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let local = here.path().join("a");
    std::fs::write(&local, content()).unwrap();
    let mut server = Server::start(there.path(), "127.0.0.1:0");
    let put = |server: &Server| {
        let mut put = Command::new(PROGRAM);
        put.args(["saratoga", "put", &server.address, "--rate", "20Mbit/s"])
            .arg(&local)
            .stderr(Stdio::piped());
        put
    };
    let mut first = put(&server).spawn().unwrap();
    recorded(there.path(), "a");
    first.kill().unwrap();
    first.wait().unwrap();
    let second = put(&server).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.kill();
    assert!(!there.path().join("a").exists());
    let _again = Server::start(there.path(), &server.address);
    assert_done(&second.wait_with_output().unwrap());
    assert_eq!(std::fs::read(there.path().join("a")).unwrap(), content());
    assert_eq!(std::fs::read_dir(there.path()).unwrap().count(), 1);
}

/// A put whose file changes, and the same put once more meanwhile: the change is told, not a want of room, and what is
/// there in the end is what the file became.
#[test]
fn two_commands_with_a_changed_file_tell_of_the_change() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let local = here.path().join("a");
    std::fs::write(&local, content()).unwrap();
    let server = Server::start(there.path(), "127.0.0.1:0");
    let put = || {
        let mut put = Command::new(PROGRAM);
        put.args(["saratoga", "put", &server.address, "--rate", "20Mbit/s"]);
        put.arg(&local).stderr(Stdio::piped());
        put
    };
    let first = put().spawn().unwrap();
    recorded(there.path(), "a");
    std::fs::write(&local, "changed").unwrap();
    let second = put().output().unwrap();
    let first = first.wait_with_output().unwrap();
    let said = [&first, &second].map(|put| String::from_utf8_lossy(&put.stderr).into_owned());
    // The first is told by its own side or by the server, or begins anew with what the file is by then.
    let told = ["changed while it was sent", "file in use"];
    let told = told.iter().any(|words| said[0].contains(words));
    assert!(first.status.success() || told, "{said:?}");
    assert!(!said.concat().contains("resources"), "{said:?}");
    assert_eq!(second.status.code(), Some(0), "{said:?}");
    assert_eq!(std::fs::read(there.path().join("a")).unwrap(), b"changed");
}

#[test]
fn what_fails_says_why_and_leaves_nothing_under_its_name() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(there.path().join("a"), content()).unwrap();
    let server = Server::start(there.path(), "127.0.0.1:0");
    let run = |arguments: &[&str]| {
        let output = client(&server, "get", arguments, here.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = run(&["none"]);
    assert_eq!(code, Some(1));
    assert!(
        said.starts_with("error: `none`: the peer says: file not found"),
        "{said}"
    );
    let (code, _) = run(&["a", "--max-size", "1MB"]);
    assert_eq!(code, Some(1));
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0);
    let (code, said) = run(&["../b", "a"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("leaves the directory") && said.contains("1 of 2"),
        "{said}"
    );
    assert_eq!(std::fs::read(here.path().join("a")).unwrap(), content());
    let (code, said) = run(&["a", "--max-size", "1MB"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--max-size"), "{said}");
    let nobody = Command::new(PROGRAM)
        .args(["saratoga", "ls", "127.0.0.1:9", "--silence", "2s"])
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    let said = String::from_utf8(nobody.stderr).unwrap();
    assert!(said.contains("saratoga serve"), "{said}");
    let lost = Command::new(PROGRAM)
        .args(["saratoga", "put", "no host", "a", "--rate", "1Mbit/s"])
        .output()
        .unwrap();
    assert_eq!(lost.status.code(), Some(2));
}

/// Runs `script` with a disk of 12 MiB at `$1`; a get of the 8 MB of `a` is `$2`.
fn on_a_small_disk(server: &Server, script: &str) -> Output {
    let disk = tempfile::tempdir().unwrap();
    let get = format!("{PROGRAM} saratoga get {} a --to $1", server.address);
    let script = format!("mount -t tmpfs -o size=12m tmpfs \"$1\"; {script}; ls -A \"$1\"");
    Command::new("unshare")
        .args(["--mount", "sh", "-uc", &script.replace("$2", &get), "sh"])
        .arg(disk.path())
        .output()
        .unwrap()
}

#[test]
fn a_full_disk_is_told_and_nothing_appears_under_its_name() {
    bentpipe_os::need!(Root, Program("unshare"));
    let there = tempfile::tempdir().unwrap();
    std::fs::write(there.path().join("a"), content()).unwrap();
    let server = Server::start(there.path(), "127.0.0.1:0");
    let fill = |mebibytes| format!("head -c {mebibytes}M /dev/zero 2>/dev/null >\"$1/fill\"");

    let before = on_a_small_disk(&server, &format!("{}; $2", fill(9)));
    let said = String::from_utf8(before.stderr).unwrap();
    assert!(
        said.contains("there is room for 2097152, besides"),
        "{said}"
    );
    assert_eq!(before.stdout, b"fill\n", "nothing came");

    // The transfer takes 3 s and more.
    let meanwhile = format!("(sleep 1; {}) & $2; wait", fill(12));
    let filled = on_a_small_disk(&server, &meanwhile);
    let said = String::from_utf8(filled.stderr).unwrap();
    assert!(
        said.contains("cannot write `a`: No space left on device"),
        "{said}"
    );
    let left = String::from_utf8(filled.stdout).unwrap();
    assert!(!left.lines().any(|name| name == "a"), "{left}");
}

/// What waits on its way through standard input and output is kept where TMPDIR says, which the error names.
#[test]
fn a_full_temporary_folder_is_named() {
    bentpipe_os::need!(Root, Program("unshare"));
    let there = tempfile::tempdir().unwrap();
    std::fs::write(there.path().join("a"), content()).unwrap();
    let server = Server::start(there.path(), "127.0.0.1:0");
    let run = |what: &str| {
        let fill = "head -c 12M /dev/zero 2>/dev/null >\"$1/fill\"; export TMPDIR=\"$1\"";
        let output = on_a_small_disk(&server, &format!("{fill}; {PROGRAM} saratoga {what}"));
        String::from_utf8(output.stderr).unwrap()
    };
    let address = &server.address;
    for what in [
        format!("get {address} a --to - >\"$1/out\""),
        format!(
            "put {address} - --as b --rate 8Mbit/s <{}/a",
            there.path().display()
        ),
    ] {
        let said = run(&what);
        assert!(said.contains("TMPDIR"), "{what}: {said}");
    }
}

#[test]
fn a_silence_of_nothing_and_no_sessions_at_all_are_refused() {
    for (option, value, expected) in [
        ("--silence", "0s", "at least 1s"),
        ("--max-sessions", "0", "--max-sessions"),
    ] {
        let mut serve = Command::new(PROGRAM);
        serve.args([
            "saratoga", "serve", "/nowhere", "--rate", "1Mbit/s", option, value,
        ]);
        let output = serve.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn directories_and_files_go_by_one_command_and_what_fails_is_named() {
    let (there, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir_all(there.path().join("d/e")).unwrap();
    std::fs::write(there.path().join("d/e/x"), "x").unwrap();
    std::fs::write(there.path().join("y"), "y").unwrap();
    let server = Server::start(there.path(), "127.0.0.1:0");
    let output = client(&server, "get", &["-r", "d", "none", "y"], here.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("`none`: the peer says: file not found") && said.contains("(1 of 3 failed)"),
        "{said}"
    );
    let read = |folder: &Path, name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read(here.path(), "d/e/x"), "x");
    assert_eq!(read(here.path(), "y"), "y");
    let alone = client(&server, "get", &["d/e"], here.path())
        .output()
        .unwrap();
    let said = String::from_utf8(alone.stderr).unwrap();
    assert!(said.contains("needs -r"), "{said}");

    std::os::unix::fs::symlink("y", here.path().join("link")).unwrap();
    let put = |arguments: &[&str]| {
        let mut command = client(&server, "put", arguments, Path::new("back"));
        command.current_dir(here.path()).output().unwrap()
    };
    let output = put(&["d"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // The directory itself has no name: what is in it goes.
    let output = put(&["-r", "."]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("left out `./link`: it is no file"), "{said}");
    assert_eq!(read(there.path(), "back/d/e/x"), "x");
    assert_eq!(read(there.path(), "back/y"), "y");
    assert_eq!(
        std::fs::read_dir(there.path().join("back"))
            .unwrap()
            .count(),
        2
    );
}

/// Standard input cannot be read again: where the server has forgotten what it had of it, it is not taken for what is
/// left of it.
#[test]
fn a_stream_whose_server_was_started_again_is_not_cut() {
    let there = tempfile::tempdir().unwrap();
    let mut server = Server::start(there.path(), "127.0.0.1:0");
    let mut put = Command::new(PROGRAM)
        .args([
            "saratoga",
            "put",
            &server.address,
            "-",
            "--as=s",
            "--rate=20Mbit/s",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = put.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        use std::io::Write as _;
        // Whoever reads it may be gone before the end.
        let _ = input.write_all(&content());
    });
    recorded(there.path(), "s");
    server.kill();
    let _again = Server::start(there.path(), &server.address);
    let output = put.wait_with_output().unwrap();
    writer.join().unwrap();
    let arrived = std::fs::read(there.path().join("s"));
    match output.status.code() {
        Some(0) => assert!(arrived.unwrap() == content()),
        code => assert_eq!((code, arrived.is_ok()), (Some(1), false)),
    }
}

/// What the kernel says of standard input is told.
#[test]
fn a_standard_input_that_cannot_be_read_is_told_with_its_reason() {
    let there = tempfile::tempdir().unwrap();
    let server = Server::start(there.path(), "127.0.0.1:0");
    let put = Command::new(PROGRAM)
        .args(["saratoga", "put", &server.address, "-", "--as=s"])
        .stdin(std::fs::File::open(there.path()).unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&put.stderr);
    assert_eq!(put.status.code(), Some(1), "{said}");
    assert!(said.contains("Is a directory"), "{said}");
}

/// A terminal that is closed ends it in order, as Ctrl-C does; nohup(1) has it go on.
#[test]
fn a_closed_terminal_ends_a_server_in_order_unless_nohup_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    // Who runs these tests may have them run by nohup.
    let mut ended = Command::new("env");
    ended.args(["--default-signal=HUP", PROGRAM]);
    let mut server = Server::by(ended, folder.path(), "127.0.0.1:0", &["--rate=20Mbit/s"]);
    support::send_signal(server.child.id(), "HUP");
    let stopped = server.child.wait().unwrap();

    let mut kept = Command::new("nohup");
    kept.arg(PROGRAM).stderr(Stdio::null());
    let mut kept = Server::by(kept, folder.path(), "127.0.0.1:0", &["--rate=20Mbit/s"]);
    support::send_signal(kept.child.id(), "HUP");
    let listed = Command::new(PROGRAM)
        .args(["saratoga", "ls", &kept.address])
        .status()
        .unwrap();
    support::send_signal(kept.child.id(), "TERM");
    let asked = kept.child.wait().unwrap();
    let codes = [stopped, listed, asked].map(|status| status.code());
    assert_eq!(codes, [Some(0); 3]);
}

/// A name can neither move the cursor, nor look like another by the direction of its writing.
#[test]
fn names_of_a_server_are_listed_without_what_a_terminal_obeys() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["\u{1b}[2Jgone", "photo\u{202e}gpj.exe"] {
        std::fs::write(folder.path().join(name), "content").unwrap();
    }
    let server = Server::start(folder.path(), "127.0.0.1:0");
    let listed = Command::new(PROGRAM)
        .args(["saratoga", "ls", &server.address])
        .output()
        .unwrap();
    let said = String::from_utf8(listed.stdout).unwrap();
    assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said:?}");
    for shown in [r"\u{1b}[2Jgone", r"photo\u{202e}gpj.exe"] {
        assert!(said.contains(shown), "{said:?}");
    }
}
