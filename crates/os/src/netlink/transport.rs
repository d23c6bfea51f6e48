//! One request, all its answers: a blocking netlink socket.

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// The kernel fills at most 32 KiB at a time (`NLMSG_GOODSIZE` and the dump limit), whatever the
/// room given.
const ROOM: usize = 64 * 1024;
/// A listing during which the tables changed is asked for again, this often.
const ATTEMPTS: usize = 5;

#[derive(Debug)]
pub(super) struct Transport {
    fd: OwnedFd,
    turn: Mutex<Turn>,
}

/// One request at a time.
#[derive(Debug)]
struct Turn {
    sequence: u32,
    buffer: Vec<u8>,
}

impl Transport {
    pub(super) fn open() -> io::Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            // NETLINK_ROUTE is protocol 0.
            None,
        )?;
        Ok(Self {
            fd,
            turn: Mutex::new(Turn {
                sequence: 0,
                buffer: vec![0; ROOM],
            }),
        })
    }

    /// Asks for a change; `flags` beside REQUEST and ACK, such as `NLM_F_CREATE`.
    pub(super) fn change(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)
            .map(drop)
    }

    /// Asks for one thing by name or index.
    pub(super) fn one(
        &self,
        message: RouteNetlinkMessage,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        let (answers, _) = self.exchange(message, NLM_F_REQUEST | NLM_F_ACK)?;
        Ok(answers.into_iter().next())
    }

    /// Asks for a whole listing.
    pub(super) fn list(
        &self,
        message: &RouteNetlinkMessage,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        for _ in 0..ATTEMPTS {
            let (answers, interrupted) =
                self.exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            if !interrupted {
                return Ok(answers);
            }
        }
        Err(io::Error::other(
            "the listing kept changing while it was read",
        ))
    }

    /// The socket, for ioctls on interfaces of its namespace.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sends, then collects the answers up to the acknowledgement, error or end of the listing.
    /// The flag tells that a listing was changed under way.
    fn exchange(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<(Vec<RouteNetlinkMessage>, bool)> {
        // A panic between send and receive leaves at most stale answers, which the sequence number
        // tells apart.
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = &mut *turn;
        turn.sequence = turn.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.header.sequence_number = turn.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        rustix::net::send(&self.fd, &bytes, SendFlags::empty())?;

        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            let (length, whole) = retry_interrupted(|| {
                rustix::net::recv(&self.fd, &mut turn.buffer[..], RecvFlags::TRUNC)
            })?;
            if whole > length {
                return Err(io::Error::other(
                    "the kernel's answer is longer than the room for it",
                ));
            }
            let mut rest = &turn.buffer[..length];
            while !rest.is_empty() {
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                let padded = (answer.header.length as usize).next_multiple_of(4);
                rest = rest.get(padded..).unwrap_or_default();
                if answer.header.sequence_number != turn.sequence {
                    continue;
                }
                interrupted |= answer.header.flags & NLM_F_DUMP_INTR != 0;
                match answer.payload {
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => {
                        return Ok((answers, interrupted));
                    }
                    _ => {}
                }
            }
        }
    }
}

fn retry_interrupted<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            result => return result,
        }
    }
}
