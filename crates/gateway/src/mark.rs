//! Packet and socket marks of one gateway.
//!
//! ```text
//!  31       24 23                     4 3     0
//! +-----------+------------------------+-------+
//! | 0x62 ("b")| which gateway, 20 bits | role  |
//! +-----------+------------------------+-------+
//! ```
//! Roles: 0 an intercepted packet, to be delivered to this machine; 1 a socket of the terrestrial
//! leg; 2 a socket of the satellite leg; 10 and 11 a datagram that throws the switch of the gateway's
//! table; 14 a held SYN whose next hop does not answer; 15 one whose far side has answered.
//!
//! The priority (`meta priority`) of a SYN that is to be held has the same upper bits; there the
//! role is the number of the door. So has that of a SYN of ours that is not to ask for ECN, as 13,
//! and of an acknowledgement of ours that waits to be thinned out, as 12.
//!
//! The middle bits tell gateways apart, also those of other namespaces in the same process: the
//! state of a BPF congestion control is keyed by the socket's mark and shared by the whole process.
//! All 32 bits count: a packet of ours is of no use to anybody else's rule.

use bentpipe_os::owner::Owner;
use bentpipe_policy::Which;
use std::sync::atomic::{AtomicU64, Ordering};

/// The role bits.
const ROLE: u32 = 0xf;

/// The marks of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks(u32);

impl Marks {
    /// Marks that no other gateway has: hashed from process, its start and a serial number, so two
    /// gateways of one kernel collide once in a million.
    pub fn new(owner: Owner) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        // FNV-1a, folded to 20 bits.
        let hash = [u64::from(owner.pid), owner.start, serial]
            .iter()
            .flat_map(|part| part.to_le_bytes())
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let which = ((hash >> 40) ^ (hash >> 20) ^ hash) & 0xf_ffff;
        Self((0x62 << 24) | ((which as u32) << 4))
    }

    /// On a packet: deliver it here.
    pub const fn intercepted(self) -> u32 {
        self.0
    }

    /// On sockets of the terrestrial leg.
    pub const fn lan(self) -> u32 {
        self.0 | 1
    }

    /// On sockets of the satellite leg.
    pub const fn sat(self) -> u32 {
        self.0 | 2
    }

    /// On sockets of a leg.
    pub const fn leg(self, leg: Which) -> u32 {
        match leg {
            Which::Lan => self.lan(),
            Which::Sat => self.sat(),
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

    /// On datagrams that hold the switch of the gateway's table, and that leave its position.
    pub(crate) const fn switch(self) -> [u32; 2] {
        [self.0 | 11, self.0 | 10]
    }

    /// On a held SYN: the neighbour by which it would leave does not answer, tell the client.
    pub const fn unreachable(self) -> u32 {
        self.0 | 14
    }

    /// On a held SYN: the far side has answered, hand it to a listener.
    pub const fn answered(self) -> u32 {
        self.0 | 15
    }

    /// The priority of SYNs for door `number`, below 16, that are to be held.
    pub const fn held(self, number: u32) -> u32 {
        self.0 | (number & ROLE)
    }

    /// The bits that all marks of this gateway share.
    pub const fn mask() -> u32 {
        !ROLE
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
        let (one, two) = (Marks::new(owner), Marks::new(owner));
        let all = [
            one.intercepted(),
            one.lan(),
            one.sat(),
            two.intercepted(),
            two.lan(),
            two.sat(),
        ];
        for (i, mark) in all.iter().enumerate() {
            assert!(!all[..i].contains(mark), "{all:x?}");
            assert_eq!(mark >> 24, 0x62);
        }
        assert_eq!(one.sat() & Marks::mask(), one.intercepted());
    }
}
