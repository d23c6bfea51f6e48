use bentpipe_wire::{Ecn, Packet, ecn_of, mark};

/// What a queue may mark in place of dropping it (RFC 3168, section 5). By itself nothing can be marked.
pub trait Mark {
    /// Whether its sender and its receiver heed marks (ECT, or CE already).
    fn is_capable(&self) -> bool {
        false
    }

    /// Marks it: congestion experienced (CE).
    fn mark(&mut self) {}
}

/// The bytes of an IP packet.
impl Mark for [u8] {
    fn is_capable(&self) -> bool {
        ecn_of(self).is_some_and(Ecn::is_capable)
    }

    fn mark(&mut self) {
        mark(self);
    }
}

impl Mark for Vec<u8> {
    fn is_capable(&self) -> bool {
        self.as_slice().is_capable()
    }

    fn mark(&mut self) {
        self.as_mut_slice().mark();
    }
}

impl Mark for Box<[u8]> {
    fn is_capable(&self) -> bool {
        (**self).is_capable()
    }

    fn mark(&mut self) {
        (**self).mark();
    }
}

impl Mark for Packet {
    fn is_capable(&self) -> bool {
        self.ip.ecn().is_capable()
    }

    fn mark(&mut self) {
        self.ip.set_ecn(Ecn::Marked);
    }
}

/// Numbers stand for packets where nothing is carried.
impl Mark for () {}
impl Mark for i32 {}
impl Mark for u32 {}
impl Mark for u64 {}
impl Mark for usize {}
