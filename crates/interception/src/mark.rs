//! Packet and socket marks of one gateway.
//!
//! ```text
//!  31       24 23                     8 7     0
//! +-----------+------------------------+-------+
//! | 0x62 ("b")| which gateway, 16 bits | role  |
//! +-----------+------------------------+-------+
//! ```
//! The roles of marks are: 0, an intercepted packet, to be delivered to this machine; 1, a socket of the terrestrial
//! leg; 2, a socket of the satellite leg; 3, an intercepted packet that is not to be routed here yet; 4, a socket of the
//! satellite leg whose packets our own TCP takes over; 5 and 6, packets of our own TCP to space and to such a socket; 19, an answer to a client's UDP that a tunnel carries; 22, the TCP
//! socket beside a leg over QUIC; 23, a socket of a tunnels' far end that dials from a client's address; 0x41
//! and 0x42, dialled sockets of these legs whose packets conntrack is to see; 10 and 11, a datagram that throws the switch of the
//! gateway's table; 14, a held SYN whose next hop does not answer; 0x80 + n, a SYN for a listener of worker n.
//!
//! Packet priorities (`meta priority`) have the same upper bits. Role 12 is an acknowledgement of ours that waits to be
//! thinned out, role 13 a SYN of ours that is not to ask for ECN, roles 15 and 7 are SYNs of ours for a client that has proved to be there, though
//! others are held, the second not to ask for ECN, roles 8 and 9 are packets of snooped connections
//! that wait for the agent, roles 16 and 17 packets for our own TCP, from space and from a socket, role 20 a client's UDP that waits
//! to be carried by a tunnel, and role 21 such that is not, since its destination is translated. The priority of a
//! client's SYN that is to be held tells which worker holds it:
//! ```text
//!  31       24 23                    12 11      8 7      0
//! +-----------+------------------------+---------+--------+
//! | 0x62 ("b")| which gateway, 12 bits | entrance| worker |
//! +-----------+------------------------+---------+--------+
//! ```
//!
//! The middle bits tell gateways apart, including those of other namespaces in the same process, because the state of a
//! BPF congestion control is keyed by the socket's mark and shared by the whole process. A mark uses all 32 bits, so an
//! operator's rules cannot keep bits of their own on packets of the gateway.

use crate::foreign_marks::ForeignMarks;
use bentpipe_gateway_config::LegId;
use bentpipe_os::netlink::Mark;
use bentpipe_os::owner::{Owner, OwnerError};
use std::sync::atomic::{AtomicU32, Ordering};

/// The bit in the role of a dialled socket whose packets conntrack is to see.
const TRACKED: u32 = 0x40;
/// The bit in the role of a SYN for a worker. The bits below it are the worker's number.
const FOR_WORKER: u32 = 0x80;
/// The bits of a priority that tell entrance and worker, and those that tell the worker.
const HOLDER: u32 = 0xfff;
const WORKER: u32 = 0xff;

/// The most workers that a SYN's mark can tell apart.
pub const WORKERS: usize = 127;

/// The marks of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks(u32);

impl Marks {
    /// Marks for a new gateway. Gateways of one process have different serial numbers; two processes of one kernel get
    /// the same marks with a probability of 1 in 65,536 or, where rules leave fewer that they take for no mark at all,
    /// of so many.
    pub fn new(owner: Owner, foreign: &ForeignMarks) -> Self {
        // FNV-1a, folded to 16 bits.
        let hash = [u64::from(owner.pid), owner.start]
            .iter()
            .flat_map(|part| part.to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let which = ((hash >> 48) ^ (hash >> 32) ^ (hash >> 16) ^ hash) as u32;
        let marks = |middle: u32| Self(Mark::GATEWAYS.value | (middle & 0xffff) << 8);
        let misread = |marks: Self| foreign.misreading(&marks.of_sockets()).count();
        let counts = (0..=0xffff).map(|middle| misread(marks(middle)));
        let fewest = counts.min().unwrap_or(0);
        // Each that is tried has a serial number of its own, so that gateways of one process differ.
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        loop {
            let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
            let tried = marks(which.wrapping_add(serial));
            if misread(tried) == fewest {
                return tried;
            }
        }
    }

    /// Marks that the rules of the calling thread's namespace take for no mark, where there are any.
    ///
    /// # Errors
    /// When this process cannot tell when it began.
    pub fn of_this_process() -> Result<Self, OwnerError> {
        let foreign = ForeignMarks::look();
        let marks = Self::new(Owner::current()?, &foreign);
        foreign.warn(marks);
        Ok(marks)
    }

    /// The marks that an operator's rules may meet: those of sockets and of what is on the way to them.
    pub fn of_sockets(self) -> [u32; 13] {
        [
            self.intercepted(),
            self.found(),
            self.lan(),
            self.sat(),
            self.carried(),
            self.carrying()[0],
            self.carrying()[1],
            self.udp_answer(),
            self.beside_quic(),
            self.from_client(),
            self.tracked(LegId::Lan),
            self.tracked(LegId::Sat),
            self.for_any_worker(),
        ]
    }

    /// The mark of a packet that is to be delivered to this machine.
    pub const fn intercepted(self) -> u32 {
        self.0
    }

    /// The mark of a packet for a socket of ours until the end of prerouting. No routing rule matches it, so that a
    /// reverse-path check in between that heeds the mark (as firewalld's does) finds the same route as without a
    /// gateway.
    pub const fn found(self) -> u32 {
        self.0 | 3
    }

    /// The mark of sockets of the terrestrial leg.
    pub const fn lan(self) -> u32 {
        self.0 | 1
    }

    /// The mark of sockets of the satellite leg.
    pub const fn sat(self) -> u32 {
        self.0 | 2
    }

    /// The mark of sockets of `leg`.
    pub const fn leg(self, leg: LegId) -> u32 {
        match leg {
            LegId::Lan => self.lan(),
            LegId::Sat => self.sat(),
        }
    }

    /// The mark of sockets of the satellite leg whose packets our own TCP takes over.
    pub const fn carried(self) -> u32 {
        self.0 | 4
    }

    /// The marks of what our own TCP sends: to such a socket, and to space.
    pub const fn carrying(self) -> [u32; 2] {
        [self.0 | 6, self.0 | 5]
    }

    /// The priorities of packets that wait for our own TCP: from such a socket, and from space.
    pub const fn to_carry(self) -> [u32; 2] {
        [self.0 | 17, self.0 | 16]
    }

    /// The mark of answers to clients' UDP that a tunnel carries.
    pub const fn udp_answer(self) -> u32 {
        self.0 | 19
    }

    /// The mark of the TCP socket beside a leg over QUIC. It is no flow's, so it has not the leg's.
    pub const fn beside_quic(self) -> u32 {
        self.0 | 22
    }

    /// The mark of sockets of a tunnels' far end that dial from a client's address.
    pub const fn from_client(self) -> u32 {
        self.0 | 23
    }

    /// The priorities of clients' UDP: of what waits to be carried by a tunnel, and of what is not, since its destination is translated.
    pub const fn client_udp(self) -> [u32; 2] {
        [self.0 | 20, self.0 | 21]
    }

    /// The priority of packets of snooped connections that go to `leg` and wait for the agent.
    pub const fn snooped(self, leg: LegId) -> u32 {
        match leg {
            LegId::Lan => self.0 | 8,
            LegId::Sat => self.0 | 9,
        }
    }

    /// The priority of our own acknowledgements that wait to be thinned out.
    pub const fn acknowledging(self) -> u32 {
        self.0 | 12
    }

    /// The priority of our own SYNs that are not to ask for ECN.
    pub const fn without_ecn(self) -> u32 {
        self.0 | 13
    }

    /// The priorities of our own SYNs for clients that have proved to be there, where SYNs are held and nobody has usually proved
    /// yet to have sent them: of one that may ask for ECN, and of one that is not to.
    pub const fn proven(self) -> [u32; 2] {
        [self.0 | 15, self.0 | 7]
    }

    /// The marks of the datagrams that hold the switch of the gateway's table in its position, and that make it leave
    /// this position.
    pub const fn switch(self) -> [u32; 2] {
        [self.0 | 11, self.0 | 10]
    }

    /// The mark of a held SYN whose next hop does not answer, so that the client is to get an ICMP error.
    pub const fn unreachable(self) -> u32 {
        self.0 | 14
    }

    /// The mark of a held SYN whose client is to be refused.
    pub const fn refused(self) -> u32 {
        self.0 | 18
    }

    /// The mark of a SYN for a listener of worker number `worker`.
    pub const fn for_worker(self, worker: usize) -> u32 {
        self.0 | FOR_WORKER | (worker as u32 & (FOR_WORKER - 1))
    }

    /// The mark of a SYN for a listener of any worker.
    pub const fn for_any_worker(self) -> u32 {
        self.for_worker(WORKERS)
    }

    /// What all marks of SYNs for workers have in common.
    pub const fn for_workers(self) -> Mark {
        Mark {
            value: self.0 | FOR_WORKER,
            mask: !(FOR_WORKER - 1),
        }
    }

    /// The bit that [`Marks::for_worker`] has, and those that tell the worker.
    pub const fn steering() -> (u32, u32) {
        (FOR_WORKER, FOR_WORKER - 1)
    }

    /// The mark of sockets dialled by `leg` whose packets conntrack is to see.
    pub const fn tracked(self, leg: LegId) -> u32 {
        self.leg(leg) | TRACKED
    }

    /// Matches the marks of both legs' tracked sockets, and no others.
    pub const fn tracked_ones(self) -> Mark {
        Mark {
            value: self.0 | TRACKED,
            mask: Self::mask() | TRACKED | FOR_WORKER,
        }
    }

    /// Matches the marks of sockets whose packets conntrack is not to see, and those of no SYN for a worker.
    pub const fn untracked_ones(self) -> Mark {
        Mark {
            value: self.0,
            ..self.tracked_ones()
        }
    }

    /// The leg of a socket with `mark`; `None` when it is not of this gateway.
    pub fn leg_of(self, mark: u32) -> Option<LegId> {
        if mark == self.carried() {
            return Some(LegId::Sat);
        }
        [LegId::Lan, LegId::Sat]
            .into_iter()
            .find(|leg| mark == self.leg(*leg) || mark == self.tracked(*leg))
    }

    /// The priority of SYNs that come by entrance number `entrance`, below 16, and are to be held by worker
    /// number `worker`.
    pub const fn held(self, entrance: usize, worker: usize) -> u32 {
        self.holders().value | (entrance as u32) << 8 | (worker as u32 & WORKER)
    }

    /// What all priorities of SYNs that are to be held have in common.
    pub const fn holders(self) -> Mark {
        Mark {
            value: Mark::GATEWAYS.value | (self.0 & (HOLDER << 8)) << 4,
            mask: !HOLDER,
        }
    }

    /// What the priorities of SYNs of one entrance have in common.
    pub const fn entrance(self, entrance: usize) -> Mark {
        Mark {
            value: self.held(entrance, 0),
            mask: !WORKER,
        }
    }

    /// The priority of SYNs that pass because their destination is translated. No worker has that number.
    pub const fn translated(self) -> u32 {
        self.held(0, WORKER as usize)
    }

    /// The bits that all marks of this gateway share.
    pub const fn mask() -> u32 {
        Mark::GATEWAY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_and_roles_have_marks_of_their_own() {
        let owner = Owner {
            pid: 4711,
            start: 99,
        };
        let none = ForeignMarks::default();
        assert_ne!(Marks::new(owner, &none), Marks::new(owner, &none));
        // As of two that are drawn one after the other; what other tests draw meanwhile does not come in between.
        let [one, two] = [4711, 4712].map(|which| Marks(Mark::GATEWAYS.value | which << 8));
        let all = [
            one.intercepted(),
            one.lan(),
            one.sat(),
            one.tracked(LegId::Lan),
            one.tracked(LegId::Sat),
            one.found(),
            one.carried(),
            one.carrying()[0],
            one.carrying()[1],
            one.udp_answer(),
            one.beside_quic(),
            one.from_client(),
            one.switch()[0],
            one.switch()[1],
            one.unreachable(),
            one.refused(),
            one.for_worker(0),
            one.for_worker(WORKERS - 1),
            one.for_any_worker(),
            two.intercepted(),
            two.lan(),
            two.sat(),
        ];
        for (i, mark) in all.iter().enumerate() {
            assert!(!all[..i].contains(mark), "{all:x?}");
            assert_eq!(mark >> 24, 0x62);
        }
        assert_eq!(one.sat() & Marks::mask(), one.intercepted());
        assert_eq!(one.leg_of(one.tracked(LegId::Sat)), Some(LegId::Sat));
        assert_eq!(one.leg_of(two.sat()), None);
        let Mark { value, mask } = one.tracked_ones();
        let tracked = all.iter().filter(|mark| **mark & mask == value).count();
        assert_eq!(
            (tracked, two.tracked(LegId::Lan) & mask == value),
            (2, false)
        );
        let Mark { value, mask } = one.untracked_ones();
        for mark in [one.lan(), one.sat(), one.carried(), one.carrying()[0]] {
            assert_eq!(mark & mask, value);
        }
        for mark in [one.tracked(LegId::Sat), one.for_worker(0), two.lan()] {
            assert_ne!(mark & mask, value);
        }
        let held = one.held(15, WORKERS - 1);
        assert_eq!(held & one.holders().mask, one.holders().value);
        assert_eq!(held & one.entrance(15).mask, one.entrance(15).value);
        assert_ne!(held & two.holders().mask, two.holders().value);
    }
}
