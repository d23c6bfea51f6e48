//! Damage that UDP's checksum does not show, and datagrams that come twice: what ends a session, and what must not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::{Instant, Machine};
use bentpipe_saratoga::{Receiver, Sender, echo, receiver, sender};
use bentpipe_wire::saratoga::{Data, Frame, Metadata, RequestKind, Status, Timestamp};
use std::time::Duration;
use support::{
    SESSION, SIZE, announced, at, data, events, frames, receiving, request, sending, status,
};

const OCTETS: u64 = 5 * 1444;

/// A sender that has sent all for the first time, and the DATA of its last question.
fn all_sent(config: sender::Config) -> (Sender, Data) {
    let mut sender = Sender::new(config, Instant::ZERO);
    let question = Status {
        timestamp: Some(Timestamp::local([7; 15])),
        metadata_missing: true,
        voluntary: true,
        ..status(0, 0, &[])
    };
    sender.input((), Frame::Status(question), at(0));
    let asked = (0..100).filter_map(|ms| asked(&mut sender, at(ms))).last();
    assert!(sender.all_sent_at().is_some());
    (sender, asked.unwrap())
}

/// What asks in what is sent now.
fn asked(sender: &mut Sender, now: Instant) -> Option<Data> {
    let sent = frames(sender, now).into_iter();
    let mut asks = sent.filter_map(|frame| match frame {
        Frame::Data(data) if data.status_wanted => Some(data),
        _ => None,
    });
    asks.next_back()
}

/// Whether some octets end a session of `config`.
fn ends(config: &sender::Config, said: impl Fn(&Data) -> Vec<u8>) -> bool {
    let (mut sender, asked) = all_sent(config.clone());
    if let Ok((frame, _)) = Frame::parse(&said(&asked)) {
        sender.input((), frame, at(200));
    }
    events(&mut sender).contains(&sender::Event::Done)
}

/// Of who takes the checksum last, and of who was asked; the end, and all that a receiver says before: what has come so far,
/// that it verifies, that it lacks the end.
#[test]
fn one_damaged_bit_makes_no_report_one_of_the_end() {
    let late = sender::Config {
        late_checksum: true,
        ..sending(SIZE)
    };
    let put = sender::Config {
        request: Some(request(RequestKind::Put)),
        ..sending(SIZE)
    };
    let last = |voluntary| Status {
        voluntary,
        ..status(SIZE, SIZE, &[])
    };
    let verifying = Status {
        incomplete: true,
        ..last(false)
    };
    for config in [late, put] {
        let octets = |status: &Status, asked: &Data, bit: Option<usize>| {
            let mut octets = Vec::new();
            let timestamp = asked.timestamp;
            let status = Status {
                timestamp,
                ..status.clone()
            };
            Frame::Status(status).emit(&mut octets).unwrap();
            if let Some(bit) = bit {
                octets[bit / 8] ^= 1 << (bit % 8);
            }
            octets
        };
        assert!(ends(&config, |asked| octets(&last(true), asked, None)));
        for early in [
            status(0, 0, &[]),
            status(OCTETS, OCTETS, &[]),
            status(OCTETS, SIZE, &[(OCTETS, SIZE - 1)]),
            status(SIZE - 1, SIZE, &[(SIZE - 1, SIZE - 1)]),
            verifying.clone(),
        ] {
            let bits = 8 * octets(&early, &data(0, 0), None).len() + 8 * 16;
            for bit in 0..bits {
                let damaged = |asked: &Data| {
                    let whole = 8 * octets(&early, asked, None).len();
                    octets(&early, asked, (bit < whole).then_some(bit))
                };
                assert!(!ends(&config, damaged), "bit {bit} of {early:?}");
            }
        }
    }
}

/// Who deletes what was sent hears it in answer to what was sent after it was said first.
#[test]
fn what_is_deleted_is_said_twice_to_be_there() {
    for deletes in [false, true] {
        let config = sender::Config {
            late_checksum: true,
            ..sending(SIZE)
        };
        let (mut sender, first) = all_sent(config);
        if deletes {
            sender.deletes();
        }
        let says = |asked: &Data, progress| {
            Frame::Status(Status {
                timestamp: asked.timestamp,
                voluntary: true,
                ..status(progress, SIZE, &[])
            })
        };
        sender.input((), says(&first, SIZE), at(200));
        if !deletes {
            assert_eq!(events(&mut sender), [sender::Event::Done]);
            continue;
        }
        // It came twice.
        sender.input((), says(&first, SIZE), at(201));
        let second = asked(&mut sender, at(202)).expect("it is asked at once");
        // The first was damaged: what follows says something else, and is no confirmation.
        sender.input((), says(&second, SIZE - 1), at(300));
        sender.input((), says(&second, SIZE), at(301));
        assert_eq!(events(&mut sender), []);
        let third = asked(&mut sender, at(302)).expect("it is asked at once");
        sender.input((), says(&third, SIZE), at(400));
        assert_eq!(events(&mut sender), [sender::Event::Done]);
    }
}

/// The proof that was asked for may come twice, or behind all that it was to let in: the last word is not heard by that.
#[test]
fn a_copy_of_a_proof_is_no_sign_that_the_last_word_was_heard() {
    let mut receiver = Receiver::new(receiving(), at(0));
    receiver.input((), announced(SIZE), at(0));
    receiver.input((), Frame::Data(data(0, SIZE as u32)), at(1));
    receiver.verified(at(2));
    events(&mut receiver);
    frames(&mut receiver, at(2));
    let proof = echo(SESSION, Some(Timestamp::local([7; 15])));
    receiver.input((), proof, at(3));
    assert_eq!(events(&mut receiver), []);
    let asked = Data {
        status_wanted: true,
        ..data(SIZE, 0)
    };
    receiver.input((), Frame::Data(asked), at(4));
    assert_eq!(frames(&mut receiver, at(4)).len(), 1, "it says it again");
    receiver.input((), echo(SESSION, None), at(5));
    assert_eq!(events(&mut receiver), [receiver::Event::Done]);
}

/// Who takes a file waits for as long as its server deletes it: that reads the file again, which may take longer than a peer
/// may be silent, and sends METADATA meanwhile whenever it hears that all is here.
#[test]
fn who_takes_waits_as_long_as_a_deletion_takes_and_the_server_is_heard() {
    for silence in [2, 30] {
        let mode = Some(0o644);
        let Frame::Metadata(metadata) = announced(SIZE) else {
            panic!("it is METADATA");
        };
        let announced = Frame::Metadata(Metadata { mode, ..metadata });
        let config = receiver::Config {
            request: Some(request(RequestKind::Take)),
            silence: Duration::from_secs(silence),
            ..receiving()
        };
        let mut receiver = Receiver::new(config, at(0));
        frames(&mut receiver, at(0));
        receiver.input((), announced.clone(), at(0));
        receiver.input((), Frame::Data(data(0, SIZE as u32)), at(1));
        receiver.verified(at(2));
        events(&mut receiver);
        assert_eq!(frames(&mut receiver, at(2)).len(), 1);
        let mut said_at = Vec::new();
        let mut wait = |until: u64, answered: bool| {
            let mut over = Vec::new();
            while over.is_empty() {
                let now = receiver.deadline().filter(|now| *now <= at(until))?;
                receiver.timeout(now);
                for _ in frames(&mut receiver, now) {
                    said_at.push(now);
                    if answered {
                        receiver.input((), announced.clone(), now + Duration::from_millis(300));
                    }
                }
                over = events(&mut receiver);
            }
            Some(over)
        };
        let deletion = 10_000 * silence;
        assert_eq!(wait(deletion, true), None, "{silence} s");
        // Then it is not heard any more.
        let silent = receiver::Event::Failed(sender::Failure::Silence);
        let end = deletion + 1000 * silence + 300;
        assert_eq!(wait(end, false), Some(vec![silent]), "{silence} s");
        let pauses = said_at.windows(2).map(|pair| pair[1].since(pair[0]));
        let least = pauses.min().unwrap();
        assert!(least >= Duration::from_millis(500), "{least:?}");
    }
}
