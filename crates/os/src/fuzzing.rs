//! What the fuzz targets reach of the insides of this crate; compiled for them alone.

use crate::{diag, neighbour, nft};
use bentpipe_sockets::netlink_message::{message, refusal};
use bentpipe_sockets::nfqueue;
use bentpipe_sockets::tcp::Info;

/// A datagram from netlink, taken for each kind of answer that is read anywhere. Gives the packet
/// that waits, where it is one from the queues that begin at number `first`.
pub fn netlink(datagram: &[u8], first: u16) -> Option<&[u8]> {
    let mut rest = datagram;
    while let Some((kind, body, next)) = message(rest) {
        assert!(next.len() < rest.len(), "it is read for ever");
        let _ = refusal(body);
        let _ = diag::connection(body);
        let _ = diag::buffers(body, |mark| mark != 0);
        let _ = neighbour::address(body, kind);
        let _ = nft::count(body, "table");
        let _ = Info::parse(body);
        rest = next;
    }
    let _ = nfqueue::gone(datagram, first);
    nfqueue::waiting(datagram, first).map(|waiting| waiting.packet)
}
