use bentpipe_base::Bytes;

/// What has a length on the network: the IP header and all that follows, without link framing
/// (which is [`crate::Settings::overhead`]).
pub trait Length {
    /// Bytes from the first of the IP header to the last of the payload.
    fn length(&self) -> Bytes;
}

impl Length for Vec<u8> {
    fn length(&self) -> Bytes {
        Bytes(self.len() as u64)
    }
}

impl Length for Box<[u8]> {
    fn length(&self) -> Bytes {
        Bytes(self.len() as u64)
    }
}

impl Length for bentpipe_wire::Packet {
    fn length(&self) -> Bytes {
        // The inherent method.
        Self::length(self)
    }
}
