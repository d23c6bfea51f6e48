use crate::Error;
use crate::bytes::{be16, split};

/// The chain of IPv6 extension headers (RFC 8200, section 4), kept as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extensions {
    first: u8,
    protocol: u8,
    fragment: bool,
    bytes: Box<[u8]>,
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const WHAT: &str = "an IPv6 extension header";

impl Extensions {
    /// The chain that `bytes` start with when the header before them names `first`; then the
    /// protocol named by its last header, and the bytes behind it. `None`: no extensions.
    ///
    /// The chain ends at a header that makes the packet a fragment: what follows is a piece of
    /// something.
    pub fn parse(first: u8, bytes: &[u8]) -> Result<(Option<Self>, u8, &[u8]), Error> {
        let (mut protocol, mut rest, mut fragment) = (first, bytes, false);
        while !fragment && is_extension(protocol) {
            let (start, _) = split(rest, 8, WHAT)?;
            let len = match protocol {
                FRAGMENT => 8,
                AUTHENTICATION if start[1] == 0 => {
                    // RFC 4302: the fixed part alone is 12 bytes, a length of 1.
                    return Err(Error::Malformed {
                        what: "the IPv6 authentication header",
                        why: "its length field is 0",
                    });
                }
                AUTHENTICATION => (usize::from(start[1]) + 2) * 4,
                _ => (usize::from(start[1]) + 1) * 8,
            };
            // Offset and the flag of more to come; two reserved bits lie between them.
            fragment = protocol == FRAGMENT && be16(start[2], start[3]) & 0xfff9 != 0;
            protocol = start[0];
            (_, rest) = split(rest, len, WHAT)?;
        }
        let len = bytes.len() - rest.len();
        let chain = (len > 0).then(|| Self {
            first,
            protocol,
            fragment,
            bytes: bytes[..len].into(),
        });
        Ok((chain, protocol, rest))
    }

    /// What the fixed header names as next.
    pub const fn first(&self) -> u8 {
        self.first
    }

    /// What the last header of the chain names as next.
    pub const fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether the packet is a piece of a larger one.
    pub const fn is_fragment(&self) -> bool {
        self.fragment
    }

    /// The chain as it is on the wire.
    pub const fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

const fn is_extension(protocol: u8) -> bool {
    matches!(
        protocol,
        HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION
    )
}
