//! PSH on the last segment of each burst, as Linux has it since 5.4: it hands several segments at a time to the device, to
//! be cut up there, and marks the last of each lot (`__tcp_transmit_skb`). Our endpoint sends plain segments. Receivers
//! may not tell the difference, but scripts that were written for Linux do, which name PSH with every segment.
//!
//! How many segments there are in a lot follows `tcp_tso_autosize` and `tcp_cwnd_test`: what the pacing rate sends in a
//! millisecond, more on short paths, at least two segments, and at most half the congestion window.

use bentpipe_base::Seq;
use bentpipe_host::{Host, Tuple};
use bentpipe_tcp::Gauges;
use bentpipe_wire::{Flags, Packet, Transport};

/// The least segments of a lot (`tcp_min_tso_segs`).
pub(crate) const LEAST: u32 = 2;
/// The longest lot that Linux hands to a device (`GSO_LEGACY_MAX_SIZE`).
const LONGEST: f64 = 65_536.0;

/// Segments in a lot of a connection with segments of `mss` bytes, `least` or more where the window allows.
fn lot(gauges: &Gauges, mss: u64, least: u32) -> usize {
    let mss = mss.max(1) as f64;
    let rtt = gauges.srtt.map_or(0.0, |srtt| srtt.as_secs_f64());
    let slow_start = gauges
        .ssthresh
        .is_none_or(|ssthresh| gauges.cwnd < f64::from(ssthresh) / 2.0);
    let factor = if slow_start { 2.0 } else { 1.2 };
    // Linux counts a round trip below 1 µs as that.
    let rate = factor * gauges.cwnd * mss / rtt.max(1e-6);
    let halvings = (rtt * 1e6 / 512.0).floor();
    let short_path = if halvings < 32.0 {
        LONGEST / halvings.exp2()
    } else {
        0.0
    };
    let bytes = (rate / 1024.0 + short_path).min(LONGEST);
    let segments = (bytes / mss).floor().max(least.into());
    segments.min((gauges.cwnd / 2.0).floor().max(1.0)) as usize
}

/// The lot that is being filled.
struct Open {
    tuple: Tuple,
    /// Where it goes on.
    next: Seq,
    ack: Seq,
    /// Bytes of each segment but the last.
    size: usize,
    last: usize,
    segments: usize,
    most: usize,
}

/// Marks the last segment of each lot among `packets`, which left in this order at one instant. `holders` are the
/// connections of `host` that sockets hold; `least`: the least segments of a lot.
pub(crate) fn mark(
    packets: &mut [Packet],
    host: &Host,
    holders: impl Iterator<Item = bentpipe_host::ConnectionId> + Clone,
    least: u32,
) {
    let mut open: Option<Open> = None;
    for at in 0..packets.len() {
        let Some((tuple, seq, ack, pushed)) = data_segment(&packets[at]) else {
            close(&mut open, packets);
            continue;
        };
        let length = packets[at].payload.len();
        match &mut open {
            Some(lot)
                if lot.tuple == tuple
                    && lot.next == seq
                    && lot.ack == ack
                    && length <= lot.size =>
            {
                lot.next = seq + length as u32;
                lot.last = at;
                lot.segments += 1;
                // One that is shorter is the last.
                if length < lot.size {
                    lot.most = lot.segments;
                }
            }
            _ => {
                close(&mut open, packets);
                let id = holders.clone().find(|id| host.tuple(*id) == Some(tuple));
                let most = id
                    .and_then(|id| host.connection(id))
                    .map_or(1, |connection| {
                        lot(
                            &connection.gauges(),
                            connection.segment_size().into(),
                            least,
                        )
                    });
                open = Some(Open {
                    tuple,
                    next: seq + length as u32,
                    ack,
                    size: length,
                    last: at,
                    segments: 1,
                    most,
                });
            }
        }
        if pushed || open.as_ref().is_some_and(|lot| lot.segments >= lot.most) {
            close(&mut open, packets);
        }
    }
    close(&mut open, packets);
}

/// The connection, the numbers and whether it has PSH, of a segment with data.
fn data_segment(packet: &Packet) -> Option<(Tuple, Seq, Seq, bool)> {
    let Transport::Tcp(tcp) = &packet.transport else {
        return None;
    };
    let tuple = Tuple {
        local: (packet.ip.source(), tcp.source).into(),
        remote: (packet.ip.destination(), tcp.destination).into(),
    };
    let data = !packet.payload.is_empty();
    data.then_some((tuple, tcp.seq, tcp.ack, tcp.flags.contains(Flags::PSH)))
}

/// Ends a lot: one of several segments is marked.
fn close(open: &mut Option<Open>, packets: &mut [Packet]) {
    let Some(lot) = open.take().filter(|lot| lot.segments > 1) else {
        return;
    };
    if let Transport::Tcp(tcp) = &mut packets[lot.last].transport {
        tcp.flags = tcp.flags | Flags::PSH;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn segments(cwnd: f64, rtt: Duration) -> usize {
        let gauges = Gauges {
            cwnd,
            srtt: Some(rtt),
            ..Gauges::default()
        };
        lot(&gauges, 1000, LEAST)
    }

    #[test]
    fn a_lot_has_two_segments_on_a_long_path_and_half_the_window_on_a_short_one() {
        assert_eq!(segments(10.0, Duration::from_millis(50)), 2);
        assert_eq!(segments(10.0, Duration::from_micros(100)), 5);
        assert_eq!(segments(1.0, Duration::from_millis(50)), 1);
        // 65,536 bytes are never exceeded.
        assert_eq!(segments(1e6, Duration::from_micros(100)), 65);
    }
}
