//! Captures made by hand: what is counted of them, and that nothing which a capture may hold ends in a panic.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_trace::{
    Ending, Kind, Limits, LinkType, ReadError, Recorder, Side, Trace, brief, csv, expert, json,
    json_with_limits, long, svg, xplot,
};
use proptest::prelude::*;
use std::io::Write;
use support::{ACK, Capture, FIN, Packet, SYN, ethernet, pcapng_block};

fn analysed(bytes: &[u8]) -> (Trace, Result<Ending, ReadError>) {
    let mut trace = Trace::new(Limits::default());
    trace.record(Recorder::new(&[]));
    let ending = trace.take(bytes);
    trace.finish();
    // Whatever it holds can be printed.
    for text in [brief, long, json, csv, expert, json_with_limits] {
        text(&mut String::new(), &trace, &[]).unwrap();
    }
    (trace, ending)
}

fn whole(capture: &Capture) -> Trace {
    let (trace, ending) = analysed(&capture.pcap());
    assert_eq!(ending.unwrap(), Ending::Whole);
    trace
}

/// A handshake, three segments of 100 bytes with the second sent again, and both FINs.
fn transfer(first: u32) -> Capture {
    let mut capture = Capture::default();
    capture.a(0, Packet::new(SYN, first.wrapping_sub(1), 0));
    capture.b(100, Packet::new(SYN | ACK, 999, first));
    capture.a(101, Packet::new(ACK, first, 1000));
    let at = |bytes: u32| first.wrapping_add(bytes);
    for (time, bytes) in [(102, 0), (103, 100), (104, 200)] {
        capture.a(time, Packet::new(ACK, at(bytes), 1000).data(100));
    }
    capture.b(202, Packet::new(ACK, 1000, at(100)));
    capture.b(204, Packet::new(ACK, 1000, at(100)));
    capture.a(300, Packet::new(ACK, at(100), 1000).data(100));
    capture.b(400, Packet::new(ACK, 1000, at(300)));
    capture.a(401, Packet::new(FIN | ACK, at(300), 1000));
    capture.b(501, Packet::new(FIN | ACK, 1000, at(301)));
    capture.a(502, Packet::new(ACK, at(301), 1001));
    capture
}

#[test]
fn a_transfer_is_counted() {
    let trace = whole(&transfer(5000));
    let [one] = trace.connections() else {
        panic!("one connection");
    };
    assert!(one.is_complete() && !one.is_reset());
    let sent = &one.a2b;
    assert_eq!(
        (sent.packets, sent.data_packets, sent.data_bytes),
        (8, 4, 400)
    );
    assert_eq!((sent.unique_bytes, sent.retransmitted_bytes), (300, 100));
    assert_eq!((sent.stream_length(), sent.missed()), (Some(300), Some(0)));
    // SYN, the first segment and FIN; the last acknowledgement is of a repair.
    assert_eq!(
        (sent.rtt.samples.count, sent.rtt.samples.max),
        (3, 100_000_000)
    );
    assert_eq!((sent.rtt.after_loss, sent.rtt.duplicate), (1, 1));
    assert_eq!(sent.rtt.retransmissions.max, 197_000_000);
    assert_eq!(sent.rtt.handshake, 100_000_000);
    assert_eq!(sent.outstanding.max, 300);
    assert_eq!(one.b2a.pure_acks, 3);
}

#[test]
fn sequence_numbers_wrap() {
    // The wrap is inside the second segment.
    let trace = whole(&transfer(u32::MAX - 150));
    let sent = &trace.connections()[0].a2b;
    assert_eq!((sent.unique_bytes, sent.retransmitted_bytes), (300, 100));
    assert_eq!(sent.stream_length(), Some(300));
    assert_eq!(sent.rtt.samples.count, 3);
}

#[test]
fn a_capture_may_begin_in_the_middle_and_have_one_direction() {
    let mut capture = Capture::default();
    for number in 0..40_000 {
        capture.a(number, Packet::new(ACK, number as u32 * 10, 7).data(10));
    }
    // The first is forgotten as a range of its own, yet not that it was sent.
    capture.a(50_000, Packet::new(ACK, 0, 7).data(10));
    let trace = whole(&capture);
    let sent = &trace.connections()[0].a2b;
    assert_eq!((sent.unique_bytes, sent.retransmitted_bytes), (400_000, 10));
    assert_eq!((sent.stream_length(), sent.rtt.samples.count), (None, 0));
}

#[test]
fn holes_that_are_filled_are_out_of_order() {
    let mut capture = Capture::default();
    for (time, bytes) in [(0, 0), (1, 200), (2, 100), (3, 300)] {
        capture.a(time, Packet::new(ACK, 1 + bytes, 7).data(100));
    }
    let trace = whole(&capture);
    let sent = &trace.connections()[0].a2b;
    assert_eq!((sent.out_of_order, sent.retransmitted_packets), (1, 0));
    assert_eq!(sent.unique_bytes, 400);
}

#[test]
fn a_closed_window_is_probed() {
    let mut capture = Capture::default();
    capture.b(0, Packet::new(ACK, 1, 100).window(0));
    capture.a(1, Packet::new(ACK, 100, 1).data(1));
    capture.a(2, Packet::new(ACK, 100, 1).data(1));
    let trace = whole(&capture);
    let one = &trace.connections()[0];
    assert_eq!((one.a2b.windows.zero, one.b2a.window_probes), (1, 2));
    assert_eq!(
        (one.b2a.window_probe_bytes, one.b2a.retransmitted_packets),
        (2, 0)
    );
}

#[test]
fn ports_that_are_used_again_are_another_connection() {
    let mut capture = transfer(5000);
    capture.a(600, Packet::new(SYN, 77_000, 0));
    // The same SYN again is none.
    capture.a(700, Packet::new(SYN, 77_000, 0));
    let trace = whole(&capture);
    assert_eq!(trace.connections().len(), 2);
    assert_eq!(trace.connections()[1].a2b.syns, 2);
}

#[test]
fn every_packet_twice_is_a_retransmission() {
    let once = transfer(5000);
    let mut twice = Capture::default();
    for packet in &once.packets {
        twice.packets.extend([packet.clone(), packet.clone()]);
    }
    let trace = whole(&twice);
    let sent = &trace.connections()[0].a2b;
    assert_eq!((sent.unique_bytes, sent.data_bytes), (300, 800));
}

#[test]
fn times_that_go_backwards_take_no_time() {
    let mut capture = transfer(5000);
    for (index, (time, _)) in capture.packets.iter_mut().enumerate() {
        *time = 1000 - index as u64;
    }
    let trace = whole(&capture);
    let one = &trace.connections()[0];
    assert_eq!((one.elapsed(), one.a2b.rtt.samples.max), (0, 0));
    assert!(
        trace.warnings()[0].contains("earlier time"),
        "{:?}",
        trace.warnings()
    );
}

#[test]
fn what_was_cut_off_is_counted() {
    let mut capture = transfer(5000);
    capture.kept = 60;
    let trace = whole(&capture);
    let sent = &trace.connections()[0].a2b;
    assert_eq!((sent.unique_bytes, sent.truncated_packets), (300, 4));
    // 20 of each hundred are there.
    assert_eq!(sent.truncated_bytes, 320);
    capture.kept = 39;
    let trace = whole(&capture);
    assert_eq!(
        (trace.connections().len(), trace.skipped().too_short),
        (0, 13)
    );
}

#[test]
fn what_is_no_capture_is_said() {
    let said = |bytes: &[u8]| analysed(bytes).1.unwrap_err().to_string();
    assert!(said(b"").contains("empty"));
    assert!(
        said(b"GET / HTTP/1.1\r\n\r\nand more than a header").contains("neither pcap nor pcapng")
    );
    assert!(said(&[0x1f, 0x8b, 8, 0, 0, 0]).contains("gunzip"));
    assert!(said(&[0x28, 0xb5, 0x2f, 0xfd, 0]).contains("`zstd -dc`"));
    assert!(said(&transfer(1).pcap()[..20]).contains("neither"));
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn gzip_is_read_as_it_comes_and_what_breaks_off_counts_up_to_there() {
    let plain = transfer(5000).pcap();
    let whole = gzipped(&plain);
    let (trace, ending) = analysed(&whole);
    assert_eq!((ending.unwrap(), trace.packets()), (Ending::Whole, 13));
    // gzip of two halves is gzip of both, as `cat` makes it.
    let (first, second) = plain.split_at(300);
    let (trace, ending) = analysed(&[gzipped(first), gzipped(second)].concat());
    assert_eq!((ending.unwrap(), trace.packets()), (Ending::Whole, 13));
    for length in 2..whole.len() {
        let (trace, ending) = analysed(&whole[..length]);
        assert!(trace.packets() <= 13);
        let broken = matches!(
            ending,
            Err(ReadError::Gzip(_)) | Ok(Ending::CutShort { .. })
        );
        assert!(broken, "{length}: {ending:?}");
    }
    // The checksum at the end.
    let mut wrong = whole;
    let last = wrong.len() - 8;
    wrong[last] ^= 1;
    let ending = analysed(&wrong).1.unwrap();
    assert!(matches!(ending, Ending::Corrupt { .. }), "{ending:?}");
    // A capture is compressed once.
    let twice = gzipped(&gzipped(&plain));
    assert!(matches!(analysed(&twice).1, Err(ReadError::NotACapture)));
}

#[test]
fn a_capture_cut_anywhere_counts_up_to_there() {
    let bytes = transfer(5000).pcap();
    let mut before = 0;
    for length in 24..bytes.len() {
        let (trace, ending) = analysed(&bytes[..length]);
        let packets = trace.packets();
        assert!(packets >= before && packets < 13);
        before = packets;
        let ending = ending.unwrap();
        assert!(
            matches!(ending, Ending::Whole | Ending::CutShort { .. }),
            "{length}: {ending:?}"
        );
    }
    assert_eq!(before, 12);
}

#[test]
fn lengths_that_contradict_each_other_are_left_out() {
    let mut capture = Capture::default();
    let mut shorter = Packet::new(ACK, 1, 1).data(100).ipv4(true);
    shorter[2..4].copy_from_slice(&30u16.to_be_bytes());
    let mut offset = Packet::new(ACK, 1, 1).ipv4(true);
    offset[32] = 0x20;
    let mut beyond = Packet::new(ACK, 1, 1).ipv4(true);
    beyond[32] = 0xf0;
    for bytes in [shorter, offset, beyond] {
        capture.packets.push((1, bytes));
    }
    let trace = whole(&capture);
    assert_eq!(
        (trace.skipped().malformed, trace.connections().len()),
        (3, 0)
    );
}

#[test]
fn interfaces_of_any_kind_meet_in_one_connection() {
    let (syn, answer) = (Packet::new(SYN, 1, 0), Packet::new(SYN | ACK, 9, 2));
    let mut file = pcapng_block(
        0x0a0d_0d0a,
        &[&[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0][..], &[0xff; 8]].concat(),
    );
    // An interface with stamps in nanoseconds, one in 1/1024 s, one whose type nobody knows.
    for (link, resolution) in [
        (LinkType::ETHERNET, 9),
        (LinkType::LINUX_SLL2, 0x8a),
        (LinkType(9999), 6),
    ] {
        let mut body = u32::try_from(link.0).unwrap().to_le_bytes().to_vec();
        body.extend([0; 4]);
        body.extend([9, 0, 1, 0, resolution, 0, 0, 0, 0, 0, 0, 0]);
        file.extend(pcapng_block(1, &body));
    }
    let cooked = [&[0x08, 0x00][..], &[0; 18], &answer.ipv4(false)].concat();
    let frames = [
        (0u32, 1_000_000_000u64, ethernet(&syn.ipv4(true), true)),
        (1, 2048, cooked.clone()),
        (2, 0, cooked),
    ];
    for (interface, stamp, frame) in &frames {
        let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
        let words = [*interface, (stamp >> 32) as u32, *stamp as u32];
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(length);
        body.extend(length);
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(pcapng_block(6, &body));
    }
    let (trace, ending) = analysed(&file);
    assert_eq!(ending.unwrap(), Ending::Whole);
    let one = &trace.connections()[0];
    assert_eq!(
        (one.a2b.syns, one.b2a.syns, one.elapsed()),
        (1, 1, 1_000_000_000)
    );
    let warnings = trace.warnings();
    assert!(
        warnings.iter().any(|it| it.contains("link type 9999")),
        "{warnings:?}"
    );
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(mut noise in proptest::collection::vec((0usize..4000, any::<u8>()), 0..40)) {
        let mut bytes = transfer(u32::MAX - 150).pcap();
        // Now and then in the file's header too.
        noise.truncate(40);
        for (at, byte) in noise {
            let length = bytes.len();
            bytes[at % length] = byte;
        }
        drop(analysed(&bytes));
    }
}

#[test]
fn graphs_have_every_segment_and_acknowledgement() {
    let mut trace = Trace::new(Limits::default());
    trace.record(Recorder::new(&[1]));
    trace.take(&transfer(u32::MAX - 150).pcap()[..]).unwrap();
    let (one, series) = (&trace.connections()[0], trace.series(0).unwrap());
    let stream = series.stream(Side::A);
    // SYN, four segments with data, FIN; the wrap does not show.
    let starts: Vec<i64> = stream
        .segments
        .iter()
        .map(|mark| stream.relative(mark.start))
        .collect();
    assert_eq!(starts, [0, 1, 101, 201, 101, 301]);
    let kinds: Vec<Kind> = stream.segments.iter().map(|mark| mark.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Again).count(), 1);
    assert_eq!(kinds[4], Kind::Again);
    let duplicates: Vec<bool> = stream.acks.iter().map(|mark| mark.duplicate).collect();
    assert_eq!(duplicates, [false, false, true, false, false]);
    assert_eq!(stream.acks[1].sample, 100_000_000);

    let files = xplot(one, stream, Side::A, ("a", "b"));
    let names: Vec<&str> = files.iter().map(|graph| graph.name.as_str()).collect();
    assert_eq!(
        names,
        ["a2b_tsg.xpl", "a2b_rtt.xpl", "a2b_owin.xpl", "a2b_tput.xpl"]
    );
    let graph = files[0].to_string();
    let strokes = graph
        .lines()
        .filter(|line| line.starts_with("darrow"))
        .count();
    assert_eq!(strokes, 4, "{graph}");
    assert!(
        graph.contains("darrow 0.300000 101\nline 0.300000 101 0.300000 201"),
        "{graph}"
    );
    assert!(graph.ends_with("go\n"));
    // A mark each in the colour of retransmissions, and of FIN and SYN.
    let drawing = svg(one, stream, Side::A, None);
    let path = |colour: &str| {
        let line = drawing
            .lines()
            .find(|line| line.contains(&format!("stroke=\"{colour}\"")));
        line.unwrap().matches('M').count()
    };
    assert_eq!((path("#c8452f"), path("#1d4fd1")), (1, 2), "{drawing}");
}

/// 100 segments a second, of which half a second is looked at.
#[test]
fn a_part_of_a_connection_is_drawn_by_itself() {
    let mut capture = Capture::default();
    for number in 0..1000u32 {
        capture.a(
            10 * u64::from(number),
            Packet::new(ACK, number * 1000, 7).data(1000),
        );
    }
    let mut trace = Trace::new(Limits::default());
    trace.record(Recorder::new(&[]));
    trace.take(&capture.pcap()[..]).unwrap();
    let connection = &trace.connections()[0];
    let stream = trace.series(0).unwrap().stream(Side::A);
    let drawing = svg(connection, stream, Side::A, Some(2.0..2.5));
    let segments = drawing.lines().find(|line| line.contains("#16202b"));
    // Those of 2.0 to 2.5 s, both ends included.
    assert_eq!(segments.unwrap().matches('M').count(), 51, "{drawing}");
    // The axes are those of the part.
    assert!(drawing.contains(">2.3</text>"), "{drawing}");
    assert!(drawing.contains(">220k</text>"), "{drawing}");
    // Where nothing happened there is nothing, and no mistake.
    let empty = svg(connection, stream, Side::A, Some(50.0..51.0));
    assert!(!empty.contains("NaN") && !empty.contains("inf"), "{empty}");
}

#[test]
fn many_segments_stay_a_small_drawing() {
    let mut capture = Capture::default();
    for number in 0..100_000u32 {
        capture.a(number.into(), Packet::new(ACK, number * 10, 7).data(10));
    }
    let mut trace = Trace::new(Limits::default());
    trace.record(Recorder::new(&[]));
    trace.take(&capture.pcap()[..]).unwrap();
    let stream = trace.series(0).unwrap().stream(Side::A);
    let drawing = svg(&trace.connections()[0], stream, Side::A, None);
    assert!(drawing.len() < 150_000, "{} bytes", drawing.len());
}
