//! `bentpipe saratoga` on a file system of FUSE that says for all files whose they are, as FAT and network file systems may.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "it is said what is skipped")]

#[path = "support/server.rs"]
mod server;
mod support;

use server::{Server, assert_code, shell};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One whose files belong to user 1234; see the program's head.
struct Foreign(Child, PathBuf);

impl Foreign {
    /// `None` where the kernel has no FUSE.
    fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let program = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/support/foreign_owner.py"
        );
        let mount = "exec 3<>/dev/fuse && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0,allow_other none \"$0\" && exec python3 \"$1\"";
        let child = Command::new("sh")
            .args(["-c", mount])
            .arg(&at)
            .arg(program)
            .spawn();
        let mut mounted = Self(child.unwrap(), at);
        let until = Instant::now() + Duration::from_secs(20);
        while !fs::write(mounted.1.join("x"), "x").is_ok_and(|()| is_foreign(&mounted.1.join("x")))
        {
            if mounted.0.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(Instant::now() < until, "it is not mounted");
            std::thread::sleep(Duration::from_millis(20));
        }
        fs::remove_file(mounted.1.join("x")).ok()?;
        Some(mounted)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.1).status();
    }
}

fn is_foreign(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().uid() == 1234
}

/// What was killed goes on there; what is on its way through needs no file without a name.
#[test]
fn files_that_all_belong_to_another_are_gone_on_with() {
    bentpipe_os::need!(Root, Program("python3"));
    let (place, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(foreign) = Foreign::mount(place.path().join("foreign")) else {
        return println!("SKIPPED: no FUSE here");
    };
    let content: Vec<u8> = (0..5_000_000u32)
        .map(|i| (i * 31 + i / 251) as u8)
        .collect();
    fs::write(there.path().join("a"), &content).unwrap();
    let server = Server::start("", there.path(), &["--rate=10Mbit/s"]);
    let get = || {
        let mut get = shell("");
        get.args(["saratoga", "get", &server.address, "a", "--to"]);
        get.arg(&foreign.1).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (part, record) = (".a.saratoga-part", ".a.saratoga-record");
    let arrived = || fs::metadata(foreign.1.join(part)).map(|about| about.len());
    let mut first = get();
    let until = Instant::now() + Duration::from_secs(30);
    while !foreign.1.join(record).exists() {
        assert!(Instant::now() < until, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let before = arrived().unwrap();
    let mut second = get();
    while second.try_wait().unwrap().is_none() {
        if let Ok(now) = arrived() {
            assert!(now >= before, "it began anew: {now} of {before}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_code(&second.wait_with_output().unwrap(), 0);
    assert!(fs::read(foreign.1.join("a")).unwrap() == content);

    let mut through = shell("");
    through.args(["saratoga", "get", &server.address, "a", "--to", "-"]);
    let through = through.env("TMPDIR", &foreign.1).output().unwrap();
    assert_code(&through, 0);
    assert!(through.stdout == content);
    let left = fs::read_dir(&foreign.1).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["a"]);
}

/// The kernel may still find there what another host has replaced: that would be deleted, and was never sent.
#[test]
fn what_may_be_replaced_unseen_is_neither_given_nor_taken() {
    bentpipe_os::need!(Root, Program("python3"));
    let (place, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(foreign) = Foreign::mount(place.path().join("foreign")) else {
        return println!("SKIPPED: no FUSE here");
    };
    fs::write(foreign.1.join("a"), "content").unwrap();
    let everything = ["--allow", "put,delete"];
    let (of_other, of_foreign) = (
        Server::start("", other.path(), &everything),
        Server::start("", &foreign.1, &everything),
    );
    let runs = |command: &str, server: &Server, folder: &Path| {
        let mut run = shell("");
        run.args(["saratoga", command, &server.address, "a"]);
        run.current_dir(folder).output().unwrap()
    };
    let here = tempfile::tempdir().unwrap();
    let is_empty = |folder: &Path| fs::read_dir(folder).unwrap().count() == 0;
    let why = "a network or FUSE file system";
    let given = assert_code(&runs("give", &of_other, &foreign.1), 1);
    assert!(given.contains(why), "{given}");
    assert!(is_empty(other.path()), "nothing was sent");
    let taken = assert_code(&runs("take", &of_foreign, here.path()), 1);
    assert!(taken.contains(why), "{taken}");
    assert!(is_empty(here.path()), "nothing was sent");
    assert_eq!(fs::read(foreign.1.join("a")).unwrap(), b"content");

    // What is to be done instead.
    assert_code(&runs("put", &of_other, &foreign.1), 0);
    assert_eq!(fs::read(other.path().join("a")).unwrap(), b"content");
    assert_code(&runs("get", &of_foreign, here.path()), 0);
    assert_eq!(fs::read(here.path().join("a")).unwrap(), b"content");
    assert_code(&runs("rm", &of_foreign, here.path()), 0);
    assert!(is_empty(&foreign.1));
    let said = of_foreign.end();
    assert!(said.contains(why), "{said}");
}
