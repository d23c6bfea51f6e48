//! What the draft leaves open or says twice, what other implementations were seen to do, and what a
//! hostile peer would: each a short script. What a sender makes of a STATUS is `reports.rs`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Bytes, Machine, Ranges};
use bentpipe_saratoga::receiver::{self, Event, Kept};
use bentpipe_saratoga::sender::{self, Failure};
use bentpipe_saratoga::{Answer, Inquiry, MAX_STRETCHES, Receiver, Sender, refusal};
use bentpipe_wire::saratoga::{
    Checksum, Code, Data, Frame, Hole, Kind, Metadata, RequestKind, Status, Timestamp, Width,
};
use std::time::Duration;
use support::{
    SESSION, SIZE, all_sent, announced, at, data, events, frames, metadata, pass, receiving,
    request, sending, status,
};

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

#[test]
fn a_peer_that_talks_and_sends_nothing_is_given_up() {
    let talks = |frames: &[Frame], stops: Option<u64>| {
        let mut receiver = Receiver::new(receiving(), at(0));
        for second in (0..600).step_by(5) {
            for frame in frames {
                receiver.input((), frame.clone(), at(second * 1000));
            }
            receiver.timeout(at(second * 1000));
            let failed = Event::Failed(Failure::Own(Code::SENDER_SILENT));
            if events(&mut receiver).contains(&failed) {
                return assert_eq!(Some(second), stops);
            }
        }
        assert_eq!(None, stops);
    };
    let empty = Frame::Data(data(0, 0));
    talks(&[Frame::Status(status(0, 0, &[]))], Some(120));
    talks(std::slice::from_ref(&empty), Some(120));
    talks(&[announced(SIZE), empty], Some(120));
    talks(&[announced(SIZE), Frame::Data(data(0, 1))], None);
    let Frame::Metadata(stream) = announced(0) else {
        unreachable!("it is one");
    };
    let stream = Metadata {
        kind: Kind::Stream,
        ..stream
    };
    let waits = Data {
        kind: Kind::Stream,
        ..data(0, 0)
    };
    talks(&[Frame::Metadata(stream), Frame::Data(waits)], None);
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
fn a_report_that_waits_for_the_line_answers_the_newest_question() {
    let mut receiver = Receiver::new(receiving(), at(0));
    answers(&mut receiver, announced(SIZE));
    answers(&mut receiver, Frame::Data(data(0, 1444)));
    for packet in [2, 4, 3] {
        let asks = Data {
            status_wanted: packet != 3,
            timestamp: Some(Timestamp([packet; 16])),
            ..data(u64::from(packet) * 1444, 1444)
        };
        receiver.input((), Frame::Data(asks), at(1));
    }
    // What comes unasked does not take its place.
    receiver.repeat();
    let said = frames(&mut receiver, at(500));
    let report = only_status(&said);
    assert_eq!(report.timestamp, Some(Timestamp([4; 16])));
    assert_eq!((report.voluntary, report.in_response_to), (false, 7220));
    let hole = Hole {
        first: 1444,
        last: 2887,
    };
    assert_eq!(report.holes, [hole]);
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
/// What comes under the Id of a session of which all is here, and is of another content, is of a sender that began anew: a
/// word that all is here would count for what has not arrived.
#[test]
fn another_content_is_not_told_to_be_here() {
    let other = |frame| match frame {
        Frame::Metadata(mut metadata) => {
            metadata.entry.modified.0 += 10;
            Frame::Metadata(metadata)
        }
        frame => frame,
    };
    let long = Frame::Data(Data {
        end: false,
        ..data(SIZE, 100)
    });
    for (frame, verified_before) in [
        (other(announced(SIZE)), true),
        (other(announced(SIZE)), false),
        (long.clone(), true),
        (long, false),
    ] {
        let mut receiver = Receiver::new(receiving(), at(0));
        receiver.input((), announced(SIZE), at(0));
        for i in 0..10 {
            receiver.input((), Frame::Data(data(1444 * i, 1444)), at(10));
        }
        if verified_before {
            receiver.verified(at(20));
        }
        assert!(frames(&mut receiver, at(30)).len() <= 2);
        receiver.input((), frame.clone(), at(40));
        if !verified_before {
            receiver.verified(at(50));
        }
        let complete = |said: &Frame| matches!(said, Frame::Status(said) if !said.incomplete && said.holes.is_empty());
        let said = frames(&mut receiver, at(60));
        assert!(!said.iter().any(complete), "{frame:?}: {said:?}");
        assert_eq!(events(&mut receiver).last(), Some(&Event::Done));
    }
}

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

/// A server asks whether it is heard before it knows what comes; on the way the answer may overtake that.
#[test]
fn a_question_that_comes_after_the_announcement_ends_nothing() {
    let mut receiver = Receiver::new(receiving(), at(0));
    answers(&mut receiver, announced(SIZE));
    let question = Data {
        width: Width::Bits64,
        status_wanted: true,
        ..data(0, 0)
    };
    assert_eq!(answers(&mut receiver, Frame::Data(question)), []);
    answers(&mut receiver, Frame::Data(data(0, 1444)));
    assert_eq!(receiver.have().total(), 1444);
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
    // The sender may not hear of it: who asks below is told again.
    for packet in 0..2 {
        let asks = Data {
            status_wanted: true,
            ..data(packet * 1444, 1444)
        };
        let said = answers(&mut receiver, Frame::Data(asks));
        assert_eq!(only_status(&said).in_response_to, 5000);
    }
    let mut changed = metadata(SIZE, Kind::File);
    changed.entry.modified.0 += 1;
    // Without a checksum another file of the length may have come in its place within the second.
    let mut replaced = metadata(SIZE, Kind::File);
    replaced.entry.created.0 += 1;
    let mut summed = metadata(SIZE, Kind::File);
    summed.checksum = Checksum::Crc32c(7);
    for other in [changed, replaced, summed, metadata(SIZE + 1, Kind::File)] {
        let mut receiver = Receiver::new(config(), at(0));
        answers(&mut receiver, Frame::Metadata(other));
        assert!(receiver.have().is_empty());
    }
    // Peers of other kinds may tell no times, or not those of the file.
    let mut untold = metadata(SIZE, Kind::File);
    (untold.entry.modified.0, untold.entry.created.0) = (0, 0);
    let config = receiver::Config {
        kept: kept().map(|kept| Kept {
            metadata: untold.clone(),
            ..kept
        }),
        ..receiving()
    };
    let mut receiver = Receiver::new(config, at(0));
    answers(&mut receiver, Frame::Metadata(untold));
    assert!(receiver.have().is_empty());
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

/// Who takes something, and has it, waits for the word that it is deleted at the peer: without it that is in doubt.
#[test]
fn a_deletion_that_is_not_confirmed_is_none() {
    // The first METADATA has come, or not; or there is no checksum at all.
    let checksum = Checksum::Crc32c(7);
    unconfirmed(&checksum.later(), &checksum, None);
    unconfirmed(&checksum, &checksum, Some(0o644));
    unconfirmed(&Checksum::None, &Checksum::None, Some(0o644));
}

fn unconfirmed(first: &Checksum, checksum: &Checksum, mode: Option<u16>) {
    let all_here = || {
        let asking = receiver::Config {
            request: Some(request(RequestKind::Take)),
            ..receiving()
        };
        let mut receiver = Receiver::new(asking, at(0));
        let mut announced = metadata(SIZE, Kind::File);
        (announced.checksum, announced.mode) = (first.clone(), mode);
        receiver.input((), Frame::Metadata(announced.clone()), at(1));
        receiver.input((), Frame::Data(data(0, SIZE as u32)), at(2));
        announced.checksum = checksum.clone();
        receiver.input((), Frame::Metadata(announced), at(3));
        receiver.verified(at(4));
        events(&mut receiver);
        receiver
    };
    let mut receiver = all_here();
    receiver.input((), refusal(SESSION, Code::UNKNOWN_ID), at(5));
    let failed = |failure| [Event::Failed(failure)];
    assert_eq!(
        events(&mut receiver),
        failed(Failure::Peer(Code::UNKNOWN_ID))
    );
    let mut receiver = all_here();
    receiver.timeout(at(40_000));
    assert_eq!(events(&mut receiver), failed(Failure::Silence));
    let mut receiver = all_here();
    receiver.input((), Frame::Status(status(0, 0, &[])), at(5));
    assert_eq!(events(&mut receiver), [Event::Done]);
}

#[test]
fn offsets_that_nothing_can_have_are_of_no_content() {
    for size in [0, SIZE] {
        for offset in [
            u128::MAX,
            u128::MAX - 1,
            u64::MAX.into(),
            (u64::MAX - 1).into(),
        ] {
            let wild = Data {
                width: Width::Bits128,
                offset,
                ..data(0, 1444)
            };
            let mut announced = metadata(size, Kind::File);
            announced.width = Width::Bits128;
            let mut receiver = Receiver::new(receiving(), at(0));
            receiver.input((), Frame::Metadata(announced), at(0));
            let mut whole = data(0, size as u32);
            whole.width = Width::Bits128;
            receiver.input((), Frame::Data(whole), at(1));
            // All is here, and is being verified; then it is verified.
            assert!(!receiver.input_data(&wild, at(2)));
            receiver.verified(at(3));
            assert!(!receiver.input_data(&wild, at(4)));
            assert!(events(&mut receiver).contains(&Event::Complete));
            // Nothing is here yet: the session ends with a word.
            let mut receiver = Receiver::new(receiving(), at(0));
            assert!(!receiver.input_data(&wild, at(1)));
            let failed = Event::Failed(Failure::Own(Code::TOO_LONG));
            assert_eq!(events(&mut receiver), [failed]);
        }
    }
}
