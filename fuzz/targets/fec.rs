//! One end of a path with forward error correction, and an enemy on it: any datagrams, at any time, between true frames.
//! What the true ones carry is handed on, what is remembered stays below a bound, and each call comes to an end.
#![no_main]

#[path = "support/allocated.rs"]
mod allocated;

use allocated::allocated;
use bentpipe_base::{Instant, Machine};
use bentpipe_fec::{Config, Layer, MAX_PACKET, MAX_WINDOW, Overhead, Side};
use bytes::Bytes;
use core::time::Duration;
use libfuzzer_sys::fuzz_target;

/// What both ends may remember: two histories of packets, and the places for them.
const REMEMBERED: i64 = 4 * (MAX_WINDOW * (MAX_PACKET + 100)) as i64;
/// Datagrams that one call may give.
const AT_ONCE: usize = 2 * MAX_WINDOW;

fn layer(overhead: Overhead) -> Layer {
    let silence = Duration::from_millis(4);
    Layer::new(Config { overhead, silence })
}

/// Lets the time pass and takes out what comes.
fn drive(layer: &mut Layer, arrived: Option<(Side, Bytes)>, now: Instant) -> Vec<(Side, Bytes)> {
    if let Some((side, packet)) = arrived {
        layer.input(side, packet, now);
    }
    layer.timeout(now);
    let out: Vec<_> = core::iter::from_fn(|| layer.transmit(now))
        .take(AT_ONCE + 1)
        .collect();
    assert!(out.len() <= AT_ONCE, "one datagram gives {}", out.len());
    out
}

fuzz_target!(|octets: &[u8]| {
    let before = allocated();
    let (mut near, mut far) = (layer(Overhead::Measured), layer(Overhead::Measured));
    let mut now = Instant::ZERO;
    // Records of: kind, length, octets. Even kinds are true packets, of which those below 64 are lost with all that
    // follows them; odd ones are forged datagrams, repeated as often as the kind says.
    let mut rest = octets;
    while let [kind, len, tail @ ..] = rest {
        let (record, next) = tail.split_at((*len as usize).min(tail.len()));
        rest = next;
        now += Duration::from_micros(100 * u64::from(*kind));
        if kind % 2 == 1 {
            for turn in 0..=kind >> 5 {
                let mut forged = record.to_vec();
                // Repetitions are about other packets, with other keys.
                if let Some(octet) = forged.get_mut(7) {
                    *octet = octet.wrapping_add(turn);
                }
                if let Some(octet) = forged.get_mut(11) {
                    *octet = octet.wrapping_add(turn);
                }
                drive(&mut far, Some((Side::Path, forged.into())), now);
            }
        } else {
            let packet = Bytes::copy_from_slice(record);
            for (_, frame) in drive(&mut near, Some((Side::Quic, packet.clone())), now) {
                if *kind >= 64 {
                    let source = frame.ends_with(&packet)
                        && frame.len() == packet.len() + bentpipe_fec::SOURCE_HEADER;
                    let given = drive(&mut far, Some((Side::Path, frame)), now);
                    assert!(!source || given.iter().any(|(_, given)| *given == packet));
                }
            }
        }
        let remembered = allocated() - before;
        assert!(remembered <= REMEMBERED, "{remembered} bytes");
    }
});
