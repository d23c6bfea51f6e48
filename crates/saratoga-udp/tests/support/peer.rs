//! A peer that writes its own datagrams: frames that a client of ours would never send, and their octets.

use bentpipe_saratoga::echo;
use bentpipe_wire::saratoga::{
    Capabilities, Code, Data, Entry, Frame, Kind, Metadata, Request, RequestKind, Status, Time,
    Timestamp, Width,
};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// IPv4 and UDP.
pub(crate) const HEADERS: usize = 28;

pub(crate) fn request(session: u32, kind: RequestKind, path: &str) -> Frame {
    Frame::Request(Request {
        capabilities: Capabilities {
            width: Width::Bits64,
            ..Capabilities::default()
        },
        session,
        kind,
        late_checksum: kind != RequestKind::Delete,
        path: path.to_owned(),
        authentication: Vec::new(),
    })
}

pub(crate) fn metadata(session: u32, path: &str, size: u64) -> Frame {
    let entry = Entry {
        width: Width::Bits32,
        modified: Time(800_000_000),
        created: Time(800_000_000),
        ..Entry::file(path, size)
    };
    Frame::Metadata(Metadata::new(session, Kind::File, entry))
}

pub(crate) fn status(
    session: u32,
    code: Code,
    timestamp: Option<Timestamp>,
    progress: u64,
) -> Frame {
    Frame::Status(Status {
        session,
        width: Width::Bits32,
        timestamp,
        metadata_missing: false,
        incomplete: false,
        voluntary: true,
        code,
        progress: progress.into(),
        in_response_to: progress.into(),
        holes: Vec::new(),
    })
}

pub(crate) fn octets(frame: &Frame) -> Vec<u8> {
    let mut octets = Vec::new();
    frame.emit(&mut octets).unwrap();
    octets
}

/// A peer that writes its own datagrams, and counts what goes and comes with its headers.
pub(crate) struct Peer {
    pub(crate) socket: UdpSocket,
    pub(crate) server: SocketAddr,
    pub(crate) sent: usize,
    pub(crate) received: usize,
}

impl Peer {
    pub(crate) fn new(from: &str, server: SocketAddr) -> Self {
        let socket = UdpSocket::bind(from).unwrap();
        let pause = Duration::from_millis(100);
        socket.set_read_timeout(Some(pause)).unwrap();
        Self {
            socket,
            server,
            sent: 0,
            received: 0,
        }
    }

    pub(crate) fn send(&mut self, frame: &Frame) {
        let octets = octets(frame);
        self.sent += octets.len() + HEADERS;
        self.socket.send_to(&octets, self.server).unwrap();
    }

    pub(crate) fn hear(&mut self) -> Option<Frame> {
        let mut buffer = [0; 70_000];
        let len = self.socket.recv(&mut buffer).ok()?;
        self.received += len + HEADERS;
        Frame::parse(&buffer[..len]).ok().map(|(frame, _)| frame)
    }

    /// Hears until nothing came for `time`.
    pub(crate) fn hear_all(&mut self, time: Duration) {
        let mut last = Instant::now();
        while last.elapsed() < time {
            if self.hear().is_some() {
                last = Instant::now();
            }
        }
    }

    /// Shows that it hears the server, as every receiver of the draft does.
    pub(crate) fn prove(&mut self, session: u32) {
        loop {
            if let Some(Frame::Data(Data { timestamp, .. })) = self.hear() {
                return self.send(&echo(session, timestamp));
            }
        }
    }
}
