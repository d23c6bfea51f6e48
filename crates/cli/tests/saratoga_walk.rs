//! `bentpipe saratoga get -r` from a server that lists what has no end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_wire::saratoga::{Data, Entry, EntryKind, Frame, Kind, Metadata, RequestKind, Width};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use support::PROGRAM;

/// Answers whoever asks for a list with the same one; stopped when dropped.
struct Lister {
    address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lister {
    fn of(entries: &[Entry]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let pause = Duration::from_millis(50);
        socket.set_read_timeout(Some(pause)).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let mut list = Vec::new();
        entries
            .iter()
            .for_each(|entry| entry.emit(&mut list).unwrap());
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2000];
            while !asked.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                if let Ok((Frame::Request(request), _)) = Frame::parse(&buffer[..len])
                    && request.kind == RequestKind::List
                {
                    for datagram in answer(request.session, &list) {
                        socket.send_to(&datagram, from).unwrap();
                    }
                }
            }
        });
        Self {
            address,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// METADATA and DATA of `list`, in a datagram each.
fn answer(session: u32, list: &[u8]) -> [Vec<u8>; 2] {
    let entry = Entry {
        kind: EntryKind::Directory,
        ..Entry::file("", list.len() as u64)
    };
    let data = Data {
        session,
        width: Width::Bits16,
        kind: Kind::Directory,
        timestamp: None,
        status_wanted: true,
        end: true,
        offset: 0,
        len: list.len() as u32,
    };
    let (mut metadata, mut content) = (Vec::new(), Vec::new());
    let announced = Metadata::new(session, Kind::Directory, entry);
    Frame::Metadata(announced).emit(&mut metadata).unwrap();
    Frame::Data(data).emit(&mut content).unwrap();
    content.extend(list);
    [metadata, content]
}

fn directory(name: &str) -> Entry {
    Entry {
        kind: EntryKind::Directory,
        ..Entry::file(name, 0)
    }
}

/// What `get -r d` of `server` says, when it ends within 60 s with code 1.
fn walk(server: &Lister, arguments: &[&str]) -> String {
    let here = tempfile::tempdir().unwrap();
    let got = Command::new("timeout")
        .args(["60", PROGRAM, "saratoga", "get", &server.address, "-r", "d"])
        .args(arguments)
        .current_dir(&here)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&got.stderr).into_owned();
    assert_eq!(got.status.code(), Some(1), "{said}");
    assert_eq!(std::fs::read_dir(&here).unwrap().count(), 0, "{said}");
    said
}

/// A directory that has itself in it is left where nothing could be put any more.
#[test]
fn a_directory_in_itself_has_an_end() {
    let said = walk(&Lister::of(&[directory("d")]), &[]);
    assert!(said.contains("left out `d/d/d"), "{said}");
    assert!(said.contains("64 directories"), "{said}");
}

/// Two of them in each are more than anybody can walk, and so are files without number: both end where the user says, and
/// nothing is fetched.
#[test]
fn a_list_without_end_is_walked_as_far_as_is_said() {
    let files: Vec<Entry> = (0..50).map(|i| Entry::file(&i.to_string(), 9)).collect();
    for entries in [[directory("d"), directory("e")].to_vec(), files] {
        let server = Lister::of(&entries);
        let said = walk(&server, &["--max-files", "49"]);
        assert!(said.contains("greater number"), "{said}");
    }
}

/// The memory of who walks is that of paths: long ones count for more.
#[test]
fn long_names_count_for_more_than_one_file() {
    let names = (0..8).map(|i| directory(&format!("{i}{}", "n".repeat(150))));
    let server = Lister::of(&names.collect::<Vec<_>>());
    let said = walk(&server, &["--max-files", "1000"]);
    assert!(said.contains("greater number"), "{said}");
}
