//! Transfers that are broken off, and files that change or go while they are under way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Rate;
use bentpipe_saratoga_udp::checksum::Algorithm;
use bentpipe_saratoga_udp::{Client, Error, Link, LocalFolder, Tree, client, serve};
use bentpipe_wire::saratoga::Code;
use std::io::BufRead as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{
    LINK, Served, client, code, config, content, get, give, names, put, run, run_at, slow, take,
    until,
};

/// A file that changes under the sender's hands must not arrive as a mixture.
#[test]
fn a_file_that_changes_is_not_put_under_its_name() {
    let served = Served::new(serve::ServerConfig {
        link: Link {
            rate: Rate::from_bits_per_sec(20_000_000),
            ..LINK
        },
        ..config()
    });
    std::fs::write(served.file("a"), content(3_000_000)).unwrap();
    let path = served.file("a");
    let changer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(path, content(2_999_999)).unwrap();
    });
    let here = tempfile::tempdir().unwrap();
    assert_eq!(code(run(&served, get("a", here.path()))), Code::IN_USE);
    changer.join().unwrap();
    assert_eq!(names(here.path()), [""; 0], "nobody can complete it");
    run(&served, get("a", here.path())).unwrap();
    assert_eq!(
        std::fs::read(here.path().join("got")).unwrap(),
        content(2_999_999)
    );
}

/// Nor where it is put; and if its time tells nothing, its checksum does, and the words for that.
#[test]
fn a_file_that_changes_while_it_is_put_leaves_nothing_there() {
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("a");
    for (hidden, words) in [
        (false, "changed while it was sent"),
        (true, "another checksum"),
    ] {
        std::fs::write(&local, content(3_000_000)).unwrap();
        let (part, path) = (served.file(".a.saratoga-part"), local.clone());
        let changer = std::thread::spawn(move || {
            until(|| part.exists());
            let file = std::fs::File::options().write(true).open(path).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            file.write_all_at(&[0; 1000], 2_999_000).unwrap();
            let later = modified + Duration::from_secs(if hidden { 0 } else { 2 });
            file.set_modified(later).unwrap();
        });
        let mut client = client();
        client.link = slow();
        let report = run_at(served.address, client, put(&local, "a"));
        changer.join().unwrap();
        let said = report.result.unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
        until(|| served.count() == 0);
    }
}

/// Two servers may have one directory: what the first says to be there is what it was sent, whoever has the name of its
/// part by then.
#[test]
fn what_is_given_is_there_though_its_part_was_taken_away() {
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("a");
    std::fs::write(&local, content(3_000_000)).unwrap();
    let mut client = client();
    client.link = slow();
    let part = served.file(".a.saratoga-part");
    let other = here.path().join("other");
    std::fs::write(&other, content(1000)).unwrap();
    let thief = std::thread::spawn(move || {
        while !part.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::fs::rename(other, part).unwrap();
    });
    let report = run_at(served.address, client, give(&local, "a"));
    thief.join().unwrap();
    assert_eq!(code(report.result), Code::UNSPECIFIED);
    assert_eq!(std::fs::read(local).unwrap(), content(3_000_000));
    assert!(!served.file("a").exists());
}

/// Who may write to a directory that is given has nothing sent, or deleted, that lies elsewhere.
#[test]
fn links_that_are_put_into_a_tree_while_it_is_given_lead_nowhere() {
    let served = Served::new(config());
    let root = tempfile::tempdir().unwrap();
    let (tree, outside) = (root.path().join("tree"), root.path().join("outside"));
    for folder in [&tree, &outside] {
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(folder.join("sub/below"), content(2000)).unwrap();
    }
    std::fs::write(tree.join("file"), content(2000)).unwrap();
    let found = LocalFolder::open(&tree).unwrap();
    // They were found; then their turn comes.
    std::fs::rename(tree.join("sub"), tree.join("gone")).unwrap();
    std::os::unix::fs::symlink(outside.join("sub"), tree.join("sub")).unwrap();
    std::fs::remove_file(tree.join("file")).unwrap();
    std::os::unix::fs::symlink(outside.join("sub/below"), tree.join("file")).unwrap();
    for (below, give) in [("sub/below", true), ("file", true), ("file", false)] {
        let job = client::Job::Put {
            local: Some(found.file(below.into())),
            remote: below.to_owned(),
            give,
            size: None,
        };
        let refused = run(&served, job).unwrap_err().to_string();
        assert!(
            refused.contains("a symbolic link has taken its place"),
            "{refused}"
        );
        assert!(!served.file(below).exists());
        assert_eq!(
            std::fs::read(outside.join("sub/below")).unwrap(),
            content(2000)
        );
    }
}

/// A transfer that was stopped goes on with what it has, and a server that was stopped is no
/// obstacle.
#[test]
fn an_interrupted_transfer_goes_on_where_it_was() {
    let slow = Link {
        rate: Rate::from_bits_per_sec(16_000_000),
        ..LINK
    };
    let served = Served::new(serve::ServerConfig {
        link: slow,
        ..config()
    });
    std::fs::write(served.file("a"), content(4_000_000)).unwrap();
    let here = tempfile::tempdir().unwrap();
    let mut client = Client::new(served.address, client()).unwrap();
    let stop = AtomicBool::new(false);
    let stopped = client.run(vec![get("a", here.path())], &stop, &mut |progress| {
        stop.store(progress.done > 1_000_000, Ordering::Relaxed);
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(
        names(here.path()),
        [".got.saratoga-part", ".got.saratoga-record"],
    );
    let mut least = u64::MAX;
    let reports = client
        .run(
            vec![get("a", here.path())],
            &AtomicBool::new(false),
            &mut |progress| {
                if progress.known == 4_000_000 {
                    least = least.min(progress.done);
                }
            },
        )
        .unwrap();
    assert!(reports[0].result.is_ok());
    assert!(least > 900_000, "began with {least}");
    assert_eq!(
        std::fs::read(here.path().join("got")).unwrap(),
        content(4_000_000)
    );
    assert_eq!(names(here.path()), ["got"]);
}

/// Server and client in one directory: the copy takes the place of the original and must stay.
#[test]
fn a_file_given_or_taken_onto_itself_stays() {
    let served = Served::new(config());
    let file = served.file("got");
    std::fs::write(&file, content(5000)).unwrap();
    let kept = run(&served, give(&file, "got"));
    assert!(matches!(kept, Err(Error::Kept { .. })), "{kept:?}");
    assert_eq!(std::fs::read(&file).unwrap(), content(5000));
    let taken = run(&served, take("got", served.folder.path()));
    assert_eq!(code(taken), Code::NOT_DELETED);
    assert_eq!(std::fs::read(&file).unwrap(), content(5000));
    assert_eq!(names(served.folder.path()), ["got"]);
}

#[test]
fn what_was_appended_to_or_replaced_while_it_went_stays_on_either_side() {
    let served = Served::new(serve::ServerConfig {
        link: slow(),
        ..config()
    });
    let here = tempfile::tempdir().unwrap();
    // Replaced at the server while it goes: the peer gets the old one, whole, and the new one stays.
    let there = served.file("a");
    std::fs::write(&there, content(3_000_000)).unwrap();
    let (fresh, place) = (served.file("fresh"), there.clone());
    let replacer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        std::fs::write(&fresh, "new").unwrap();
        std::fs::rename(fresh, place).unwrap();
    });
    assert_eq!(
        code(run(&served, take("a", here.path()))),
        Code::NOT_DELETED
    );
    replacer.join().unwrap();
    assert_eq!(std::fs::read(&there).unwrap(), b"new");
    let got = here.path().join("got");
    assert_eq!(std::fs::read(&got).unwrap(), content(3_000_000));
    // Appended to when all of it was read, and before the peer has said that all is there.
    let appended = got.clone();
    let stop = AtomicBool::new(false);
    let config = client::ClientConfig {
        link: slow(),
        ..client()
    };
    let mut giver = Client::new(served.address, config).unwrap();
    let mut file = std::fs::OpenOptions::new();
    let mut done = false;
    let reports = giver.run(vec![give(&got, "b")], &stop, &mut |progress| {
        // The last block is read at once: of 3,000,000 octets the last 116,416.
        if !done && progress.done > 2_900_000 {
            done = true;
            let mut file = file.append(true).open(&appended).unwrap();
            std::io::Write::write_all(&mut file, b"more").unwrap();
        }
    });
    assert!(done, "it was over before it could be appended to");
    let result = reports.unwrap().pop().unwrap().result;
    assert!(
        matches!(result, Err(Error::Kept { .. } | Error::Changed { .. })),
        "{result:?}"
    );
    assert_eq!(std::fs::metadata(&got).unwrap().len(), 3_000_004);
}

/// What a killed `take` began must not delete what a `get` of the same file fetches afterwards.
/// Somebody has it open there. Without a checksum the server says so all the same.
#[test]
fn a_take_of_what_stays_there_is_an_error() {
    for checksum in [Algorithm::Crc32c, Algorithm::None] {
        let served = Served::new(serve::ServerConfig {
            checksum,
            ..config()
        });
        std::fs::write(served.file("a"), content(1000)).unwrap();
        let writer = std::fs::File::options().append(true).open(served.file("a"));
        let here = tempfile::tempdir().unwrap();
        let taken = run(&served, take("a", here.path()));
        assert_eq!(code(taken), Code::NOT_DELETED);
        assert!(here.path().join("got").exists() && served.file("a").exists());
        drop(writer);
    }
}

#[test]
fn a_get_after_a_stopped_take_deletes_nothing() {
    let served = Served::new(serve::ServerConfig {
        link: slow(),
        ..config()
    });
    std::fs::write(served.file("a"), content(3_000_000)).unwrap();
    let here = tempfile::tempdir().unwrap();
    // As a killed one: nothing is said to the server.
    let mut killed = Client::new(served.address, client()).unwrap();
    let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let stop = AtomicBool::new(false);
        let mut watch = |progress: client::Progress| {
            if progress.done > 1_000_000 {
                std::panic::resume_unwind(Box::new(()));
            }
        };
        let _ = killed.run(vec![take("a", here.path())], &stop, &mut watch);
    }));
    assert!(died.is_err());
    drop(killed);
    run(&served, get("a", here.path())).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(std::fs::read(served.file("a")).unwrap(), content(3_000_000));
    let taken = run(&served, take("a", here.path()));
    assert!(taken.is_ok(), "{taken:?}");
    assert!(
        !served.file("a").exists(),
        "the answer comes when it is gone"
    );
}

/// A server that was started again knows nothing of the put that goes on: the client asks it anew, and goes on.
#[test]
fn a_put_goes_on_at_a_server_that_was_started_again() {
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("local");
    std::fs::write(&local, content(4_000_000)).unwrap();
    let link = slow();
    let first = Served::new(serve::ServerConfig { link, ..config() });
    let (address, tree) = (first.address, Tree::open(first.folder.path()).unwrap());
    let job = put(&local, "a");
    let client = std::thread::spawn(move || {
        let config = client::ClientConfig { link, ..client() };
        run_at(address, config, job).result
    });
    std::thread::sleep(Duration::from_millis(700));
    let folder = first.stop();
    assert!(!folder.path().join("a").exists(), "it was not done before");
    let began = Instant::now();
    let _second = Served::of(
        tree,
        serve::ServerConfig {
            listen: address,
            link,
            ..config()
        },
    );
    client.join().unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_secs(15));
    assert!(std::fs::read(folder.path().join("a")).unwrap() == content(4_000_000));
}

#[test]
fn a_link_is_not_given_and_nothing_of_it_is_sent() {
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    let (file, link) = (here.path().join("file"), here.path().join("link"));
    std::fs::write(&file, content(5000)).unwrap();
    std::os::unix::fs::symlink("file", &link).unwrap();
    let kept = run(&served, give(&link, "x")).unwrap_err();
    assert!(kept.to_string().contains("is a symbolic link"), "{kept}");
    assert!(file.exists() && link.is_symlink());
    assert_eq!(names(served.folder.path()), [""; 0]);
    run(&served, put(&link, "x")).unwrap();
}

#[test]
fn what_is_no_file_is_not_called_a_directory() {
    let served = Served::new(config());
    let refused = |path| run(&served, put(std::path::Path::new(path), "x")).unwrap_err();
    let device = refused("/dev/zero").to_string();
    assert!(device.contains("neither a file nor"), "{device}");
    let folder = refused("/tmp").to_string();
    assert!(folder.contains("is a directory"), "{folder}");
    assert_eq!(names(served.folder.path()), [""; 0]);
}

/// A directory that is mounted at a second place, until dropped.
struct Bound(std::path::PathBuf);

impl Bound {
    fn new(folder: &std::path::Path, at: &std::path::Path) -> Self {
        for path in [folder, at] {
            std::fs::create_dir_all(path).unwrap();
        }
        rustix::mount::mount_bind(folder, at).unwrap();
        Self(at.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// As on a file system that takes X and x for one name: what comes second does not replace what came first, whose
/// original may be gone.
#[test]
fn of_two_files_that_would_meet_in_one_place_the_second_stays() {
    bentpipe_os::need!(Root);
    let served = Served::new(config());
    let _one = Bound::new(&served.file("X"), &served.file("x"));
    let here = tempfile::tempdir().unwrap();
    for name in ["first", "second"] {
        std::fs::write(here.path().join(name), name).unwrap();
    }
    run(&served, give(&here.path().join("first"), "X/f")).unwrap();
    let refused = run(&served, give(&here.path().join("second"), "x/f"));
    assert_eq!(code(refused), Code::IN_USE);
    assert_eq!(std::fs::read(served.file("X/f")).unwrap(), b"first");
    assert_eq!(names(&served.file("X")), ["f"]);
    assert_eq!(names(here.path()), ["second"]);
    // The same name again is another matter, and so is what has two names in earnest.
    run(&served, put(&here.path().join("second"), "X/f")).unwrap();
    std::fs::hard_link(served.file("X/f"), served.file("X/g")).unwrap();
    run(&served, put(&here.path().join("second"), "x/g")).unwrap();
}

/// The same on the side that takes: both are asked for by one command.
#[test]
fn of_two_files_that_are_taken_to_one_place_the_second_stays() {
    bentpipe_os::need!(Root);
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    let _one = Bound::new(&here.path().join("X"), &here.path().join("x"));
    let tree = Tree::open(here.path()).unwrap();
    for name in ["first", "second"] {
        std::fs::write(served.file(name), name).unwrap();
    }
    let job = |remote: &str, place: &str| client::Job::Get {
        remote: remote.to_owned(),
        target: client::Target::File(tree.clone(), place.to_owned()),
        take: true,
        size: None,
    };
    run(&served, job("first", "X/f")).unwrap();
    assert!(run(&served, job("second", "x/f")).is_err());
    assert_eq!(std::fs::read(here.path().join("X/f")).unwrap(), b"first");
    assert_eq!(names(served.folder.path()), ["second"]);
}

/// While another process has a write lease on `path`, as Samba has one, which it gives back so many seconds after it is asked.
fn with_a_lease<T>(path: &Path, seconds: &str, work: impl FnOnce() -> T) -> T {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/lease.py");
    let mut process = Command::new("python3")
        .arg(program)
        .arg(path)
        .arg(seconds)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let output = process.stdout.as_mut().unwrap();
    std::io::BufReader::new(output)
        .read_line(&mut said)
        .unwrap();
    assert_eq!(said, "it has the lease\n");
    let done = work();
    // Closes its standard input.
    assert!(process.wait().unwrap().success());
    done
}

/// Whoever opens it with `cat` waits for that too.
#[test]
fn a_file_of_which_another_process_has_a_lease_goes_when_that_is_back() {
    bentpipe_os::need!(Program("python3"));
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    let there = served.file("a");
    std::fs::write(&there, content(5000)).unwrap();
    let got = with_a_lease(&there, "0.2", || run(&served, get("a", here.path())));
    got.unwrap();
    let got = here.path().join("got");
    assert_eq!(std::fs::read(&got).unwrap(), content(5000));
    let put = with_a_lease(&got, "0.2", || run(&served, put(&got, "b")));
    put.unwrap();
    assert_eq!(std::fs::read(served.file("b")).unwrap(), content(5000));
}

/// A server lets its peer wait no longer than it may be silent, and is asked again then.
#[test]
fn a_file_of_which_a_lease_is_not_back_within_the_silence_is_asked_for_again() {
    bentpipe_os::need!(Program("python3"));
    let link = Link {
        silence: Duration::from_secs(2),
        ..LINK
    };
    let served = Served::new(serve::ServerConfig { link, ..config() });
    let here = tempfile::tempdir().unwrap();
    std::fs::write(served.file("a"), content(5000)).unwrap();
    let config = client::ClientConfig { link, ..client() };
    let got = with_a_lease(&served.file("a"), "4", || {
        run_at(served.address, config, get("a", here.path()))
    });
    got.result.unwrap();
    let got = std::fs::read(here.path().join("got"));
    assert_eq!(got.unwrap(), content(5000));
}
