//! The receiving end of netfilter's queues (NFQUEUE; linux/netfilter/nfnetlink_queue.h): packets wait in the kernel
//! until we give a verdict.
//!
//! Rules send packets here (`nft::HoldTable` of `bentpipe-os`). Queues fail open: packets that do not fit, and all packets
//! while no program has the queue, go on as if there were no rule. When the queue's socket closes, the waiting packets
//! are dropped. The kernel also drops them, in all queues of the namespace, whenever any base chain or other netfilter
//! hook is unregistered (`nf_hook_drop`); it reports that when their verdicts come ([`Queues::gone`]).
//!
//! Own code rather than the `nfq` crate (0.2.5, of 2023): that has 1,700 lines, mostly generated
//! bindings read by unsafe casts, keeps the whole receive buffer of each packet that waits, and
//! leaves out the errors that an overrun socket reports. Here are three messages.

use crate::netfilter::{self, CHANGE, GENERAL, REQUEST};
use crate::netlink_message::{
    self, HEADER, MANY, NLMSG_ERROR, attributes, message, put, refusal, u16_at,
};
use rustix::net::{SendFlags, send, sockopt};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// NFNL_SUBSYS_QUEUE with NFQNL_MSG_PACKET, _VERDICT, _CONFIG, _VERDICT_BATCH.
const PACKET: u16 = 3 << 8;
const VERDICT: u16 = 3 << 8 | 1;
const CONFIG: u16 = 3 << 8 | 2;
const VERDICTS: u16 = 3 << 8 | 3;
/// Attributes of a packet; a verdict has the last one too.
const PACKET_HEADER: u16 = 1;
const PACKET_MARK: u16 = 3;
const ARRIVES_BY: u16 = 5;
const LEAVES_BY: u16 = 6;
const PAYLOAD: u16 = 10;
const WHOLE_LENGTH: u16 = 13;
const STATE: u16 = 14;
/// Of [`STATE`]: nobody has looked at its checksum yet.
const UNVERIFIED: u32 = 4;
/// Attributes of a verdict.
const VERDICT_HEADER: u16 = 2;
const MARK: u16 = 3;
/// Attributes of a configuration, and its flags: a full queue lets packets go on; packets longer than the MTU, which
/// the interface will cut (GSO) or has put together (GRO), come whole.
const COMMAND: u16 = 1;
const PARAMETERS: u16 = 2;
const MOST_WAITING: u16 = 3;
const FLAG_MASK: u16 = 4;
const FLAGS: u16 = 5;
const FAIL_OPEN: u32 = 1;
const WHOLE: u32 = 4;

/// The most of a packet that is seen: the longest headers, and room.
const SEEN: u32 = 512;
/// Numbers of queues that are tried for a range.
const ATTEMPTS: u16 = 64;
/// The first number tried.
const FIRST: u16 = 0x6200;
/// The most that the kernel copies of a packet: what one attribute holds.
const ALL: u32 = 65_531;
/// In a message beside the packet: about 80 bytes of attributes, and room.
const BESIDE: usize = 512;
/// Bytes of verdicts that are kept back at most. The kernel takes no message beyond its send buffer of 208 KiB.
const KEPT: usize = 16 << 10;
/// What may wait to be read from a socket. A SYN takes about 1.5 KiB of it by the kernel's books; the
/// default of 208 KiB is overrun by a burst of 150.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Queues of this namespace that are read from one socket: those of a range, or every n-th of it.
#[derive(Debug)]
pub struct Queues {
    socket: OwnedFd,
    /// The first number of the whole range.
    first: u16,
    /// Room for a batch, the lengths of the messages in it, and how many of these have been read.
    slots: Box<[u8]>,
    /// Room for one of them.
    slot: usize,
    lengths: Vec<usize>,
    read: usize,
    /// Verdicts not told yet.
    verdicts: RefCell<Vec<u8>>,
    /// The last packet of each queue of the range, and how many were left out between two.
    last: Vec<u32>,
    overrun: u64,
}

/// A packet that waits for [`Queues::give`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting<'a> {
    /// The queue it is in, counted from the first of the range.
    pub queue: u16,
    /// The packet's id in that queue.
    pub id: u32,
    /// The index of the interface by which it came; 0 for one of this machine's own.
    pub arrives_by: u32,
    /// The index of the interface by which it is to leave; 0 where that is not decided yet.
    pub leaves_by: u32,
    /// Its mark.
    pub mark: u32,
    /// The packet from its IP header on; at most its first 512 bytes, unless the queue was opened for all of it.
    pub packet: &'a [u8],
    /// It is longer than what the queue was opened for.
    pub is_cut: bool,
    /// Its checksum is to be verified. Otherwise the kernel or the network card has done that, or this machine sends it, and it may be
    /// missing.
    pub is_unverified: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is dropped.
    Drop,
    /// The packet goes on behind the rule that held it.
    Pass,
    /// The packet goes on with this mark.
    PassMarked(u32),
    /// The packet leaves the hook and skips all of its later chains, whoever made them (NF_STOP, a verdict that only
    /// the reader of a queue can give).
    PassHook,
}

impl Verdict {
    /// NF_DROP, NF_ACCEPT, NF_STOP.
    fn number(self) -> u32 {
        match self {
            Self::Drop => 0,
            Self::Pass | Self::PassMarked(_) => 1,
            Self::PassHook => 5,
        }
    }
}

/// How much of each packet the kernel passes to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// Their headers; those of GSO one by one.
    Headers,
    /// All of them; those of GSO one by one.
    All,
    /// All of them, however long.
    Gathered,
    /// Only that they are there.
    Nothing,
}

impl View {
    /// Bytes of a packet.
    const fn seen(self) -> u32 {
        match self {
            Self::Headers => SEEN,
            Self::All | Self::Gathered => ALL,
            Self::Nothing => 0,
        }
    }
}

impl Queues {
    /// The most packets that one [`Queues::receive`] takes.
    pub const BATCH: usize = MANY;

    /// Takes `count` queues that nobody has, in the calling thread's namespace (CAP_NET_ADMIN). Each
    /// holds at most `most` packets; those beyond go on.
    ///
    /// # Errors
    /// A kernel without queues says "invalid argument"; all numbers that are tried may be taken.
    pub fn open(count: u16, most: u32) -> io::Result<Self> {
        let mut all = Self::open_for(1, count, most)?;
        all.pop().ok_or(io::ErrorKind::InvalidInput.into())
    }

    /// The same without what is in the packets, which come whole however long they are (GSO, GRO).
    ///
    /// # Errors
    /// As [`Queues::open`].
    pub fn open_blind(count: u16, most: u32) -> io::Result<Self> {
        let mut all = Self::find((1, count), most, View::Nothing)?;
        all.pop().ok_or(io::ErrorKind::InvalidInput.into())
    }

    /// The same with all that is in the packets; those that were put together on their way here (GRO), or would be cut
    /// up behind (GSO), come as the segments that they stand for, with their checksums complete.
    ///
    /// # Errors
    /// As [`Queues::open`].
    pub fn open_whole(count: u16, most: u32) -> io::Result<Self> {
        let mut all = Self::find((1, count), most, View::All)?;
        all.pop().ok_or(io::ErrorKind::InvalidInput.into())
    }

    /// The same, and what was put together or would be cut up comes as it is, its first 65,531 bytes at most.
    ///
    /// # Errors
    /// As [`Queues::open`].
    pub fn open_gathered(count: u16, most: u32) -> io::Result<Self> {
        let mut all = Self::find((1, count), most, View::Gathered)?;
        all.pop().ok_or(io::ErrorKind::InvalidInput.into())
    }

    /// Takes a range of `each` queues for each of `readers`, who have a socket of their own: queue
    /// `n` of the range is that of reader `n % readers`. Otherwise as [`Queues::open`].
    ///
    /// # Errors
    /// As [`Queues::open`].
    pub fn open_for(readers: u16, each: u16, most: u32) -> io::Result<Vec<Self>> {
        Self::find((readers, each), most, View::Headers)
    }

    fn find((readers, each): (u16, u16), most: u32, view: View) -> io::Result<Vec<Self>> {
        let mut result = Err(io::ErrorKind::AddrInUse.into());
        let count = readers.saturating_mul(each);
        for attempt in 0..ATTEMPTS {
            let first = attempt
                .checked_mul(count)
                .and_then(|offset| FIRST.checked_add(offset));
            let Some(first) = first.filter(|first| first.checked_add(count).is_some()) else {
                break;
            };
            let open = |reader| Self::take(first, count, (reader, readers), (most, view));
            // Closing the sockets gives back the part of a range that was free.
            match (0..readers).map(open).collect() {
                Ok(all) => return Ok(all),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Takes every queue of a range that is the reader's.
    fn take(
        first: u16,
        count: u16,
        (reader, readers): (u16, u16),
        (most, view): (u32, View),
    ) -> io::Result<Self> {
        let socket = netfilter::open()?;
        // Without CAP_NET_ADMIN in the first namespace, as large as it may be.
        sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER))?;
        (reader..count)
            .step_by(readers.into())
            .try_for_each(|queue| bind(&socket, first + queue, most, view))?;
        let slot = view.seen() as usize + BESIDE;
        Ok(Self {
            socket,
            first,
            slots: vec![0; MANY * slot].into(),
            slot,
            lengths: Vec::with_capacity(MANY),
            read: 0,
            verdicts: RefCell::default(),
            last: vec![0; count.into()],
            overrun: 0,
        })
    }

    /// Gives its socket a high number. What a killed process has open is closed from the highest number down (Linux 6.18):
    /// the last packets of sockets with lower ones, which would wait here and be dropped, find the queues gone, and go on.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn close_first(&mut self) -> io::Result<()> {
        let high = |least| rustix::io::fcntl_dupfd_cloexec(&self.socket, least);
        // A number beyond the limit of the process is refused.
        let all = [18, 16, 14, 12, 10, 8].map(|bits| 1 << bits);
        let found = all.into_iter().find_map(|least| high(least).ok());
        self.socket = found.map_or_else(|| high(0), Ok)?;
        Ok(())
    }

    /// The number of the first queue of the range.
    pub fn first(&self) -> u16 {
        self.first
    }

    /// How many packets went on because this socket's buffer was full, since the last time that this
    /// was asked: known when a later one of the same queue has been received.
    pub fn take_overrun(&mut self) -> u64 {
        std::mem::take(&mut self.overrun)
    }

    /// Takes packets that have come to wait, for [`Queues::next_packet`], all by one system call; returns how many messages
    /// came. Fewer than there is room for means that there are no more just now. Those of the last call that
    /// were not asked for are forgotten.
    ///
    /// # Errors
    /// `ENOBUFS` is not one: packets that overrun the socket went on, and are counted
    /// ([`Queues::take_overrun`]).
    pub fn receive(&mut self) -> io::Result<usize> {
        self.read = 0;
        self.lengths.clear();
        loop {
            match netlink_message::receive_many(&self.socket, &mut self.slots, &mut self.lengths) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                // The packets keep waiting, and the socket stays readable.
                Err(error) if error.kind() == io::ErrorKind::OutOfMemory => return Ok(0),
                result => return result.map(|()| self.lengths.len()),
            }
        }
    }

    /// Packets that were gone when the kernel heard of their verdicts, each by its queue and its name there, as far as
    /// that is among what the last [`Queues::receive`] took.
    pub fn gone(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        let messages = self.slots.chunks_exact(self.slot).zip(&self.lengths);
        messages.filter_map(|(slot, length)| gone(&slot[..*length], self.first))
    }

    /// The next of the packets taken by [`Queues::receive`].
    pub fn next_packet(&mut self) -> Option<Waiting<'_>> {
        let waiting = loop {
            let length = *self.lengths.get(self.read)?;
            let message = &self.slots[self.read * self.slot..][..length];
            self.read += 1;
            // Other messages are errors about packets that were gone.
            if is_packet(message)
                && let Some(waiting) = waiting(message, self.first)
            {
                break waiting;
            }
        };
        if let Some(last) = self.last.get_mut(usize::from(waiting.queue)) {
            // The kernel numbers the packets of a queue from 1 on, also those that do not fit.
            let left_out = waiting.id.wrapping_sub(*last).wrapping_sub(1);
            self.overrun += u64::from(left_out);
            *last = waiting.id;
        }
        Some(waiting)
    }

    /// Decides about packet `id` of queue `queue`. A packet that has gone meanwhile is no error, but one of
    /// [`Queues::gone`]. The kernel hears of it at [`Queues::tell`], or when many verdicts have gathered.
    ///
    /// # Errors
    /// What [`Queues::tell`] fails with.
    pub fn give(&self, queue: u16, id: u32, verdict: Verdict) -> io::Result<()> {
        self.give_as(queue, id, verdict, None)
    }

    /// The same, and where that is said the packet goes on as `packet`, whole and with right checksums.
    ///
    /// # Errors
    /// What [`Queues::tell`] fails with.
    pub fn give_as(
        &self,
        queue: u16,
        id: u32,
        verdict: Verdict,
        packet: Option<&[u8]>,
    ) -> io::Result<()> {
        let mut verdicts = self.verdicts.borrow_mut();
        let header = (VERDICT, REQUEST);
        netfilter::put(&mut verdicts, header, (0, self.first + queue), |bytes| {
            put(bytes, VERDICT_HEADER, &verdict_header(verdict, id));
            if let Verdict::PassMarked(mark) = verdict {
                put(bytes, MARK, &mark.to_be_bytes());
            }
            if let Some(packet) = packet {
                put(bytes, PAYLOAD, packet);
            }
        });
        let many = verdicts.len() >= KEPT;
        drop(verdicts);
        if many { self.tell() } else { Ok(()) }
    }

    /// Decides about all packets that wait in queue `queue`, up to and with packet `id`. The kernel hears of it at
    /// [`Queues::tell`]. A packet among them that is to have another verdict has been given it before.
    pub fn give_up_to(&self, queue: u16, id: u32, verdict: Verdict) {
        let mut verdicts = self.verdicts.borrow_mut();
        let header = (VERDICTS, REQUEST);
        netfilter::put(&mut verdicts, header, (0, self.first + queue), |bytes| {
            put(bytes, VERDICT_HEADER, &verdict_header(verdict, id));
        });
    }

    /// Tells the kernel all verdicts given since the last time, in their order.
    ///
    /// # Errors
    /// The kernel's, with every packet concerned waiting on; a second attempt has failed too.
    pub fn tell(&self) -> io::Result<()> {
        let mut verdicts = self.verdicts.borrow_mut();
        if verdicts.is_empty() {
            return Ok(());
        }
        let attempt = || send(&self.socket, &verdicts, SendFlags::empty());
        let result = attempt().or_else(|_| attempt());
        verdicts.clear();
        result?;
        Ok(())
    }
}

impl AsFd for Queues {
    /// Readable while packets have come to wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// `struct nfqnl_msg_verdict_hdr`.
fn verdict_header(verdict: Verdict, id: u32) -> Vec<u8> {
    [verdict.number().to_be_bytes(), id.to_be_bytes()].concat()
}

fn bind(socket: &OwnedFd, queue: u16, most: u32, view: View) -> io::Result<()> {
    let mut messages = Vec::new();
    // NFQNL_CFG_CMD_BIND; the family has had no meaning since 3.8.
    netfilter::put(&mut messages, (CONFIG, CHANGE), (0, queue), |bytes| {
        put(bytes, COMMAND, &[1, 0, 0, 0]);
    });
    netfilter::request(socket, &messages)?;
    messages.clear();
    netfilter::put(&mut messages, (CONFIG, CHANGE), (0, queue), |bytes| {
        // `struct nfqnl_msg_config_params`, packed: NFQNL_COPY_PACKET is 2, NFQNL_COPY_META is 1.
        let (mode, flags) = match view {
            View::Headers | View::All => (2, FAIL_OPEN),
            View::Gathered => (2, FAIL_OPEN | WHOLE),
            View::Nothing => (1, FAIL_OPEN | WHOLE),
        };
        let parameters = [&view.seen().to_be_bytes()[..], &[mode]].concat();
        put(bytes, PARAMETERS, &parameters);
        put(bytes, MOST_WAITING, &most.to_be_bytes());
        put(bytes, FLAG_MASK, &flags.to_be_bytes());
        put(bytes, FLAGS, &flags.to_be_bytes());
    });
    netfilter::request(socket, &messages)
}

fn is_packet(bytes: &[u8]) -> bool {
    u16_at(bytes, 4) == Some(PACKET)
}

/// Reads the message of a packet; `None` for one without what is needed, which the kernel never
/// sends.
pub fn waiting(bytes: &[u8], first: u16) -> Option<Waiting<'_>> {
    let (_, body, _) = message(bytes)?;
    let queue = u16::from_be_bytes(body.get(2..GENERAL)?.try_into().ok()?);
    let mut waiting = Waiting {
        queue: queue.checked_sub(first)?,
        ..Waiting::default()
    };
    let mut id = None;
    for (kind, value) in attributes(body.get(GENERAL..)?) {
        let number = || Some(u32::from_be_bytes(value.get(..4)?.try_into().ok()?));
        match kind {
            PACKET_HEADER => id = Some(number()?),
            PACKET_MARK => waiting.mark = number()?,
            ARRIVES_BY => waiting.arrives_by = number()?,
            LEAVES_BY => waiting.leaves_by = number()?,
            PAYLOAD => waiting.packet = value,
            WHOLE_LENGTH => waiting.is_cut = true,
            STATE => waiting.is_unverified = number()? & UNVERIFIED != 0,
            _ => {}
        }
    }
    waiting.id = id?;
    Some(waiting)
}

/// Reads the kernel's answer to a verdict on a packet that it has no more: the queue and the packet. It
/// answers with the verdict itself, and only where that fails.
pub fn gone(bytes: &[u8], first: u16) -> Option<(u16, u32)> {
    let (NLMSG_ERROR, body, _) = message(bytes)? else {
        return None;
    };
    let error = refusal(body)?;
    let verdict = body.get(4..)?;
    if error.raw_os_error() != Some(libc::ENOENT) || u16_at(verdict, 4) != Some(VERDICT) {
        return None;
    }
    let body = verdict.get(HEADER..)?;
    let queue = u16::from_be_bytes(body.get(2..GENERAL)?.try_into().ok()?);
    let mut attributes = attributes(body.get(GENERAL..)?);
    let (_, header) = attributes.find(|(kind, _)| *kind == VERDICT_HEADER)?;
    let id = u32::from_be_bytes(header.get(4..8)?.try_into().ok()?);
    Some((queue.checked_sub(first)?, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_read_and_what_is_cut_off_is_not() {
        let mut bytes = Vec::new();
        netfilter::put(&mut bytes, (PACKET, 0), (2, 7), |bytes| {
            put(bytes, PACKET_HEADER, &[0, 0, 0, 9, 8, 0, 0]);
            put(bytes, PACKET_MARK, &[0, 0, 1, 0]);
            put(bytes, ARRIVES_BY, &[0, 0, 0, 4]);
            put(bytes, LEAVES_BY, &[0, 0, 0, 5]);
            put(bytes, WHOLE_LENGTH, &[0, 1, 0, 0]);
            put(bytes, STATE, &[0, 0, 0, 5]);
            put(bytes, PAYLOAD, b"IP");
        });
        let expected = Waiting {
            queue: 1,
            id: 9,
            arrives_by: 4,
            leaves_by: 5,
            mark: 256,
            packet: b"IP",
            is_cut: true,
            is_unverified: true,
        };
        assert!(is_packet(&bytes));
        assert_eq!(waiting(&bytes, 6), Some(expected));
        assert_eq!(waiting(&bytes, 8), None, "a queue of somebody else");
        for length in 0..bytes.len() {
            let cut = waiting(&bytes[..length], 6);
            assert!(cut.is_none(), "{length}");
        }
        assert!(!is_packet(&bytes[..5]));
    }

    #[test]
    fn the_answer_to_a_verdict_tells_whose_it_was() {
        let answer = |code: i32, kind: u16| {
            let mut verdict = Vec::new();
            netfilter::put(&mut verdict, (kind, REQUEST), (0, 7), |bytes| {
                put(bytes, VERDICT_HEADER, &[0, 0, 0, 1, 0, 0, 0, 9]);
            });
            let length = HEADER + 4 + verdict.len();
            let header = netlink_message::header(length, NLMSG_ERROR, 0);
            [&header[..], &(-code).to_ne_bytes(), &verdict].concat()
        };
        let bytes = answer(libc::ENOENT, VERDICT);
        assert_eq!(gone(&bytes, 6), Some((1, 9)));
        assert_eq!(gone(&bytes, 8), None, "a queue of somebody else");
        for (code, kind) in [(0, VERDICT), (libc::EPERM, VERDICT), (libc::ENOENT, CONFIG)] {
            assert_eq!(gone(&answer(code, kind), 6), None);
        }
        for length in 0..bytes.len() {
            assert_eq!(gone(&bytes[..length], 6), None, "{length}");
        }
    }
}
