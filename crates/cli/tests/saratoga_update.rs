//! `bentpipe saratoga put -r --update` and `get -r --update`: what is there already does not go again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/server.rs"]
mod server;
mod support;

use server::{Server, assert_code};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::PROGRAM;
use tempfile::TempDir;

/// Of all files, unless a test says otherwise.
const YEAR_2023: u64 = 1_700_000_000;

fn modify(path: &Path, seconds: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds))
        .unwrap();
}

/// A file of 2023, and the directories on the way to it.
fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    modify(path, YEAR_2023);
}

/// A directory `images` with four files in it, in three directories.
fn images() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b", "deep/er/c", "deep/d"] {
        write(&folder.path().join("images").join(name), name);
    }
    folder
}

/// Runs `command` of `images` in `folder`, to where `to` says; what it says.
fn run(command: &str, server: &Server, folder: &Path, more: &[&str]) -> String {
    let output = Command::new(PROGRAM)
        .args(["saratoga", command, &server.address, "-r", "images"])
        .args(more)
        .current_dir(folder)
        .output()
        .unwrap();
    assert_code(&output, 0)
}

/// What another file of that name, also one of the same content, has not in common with it.
fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Which of the names in `images` are other files in `folder` after `change` than before.
fn replaced(folder: &Path, names: &[&'static str], change: impl FnOnce()) -> Vec<&'static str> {
    let inodes = || { names.iter() }.map(|name| inode(&folder.join("images").join(name)));
    let before: Vec<_> = inodes().collect();
    change();
    let after = inodes().zip(before).zip(names);
    after
        .filter(|((after, before), _)| after != before)
        .map(|(_, name)| *name)
        .collect()
}

const ALL: [&str; 4] = ["a", "b", "deep/er/c", "deep/d"];

/// What both commands do, `from` one folder `to` another.
fn goes_on(command: &str, server: &Server, from: &Path, to: &Path, run_in: &Path) {
    let update = || run(command, server, run_in, &["--update"]);
    // Nothing is there, not even the directory.
    let said = update();
    assert!(!said.contains("already"), "{said}");
    // All is there.
    let again = replaced(to, &ALL, || {
        let said = update();
        assert!(said.contains("4 files were there already"), "{said}");
    });
    assert_eq!(again, [""; 0]);
    // One has another size, one another content and time.
    write(&from.join("images/a"), "longer");
    fs::write(from.join("images/deep/er/c"), "other c").unwrap();
    write(&to.join("images/deep/er/c"), "ancient");
    modify(&from.join("images/deep/er/c"), YEAR_2023 + 1);
    let again = replaced(to, &ALL, || {
        let said = update();
        assert!(said.contains("2 files were there already"), "{said}");
    });
    assert_eq!(again, ["a", "deep/er/c"]);
    let content = |name: &str| fs::read_to_string(to.join("images").join(name)).unwrap();
    assert_eq!(
        (content("a"), content("deep/er/c")),
        ("longer".to_owned(), "other c".to_owned())
    );
    // One is missing, and one is a link to a file of the same size and time.
    fs::remove_file(to.join("images/b")).unwrap();
    fs::rename(to.join("images/deep/d"), to.join("images/elsewhere")).unwrap();
    symlink("../elsewhere", to.join("images/deep/d")).unwrap();
    let again = replaced(to, &["a", "deep/er/c", "deep/d"], || {
        let said = update();
        assert!(said.contains("2 files were there already"), "{said}");
    });
    assert_eq!(again, ["deep/d"]);
    assert_eq!(
        (content("b"), content("deep/d")),
        ("b".to_owned(), "deep/d".to_owned())
    );
    assert!(!to.join("images/deep/d").is_symlink());
    // A directory is missing.
    fs::remove_dir_all(to.join("images/deep")).unwrap();
    let again = replaced(to, &["a", "b"], || {
        let said = update();
        assert!(said.contains("2 files were there already"), "{said}");
    });
    assert_eq!(again, [""; 0]);
    assert_eq!(
        (content("deep/er/c"), content("deep/d")),
        ("other c".to_owned(), "deep/d".to_owned())
    );
    // Without it all go.
    let again = replaced(to, &ALL, || {
        let said = run(command, server, run_in, &[]);
        assert!(!said.contains("already"), "{said}");
    });
    assert_eq!(again, ALL);
}

#[test]
fn a_put_leaves_out_what_is_there() {
    let (here, there) = (images(), tempfile::tempdir().unwrap());
    let server = Server::start("", there.path(), &["--allow", "put"]);
    goes_on("put", &server, here.path(), there.path(), here.path());
}

#[test]
fn a_get_leaves_out_what_is_here() {
    let (there, here) = (images(), tempfile::tempdir().unwrap());
    let server = Server::start("", there.path(), &[]);
    goes_on("get", &server, there.path(), here.path(), here.path());
}

/// Whoever changed it may change it once more in the same second.
#[test]
fn what_has_just_been_changed_goes_again() {
    let (here, there) = (images(), tempfile::tempdir().unwrap());
    let server = Server::start("", there.path(), &["--allow", "put"]);
    let other = tempfile::tempdir().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    modify(&here.path().join("images/a"), now.as_secs() + 1);
    for (command, at, to) in [("put", &here, &there), ("get", &other, &other)] {
        run(command, &server, at.path(), &["-u"]);
        let again = replaced(to.path(), &ALL, || {
            run(command, &server, at.path(), &["-u"]);
        });
        assert_eq!(again, ["a"], "{command}");
    }
}

/// Each version takes longer to go than the second that both are of.
#[test]
fn what_is_replaced_twice_in_a_second_goes_again() {
    let options = ["--rate=2Mbit/s", "--allow", "put"];
    std::thread::scope(|scope| {
        for command in ["put", "get"] {
            scope.spawn(move || {
                let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
                fs::create_dir(from.path().join("images")).unwrap();
                let (there, here) = match command {
                    "put" => (to.path(), from.path()),
                    _ => (from.path(), to.path()),
                };
                let server = Server::start("", there, &options);
                let replace = |version: &str| {
                    let [new, file] = ["new", "images/file"].map(|name| from.path().join(name));
                    fs::write(&new, version.repeat(500_000)).unwrap();
                    fs::rename(new, file).unwrap();
                };
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                std::thread::sleep(Duration::from_nanos(
                    1_000_000_000 - u64::from(now.subsec_nanos()),
                ));
                replace("1");
                std::thread::scope(|scope| {
                    scope.spawn(|| run(command, &server, here, &["-u"]));
                    std::thread::sleep(Duration::from_millis(800));
                    replace("2");
                });
                run(command, &server, here, &["-u"]);
                let content = fs::read(to.path().join("images/file")).unwrap();
                assert!(content.starts_with(b"2"), "{command}");
            });
        }
    });
}

/// Of a directory that takes longer than its passes.
#[test]
fn what_was_interrupted_sends_only_the_rest() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let names: Vec<String> = (0..20).map(|i| format!("images/{i}")).collect();
    for name in &names {
        write(&here.path().join(name), &"x".repeat(100_000));
    }
    let server = Server::start("", there.path(), &["--allow", "put"]);
    let arrived = || names.iter().filter(|name| there.path().join(name).exists());
    let mut passes = 0;
    while arrived().count() < names.len() {
        let before = arrived().count();
        let mut pass = Command::new(PROGRAM)
            .args(["saratoga", "put", &server.address, "-ru", "images"])
            .args(["--rate", "8Mbit/s", "--parallel", "1"])
            .current_dir(here.path())
            .spawn()
            .unwrap();
        while pass.try_wait().unwrap().is_none() && arrived().count() < before + 3 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = pass.kill();
        pass.wait().unwrap();
        passes += 1;
        assert!(passes < 20, "{} of 20 are there", arrived().count());
    }
    let names: Vec<_> = names.iter().map(|name| there.path().join(name)).collect();
    let before: Vec<_> = names.iter().map(|name| inode(name)).collect();
    let said = run("put", &server, here.path(), &["--update"]);
    assert!(said.contains("20 files were there already"), "{said}");
    assert!(names.iter().map(|name| inode(name)).eq(before));
}

#[test]
fn what_cannot_be_updated_is_wrong_use() {
    let here = images();
    for arguments in [
        &["take", "127.0.0.1", "-ru", "images"][..],
        &["give", "127.0.0.1", "-ru", "images"],
        &["get", "127.0.0.1", "--update", "a"],
        &["put", "127.0.0.1", "--update", "images/a"],
        &[
            "put",
            "127.0.0.1",
            "-ru",
            "images",
            "--blind",
            "--rate=1Mbit/s",
        ],
    ] {
        let output = Command::new(PROGRAM)
            .arg("saratoga")
            .args(arguments)
            .current_dir(here.path())
            .output()
            .unwrap();
        let said = assert_code(&output, 2);
        let word = match arguments[0] {
            "take" | "give" => "--update goes with get and put alone",
            _ if arguments.contains(&"--blind") => "--blind",
            _ => "--recursive",
        };
        assert!(said.contains(word), "{said}");
    }
}
