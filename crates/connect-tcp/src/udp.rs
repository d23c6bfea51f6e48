//! Proxying of UDP (RFC 9298): what stands before a UDP payload in an HTTP Datagram (RFC 9297), and in a DATAGRAM capsule.

use crate::capsule::capsule;
use crate::varint::Gather;
use bytes::{BufMut, Bytes, BytesMut};
use thiserror::Error;

/// The upgrade token, as `:protocol` has it.
pub(crate) const TOKEN: &str = "connect-udp";
/// The type of a capsule that holds an HTTP Datagram (RFC 9297, section 3.5).
pub(crate) const CAPSULE: u64 = 0;
/// The context of UDP payloads as they are.
const PAYLOADS: u64 = 0;
/// It, as it is written.
pub const UDP_CONTEXT: u8 = PAYLOADS as u8;
/// The longest UDP payload (RFC 9298, section 5).
pub const UDP_PAYLOAD_MAX: usize = 65_527;
/// The longest HTTP Datagram that is taken of a capsule, since it waits here until it is whole: a jumbo frame's. Longer ones are dropped,
/// as what is too long for the path is.
pub(crate) const CAPSULE_MAX: u64 = 9000;
/// The longest UDP payload of one.
pub const UDP_CAPSULE_MAX: usize = CAPSULE_MAX as usize - 1;

/// An HTTP Datagram that holds no UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoPayload {
    /// It is of a context that nobody has registered, and is to be dropped.
    #[error("a datagram of the unknown context {0}")]
    Context(u64),
    /// It is cut short, or longer than UDP carries: the request is to be aborted.
    #[error("a datagram that is cut short, or longer than UDP carries")]
    Malformed,
}

/// The UDP payload of an HTTP Datagram, which may be empty.
///
/// # Errors
/// [`NoPayload`].
pub fn udp_payload(datagram: &Bytes) -> Result<Bytes, NoPayload> {
    let mut gather = Gather::default();
    let end = { datagram.iter() }
        .enumerate()
        .find_map(|(at, &byte)| gather.byte(byte).map(|context| (at + 1, context)));
    match end {
        Some((at, PAYLOADS)) if datagram.len() - at <= UDP_PAYLOAD_MAX => Ok(datagram.slice(at..)),
        Some((_, PAYLOADS)) | None => Err(NoPayload::Malformed),
        Some((_, context)) => Err(NoPayload::Context(context)),
    }
}

/// The DATAGRAM capsule of a UDP payload; `None`: it is longer than [`UDP_CAPSULE_MAX`].
pub fn udp_capsule(payload: &[u8]) -> Option<Bytes> {
    if payload.len() > UDP_CAPSULE_MAX {
        return None;
    }
    let head = capsule(CAPSULE, payload.len() as u64 + 1);
    let mut whole = BytesMut::with_capacity(head.len() + 1 + payload.len());
    whole.extend_from_slice(&head);
    whole.put_u8(UDP_CONTEXT);
    whole.extend_from_slice(payload);
    Some(whole.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn payloads_are_those_of_context_zero() {
        let read = |bytes: &[u8]| udp_payload(&Bytes::copy_from_slice(bytes));
        assert_eq!(read(&[UDP_CONTEXT, 1, 2]), Ok(Bytes::from_static(&[1, 2])));
        // Any length of the integer is good.
        assert_eq!(read(&[0x40, 0, 7]), Ok(Bytes::from_static(&[7])));
        assert_eq!(read(&[0]), Ok(Bytes::new()));
        assert_eq!(read(&[2, 1]), Err(NoPayload::Context(2)));
        assert_eq!(read(&[]), Err(NoPayload::Malformed));
        assert_eq!(read(&[0x40]), Err(NoPayload::Malformed));
        let longest = vec![0; 1 + UDP_PAYLOAD_MAX];
        assert_eq!(read(&longest).unwrap().len(), UDP_PAYLOAD_MAX);
        assert_eq!(
            read(&[&longest[..], &[0]].concat()),
            Err(NoPayload::Malformed)
        );
    }

    proptest! {
        #[test]
        fn any_datagram_is_read_or_refused(bytes: Vec<u8>) {
            let length = bytes.len();
            if let Ok(payload) = udp_payload(&bytes.into()) {
                prop_assert!(payload.len() < length);
            }
        }
    }
}
