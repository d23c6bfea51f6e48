//! A server in a thread of its own, and what its clients ask for.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod line;
pub(crate) mod peer;

use bentpipe_base::Rate;
use bentpipe_saratoga::HoleEnd;
use bentpipe_saratoga::sender::{Congestion, Failure};
use bentpipe_saratoga_udp::checksum::Algorithm;
use bentpipe_saratoga_udp::client::{self, Job, Report, Target};
use bentpipe_saratoga_udp::{Client, Error, Link, LocalFile, Server, Tree, serve};
use bentpipe_wire::saratoga::Code;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const LINK: Link = Link {
    rate: Rate::from_bits_per_sec(50_000_000),
    packet: 1500,
    congestion: Congestion::None,
    silence: Duration::from_secs(20),
    hole_end: HoleEnd::Inclusive,
    timestamps: true,
    peer_port: None,
};

/// A server in a thread, with a directory of its own; stopped when dropped.
pub(crate) struct Served {
    pub(crate) folder: TempDir,
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn config() -> serve::ServerConfig {
    serve::ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        link: LINK,
        put: true,
        delete: true,
        key: None,
        max_size: 100_000_000,
        max_sessions: 64,
        checksum: Algorithm::Sha1,
        name: None,
    }
}

impl Served {
    pub(crate) fn new(config: serve::ServerConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::open(folder.path()).unwrap();
        Self::start(folder, tree, config)
    }

    /// Of another directory than its own.
    pub(crate) fn of(tree: Tree, config: serve::ServerConfig) -> Self {
        Self::start(tempfile::tempdir().unwrap(), tree, config)
    }

    fn start(folder: TempDir, tree: Tree, config: serve::ServerConfig) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut server = Server::new(tree, config).unwrap();
            tell.send(server.address().unwrap()).unwrap();
            server.run(&asked).unwrap();
        });
        let address = told.recv().unwrap();
        Self {
            folder,
            address,
            stop,
            thread: Some(thread),
        }
    }

    /// Ends it, and leaves its directory.
    pub(crate) fn stop(mut self) -> TempDir {
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// What is in the served directory, however deep.
    pub(crate) fn count(&self) -> usize {
        fn below(folder: &Path) -> usize {
            // What is being tidied up may be gone by now.
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let count = entries.map(|entry| match entry.file_type() {
                Ok(kind) if kind.is_dir() => 1 + below(&entry.path()),
                _ => 1,
            });
            count.sum()
        }
        below(self.folder.path())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

pub(crate) fn client() -> client::ClientConfig {
    client::ClientConfig {
        link: LINK,
        key: None,
        checksum: Algorithm::Md5,
        max_size: 100_000_000,
        parallel: 4,
        blind: false,
    }
}

/// Does one job at the server.
pub(crate) fn run(served: &Served, job: Job) -> Result<Vec<u8>, Error> {
    run_at(served.address, client(), job).result
}

/// Does one job at whoever is at `address`.
pub(crate) fn run_at(address: SocketAddr, config: client::ClientConfig, job: Job) -> Report {
    run_all_at(address, config, vec![job]).pop().unwrap()
}

/// Does several side by side at whoever is at `address`.
pub(crate) fn run_all_at(
    address: SocketAddr,
    config: client::ClientConfig,
    jobs: Vec<Job>,
) -> Vec<Report> {
    let mut client = Client::new(address, config).unwrap();
    let reports = client.run(jobs, &AtomicBool::new(false), &mut |_| {});
    reports.unwrap()
}

/// Does several side by side.
pub(crate) fn run_with(
    config: client::ClientConfig,
    served: &Served,
    jobs: Vec<Job>,
) -> Vec<Report> {
    run_all_at(served.address, config, jobs)
}

pub(crate) fn get(remote: &str, to: &Path) -> Job {
    fetch(remote, to, false)
}

pub(crate) fn take(remote: &str, to: &Path) -> Job {
    fetch(remote, to, true)
}

/// To the file `got` in the directory `to`.
pub(crate) fn fetch(remote: &str, to: &Path, take: bool) -> Job {
    Job::Get {
        remote: remote.to_owned(),
        target: Target::File(Tree::open(to).unwrap(), "got".to_owned()),
        take,
        size: None,
    }
}

pub(crate) fn put(local: &Path, remote: &str) -> Job {
    bring(local, remote, false)
}

pub(crate) fn give(local: &Path, remote: &str) -> Job {
    bring(local, remote, true)
}

pub(crate) fn bring(local: &Path, remote: &str, give: bool) -> Job {
    Job::Put {
        local: Some(LocalFile::named(local.to_owned())),
        remote: remote.to_owned(),
        give,
        size: None,
    }
}

pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

pub(crate) fn code<T: std::fmt::Debug>(result: Result<T, Error>) -> Code {
    match result {
        Err(Error::Session {
            failure: Failure::Peer(code),
            ..
        })
        | Err(Error::Unsealed { code, .. }) => code,
        other => panic!("not refused by the peer: {other:?}"),
    }
}

/// Waits until `done`; a busy host may take its time.
pub(crate) fn until(done: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(std::time::Instant::now() < end, "it never was");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let listed = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = listed
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A link of 20 Mbit/s, over which 3 MB take 1.2 s.
pub(crate) fn slow() -> Link {
    Link {
        rate: Rate::from_bits_per_sec(20_000_000),
        ..LINK
    }
}
