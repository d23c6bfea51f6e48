//! What the draft leaves open or says twice, what other implementations were seen to do, and what a
//! hostile peer would: each a short script.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Bytes, Instant, Machine, Ranges, Rate};
use bentpipe_saratoga::receiver::{self, Event, Kept};
use bentpipe_saratoga::sender::{self, Failure};
use bentpipe_saratoga::{Answer, Inquiry, MAX_STRETCHES, Receiver, Sender, refusal};
use bentpipe_wire::saratoga::{
    Checksum, Code, Data, Frame, Hole, Kind, RequestKind, Status, Timestamp, Width,
};
use std::time::Duration;
use support::{SESSION, at, events, frames, metadata, pass, receiving, request, sending};

const SIZE: u64 = 14_440;

fn status(progress: u64, response: u64, holes: &[(u64, u64)]) -> Status {
    Status {
        session: SESSION,
        width: Width::Bits32,
        timestamp: None,
        metadata_missing: false,
        incomplete: false,
        voluntary: false,
        code: Code::OK,
        progress: progress.into(),
        in_response_to: response.into(),
        holes: holes
            .iter()
            .map(|&(first, last)| Hole {
                first: first.into(),
                last: last.into(),
            })
            .collect(),
    }
}

fn data(offset: u64, len: u32) -> Data {
    Data {
        session: SESSION,
        width: Width::Bits32,
        kind: Kind::File,
        timestamp: None,
        status_wanted: false,
        end: offset + u64::from(len) == SIZE,
        offset: offset.into(),
        len,
    }
}

fn announced(size: u64) -> Frame {
    Frame::Metadata(metadata(size, Kind::File))
}

/// A sender that has sent all ten packets of its file, and when.
fn all_sent() -> (Sender, Instant) {
    let mut sender = Sender::new(sending(SIZE), Instant::ZERO);
    let mut now = Instant::ZERO;
    while sender.all_sent_at().is_none() {
        frames(&mut sender, now);
        now += Duration::from_millis(1);
    }
    (sender, at(1000))
}

/// The stretches of content that the sender sends in the next second.
fn resent(sender: &mut Sender, from: Instant) -> Ranges {
    let mut sent = Ranges::default();
    for step in 0..1000 {
        for frame in frames(sender, from + Duration::from_millis(step)) {
            if let Frame::Data(data) = frame {
                sent.insert(data.offset as u64, data.offset as u64 + u64::from(data.len));
            }
        }
    }
    sent
}

#[test]
fn ends_of_holes_are_taken_either_way_and_no_octet_is_left_out() {
    // Inclusive as in the draft, exclusive as the Perl peer writes it: one octet more at most, and
    // none beyond the file.
    for (hole, expected) in [
        ((1444, 2887), (1444, 2888)),
        ((1444, 2888), (1444, 2889)),
        ((13_000, SIZE - 1), (13_000, SIZE)),
        ((13_000, SIZE), (13_000, SIZE)),
        ((13_000, u64::MAX), (13_000, SIZE)),
    ] {
        let (mut sender, now) = all_sent();
        sender.input((), Frame::Status(status(hole.0, SIZE, &[hole])), now);
        let sent: Vec<(u64, u64)> = resent(&mut sender, now).iter().collect();
        assert_eq!(sent, [expected], "{hole:?}");
    }
}

#[test]
fn holes_turned_around_or_beyond_the_file_are_ignored() {
    let (mut sender, now) = all_sent();
    let holes = [(9, 3), (SIZE, SIZE + 5), (u64::MAX, u64::MAX)];
    sender.input((), Frame::Status(status(0, SIZE, &holes)), now);
    assert!(resent(&mut sender, now).is_empty());
}

#[test]
fn parts_of_a_list_are_merged() {
    let (mut sender, now) = all_sent();
    for hole in [(0, 99), (5000, 5099), (9000, 9099)] {
        let part = Status {
            incomplete: true,
            ..status(0, SIZE, &[hole])
        };
        sender.input((), Frame::Status(part), now);
    }
    let sent: Vec<(u64, u64)> = resent(&mut sender, now).iter().collect();
    assert_eq!(sent, [(0, 100), (5000, 5100), (9000, 9100)]);
}

#[test]
fn complete_beats_an_older_list_that_comes_later() {
    let (mut sender, now) = all_sent();
    sender.input((), Frame::Status(status(SIZE, SIZE, &[])), now);
    sender.input((), Frame::Status(status(0, SIZE, &[(0, 99)])), now);
    assert_eq!(events(&mut sender), [sender::Event::Done]);
    assert!(resent(&mut sender, now).is_empty());
}

#[test]
fn completion_is_understood_in_every_dialect() {
    // In-Response-To one short, and all bits of Progress set.
    for (progress, response) in [(SIZE, SIZE - 1), (SIZE, 0), (0xffff_ffff, SIZE)] {
        let (mut sender, now) = all_sent();
        let voluntary = Status {
            voluntary: true,
            ..status(progress, response, &[])
        };
        sender.input((), Frame::Status(voluntary), now);
        assert_eq!(events(&mut sender), [sender::Event::Done]);
    }
}

#[test]
fn what_looks_complete_but_is_not_ends_nothing() {
    let complete = status(SIZE, SIZE, &[]);
    for unfinished in [
        Status {
            incomplete: true,
            ..complete.clone()
        },
        Status {
            metadata_missing: true,
            ..complete.clone()
        },
        status(SIZE - 1, SIZE, &[]),
        status(SIZE, SIZE, &[(SIZE - 1, SIZE - 1)]),
    ] {
        let (mut sender, now) = all_sent();
        sender.input((), Frame::Status(unfinished.clone()), now);
        assert_eq!(events(&mut sender), [], "{unfinished:?}");
    }
    // An empty file is not complete because the peer agrees to begin.
    let config = sender::Config {
        request: Some(request(RequestKind::Put)),
        ..sending(0)
    };
    let mut sender = Sender::new(config, at(0));
    frames(&mut sender, at(0));
    sender.input((), Frame::Status(status(0, 0, &[])), at(10));
    assert_eq!(events(&mut sender), []);
    frames(&mut sender, at(10));
    sender.input((), Frame::Status(status(0, 0, &[])), at(20));
    assert_eq!(events(&mut sender), [sender::Event::Done]);
}

#[test]
fn a_peer_without_metadata_gets_it_again() {
    for (code, missing) in [
        (Code::OK, true),
        (Code::METADATA_REQUIRED, false),
        (Code(0x0a), false),
    ] {
        let (mut sender, now) = all_sent();
        let wants = Status {
            code,
            metadata_missing: missing,
            ..status(0, 0, &[])
        };
        sender.input((), Frame::Status(wants.clone()), now);
        sender.input((), Frame::Status(wants), now);
        let sent = frames(&mut sender, now);
        let count = sent
            .iter()
            .filter(|frame| matches!(frame, Frame::Metadata(_)))
            .count();
        assert_eq!(count, 1, "{code:?}: {sent:?}");
        assert_eq!(events(&mut sender), []);
    }
}

#[test]
fn an_error_ends_the_session_on_either_side() {
    let (mut sender, now) = all_sent();
    sender.input((), refusal(SESSION, Code::CANNOT_RECEIVE), now);
    let failed = sender::Event::Failed(Failure::Peer(Code::CANNOT_RECEIVE));
    assert_eq!(events(&mut sender), [failed]);
    assert_eq!(frames(&mut sender, now), [], "an error is not answered");
    let mut receiver = Receiver::new(receiving(), now);
    receiver.input((), refusal(SESSION, Code::NOT_FOUND), now);
    let failed = Event::Failed(Failure::Peer(Code::NOT_FOUND));
    assert_eq!(events(&mut receiver), [failed]);
}

#[test]
fn timestamps_that_were_never_sent_are_not_believed() {
    let (mut sender, now) = all_sent();
    for stamp in [[0; 16], [0xff; 16], *b"0123456789abcde\0"] {
        let forged = Status {
            timestamp: Some(Timestamp(stamp)),
            ..status(0, SIZE, &[(0, 99)])
        };
        sender.input((), Frame::Status(forged), now);
    }
    // The holes count all the same.
    let sent: Vec<(u64, u64)> = resent(&mut sender, now).iter().collect();
    assert_eq!(sent, [(0, 100)]);
}

#[test]
fn a_sender_goes_on_from_what_the_peer_has_kept() {
    let mut sender = Sender::new(sending(SIZE), at(0));
    let kept = status(1444, 8664, &[(1444, 2887)]);
    sender.input((), Frame::Status(kept), at(0));
    let sent: Vec<(u64, u64)> = resent(&mut sender, at(0)).iter().collect();
    assert_eq!(sent, [(1444, 2888), (8664, SIZE)]);
}

#[test]
fn a_silent_peer_is_given_up_and_told_so() {
    let (mut sender, _) = all_sent();
    sender.timeout(at(40_000));
    assert_eq!(
        events(&mut sender),
        [sender::Event::Failed(Failure::Silence)]
    );
    let said = frames(&mut sender, at(40_000));
    assert_eq!(said, [refusal(SESSION, Code::TERMINATED)]);
    let mut receiver = Receiver::new(receiving(), at(0));
    receiver.timeout(at(40_000));
    assert_eq!(events(&mut receiver), [Event::Failed(Failure::Silence)]);
    let said = frames(&mut receiver, at(40_000));
    assert_eq!(said, [refusal(SESSION, Code::SENDER_SILENT)]);
}

/// What the receiver says to `frame`.
fn answers(receiver: &mut Receiver, frame: Frame) -> Vec<Frame> {
    receiver.input((), frame, at(0));
    frames(receiver, at(0))
}

fn only_status(said: &[Frame]) -> &Status {
    match said {
        [Frame::Status(status)] => status,
        other => panic!("not one STATUS: {other:?}"),
    }
}

#[test]
fn metadata_may_come_late_or_never() {
    let mut receiver = Receiver::new(receiving(), at(0));
    let said = answers(&mut receiver, Frame::Data(data(0, 1444)));
    let first = only_status(&said);
    assert!(first.metadata_missing && first.voluntary);
    assert_eq!((first.progress, first.in_response_to), (1444, 1444));
    // Kept, because little came so far.
    assert_eq!(receiver.have().total(), 1444);
    answers(&mut receiver, announced(SIZE));
    assert_eq!(receiver.have().total(), 1444);
    // What is beyond the bound is not.
    let config = receiver::Config {
        unannounced: Bytes(1000),
        ..receiving()
    };
    let mut receiver = Receiver::new(config, at(0));
    receiver.input((), Frame::Data(data(0, 1444)), at(0));
    assert_eq!(events(&mut receiver), []);
}

#[test]
fn a_receiver_reports_when_asked_and_completes_in_the_words_of_the_draft() {
    let mut receiver = Receiver::new(receiving(), at(0));
    answers(&mut receiver, announced(SIZE));
    answers(&mut receiver, Frame::Data(data(0, 1444)));
    let stamp = Some(Timestamp([7; 16]));
    let asks = Data {
        status_wanted: true,
        timestamp: stamp,
        ..data(2888, 1444)
    };
    let said = answers(&mut receiver, Frame::Data(asks));
    let report = only_status(&said);
    assert!(!report.voluntary && !report.incomplete && !report.metadata_missing);
    assert_eq!(report.timestamp, stamp);
    assert_eq!((report.progress, report.in_response_to), (1444, 4332));
    let hole = Hole {
        first: 1444,
        last: 2887,
    };
    assert_eq!(report.holes, [hole]);
    for packet in 0..9 {
        answers(&mut receiver, Frame::Data(data(packet * 1444, 1444)));
    }
    // Not said before it is verified: not to the last DATA, nor to what follows.
    let last = Data {
        status_wanted: true,
        ..data(9 * 1444, 1444)
    };
    let said = answers(&mut receiver, Frame::Data(last));
    assert!(only_status(&said).incomplete);
    assert_eq!(events(&mut receiver).last(), Some(&Event::Complete));
    let poll = Data {
        status_wanted: true,
        ..data(SIZE, 0)
    };
    let said = answers(&mut receiver, Frame::Data(poll));
    assert!(only_status(&said).incomplete);
    receiver.verified(at(0));
    for _ in 0..2 {
        let said = answers(&mut receiver, Frame::Data(poll));
        let last = only_status(&said);
        assert!(last.voluntary && !last.incomplete && last.holes.is_empty());
        assert_eq!(
            (last.progress, last.in_response_to),
            (SIZE.into(), SIZE.into())
        );
    }
    receiver.timeout(at(5000));
    assert_eq!(events(&mut receiver), [Event::Done]);
}

/// A C++ peer of 2015 never asks, never says that it is at its end, and waits to be told.
#[test]
fn a_sender_that_never_asks_is_told_of_its_holes() {
    let mut receiver = Receiver::new(receiving(), at(0));
    answers(&mut receiver, announced(SIZE));
    let packets = [0u64, 1, 2, 4, 5, 6, 7, 8, 9];
    for packet in packets {
        let silent = Data {
            end: false,
            ..data(packet * 1444, 1444)
        };
        answers(&mut receiver, Frame::Data(silent));
    }
    receiver.timeout(at(2500));
    let said = frames(&mut receiver, at(2500));
    assert_eq!(only_status(&said).holes.len(), 1);
    answers(&mut receiver, Frame::Data(data(3 * 1444, 1444)));
    assert_eq!(events(&mut receiver).last(), Some(&Event::Complete));
}

#[test]
fn data_that_contradicts_its_metadata_ends_the_session() {
    for (wrong, code) in [
        (
            Data {
                kind: Kind::Stream,
                ..data(0, 10)
            },
            Code::KIND_CHANGED,
        ),
        (
            Data {
                width: Width::Bits64,
                ..data(0, 10)
            },
            Code::DESCRIPTOR_MISMATCH,
        ),
        (
            Data {
                end: true,
                ..data(0, 10)
            },
            Code::UNSPECIFIED,
        ),
        (data(SIZE - 5, 10), Code::UNSPECIFIED),
        (
            Data {
                offset: u128::from(u64::MAX) + 1,
                ..data(0, 10)
            },
            Code::TOO_LONG,
        ),
    ] {
        let mut receiver = Receiver::new(receiving(), at(0));
        answers(&mut receiver, announced(SIZE));
        let said = answers(&mut receiver, Frame::Data(wrong));
        assert_eq!(said, [refusal(SESSION, code)]);
    }
}

#[test]
fn what_was_kept_counts_only_for_the_same_content() {
    let kept = || {
        let mut have = Ranges::default();
        have.insert(0, 5000);
        Some(Kept {
            metadata: metadata(SIZE, Kind::File),
            have,
        })
    };
    let config = || receiver::Config {
        kept: kept(),
        ..receiving()
    };
    let mut receiver = Receiver::new(config(), at(0));
    let said = answers(&mut receiver, announced(SIZE));
    assert_eq!(only_status(&said).progress, 5000);
    // A peer that forgets the leap seconds means the same file.
    let mut late = metadata(SIZE, Kind::File);
    late.entry.modified.0 += 22;
    let mut receiver = Receiver::new(config(), at(0));
    answers(&mut receiver, Frame::Metadata(late));
    assert_eq!(receiver.have().total(), 5000);
    let mut changed = metadata(SIZE, Kind::File);
    changed.entry.modified.0 += 23;
    let mut summed = metadata(SIZE, Kind::File);
    summed.checksum = Checksum::Crc32c(7);
    for other in [changed, summed, metadata(SIZE + 1, Kind::File)] {
        let mut receiver = Receiver::new(config(), at(0));
        answers(&mut receiver, Frame::Metadata(other));
        assert!(receiver.have().is_empty());
    }
}

#[test]
fn a_flood_of_holes_stays_within_bounds_and_the_file_arrives() {
    let size = 4 * MAX_STRETCHES as u64;
    let mut receiver = Receiver::new(receiving(), at(0));
    answers(&mut receiver, announced(size));
    let octet = |offset| Data {
        end: false,
        ..data(offset, 1)
    };
    for i in 0..2 * MAX_STRETCHES as u64 {
        let asks = Data {
            status_wanted: i % 1000 == 0,
            ..octet(2 * i)
        };
        receiver.input((), Frame::Data(asks), at(0));
        while receiver.event().is_some() {}
    }
    assert_eq!(receiver.have().len(), MAX_STRETCHES);
    let waiting = frames(&mut receiver, at(0));
    assert!(waiting.len() <= 64, "{}", waiting.len());
    for from in (0..size).step_by(1444) {
        let piece = Data {
            end: false,
            ..data(from, 1444.min(size - from) as u32)
        };
        receiver.input((), Frame::Data(piece), at(0));
    }
    assert_eq!(events(&mut receiver).last(), Some(&Event::Complete));
    assert_eq!(receiver.have().total(), size);
}

#[test]
fn a_deletion_is_asked_until_it_is_answered() {
    let mut inquiry = Inquiry::new(request(RequestKind::Delete), Duration::from_secs(10), at(0));
    assert_eq!(frames(&mut inquiry, at(0)).len(), 1);
    let again = inquiry.deadline().unwrap();
    assert_eq!(frames(&mut inquiry, again).len(), 1);
    inquiry.input((), refusal(SESSION + 1, Code::OK), again);
    assert_eq!(inquiry.event(), None, "of another session");
    inquiry.input((), refusal(SESSION, Code::NOT_DELETED), again);
    assert_eq!(inquiry.event(), Some(Answer::Said(Code::NOT_DELETED)));
    let mut unanswered = Inquiry::new(request(RequestKind::Delete), Duration::from_secs(10), at(0));
    unanswered.timeout(at(10_000));
    assert_eq!(unanswered.event(), Some(Answer::Silence));
}

#[test]
fn a_peer_that_does_not_keep_up_is_not_buried() {
    const SIZE: u64 = 100 << 20;
    let mut sender = Sender::new(
        sender::Config {
            rate: Rate::from_bits_per_sec(100_000_000_000),
            ..sending(SIZE)
        },
        Instant::ZERO,
    );
    // What leaves in the millisecond from `ms` on, and the last question in it.
    let sent = |sender: &mut Sender, ms: u64| {
        let (mut octets, mut question) = (0, None);
        for step in 0..100 {
            let now = at(ms) + Duration::from_micros(10 * step);
            for frame in frames(sender, now) {
                if let Frame::Data(data) = frame {
                    octets += u64::from(data.len);
                    question = data.status_wanted.then_some(data).or(question);
                }
            }
        }
        (octets, question)
    };
    let answer = |data: Data| {
        let mut status = status(0, 0, &[]);
        status.timestamp = data.timestamp;
        status.holes = vec![Hole { first: 0, last: 0 }];
        Frame::Status(status)
    };
    let (_, first) = sent(&mut sender, 0);
    sender.input((), answer(first.unwrap()), at(1));
    // It says nothing more: the window fills, and questions go on.
    let mut unanswered = 0;
    let mut last = None;
    for ms in 1..400 {
        let (octets, question) = sent(&mut sender, ms);
        unanswered += octets;
        last = question.or(last);
    }
    assert!((1 << 20..SIZE / 2).contains(&unanswered), "{unanswered}");
    assert_eq!(sent(&mut sender, 400).0, 0);
    sender.input((), answer(last.unwrap()), at(401));
    assert!(sent(&mut sender, 401).0 > 1 << 20);
}

#[test]
fn who_waited_long_for_the_first_answer_lingers_by_the_questions() {
    // The peer summed up its file for two seconds, then asks each 10 ms or each 150 ms.
    for (pause, longest) in [(10, 200), (150, 1500)] {
        let asking = receiver::Config {
            request: Some(request(RequestKind::Get)),
            ..receiving()
        };
        let mut receiver = Receiver::new(asking, at(0));
        frames(&mut receiver, at(0));
        receiver.input((), announced(SIZE), at(2000));
        let mut now = at(2000);
        for packet in 0..10 {
            now += Duration::from_millis(pause);
            let asks = Data {
                status_wanted: true,
                ..data(packet * 1444, 1444)
            };
            receiver.input((), Frame::Data(asks), now);
        }
        receiver.verified(now);
        let leaves = receiver.deadline().unwrap().since(now);
        let bounds = Duration::from_millis(8 * pause)..=Duration::from_millis(longest);
        assert!(bounds.contains(&leaves), "{leaves:?}");
    }
}

#[test]
fn a_checksum_that_comes_last_is_waited_for() {
    let checksum = Checksum::Crc32c(7);
    let with = |checksum: &Checksum| {
        let mut announced = metadata(SIZE, Kind::File);
        announced.checksum = checksum.clone();
        announced
    };
    let mut config = sending(SIZE);
    config.metadata = with(&checksum.later());
    let mut sender = Sender::new(config, at(0));
    let mut receiver = Receiver::new(receiving(), at(0));
    pass(&mut sender, &mut receiver, at(0));
    let mut whole = data(0, SIZE as u32);
    whole.status_wanted = true;
    receiver.input((), Frame::Data(whole), at(1));
    let Some(Frame::Status(said)) = frames(&mut receiver, at(1)).pop() else {
        panic!("it was asked");
    };
    assert!(said.metadata_missing && said.holes.is_empty());
    // Neither METADATA without the value nor a peer that is content with that ends it.
    receiver.input((), Frame::Metadata(with(&checksum.later())), at(2));
    assert!(!events(&mut receiver).contains(&Event::Complete));
    sender.input((), Frame::Status(status(SIZE, SIZE, &[])), at(2));
    assert_eq!(sender.event(), None);
    sender.set_checksum(checksum.clone());
    pass(&mut sender, &mut receiver, at(3));
    assert!(events(&mut receiver).contains(&Event::Complete));
    assert_eq!(receiver.metadata(), Some(&with(&checksum)));
    // Such a sender says that it has heard the last word: it is repeated no more.
    receiver.verified(at(3));
    pass(&mut receiver, &mut sender, at(4));
    assert_eq!(sender.event(), Some(sender::Event::Done));
    pass(&mut sender, &mut receiver, at(5));
    assert_eq!(events(&mut receiver), [Event::Done]);
    // Of another kind it is another content.
    let mut receiver = Receiver::new(receiving(), at(0));
    receiver.input((), Frame::Metadata(with(&checksum.later())), at(0));
    receiver.input((), Frame::Data(data(0, SIZE as u32)), at(1));
    receiver.input((), Frame::Metadata(with(&Checksum::Md5([7; 16]))), at(2));
    assert!(receiver.have().is_empty());
}

/// Once the peer has echoed a timestamp, what echoes none is of somebody who does not hear us.
#[test]
fn a_forged_status_keeps_nothing_alive() {
    let mut sender = Sender::new(sending(SIZE), at(0));
    let sent = (0..10).flat_map(|ms| frames(&mut sender, at(ms)));
    let sent: Vec<Frame> = sent.collect();
    let asked = sent.iter().find_map(|frame| match frame {
        Frame::Data(data) => Some(data),
        _ => None,
    });
    let stamp = asked.unwrap().timestamp;
    let heard = |stamp| Status {
        timestamp: stamp,
        voluntary: true,
        ..status(0, 0, &[])
    };
    sender.input((), Frame::Status(heard(stamp)), at(600));
    assert!(sender.is_proven());
    let mut forged = stamp.unwrap();
    forged.0[12] ^= 1;
    for second in 1..40 {
        let lie = if second % 2 == 0 { None } else { Some(forged) };
        sender.input((), Frame::Status(heard(lie)), at(1000 * second));
        // Nor does a REQUEST that is played again.
        sender.input(
            (),
            Frame::Request(request(RequestKind::Get)),
            at(1000 * second),
        );
        sender.timeout(at(1000 * second));
    }
    let ended = events(&mut sender);
    assert_eq!(ended, [sender::Event::Failed(Failure::Silence)]);
}

/// Whoever sends all and never asks is told, when nothing more comes, of the end that was lost, even where that
/// is all there was.
#[test]
fn a_sender_that_never_asks_is_told_of_the_end_that_was_lost() {
    for arrived in [0, 1444, SIZE - 1444] {
        let mut receiver = Receiver::new(receiving(), at(0));
        answers(&mut receiver, announced(SIZE));
        for offset in (0..arrived).step_by(1444) {
            answers(&mut receiver, Frame::Data(data(offset, 1444)));
        }
        receiver.timeout(at(2500));
        let said = frames(&mut receiver, at(2500));
        let status = only_status(&said);
        assert_eq!(status.in_response_to, u128::from(SIZE));
        let hole = Hole {
            first: arrived.into(),
            last: u128::from(SIZE) - 1,
        };
        assert_eq!(status.holes, [hole], "{arrived} arrived");
    }
    // One that asks knows by itself what it has not sent yet.
    let mut receiver = Receiver::new(receiving(), at(0));
    answers(&mut receiver, announced(SIZE));
    let asking = Data {
        status_wanted: true,
        ..data(0, 1444)
    };
    answers(&mut receiver, Frame::Data(asking));
    receiver.timeout(at(2500));
    let said = frames(&mut receiver, at(2500));
    assert!(only_status(&said).holes.is_empty());
}
