//! Server and client over loopback: every request, every refusal, every name and mode.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Rate;
use bentpipe_saratoga_udp::checksum::Algorithm;
use bentpipe_saratoga_udp::client::{self, Job, Target};
use bentpipe_saratoga_udp::{Client, Error, Key, Link, Tree, serve};
use bentpipe_wire::saratoga::{
    Capabilities, Checksum, Code, Frame, Request, RequestKind, Width, entries,
};
use sha1::{Digest, Sha1};
use std::fs::Permissions;
use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::peer::{Peer, request, status};
use support::{
    LINK, Served, client, code, config, content, get, give, names, put, run, run_with, slow, take,
};

#[test]
fn files_of_every_size_go_both_ways() {
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    for len in [0, 1, 65_535, 65_536, 3_000_000] {
        let local = here.path().join("local");
        std::fs::write(&local, content(len)).unwrap();
        run(&served, put(&local, "deep/down/there")).unwrap();
        assert_eq!(
            std::fs::read(served.file("deep/down/there")).unwrap(),
            content(len)
        );
        run(&served, get("deep/down/there", here.path())).unwrap();
        assert_eq!(
            std::fs::read(here.path().join("got")).unwrap(),
            content(len)
        );
        // Times travel with the file.
        let times = [local, here.path().join("got")].map(|path| {
            let modified = std::fs::metadata(path).unwrap().modified().unwrap();
            let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
            since.as_secs()
        });
        assert_eq!(times[0], times[1]);
    }
    assert_eq!(names(here.path()), ["got", "local"], "nothing else is left");
    assert_eq!(names(&served.file("deep/down")), ["there"]);
}

#[test]
fn taken_and_given_files_are_deleted_where_they_were() {
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    std::fs::write(served.file("a"), content(5000)).unwrap();
    run(&served, take("a", here.path())).unwrap();
    let got = here.path().join("got");
    assert_eq!(std::fs::read(&got).unwrap(), content(5000));
    let gone = || !served.file("a").exists();
    for _ in 0..50 {
        if gone() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(gone());
    run(&served, give(&got, "b")).unwrap();
    assert!(!got.exists());
    assert_eq!(std::fs::read(served.file("b")).unwrap(), content(5000));
    let delete = || Job::Delete {
        remote: "b".to_owned(),
    };
    run(&served, delete()).unwrap();
    assert!(!served.file("b").exists());
    run(&served, delete()).unwrap();
}

#[test]
fn directories_are_listed() {
    let served = Served::new(config());
    std::fs::create_dir(served.file("sub")).unwrap();
    for i in 0..500 {
        std::fs::write(served.file(&format!("sub/file {i:03}")), content(i)).unwrap();
    }
    let list = |remote: &str| Job::List {
        remote: remote.to_owned(),
    };
    let listed = run(&served, list("sub")).unwrap();
    let entries: Vec<_> = entries(&listed).map(Result::unwrap).collect();
    assert_eq!(entries.len(), 500);
    assert_eq!((entries[7].path.as_str(), entries[7].size), ("file 007", 7));
    assert_eq!(code(run(&served, list("none"))), Code::NOT_FOUND);
}

/// What the server says first to who asks it for `path`, whatever that is.
fn asked(served: &Served, path: &str) -> Code {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let request = Request {
        capabilities: Capabilities::default(),
        session: 7,
        kind: RequestKind::Get,
        late_checksum: false,
        path: path.to_owned(),
        authentication: Vec::new(),
    };
    let mut octets = Vec::new();
    Frame::Request(request).emit(&mut octets).unwrap();
    let mut buffer = [0; 2000];
    loop {
        socket.send_to(&octets, served.address).unwrap();
        let len = socket.recv(&mut buffer).unwrap();
        match Frame::parse(&buffer[..len]).unwrap().0 {
            Frame::Status(status) => return status.code,
            // It wants to know whether it is heard.
            Frame::Data(data) => {
                let heard = bentpipe_wire::saratoga::Status {
                    session: 7,
                    width: Width::Bits16,
                    timestamp: data.timestamp,
                    metadata_missing: true,
                    incomplete: false,
                    voluntary: false,
                    code: Code::OK,
                    progress: 0,
                    in_response_to: 0,
                    holes: Vec::new(),
                };
                let mut octets = Vec::new();
                Frame::Status(heard).emit(&mut octets).unwrap();
                socket.send_to(&octets, served.address).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_not_allowed_is_denied() {
    let served = Served::new(serve::ServerConfig {
        put: false,
        delete: false,
        ..config()
    });
    std::fs::write(served.file("a"), "a").unwrap();
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("local");
    std::fs::write(&local, "x").unwrap();
    assert_eq!(code(run(&served, put(&local, "b"))), Code::DENIED);
    let delete = Job::Delete {
        remote: "a".to_owned(),
    };
    assert_eq!(code(run(&served, delete)), Code::DENIED);
    for path in ["../a", "/etc/passwd", "sub/../../a"] {
        // Our client does not even ask; others do.
        let refused = run(&served, get(path, here.path()));
        assert!(matches!(refused, Err(Error::Path { .. })), "{refused:?}");
        assert_eq!(asked(&served, path), Code::DENIED);
    }
    assert_eq!(
        code(run(&served, get("none", here.path()))),
        Code::NOT_FOUND
    );
    run(&served, get("a", here.path())).unwrap();
    assert_eq!(names(served.folder.path()), ["a"]);
}

#[test]
fn a_key_is_wanted_where_one_is_set() {
    let here = tempfile::tempdir().unwrap();
    let key = |name: &str, text: &str| {
        let path = here.path().join(name);
        std::fs::write(&path, text).unwrap();
        Key::load(&path).unwrap()
    };
    let right = key("right", "0123456789abcdef\n");
    let wrong = key("wrong", "0123456789abcdeX");
    let served = Served::new(serve::ServerConfig {
        key: Some(right.clone()),
        ..config()
    });
    std::fs::write(served.file("a"), "a").unwrap();
    let attempt = |key: Option<Key>| {
        let config = client::ClientConfig { key, ..client() };
        let mut reports = run_with(config, &served, vec![get("a", here.path())]);
        reports.pop().unwrap().result
    };
    assert_eq!(code(attempt(None)), Code::DENIED);
    assert_eq!(code(attempt(Some(wrong))), Code::DENIED);
    attempt(Some(right.clone())).unwrap();
    // Signed anew each time, it may be asked again.
    attempt(Some(right)).unwrap();
    assert!(
        Key::load(&here.path().join("got")).is_err(),
        "one octet is no key"
    );
}

#[test]
fn files_beyond_the_limit_are_refused_on_either_side() {
    let served = Served::new(serve::ServerConfig {
        max_size: 1000,
        ..config()
    });
    let here = tempfile::tempdir().unwrap();
    let local = here.path().join("local");
    std::fs::write(&local, content(1001)).unwrap();
    assert_eq!(code(run(&served, put(&local, "b"))), Code::TOO_LONG);
    assert!(!served.file("b").exists());
    std::fs::write(served.file("c"), content(5000)).unwrap();
    let small = client::ClientConfig {
        max_size: 4999,
        ..client()
    };
    let refused = run_with(small, &served, vec![get("c", here.path())])
        .pop()
        .unwrap();
    assert!(matches!(refused.result, Err(Error::TooLong { .. })));
    assert!(!here.path().join("got").exists());
}

/// Who does not say that it takes the checksum last is told it before the content.
#[test]
fn the_checksum_comes_last_only_to_who_takes_it_so() {
    let served = Served::new(config());
    let content = content(3000);
    std::fs::write(served.file("a"), &content).unwrap();
    let whole = Checksum::Sha1(Sha1::digest(&content).into());
    for (session, late_checksum) in [(1, true), (2, false)] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let request = Request {
            capabilities: Capabilities {
                width: Width::Bits64,
                ..Capabilities::default()
            },
            session,
            kind: RequestKind::Get,
            late_checksum,
            path: "a".to_owned(),
            authentication: Vec::new(),
        };
        let mut octets = Vec::new();
        Frame::Request(request).emit(&mut octets).unwrap();
        socket.send_to(&octets, served.address).unwrap();
        let mut checksums = Vec::new();
        let mut buffer = [0; 2000];
        while checksums.last() != Some(&whole) {
            let len = socket.recv(&mut buffer).unwrap();
            match Frame::parse(&buffer[..len]).unwrap().0 {
                Frame::Metadata(metadata) => checksums.push(metadata.checksum),
                // The server asks first who hears it.
                Frame::Data(data) if data.status_wanted && checksums.is_empty() => {
                    let mut octets = Vec::new();
                    let heard = bentpipe_saratoga::echo(session, data.timestamp);
                    heard.emit(&mut octets).unwrap();
                    socket.send_to(&octets, served.address).unwrap();
                }
                _ => {}
            }
        }
        let first = if late_checksum {
            whole.later()
        } else {
            whole.clone()
        };
        assert_eq!(checksums[0], first);
    }
}

/// Sessions that begin together share the rate, however each was prepared.
#[test]
fn all_sessions_together_keep_to_the_rate() {
    for checksum in [Algorithm::None, Algorithm::Crc32c] {
        let served = Served::new(serve::ServerConfig {
            link: Link {
                rate: Rate::from_bits_per_sec(8_000_000),
                ..LINK
            },
            checksum,
            ..config()
        });
        let here = tempfile::tempdir().unwrap();
        let jobs = (0..4).map(|i| {
            let name = format!("a{i}");
            std::fs::write(served.file(&name), content(500_000)).unwrap();
            Job::Get {
                remote: name.clone(),
                target: Target::File(Tree::open(here.path()).unwrap(), name),
                take: false,
                size: None,
            }
        });
        let jobs = jobs.collect();
        let began = std::time::Instant::now();
        let reports = run_with(client(), &served, jobs);
        assert!(reports.iter().all(|report| report.result.is_ok()));
        // 16 Mbit of content alone take 2 s.
        let took = began.elapsed();
        assert!(took > Duration::from_secs(2), "{checksum:?}: {took:?}");
    }
}

/// As a client that was killed: the server does not know for long that nobody hears it, but others need not wait for that.
#[test]
fn who_is_quiet_has_no_share_of_the_rate_for_long() {
    let served = serves_large_and(2_000_000);
    let mut killed = Peer::new("127.0.0.1:0", served.address);
    killed.send(&request(7, RequestKind::Get, "large"));
    killed.prove(7);
    std::thread::sleep(Duration::from_millis(2700));
    let here = tempfile::tempdir().unwrap();
    let received = received_beside(&mut killed, false, &served, get("a", here.path()));
    // A fifteenth of the file, and as much as the file where both have the same.
    assert!(received < 800_000, "{received}");
}

/// A server of 8 Mbit/s with a file `large`, of 20 s at this rate, and a file `a` of `octets`.
fn serves_large_and(octets: usize) -> Served {
    let served = Served::new(serve::ServerConfig {
        link: Link {
            rate: Rate::from_bits_per_sec(8_000_000),
            ..LINK
        },
        ..config()
    });
    std::fs::write(served.file("large"), content(20_000_000)).unwrap();
    std::fs::write(served.file("a"), content(octets)).unwrap();
    served
}

/// Octets that `peer`, which `answers` the server's questions or does not, receives while another does `job`.
fn received_beside(peer: &mut Peer, answers: bool, served: &Served, job: Job) -> usize {
    let before = peer.received;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Some(Frame::Data(data)) = peer.hear()
                    && data.status_wanted
                    && answers
                {
                    let end = data.offset as u64 + u64::from(data.len);
                    peer.send(&status(data.session, Code::OK, data.timestamp, end));
                }
            }
        });
        let done = run(served, job);
        over.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    peer.received - before
}

/// Who asks for many files at once has no more of the rate than who asks for one.
#[test]
fn the_rate_is_shared_by_who_asks_and_not_by_what_is_asked_for() {
    let served = serves_large_and(200_000);
    let mut many = Peer::new("127.0.0.2:0", served.address);
    many.send(&request(1, RequestKind::Get, "large"));
    many.prove(1);
    for session in 2..=16 {
        many.send(&request(session, RequestKind::Get, "large"));
    }
    let here = tempfile::tempdir().unwrap();
    let received = received_beside(&mut many, true, &served, get("a", here.path()));
    // As much as the file where both have the same, and sixteen times as much where each session has.
    assert!(received < 1_000_000, "{received}");
}

/// 221 to 255 octets, also of letters that take two: the names of the hidden files are shorter.
#[test]
fn the_longest_names_go_both_ways_and_go_on_where_they_were() {
    let served = Served::new(serve::ServerConfig {
        link: slow(),
        ..config()
    });
    let here = tempfile::tempdir().unwrap();
    let longest = [
        "a".repeat(221),
        "b".repeat(255),
        format!("{}x", "ä".repeat(127)),
    ];
    for name in &longest {
        let local = here.path().join(name);
        std::fs::write(&local, content(5000)).unwrap();
        run(&served, put(&local, name)).unwrap();
        assert_eq!(std::fs::read(served.file(name)).unwrap(), content(5000));
    }
    assert_eq!(names(served.folder.path()).len(), longest.len());
    let name = &longest[1];
    std::fs::write(served.file(name), content(4_000_000)).unwrap();
    let back = || Job::Get {
        remote: name.clone(),
        target: Target::File(Tree::open(here.path()).unwrap(), name.clone()),
        take: false,
        size: None,
    };
    let mut client = Client::new(served.address, client()).unwrap();
    let stop = AtomicBool::new(false);
    let stopped = client.run(vec![back()], &stop, &mut |progress| {
        stop.store(progress.done > 1_000_000, Ordering::Relaxed);
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    let mut least = u64::MAX;
    let go_on = AtomicBool::new(false);
    let reports = client.run(vec![back()], &go_on, &mut |progress| {
        if progress.known == 4_000_000 {
            least = least.min(progress.done);
        }
    });
    assert!(reports.unwrap()[0].result.is_ok());
    assert!(least > 900_000, "began with {least}");
    let got = std::fs::read(here.path().join(name)).unwrap();
    assert_eq!(got, content(4_000_000));
    assert_eq!(names(here.path()).len(), longest.len());
}

/// A path that no frame carries: said at once, not after 30 s of silence.
#[test]
fn a_path_that_is_too_long_is_named_at_once() {
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    let began = std::time::Instant::now();
    let local = here.path().join("a");
    std::fs::write(&local, "a").unwrap();
    let long = "long/".repeat(300);
    for job in [get(&long, here.path()), put(&local, &long)] {
        let refused = run(&served, job);
        assert!(
            matches!(refused, Err(Error::LongPath { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(served.count(), 0);
    assert!(began.elapsed() < Duration::from_secs(5));
}

/// Who may read a file stays so, also while it arrives; what this process takes from new files it takes here too.
#[test]
fn modes_go_along_and_parts_are_private() {
    let served = Served::new(serve::ServerConfig {
        link: slow(),
        ..config()
    });
    let here = tempfile::tempdir().unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let plain = here.path().join("plain");
    std::fs::write(&plain, "x").unwrap();
    let umask = 0o666 & !mode(&plain);
    for bits in [0o600, 0o755, 0o666, 0o4711] {
        let local = here.path().join("local");
        std::fs::write(&local, content(3000)).unwrap();
        std::fs::set_permissions(&local, Permissions::from_mode(bits)).unwrap();
        run(&served, put(&local, "a")).unwrap();
        let there = bits & 0o777 & !umask;
        assert_eq!(mode(&served.file("a")), there, "{bits:o}");
        run(&served, get("a", here.path())).unwrap();
        assert_eq!(mode(&here.path().join("got")), there, "{bits:o}");
    }
    std::fs::write(served.file("a"), content(3_000_000)).unwrap();
    let part = here.path().join(".got.saratoga-part");
    let mut seen = 0;
    let mut client = Client::new(served.address, client()).unwrap();
    let go_on = AtomicBool::new(false);
    let reports = client.run(vec![get("a", here.path())], &go_on, &mut |progress| {
        // Before its end, when it gets its own.
        if seen == 0 && progress.done > 0 && part.exists() {
            seen = mode(&part);
        }
    });
    assert!(reports.unwrap()[0].result.is_ok());
    assert_eq!(seen, 0o600);
}

/// Whom the default ACL of a directory keeps out, it keeps out of what arrives there: as of any new file.
#[test]
fn a_default_acl_says_who_may_read_what_arrives() {
    // Version 2: the owner may all, user 65534 and the mask read and execute, the group and others nothing.
    let acl = [
        [0x01, 7, u32::MAX],
        [0x02, 5, 65_534],
        [0x04, 0, u32::MAX],
        [0x10, 5, u32::MAX],
        [0x20, 0, u32::MAX],
    ];
    let entries = acl.map(|[tag, permissions, of]| {
        let [tag, permissions, of] = [tag, permissions, of].map(u32::to_le_bytes);
        [&tag[..2], &permissions[..2], &of].concat()
    });
    let acl = [&2_u32.to_le_bytes()[..], &entries.concat()].concat();
    let served = Served::new(config());
    let here = tempfile::tempdir().unwrap();
    for folder in [&served.file("acl"), &here.path().join("acl")] {
        std::fs::create_dir(folder).unwrap();
        let opened = std::fs::File::open(folder).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::fsetxattr(&opened, "system.posix_acl_default", &acl, flags) {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                let _ = std::io::stderr().write_all(b"SKIPPED: no ACLs here\n");
                return;
            }
            set => set.unwrap(),
        }
    }
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let local = here.path().join("local");
    for bits in [0o644, 0o755, 0o600] {
        std::fs::write(&local, content(3000)).unwrap();
        std::fs::set_permissions(&local, Permissions::from_mode(bits)).unwrap();
        run(&served, put(&local, "acl/a")).unwrap();
        let there = bits & 0o750;
        assert_eq!(mode(&served.file("acl/a")), there, "{bits:o}");
        run(&served, get("acl/a", &here.path().join("acl"))).unwrap();
        assert_eq!(mode(&here.path().join("acl/got")), there, "{bits:o}");
    }
}

/// What is made when it is read, as all in /proc, has no size: it is not taken for empty.
#[test]
fn a_file_that_does_not_tell_its_size_is_not_taken_for_empty() {
    let served = Served::new(config());
    let error = run(&served, put(Path::new("/proc/self/status"), "status")).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("does not tell its size") && said.contains("through a pipe"),
        "{said}"
    );
    assert_eq!(served.count(), 0);
    let proc = Tree::open(Path::new("/proc/self")).unwrap();
    let served = Served::of(proc, config());
    let here = tempfile::tempdir().unwrap();
    assert_eq!(
        code(run(&served, get("status", here.path()))),
        Code::UNSPECIFIED
    );
    // A pipe is no file, and holds nobody up.
    let pipe = here.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    assert!(run(&served, put(&pipe, "pipe")).is_err());
}

/// A packet takes as long as twenty round trips and more: questions, each answered at once, would leave no room for content.
#[test]
fn questions_leave_room_for_content_on_a_slow_line() {
    for (rate, silence, files, len) in [
        (9_600, 30, 1, 3000),
        (64_000, 30, 8, 3000),
        (24_000, 3, 8, 3000),
    ] {
        let slowly = |link: &mut Link| {
            link.rate = Rate::from_bits_per_sec(rate);
            link.silence = Duration::from_secs(silence);
        };
        let (mut config, mut client) = (config(), client());
        slowly(&mut config.link);
        slowly(&mut client.link);
        let served = Served::new(config);
        let here = tempfile::tempdir().unwrap();
        let tree = Tree::open(here.path()).unwrap();
        let names: Vec<String> = (0..files).map(|file| format!("f{file}")).collect();
        for name in &names {
            std::fs::write(served.file(name), content(len)).unwrap();
        }
        let jobs = { names.iter() }.map(|name| Job::Get {
            remote: name.clone(),
            target: Target::File(tree.clone(), name.clone()),
            size: None,
            take: false,
        });
        let began = std::time::Instant::now();
        for report in run_with(client, &served, jobs.collect()) {
            report.result.unwrap();
        }
        for name in &names {
            assert_eq!(std::fs::read(here.path().join(name)).unwrap(), content(len));
        }
        // The line takes 2.5 and 3 s for the content alone.
        let took = began.elapsed();
        assert!(took < Duration::from_secs(40), "{rate}: {took:?}");
    }
}
