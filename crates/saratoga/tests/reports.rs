//! What a sender makes of the STATUS of its peer: of words that the draft leaves open, of those that other
//! implementations were seen to say, and of lies. Each a short script.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Instant, Machine, Ranges, Rate};
use bentpipe_saratoga::Sender;
use bentpipe_saratoga::sender::{self, Failure};
use bentpipe_wire::saratoga::{Code, Data, Frame, Hole, Kind, RequestKind, Status, Timestamp};
use std::time::Duration;
use support::{SIZE, all_sent, at, events, frames, metadata, request, sending, status};

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
        nonce: None,
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

/// A peer that was asked to receive wants to know whether it is heard, until it does: each time it asks it is told,
/// by a sender that asked for it and by no other.
#[test]
fn a_question_is_answered_as_often_as_it_is_put() {
    for asked in [true, false] {
        let config = sender::Config {
            request: asked.then(|| request(RequestKind::Put)),
            ..sending(SIZE)
        };
        let mut sender = Sender::new(config, at(0));
        frames(&mut sender, at(0));
        for (i, stamp) in [(1, [3; 15]), (2, [4; 15])] {
            let stamp = Some(Timestamp::local(stamp));
            let question = Status {
                timestamp: stamp,
                ..status(0, 0, &[])
            };
            sender.input((), Frame::Status(question), at(i * 100));
            let answers = frames(&mut sender, at(i * 100 + 50));
            let answer = answers.iter().find_map(|frame| match frame {
                Frame::Status(status) => Some(status.timestamp),
                _ => None,
            });
            assert_eq!(answer, asked.then_some(stamp), "{answers:?}");
        }
    }
}

/// Of a stream, all that was sent may have arrived before its end was told, or the end be lost: only a report that
/// answers the end, or what came after it, completes it.
#[test]
fn a_stream_is_done_when_its_end_was_heard() {
    let config = sender::Config {
        metadata: metadata(0, Kind::Stream),
        ..sending(0)
    };
    let mut sender = Sender::new(config, at(0));
    let stamp_of = |sent: Vec<Frame>| {
        let stamps = sent.iter().filter_map(|frame| match frame {
            Frame::Data(data) => data.timestamp,
            _ => None,
        });
        stamps.max_by_key(|stamp| stamp.0)
    };
    sender.extend(1000, false);
    let before = stamp_of(frames(&mut sender, at(0)));
    sender.extend(1000, true);
    let all = |timestamp| {
        let status = status(1000, 1000, &[]);
        Frame::Status(Status {
            timestamp,
            voluntary: false,
            ..status
        })
    };
    sender.input((), all(before), at(600));
    assert_eq!(events(&mut sender), []);
    let end = stamp_of(frames(&mut sender, at(650)));
    assert!(end.is_some() && end != before);
    sender.input((), all(before), at(700));
    assert_eq!(events(&mut sender), []);
    sender.input((), all(end), at(1250));
    assert_eq!(events(&mut sender), [sender::Event::Done]);
}

/// A word that all is there may be of an earlier session with the same Id and ports, of other content: it counts only with a
/// timestamp of this one, and who never echoes any is no peer of which anything could be deleted.
#[test]
fn that_all_is_there_counts_only_with_an_echo_of_this_session() {
    let complete = |timestamp| {
        Frame::Status(Status {
            timestamp,
            ..status(SIZE, SIZE, &[])
        })
    };
    let stamp_of = |sent: Vec<Frame>| {
        let mut stamps = sent.iter().filter_map(|frame| match frame {
            Frame::Data(data) => data.timestamp,
            _ => None,
        });
        stamps.next_back()
    };
    let begun = |nonce, blind| {
        let config = sender::Config {
            nonce,
            blind,
            ..sending(SIZE)
        };
        let mut sender = Sender::new(config, at(0));
        let sent = (0..50).flat_map(|millis| frames(&mut sender, at(millis)));
        let stamp = stamp_of(sent.collect());
        (sender, stamp)
    };
    let (_, earlier) = begun(Some(1), false);
    let (mut sender, own) = begun(Some(2), false);
    for stale in [None, earlier] {
        sender.input((), complete(stale), at(100));
        assert_eq!(events(&mut sender), []);
        assert_eq!(sender.progress().arrived, 0);
    }
    sender.input((), complete(own), at(200));
    assert_eq!(events(&mut sender), [sender::Event::Done]);

    let (mut sender, _) = begun(Some(2), false);
    for second in 1..40 {
        let now = at(1000 * second);
        frames(&mut sender, now);
        sender.input((), complete(earlier), now);
        sender.timeout(now);
    }
    let unechoed = sender::Event::Failed(Failure::Unechoed);
    assert_eq!(events(&mut sender), [unechoed]);

    // Of who is sent no timestamps, or was asked nothing, no echo is to be had; but one that has echoed goes on so.
    for (nonce, blind) in [(None, false), (Some(2), true)] {
        let (mut sender, _) = begun(nonce, blind);
        sender.input((), complete(None), at(100));
        assert_eq!(events(&mut sender), [sender::Event::Done]);
    }
    let (mut sender, own) = begun(Some(2), true);
    let hole = Status {
        timestamp: own,
        ..status(0, SIZE, &[(0, 99)])
    };
    sender.input((), Frame::Status(hole), at(100));
    sender.input((), complete(None), at(200));
    assert_eq!(events(&mut sender), []);
}

/// METADATA that DATA overtakes begins the session that the peer does not know: it is said again.
#[test]
fn who_is_sent_a_file_blindly_and_does_not_know_it_is_told_of_it_again() {
    for blind in [false, true] {
        let config = sender::Config {
            blind,
            ..sending(SIZE)
        };
        let mut sender = Sender::new(config, at(0));
        frames(&mut sender, at(0));
        let unknown = Status {
            code: Code::UNKNOWN_ID,
            ..status(0, 0, &[])
        };
        sender.input((), Frame::Status(unknown), at(1500));
        let sent = frames(&mut sender, at(1500));
        let told = sent.iter().any(|frame| matches!(frame, Frame::Metadata(_)));
        assert_eq!((told, events(&mut sender).is_empty()), (blind, blind));
    }
}
