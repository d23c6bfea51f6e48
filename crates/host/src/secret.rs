use crate::Tuple;
use crate::tuple::address;
use core::hash::{Hash, Hasher};
use core::net::SocketAddr;
use siphasher::sip::{SipHasher13, SipHasher24};

/// The key of all that outsiders must not guess: sequence numbers, ports, cookies, clocks. Made once from a good
/// source of chance when the host starts; where runs are to be repeated, from their seed.
#[derive(Clone)]
pub struct Secret([u8; 16]);

/// The purpose of a hash. It is hashed too, so that one key serves all purposes and no value reveals another.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    SequenceNumber,
    Clock,
    PortOffset,
    PortIndex,
    Cookie,
    FastOpen,
    Table,
}

impl Secret {
    /// A key of 128 bits.
    pub const fn new(key: [u8; 16]) -> Self {
        Self(key)
    }

    /// SipHash-2-4 of `tuple` and `more`.
    pub(crate) fn of_tuple(&self, purpose: Purpose, tuple: &Tuple, more: &[u8]) -> u64 {
        let mut octets = Vec::with_capacity(64);
        octets.push(purpose as u8);
        tuple.octets(&mut octets);
        octets.extend_from_slice(more);
        SipHasher24::new_with_key(&self.0).hash(&octets)
    }

    /// For the table of connections, whose hashes stay within: three rounds fewer, as those of the standard library.
    pub(crate) fn table_hasher(&self) -> TableHasher {
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write_u8(Purpose::Table as u8);
        TableHasher(hasher)
    }

    /// The keyed hash of two hosts in the period `period`.
    pub(crate) fn of_hosts(
        &self,
        purpose: Purpose,
        local: core::net::IpAddr,
        remote: core::net::IpAddr,
        period: u64,
    ) -> u64 {
        let mut octets = Vec::with_capacity(64);
        octets.push(purpose as u8);
        address(local, &mut octets);
        address(remote, &mut octets);
        octets.extend_from_slice(&period.to_be_bytes());
        SipHasher24::new_with_key(&self.0).hash(&octets)
    }

    /// The keyed hash of a connection whose own port is still to be chosen: of its own address, and of the peer's address and port.
    pub(crate) fn of_ends(
        &self,
        purpose: Purpose,
        local: core::net::IpAddr,
        remote: SocketAddr,
    ) -> u64 {
        let mut octets = Vec::with_capacity(64);
        octets.push(purpose as u8);
        address(local, &mut octets);
        address(remote.ip(), &mut octets);
        octets.extend_from_slice(&remote.port().to_be_bytes());
        SipHasher24::new_with_key(&self.0).hash(&octets)
    }
}

/// Hashes of the four numbers, by a key.
#[derive(Clone)]
pub(crate) struct TableHasher(SipHasher13);

impl TableHasher {
    pub(crate) fn hash(&self, tuple: &Tuple) -> u64 {
        let mut hasher = self.0;
        tuple.hash(&mut hasher);
        hasher.finish()
    }
}

impl core::fmt::Debug for TableHasher {
    /// Its state is made of the key.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TableHasher")
    }
}

impl core::fmt::Debug for Secret {
    /// The key is never printed.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret")
    }
}
