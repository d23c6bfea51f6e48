//! Saratoga frames: `parse(emit(f)) == f`, the octets that other implementations were seen to send,
//! and nothing that arrives makes `parse` panic.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_wire::saratoga::{
    Beacon, Capabilities, Checksum, Code, Data, Entry, EntryKind, Frame, FrameError, FreeSpace,
    Hole, Kind, Metadata, Request, RequestKind, Status, Time, Timestamp, Width, Willingness,
    entries,
};
use proptest::prelude::*;
use proptest::sample::select;

fn width() -> impl Strategy<Value = Width> {
    select(&Width::ALL[..])
}

/// A width, and values that it holds.
fn values(count: usize) -> impl Strategy<Value = (Width, Vec<u128>)> {
    (width(), prop::collection::vec(any::<u128>(), count)).prop_map(|(width, values)| {
        let fitting = values.into_iter().map(|value| value & width.limit());
        (width, fitting.collect())
    })
}

fn kind() -> impl Strategy<Value = Kind> {
    select(vec![
        Kind::File,
        Kind::Directory,
        Kind::Bundle,
        Kind::Stream,
    ])
}

fn capabilities() -> impl Strategy<Value = Capabilities> {
    let willingness = || {
        select(vec![
            Willingness::Cannot,
            Willingness::Capable,
            Willingness::Willing,
        ])
    };
    let both = (willingness(), willingness(), any::<(bool, bool)>());
    (width(), both).prop_map(
        |(width, (send, receive, (streams, udp_lite)))| Capabilities {
            width,
            streams,
            send,
            receive,
            udp_lite,
        },
    )
}

fn path() -> impl Strategy<Value = String> {
    "[^\u{0}]{0,255}"
}

fn entry() -> impl Strategy<Value = Entry> {
    let kinds = select(vec![
        EntryKind::File,
        EntryKind::Directory,
        EntryKind::SpecialFile,
        EntryKind::SpecialDirectory,
    ]);
    (kinds, values(1), any::<(bool, u32, u32)>(), path()).prop_map(
        |(kind, (width, size), (unreliable, modified, created), path)| Entry {
            kind,
            width,
            unreliable,
            size: size[0],
            modified: Time(modified),
            created: Time(created),
            path,
        },
    )
}

fn checksum() -> impl Strategy<Value = Checksum> {
    prop_oneof![
        Just(Checksum::None),
        (1u8..4).prop_map(Checksum::Later),
        any::<u32>().prop_map(Checksum::Crc32c),
        any::<[u8; 16]>().prop_map(Checksum::Md5),
        any::<[u8; 20]>().prop_map(Checksum::Sha1),
        (4u8..16, 0usize..16).prop_map(|(kind, words)| Checksum::Other {
            kind,
            value: vec![kind; words * 4],
        }),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let stamp = || prop::option::of(any::<[u8; 16]>().prop_map(Timestamp));
    let beacon = (capabilities(), prop::option::of(values(1)), ".{0,100}").prop_map(
        |(capabilities, free, name)| {
            let free = free.map(|(width, kib)| FreeSpace { width, kib: kib[0] });
            Frame::Beacon(Beacon {
                capabilities,
                free,
                name,
            })
        },
    );
    let requests = select(vec![
        RequestKind::None,
        RequestKind::Get,
        RequestKind::Put,
        RequestKind::Take,
        RequestKind::Give,
        RequestKind::Delete,
        RequestKind::List,
        RequestKind::Other(7),
        RequestKind::Other(255),
    ]);
    let authentication = prop::collection::vec(1u8.., 0..40);
    let request = (
        capabilities(),
        any::<(u32, bool)>(),
        requests,
        path(),
        authentication,
    )
        .prop_map(
            |(capabilities, (session, late_checksum), kind, path, authentication)| {
                Frame::Request(Request {
                    capabilities,
                    session,
                    kind,
                    late_checksum,
                    path,
                    authentication,
                })
            },
        );
    let mode = prop::option::of(0u16..=0o777);
    let metadata = (
        (any::<(u32, bool, bool)>(), mode),
        width(),
        kind(),
        checksum(),
        entry(),
    )
        .prop_map(
            |(((session, ended, unreliable), mode), width, kind, checksum, entry)| {
                Frame::Metadata(Metadata {
                    session,
                    width,
                    kind,
                    ended,
                    unreliable,
                    mode,
                    checksum,
                    entry,
                })
            },
        );
    let data = (
        any::<(u32, bool, bool)>(),
        kind(),
        stamp(),
        values(1),
        0u32..2000,
    )
        .prop_map(
            |((session, status_wanted, end), kind, timestamp, (width, offset), len)| {
                Frame::Data(Data {
                    session,
                    width,
                    kind,
                    timestamp,
                    status_wanted,
                    end,
                    offset: offset[0],
                    len,
                })
            },
        );
    let bits = any::<(u32, bool, bool, bool)>();
    let codes = prop_oneof![4 => Just(0u8), 1 => any::<u8>()];
    let status = (bits, codes, stamp(), values(42), 0usize..20).prop_map(
        |((session, metadata_missing, incomplete, voluntary), code, timestamp, values, holes)| {
            let (width, values) = values;
            let ok = code == 0;
            let pairs = values[2..].chunks_exact(2).take(holes * usize::from(ok));
            Frame::Status(Status {
                session,
                width,
                timestamp,
                metadata_missing,
                incomplete,
                voluntary,
                code: Code(code),
                progress: values[0] * u128::from(ok),
                in_response_to: values[1] * u128::from(ok),
                holes: pairs
                    .map(|pair| Hole {
                        first: pair[0],
                        last: pair[1],
                    })
                    .collect(),
            })
        },
    );
    prop_oneof![beacon, request, metadata, data, status]
}

/// The frame's octets, with a payload behind DATA.
fn octets(frame: &Frame) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out).unwrap();
    if let Frame::Data(data) = frame {
        assert_eq!(out.len(), data.header_len());
        out.resize(out.len() + data.len as usize, 0xda);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn what_is_emitted_reads_back(frame in frame()) {
        let bytes = octets(&frame);
        let (read, payload) = Frame::parse(&bytes).unwrap();
        let expected = match frame {
            Frame::Data(data) => data.len as usize,
            _ => 0,
        };
        prop_assert_eq!(payload.len(), expected);
        prop_assert_eq!(read, frame);
    }

    #[test]
    fn what_can_be_read_can_be_emitted(
        frame in frame(),
        hits: Vec<(prop::sample::Index, u8)>,
        cut: prop::sample::Index,
    ) {
        let mut bytes = octets(&frame);
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok((read, _)) = Frame::parse(&bytes) {
            prop_assert_eq!(Frame::parse(&octets(&read)).unwrap().0, read);
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(mut bytes: Vec<u8>, kind in 0u8..6) {
        let _ = Frame::parse(&bytes);
        let _ = entries(&bytes).count();
        if let Some(first) = bytes.first_mut() {
            *first = 0x20 | kind;
        }
        let _ = Frame::parse(&bytes);
    }

    #[test]
    fn a_directory_is_read_entry_by_entry_past_its_padding(
        list in prop::collection::vec((entry(), 0usize..5), 0..10),
    ) {
        let mut bytes = Vec::new();
        for (entry, padding) in &list {
            entry.emit(&mut bytes).unwrap();
            bytes.resize(bytes.len() + padding, 0);
        }
        let read: Result<Vec<Entry>, FrameError> = entries(&bytes).collect();
        prop_assert_eq!(read.unwrap(), list.into_iter().map(|(entry, _)| entry).collect::<Vec<_>>());
    }
}

fn parse(hex: &str, text: &[u8]) -> Result<Frame, FrameError> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks_exact(2).map(|pair| {
        let pair = std::str::from_utf8(pair).unwrap();
        u8::from_str_radix(pair, 16).unwrap()
    });
    let bytes: Vec<u8> = pairs.chain(text.iter().copied()).collect();
    Frame::parse(&bytes).map(|(frame, _)| frame)
}

const BOTH: Capabilities = Capabilities {
    width: Width::Bits32,
    streams: false,
    send: Willingness::Willing,
    receive: Willingness::Willing,
    udp_lite: false,
};

#[test]
fn frames_captured_from_other_implementations_are_read() {
    // A C++ peer of 2015. Its free space is one of 32 bits.
    let beacon = parse("204f5000 0ee7eb74", b"10.77.0.1 25726").unwrap();
    let expected = Beacon {
        capabilities: BOTH,
        free: Some(FreeSpace {
            width: Width::Bits32,
            kib: 0x0ee7_eb74,
        }),
        name: "10.77.0.1 25726".to_owned(),
    };
    assert_eq!(beacon, Frame::Beacon(expected));
    // A Perl peer of 2012: it leaves the willingness out.
    let request = parse("21800001 6c43e0e9", b"small.txt\0").unwrap();
    let expected = Request {
        capabilities: Capabilities {
            width: Width::Bits64,
            ..Capabilities::default()
        },
        session: 0x6c43_e0e9,
        kind: RequestKind::Get,
        late_checksum: false,
        path: "small.txt".to_owned(),
        authentication: Vec::new(),
    };
    assert_eq!(request, Frame::Request(expected));
    let metadata = parse(
        "22400000 d38f419b 8040 000493e0 3293a658 3293a658",
        b"big.bin\0",
    );
    let Frame::Metadata(metadata) = metadata.unwrap() else {
        panic!("it is METADATA");
    };
    assert_eq!(metadata.entry.size, 300_000);
    assert_eq!(metadata.entry.path, "big.bin");
    assert_eq!(metadata.checksum, Checksum::None);
    assert_eq!(metadata.width, Width::Bits32);
    let Frame::Data(data) = parse("23418000 00000001 000493a0", b"tail").unwrap() else {
        panic!("it is DATA");
    };
    assert_eq!((data.offset, data.len), (0x493a0, 4));
    assert!(data.end && data.status_wanted && data.timestamp.is_none());
}

fn status(hex: &str) -> Status {
    match parse(hex, &[]) {
        Ok(Frame::Status(status)) => status,
        other => panic!("{other:?} is no STATUS"),
    }
}

#[test]
fn the_answer_to_a_delete_is_judged_by_its_length() {
    // It copies the 64-bit descriptor of the REQUEST, over fields of 16 bits.
    let answer = status("24810000 00000007 0000 0000");
    assert_eq!((answer.code, answer.width), (Code::OK, Width::Bits16));
    let refusal = status("24810007 00000007 0000 0000");
    assert_eq!(refusal.code, Code::NOT_DELETED);
    assert_eq!(refusal.code.to_string(), "file not deleted");
}

#[test]
fn octets_after_the_last_whole_hole_are_ignored() {
    let trailing = status("24400000 00000007 00000001 00000009 00000001 00000004 deadbeef");
    let hole = Hole { first: 1, last: 4 };
    assert_eq!(trailing.holes, [hole]);
}

#[test]
fn nothing_is_read_of_a_status_that_ends_the_session() {
    let late = status("24400005 00000007 ffffffff ffffffff 00000001");
    assert_eq!(late.code, Code::DENIED);
    assert_eq!((late.progress, late.in_response_to), (0, 0));
    assert!(late.holes.is_empty());
}

#[test]
fn zeros_after_a_path_are_padding_and_anything_else_authentication() {
    let read = |tail: &[u8]| match parse("21000001 00000007", &[b"a\0", tail].concat()) {
        Ok(Frame::Request(request)) => request.authentication,
        other => panic!("{other:?} is no REQUEST"),
    };
    assert_eq!(read(&[0; 9]), []);
    assert_eq!(read(&[0, 0, 1]), [0, 0, 1]);
}

#[test]
fn an_unknown_checksum_is_skipped_by_its_length() {
    let frame = parse(
        "2200002c 00000007 aaaaaaaabbbbbbbb 8000 0005 00000000 00000000",
        b"x\0",
    );
    let Ok(Frame::Metadata(metadata)) = frame else {
        panic!("{frame:?} is no METADATA");
    };
    assert!(matches!(
        metadata.checksum,
        Checksum::Other { kind: 12, .. }
    ));
    assert_eq!(
        (metadata.entry.path.as_str(), metadata.entry.size),
        ("x", 5)
    );
}

#[test]
fn bad_frames_are_refused_by_what_is_wrong_with_them() {
    let refused = |hex: &str, text: &[u8]| parse(hex, text).unwrap_err();
    assert_eq!(
        refused("03000000 00000001 0000", b""),
        FrameError::Version(0)
    );
    assert_eq!(refused("25000000 00000001 0000", b""), FrameError::Type(5));
    let malformed = |error| matches!(error, FrameError::Malformed { .. });
    assert!(malformed(refused("21000001 00000001", b"endless")));
    assert!(malformed(refused("21000001 00000001", b"\xff\0")));
    assert!(malformed(refused("21000001 00000001", &[b'a'; 1500])));
    let long = [&[b'a'; 1024][..], b"\0"].concat();
    assert!(malformed(refused("21000001 00000001", &long)));
    // An entry whose first bit is not set.
    let entry = refused("22000000 00000001 0000 0005 00000000 00000000", b"x\0");
    assert!(malformed(entry));
    let cut = refused("24800000 00000001 0000000000000000 00000000", b"");
    assert!(
        matches!(cut, FrameError::Truncated { have: 4, .. }),
        "{cut}"
    );
    for (frame, octets) in [(23, 9), (24, 11)] {
        let short = refused(&format!("{frame}000000 00000001"), &vec![0; octets - 8]);
        assert!(matches!(short, FrameError::Truncated { .. }), "{short}");
    }
}

#[test]
fn what_does_not_fit_is_not_emitted() {
    let data = Data {
        session: 1,
        width: Width::Bits16,
        kind: Kind::File,
        timestamp: None,
        status_wanted: false,
        end: false,
        offset: 0x1_0000,
        len: 0,
    };
    let mut out = vec![7];
    let refused = Frame::Data(data).emit(&mut out).unwrap_err();
    assert!(matches!(refused, FrameError::TooLong { .. }), "{refused}");
    assert_eq!(out, [7], "what was there before stays alone");
    assert_eq!(Width::holding(0xffff), Width::Bits16);
    assert_eq!(Width::holding(0x1_0000), Width::Bits32);
}

#[test]
fn time_counts_the_leap_seconds() {
    assert_eq!(Time::from_posix(946_684_822), Time(0));
    assert_eq!(Time::from_posix(0), Time(0));
    assert_eq!(Time::from_posix(1_600_000_000).posix(), 1_600_000_000);
}
