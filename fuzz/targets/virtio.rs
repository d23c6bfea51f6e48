//! Any bytes as a virtio header and the packet behind it, as TUN and packet sockets give them: what it stands for is cut up, and
//! is no more than came. What is cut of a whole packet are whole packets.
#![no_main]

use bentpipe_wire::{Checksums, Packet, VirtioHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Where the IP header begins behind a link's own: one byte more than the driver's ports need.
    let Some((&network, bytes)) = bytes.split_first() else {
        return;
    };
    let Ok((header, packet)) = VirtioHeader::parse(bytes) else {
        return;
    };
    let (again, _) = VirtioHeader::parse(&header.to_bytes()).expect("what was read can be written");
    assert_eq!(again, header);
    let network = usize::from(network);
    let Ok(pieces) = header.cut(packet, network) else {
        return;
    };
    assert!(!pieces.is_empty() && pieces.len() <= packet.len().max(1));
    for piece in pieces {
        assert!(piece.len() <= packet.len());
        if header.segmentation.is_some() {
            Packet::parse_headers(&piece[network..], Checksums::Verify)
                .expect("it is a whole packet");
        }
    }
});
