//! `bentpipe saratoga serve` of file systems that do not answer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "it is said what is skipped")]

#[path = "support/server.rs"]
mod server;
mod support;

use server::{Server, assert_code, shell};
use std::io::BufRead as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A file system in a file, which can be frozen; thawed and unmounted when dropped.
struct Freezable(std::path::PathBuf);

impl Freezable {
    fn mount(image: &Path, at: &Path) -> Self {
        std::fs::File::create(image)
            .unwrap()
            .set_len(16 << 20)
            .unwrap();
        run("mkfs.ext4", &["-q", image.to_str().unwrap()]);
        std::fs::create_dir(at).unwrap();
        run(
            "mount",
            &["-o", "loop", image.to_str().unwrap(), at.to_str().unwrap()],
        );
        Self(at.to_owned())
    }

    fn freeze(&self) {
        run("fsfreeze", &["-f", self.0.to_str().unwrap()]);
    }

    fn thaw(&self) {
        run("fsfreeze", &["-u", self.0.to_str().unwrap()]);
    }
}

impl Drop for Freezable {
    fn drop(&mut self) {
        for (program, flag) in [("fsfreeze", "-u"), ("umount", "-l")] {
            let _ = Command::new(program)
                .arg(flag)
                .arg(&self.0)
                .stderr(Stdio::null())
                .status();
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// One that hangs holds all sessions; who looks into the log knows which, and when it answers all goes on.
#[test]
fn a_file_system_that_does_not_answer_is_told_of() {
    bentpipe_os::need!(
        Root,
        Program("mkfs.ext4"),
        Program("fsfreeze"),
        Program("losetup")
    );
    let (place, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(place.path().join("a"), "content").unwrap();
    let hangs = Freezable::mount(&place.path().join("image"), &there.path().join("hangs"));
    let mut server = Server::start("", there.path(), &["--allow", "put"]);
    hangs.freeze();
    let mut put = shell("")
        .args([
            "saratoga",
            "put",
            &server.address,
            "a",
            "--to",
            "hangs",
            "--rate=10Mbit/s",
        ])
        .current_dir(place.path())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(server.said.take().unwrap());
    let mut line = String::new();
    while !line.contains("does not answer") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    assert!(line.contains("/hangs"), "{line}");
    hangs.thaw();
    assert!(put.wait().unwrap().success());
    assert_eq!(
        std::fs::read(there.path().join("hangs/a")).unwrap(),
        b"content"
    );
    line.clear();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("it answers again"), "{line}");
}

/// A file system that answers nothing, as long as its program lives, which says nothing.
struct Mute(Child, std::path::PathBuf);

impl Mute {
    /// `None` where the kernel has no FUSE.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mount = "exec 3<>/dev/fuse && mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 none \"$0\" && echo mounted && exec sleep 600";
        let mut program = Command::new("sh");
        program.args(["-c", mount]).arg(at).stdout(Stdio::piped());
        let mut program = program.spawn().unwrap();
        let mut said = String::new();
        let mut from = std::io::BufReader::new(program.stdout.take().unwrap());
        from.read_line(&mut said).unwrap();
        let mute = Self(program, at.to_owned());
        (said == "mounted\n").then_some(mute)
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        // What waits for it hears an error.
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = Command::new("umount").arg("-l").arg(&self.1).status();
    }
}

/// Lists of such a directory take no turn from others for long, and files there are refused, where it is another file system than
/// the served one.
#[test]
fn a_directory_that_hangs_keeps_nobody_from_others() {
    bentpipe_os::need!(Root);
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::create_dir(there.path().join("other")).unwrap();
    std::fs::write(there.path().join("other/a"), "content").unwrap();
    let Some(mute) = Mute::mount(&there.path().join("hangs")) else {
        return println!("SKIPPED: no FUSE here");
    };
    let server = Server::start("", there.path(), &["--silence", "20s"]);
    let asks = |words: [&str; 2]| {
        let mut asks = shell("");
        asks.args([
            "saratoga",
            words[0],
            &server.address,
            words[1],
            "--silence=40s",
        ]);
        asks.current_dir(there.path());
        asks.stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    // More than may be listed at once, of a directory that has the other in it.
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    let hang = (0..=at_once).map(|_| asks(["ls", "."]));
    let mut hang: Vec<Child> = hang.collect();
    let begun = Instant::now();
    let listed = asks(["ls", "other"]).wait_with_output().unwrap();
    assert_code(&listed, 0);
    assert!(
        begun.elapsed() < Duration::from_secs(19),
        "{:?}",
        begun.elapsed()
    );
    // Files are opened by the thread that all sessions share.
    for words in [["ls", "hangs"], ["get", "hangs/b"], ["get", "./hangs//c/d"]] {
        let refused = asks(words).wait_with_output().unwrap();
        assert_code(&refused, 1);
    }
    hang.push(asks(["get", "hangs/b"]));
    let begun = Instant::now();
    let mut get = shell("");
    get.args(["saratoga", "get", &server.address, "other/a", "--to"]);
    get.arg(here.path());
    assert_code(&get.output().unwrap(), 0);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(std::fs::read(here.path().join("a")).unwrap(), b"content");
    drop(mute);
    for mut one in hang {
        one.wait().unwrap();
    }
    let said = server.end();
    assert!(said.contains("a list or checksum waits"), "{said}");
    assert!(
        said.contains("`hangs`") && said.contains("does not answer"),
        "{said}"
    );
    assert!(!said.contains("all sessions wait"), "{said}");
}
