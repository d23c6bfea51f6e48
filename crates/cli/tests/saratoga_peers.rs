//! `bentpipe saratoga` with other implementations, each as its captures show it: by a peer that sends the octets that
//! they sent, and reads as little as they read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/machines.rs"]
mod machines;
mod support;

use bentpipe_os::need;
use bentpipe_os::netns::spawn_bound;
use machines::{Machines, Running, serve};
use md5::{Digest, Md5};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};
use support::PROGRAM;

const SERVER: &str = "10.0.0.1:7542";
const CLIENT: &str = "10.0.0.2:7542";

/// What a frame is, in its first octet.
const METADATA: u8 = 0x22;
const DATA: u8 = 0x23;
const STATUS: u8 = 0x24;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Octets from what a capture shows.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let pair = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}

/// A peer's socket.
struct Socket(UdpSocket);

impl Socket {
    fn new(machine: &bentpipe_os::netns::Netns, address: &str) -> Self {
        let address = address.to_owned();
        let bound = machine.run(move || UdpSocket::bind(address).unwrap());
        let socket = bound.unwrap();
        let pause = Duration::from_millis(100);
        socket.set_read_timeout(Some(pause)).unwrap();
        Self(socket)
    }

    fn send(&self, octets: &[u8], to: &str) {
        self.0.send_to(octets, to).unwrap();
    }

    fn hear(&self) -> Option<(Vec<u8>, SocketAddr)> {
        let mut buffer = vec![0; 65_536];
        let (len, from) = self.0.recv_from(&mut buffer).ok()?;
        buffer.truncate(len);
        Some((buffer, from))
    }

    /// The next datagram of this type.
    fn wait(&self, kind: u8) -> (Vec<u8>, SocketAddr) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < until, "no frame {kind:#x} came");
            if let Some((octets, from)) = self.hear()
                && octets[0] == kind
            {
                return (octets, from);
            }
        }
    }
}

fn saratoga(machine: &bentpipe_os::netns::Netns, arguments: &[&str]) -> std::process::Command {
    let mut command = machine.command(PROGRAM);
    command.arg("saratoga").args(arguments);
    command
}

/// Waits until `path` has `content`.
fn arrives(path: &Path, content: &[u8]) {
    let until = Instant::now() + Duration::from_secs(20);
    while !std::fs::read(path).is_ok_and(|is| is == content) {
        assert!(Instant::now() < until, "`{}` did not come", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The C++ implementation of 2015: it asks from any port and hears at its own, reads STATUS in the width that it
/// asked with, sends METADATA when that is said to be missing, with a path of its own, never asks for STATUS, and
/// never marks the end.
#[test]
fn a_put_of_who_hears_at_another_port_in_its_own_width_arrives() {
    need!(Root);
    let machines = Machines::new("cpp_put");
    let folder = tempfile::tempdir().unwrap();
    let mut command = saratoga(
        &machines.server,
        &[
            "serve",
            "--rate=40Mbit/s",
            "--allow=put",
            "--fixed-port",
            "--no-timestamps",
        ],
    );
    command.arg(folder.path());
    let _server = serve(command);
    let (near, speak) = (
        Socket::new(&machines.client, CLIENT),
        Socket::new(&machines.client, "10.0.0.2:0"),
    );
    let file = content(1_000_000);
    let send = |from: usize, to: usize| {
        for offset in (from..to).step_by(1420) {
            let mut data = hex("23400000 00000592");
            data.extend((offset as u32).to_be_bytes());
            data.extend(&file[offset..file.len().min(offset + 1420)]);
            speak.send(&data, SERVER);
            std::thread::sleep(Duration::from_micros(300));
        }
    };
    speak.send(&hex("21400002 00000592 66316d00"), SERVER);
    send(0, 7 * 1420);
    let mut told = false;
    loop {
        let (status, from) = near.wait(STATUS);
        assert_eq!(from, SERVER.parse().unwrap());
        assert_eq!(
            (status[1] >> 6, status[3]),
            (1, 0),
            "of 32 bits, and no refusal: {status:x?}"
        );
        if status[1] & 4 != 0 && !told {
            told = true;
            let path = "2f746d702f73782f772f6370702f682f66316d00";
            let said = "22400000 00000592 8040 000f4240 a370bf9e a370bf9e";
            speak.send(&hex(&format!("{said}{path}")), SERVER);
            send(7 * 1420, file.len());
        }
        if word(&status, 8) == 1_000_000 && status[1] & 4 == 0 && status[1] & 2 == 0 {
            break;
        }
    }
    arrives(&folder.path().join("f1m"), &file);
    assert!(speak.hear().is_none(), "all is said where it is heard");
}

/// The same as a server: what it answers comes from another port, in 64 bits, with some octets too many.
#[test]
fn an_answer_from_another_port_is_heard() {
    need!(Root);
    let machines = Machines::new("cpp_get");
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("f1m"), content(100_000)).unwrap();
    let (near, speak) = (
        Socket::new(&machines.server, SERVER),
        Socket::new(&machines.server, "10.0.0.1:0"),
    );
    let mut command = saratoga(
        &machines.client,
        &[
            "put",
            "10.0.0.1",
            "f1m",
            "--rate=8Mbit/s",
            "--fixed-port",
            "--no-timestamps",
        ],
    );
    command.current_dir(here.path());
    let mut put = Running(spawn_bound(command).unwrap());
    let (asked, from) = near.wait(0x21);
    assert_eq!(from, CLIENT.parse().unwrap());
    let id = &asked[4..8];
    let zeros = [0; 16];
    let status = [&hex("24840000"), id, &zeros, b"ansfer\0\0"].concat();
    speak.send(&status, CLIENT);
    speak.send(&status, CLIENT);
    near.wait(METADATA);
    let (data, _) = near.wait(DATA);
    assert_eq!(data[1] & 8, 0, "it has no timestamp");
    speak.send(&[&hex("2400000c"), id, &[0; 4]].concat(), CLIENT);
    assert_eq!(put.0.wait().unwrap().code(), Some(1));
}

/// What the Perl implementation of 2012 says of what it has of `[0, extent)`: holes that end with the octet behind
/// them, Progress before the first, and the offset of the question as the answer's.
fn perl_status(id: &[u8], have: &[bool], extent: usize, offset: u32) -> Vec<u8> {
    let mut status = [&hex("24400000"), id].concat();
    let mut holes: Vec<(u32, u32)> = Vec::new();
    for at in (0..extent).filter(|at| !have[*at]) {
        match holes.last_mut() {
            Some((_, end)) if *end == at as u32 => *end += 1,
            _ => holes.push((at as u32, at as u32 + 1)),
        }
    }
    let progress = holes
        .first()
        .map_or(offset, |(from, _)| from.saturating_sub(1));
    status.extend(progress.to_be_bytes());
    status.extend(offset.to_be_bytes());
    for (from, to) in holes {
        status.extend(from.to_be_bytes());
        status.extend(to.to_be_bytes());
    }
    status
}

/// The Perl implementation of 2012 as it receives: it knows no REQUEST to put, no timestamp, and of checksums none
/// and MD5. When all is there it says so twice, and then once more what it lacked before.
#[test]
fn a_blind_put_reaches_who_knows_no_other() {
    need!(Root);
    let machines = Machines::new("perl_put");
    let here = tempfile::tempdir().unwrap();
    let file = content(1_000_000);
    std::fs::write(here.path().join("f1m"), &file).unwrap();
    let peer = Socket::new(&machines.server, SERVER);
    let mut command = saratoga(
        &machines.client,
        &[
            "put",
            "10.0.0.1",
            "f1m",
            "--rate=20Mbit/s",
            "--blind",
            "--no-timestamps",
        ],
    );
    command.arg("--checksum=md5").current_dir(here.path());
    let mut put = Running(spawn_bound(command).unwrap());
    let (mut got, mut have) = (vec![0; file.len()], vec![false; file.len()]);
    let (mut announced, mut extent, mut count) = (false, 0, 0);
    let until = Instant::now() + Duration::from_secs(30);
    while put.0.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it does not end");
        let Some((frame, from)) = peer.hear() else {
            continue;
        };
        let to = from.to_string();
        let id = &frame[4..8];
        match frame[0] {
            METADATA => {
                assert_eq!(frame[3], 0x42, "MD5");
                assert_eq!(frame[8..24], Md5::digest(&file)[..]);
                announced = true;
            }
            DATA => {
                assert_eq!(frame[1] & 8, 0, "it has no timestamp");
                count += 1;
                if count % 50 == 7 {
                    // Lost.
                    continue;
                }
                let (offset, payload) = (word(&frame, 8), &frame[12..]);
                let at = offset as usize;
                got[at..at + payload.len()].copy_from_slice(payload);
                have[at..at + payload.len()].fill(true);
                extent = extent.max(at + payload.len());
                if announced && have.iter().all(|have| *have) {
                    let all = |response: u32| {
                        let counts = [1_000_000u32.to_be_bytes(), response.to_be_bytes()];
                        [&hex("24410000"), id, &counts.concat()].concat()
                    };
                    peer.send(&all(999_999), &to);
                    peer.send(&all(1_000_000), &to);
                    have[999_246..999_247].fill(false);
                    peer.send(&perl_status(id, &have, extent, offset), &to);
                    have.fill(true);
                } else if frame[1] & 1 != 0 {
                    peer.send(&perl_status(id, &have, extent, offset), &to);
                }
            }
            STATUS => {}
            other => panic!("it knows no frame {other:#x}"),
        }
    }
    assert_eq!(put.0.wait().unwrap().code(), Some(0));
    assert!(got == file);
}

/// The Perl implementation of 2012 as it asks, from its own port: for a list of `./`, and for a file.
#[test]
fn lists_and_files_go_without_what_old_peers_cannot_read() {
    need!(Root);
    let machines = Machines::new("perl_get");
    let folder = tempfile::tempdir().unwrap();
    let file = content(20_000);
    std::fs::write(folder.path().join("f1m"), &file).unwrap();
    let mut command = saratoga(
        &machines.server,
        &[
            "serve",
            "--rate=40Mbit/s",
            "--no-timestamps",
            "--checksum=md5",
        ],
    );
    command.arg(folder.path());
    let _server = serve(command);
    let peer = Socket::new(&machines.client, CLIENT);
    for (request, kind) in [
        ("21800006 efe6a5f2 2e2f00", 1),
        ("21800001 223c2d9f 66316d00", 0),
    ] {
        let request = hex(request);
        peer.send(&request, SERVER);
        let (metadata, _) = peer.wait(METADATA);
        assert_eq!(
            (metadata[1] >> 4 & 3, metadata[3]),
            (kind, 0x42),
            "{metadata:x?}"
        );
        let wide = metadata[1] >> 6 == 1;
        let mut got = Vec::new();
        loop {
            let (data, _) = peer.wait(DATA);
            assert_eq!(data[1] & 8, 0, "it has no timestamp");
            let header = if wide { 12 } else { 10 };
            let at = if wide {
                word(&data, 8) as usize
            } else {
                usize::from(data[8]) << 8 | usize::from(data[9])
            };
            if at == got.len() {
                got.extend(&data[header..]);
            }
            // The end.
            if data[2] & 0x80 != 0 {
                break;
            }
        }
        assert_eq!(Md5::digest(&got)[..], metadata[8..24]);
        let len = u16::try_from(got.len()).unwrap().to_be_bytes();
        peer.send(
            &[&hex("24010000"), &request[4..8], &len, &len].concat(),
            SERVER,
        );
    }
}
