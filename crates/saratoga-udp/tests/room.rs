//! Disks that are too small for all that comes at once.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_saratoga_udp::client::{Job, Target};
use bentpipe_saratoga_udp::{Error, Tree};
use bentpipe_wire::saratoga::{Code, Data, Entry, Frame, Kind, Metadata, Width};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;
use support::peer::{Peer, metadata, octets};
use support::{Served, client, code, config, content, give, names, put, run, run_with};

/// A file system that is nowhere but here.
struct Disk(OwnedFd);

impl Disk {
    /// One of 8 MiB.
    fn new() -> Self {
        Self::of("tmpfs", Some("8m"))
    }

    fn of(kind: &str, size: Option<&str>) -> Self {
        let disk = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
        if let Some(size) = size {
            fsconfig_set_string(&disk, "size", size).unwrap();
        }
        fsconfig_create(&disk).unwrap();
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        Self(fsmount(&disk, flags, MountAttrFlags::empty()).unwrap())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    fn tree(&self) -> Tree {
        Tree::open(&self.path()).unwrap()
    }
}

/// Three files of 5 MB and one of a few octets.
fn files(folder: &std::path::Path) {
    for name in ["a", "b", "c"] {
        std::fs::write(folder.join(name), content(5_000_000)).unwrap();
    }
    std::fs::write(folder.join("short"), content(1000)).unwrap();
}

#[test]
fn room_for_one_is_not_promised_to_three() {
    bentpipe_os::need!(Root);
    let disk = Disk::new();
    let served = Served::of(disk.tree(), config());
    let here = tempfile::tempdir().unwrap();
    files(here.path());
    let results = std::thread::scope(|scope| {
        let (served, here) = (&served, here.path());
        let one = |name: &'static str| {
            scope.spawn(move || (name, run(served, give(&here.join(name), name))))
        };
        let threads = ["a", "b", "c"].map(one);
        threads.map(|thread| thread.join().unwrap())
    });
    let (mut arrived, mut stayed) = (Vec::new(), Vec::new());
    for (name, result) in results {
        match result {
            Ok(_) => arrived.push(name),
            refused => {
                assert_eq!(code(refused), Code::CANNOT_RECEIVE, "{name}");
                assert!(here.path().join(name).exists(), "{name} is lost");
                stayed.push(name);
            }
        }
    }
    assert_eq!((arrived.len(), stayed.len()), (1, 2));
    assert_eq!(
        std::fs::read(disk.path().join(arrived[0])).unwrap(),
        content(5_000_000)
    );
    assert_eq!(names(&disk.path()), arrived, "nothing else takes room");
    // What is over has given back what it was promised.
    run(&served, put(&here.path().join("short"), "short")).unwrap();
    std::fs::remove_file(disk.path().join(arrived[0])).unwrap();
    run(&served, put(&here.path().join(stayed[0]), "again")).unwrap();
}

#[test]
fn what_is_fetched_at_once_waits_for_room_that_is_promised() {
    bentpipe_os::need!(Root);
    let served = Served::new(config());
    files(served.folder.path());
    let disk = Disk::new();
    let tree = disk.tree();
    let jobs = ["a", "b", "short", "c"].map(|name| Job::Get {
        remote: name.to_owned(),
        target: Target::File(tree.clone(), name.to_owned()),
        take: false,
        size: None,
    });
    let reports = run_with(client(), &served, jobs.into());
    let (mut arrived, mut refused) = (Vec::new(), 0);
    for report in reports {
        match report.result {
            Ok(_) => arrived.push(report.path),
            Err(Error::NoRoom { .. }) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    arrived.sort();
    assert_eq!((arrived.len(), refused), (2, 2), "{arrived:?}");
    assert_eq!(names(&disk.path()), arrived);
}

#[test]
fn who_has_shown_nothing_takes_no_room_from_others() {
    bentpipe_os::need!(Root);
    let disk = Disk::new();
    let served = Served::of(disk.tree(), config());
    let mut forger = Peer::new("127.0.0.9:0", served.address);
    forger.send(&metadata(7, "forged", 7_000_000));
    forger.hear_all(Duration::from_millis(300));
    assert!(disk.path().join(".forged.saratoga-part").exists());
    let here = tempfile::tempdir().unwrap();
    files(here.path());
    run(&served, put(&here.path().join("a"), "a")).unwrap();
    assert!(disk.path().join("a").exists());
}

/// What nobody can go on with takes no room when it is over, and leaves 1 MiB free until then, as all else does.
#[test]
fn a_stream_that_has_no_room_leaves_nothing() {
    const LEN: usize = 1000;
    bentpipe_os::need!(Root);
    let disk = Disk::new();
    let served = Served::of(disk.tree(), config());
    let mut peer = Peer::new("127.0.0.9:0", served.address);
    peer.send(&stream());
    let (mut offset, mut code, mut least) = (0u32, Code::OK, u64::MAX);
    while code == Code::OK && offset < 9 << 20 {
        // As much as the socket of a server holds whose system gives it little.
        for i in 0..64 {
            let mut datagram = octets(&Frame::Data(data(offset, LEN as u32, i == 63)));
            datagram.extend_from_slice(&[1; LEN]);
            peer.socket.send_to(&datagram, served.address).unwrap();
            offset += LEN as u32;
        }
        // What it says when all these have come, or none does any more.
        while let Some(frame) = peer.hear() {
            if let Frame::Status(status) = frame {
                code = status.code;
                if code != Code::OK || status.in_response_to >= offset.into() {
                    break;
                }
            }
        }
        least = least.min(disk.tree().room().unwrap());
    }
    assert_eq!(code, Code::CANNOT_RECEIVE);
    // What notes how far it has come takes a page or two.
    assert!(least >= (1 << 20) - (16 << 10), "{least}");
    support::until(|| names(&disk.path()).is_empty());
}

/// As ramfs, and programs of FUSE that answer no statfs.
#[test]
fn a_disk_that_does_not_tell_its_room_takes_files_and_streams() {
    bentpipe_os::need!(Root);
    let (disk, here) = (Disk::of("ramfs", None), tempfile::tempdir().unwrap());
    files(here.path());
    let served = Served::of(disk.tree(), config());
    run(&served, put(&here.path().join("a"), "a")).unwrap();
    let mut peer = Peer::new("127.0.0.9:0", served.address);
    peer.send(&stream());
    let mut datagram = octets(&Frame::Data(Data {
        end: true,
        ..data(0, 3, true)
    }));
    datagram.extend_from_slice(b"end");
    peer.socket.send_to(&datagram, served.address).unwrap();
    support::until(|| disk.path().join("stream").exists());
    let got = Job::Get {
        remote: "a".to_owned(),
        target: Target::File(disk.tree(), "b".to_owned()),
        take: false,
        size: None,
    };
    run(&served, got).unwrap();
    for name in ["a", "b"] {
        assert_eq!(
            std::fs::read(disk.path().join(name)).unwrap(),
            content(5_000_000)
        );
    }
}

fn stream() -> Frame {
    let entry = Entry {
        width: Width::Bits32,
        ..Entry::file("stream", 0)
    };
    Frame::Metadata(Metadata::new(7, Kind::Stream, entry))
}

fn data(offset: u32, len: u32, status_wanted: bool) -> Data {
    Data {
        session: 7,
        width: Width::Bits32,
        kind: Kind::Stream,
        timestamp: None,
        status_wanted,
        end: false,
        offset: offset.into(),
        len,
    }
}
