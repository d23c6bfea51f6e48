//! Whose files are that `bentpipe saratoga` moves, and who may read them: also on a file system of FUSE that says for all whose
//! they are, as FAT and network file systems may.

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

/// Modes of directories do not go along, but whom they keep out, the files keep out then.
#[test]
fn what_a_private_directory_hides_stays_hidden() {
    use std::os::unix::fs::PermissionsExt as _;
    let [there, here] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let server = Server::start("umask 022;", there.path(), &["--allow=put"]);
    let path = |name: &str| here.path().join(name);
    fs::create_dir_all(path("site/private/deep")).unwrap();
    for (name, mode) in [
        ("site/open", 0o644),
        ("site/private/key", 0o644),
        ("site/private/deep/run", 0o755),
        ("site/private", 0o700),
    ] {
        if !path(name).exists() {
            fs::write(path(name), name).unwrap();
        }
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let run = |words: &[&str]| {
        let mut run = shell("umask 022;");
        run.args(["saratoga", words[0], &server.address]);
        run.args(&words[1..]).current_dir(here.path());
        assert_code(&run.output().unwrap(), 0);
    };
    run(&["put", "-r", "site"]);
    // At the server the directory is to be entered by all; it is made private there before it is fetched.
    let private = there.path().join("site/private");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let modes = |site: &Path| {
        ["open", "private/key", "private/deep/run"].map(|name| mode(&site.join(name)))
    };
    assert_eq!(modes(&there.path().join("site")), [0o644, 0o600, 0o700]);
    for (name, bits) in [("private/key", 0o644), ("private", 0o700)] {
        let of = there.path().join("site").join(name);
        fs::set_permissions(of, fs::Permissions::from_mode(bits)).unwrap();
    }
    fs::create_dir(path("back")).unwrap();
    run(&["get", "-r", "site", "--to", "back"]);
    assert_eq!(modes(&path("back/site")), [0o644, 0o600, 0o700]);
    assert_eq!(mode(&private), 0o700);
}

/// A file system whose program has died, an inode that the disk has lost: `cp -r` names it, and so does who fetches.
#[test]
fn what_a_server_cannot_look_at_is_missed() {
    bentpipe_os::need!(Root, Program("python3"));
    let [there, here] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    fs::write(there.path().join("a"), "content").unwrap();
    let Some(mut foreign) = Foreign::mount(there.path().join("dead")) else {
        return println!("SKIPPED: no FUSE here");
    };
    foreign.0.kill().unwrap();
    foreign.0.wait().unwrap();
    assert!(fs::metadata(&foreign.1).is_err());
    let server = Server::start("", there.path(), &[]);
    let mut get = shell("");
    get.args(["saratoga", "get", &server.address, "-r", "."]);
    let said = assert_code(&get.current_dir(here.path()).output().unwrap(), 1);
    assert!(said.contains("left out `dead`"), "{said}");
    assert_eq!(fs::read(here.path().join("a")).unwrap(), b"content");
}
