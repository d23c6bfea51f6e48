//! What comes at the end of a session, or behind it, under its Id.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Machine;
use bentpipe_saratoga::Receiver;
use bentpipe_wire::saratoga::{Code, Data, Frame, Kind, Width};
use support::{announced, at, data, frames, metadata, receiving};

fn answers(receiver: &mut Receiver, frame: Frame) -> Vec<Frame> {
    receiver.input((), frame, at(0));
    frames(receiver, at(0))
}

/// A peer of another kind uses its Id for the next file, of the same length and time.
#[test]
fn another_name_under_the_same_id_is_another_file() {
    let mut next = metadata(1444, Kind::File);
    next.entry.path = "next".to_owned();
    for complete in [false, true] {
        let mut receiver = Receiver::new(receiving(), at(0));
        answers(&mut receiver, announced(1444));
        if complete {
            answers(&mut receiver, Frame::Data(data(0, 1444)));
            receiver.verified(at(1));
            frames(&mut receiver, at(1));
        }
        let said = answers(&mut receiver, Frame::Metadata(next.clone()));
        let all = |frame: &Frame| matches!(frame, Frame::Status(status) if status.code == Code::OK);
        assert!(!said.iter().any(all), "{said:?}");
        assert!(receiver.is_over());
    }
}

#[test]
fn the_end_of_a_long_transfer_outlives_an_outage() {
    for (seconds, least, most) in [(1, 0, 5000), (60, 30_000, 30_000)] {
        let mut receiver = Receiver::new(receiving(), at(0));
        receiver.input((), announced(1444), at(0));
        let end = at(1000 * seconds);
        receiver.input((), Frame::Data(data(0, 1444)), end);
        receiver.verified(end);
        let stays = receiver.deadline().unwrap().since(end).as_millis();
        assert!((least..=most).contains(&stays), "{seconds} s: {stays} ms");
    }
}

/// A copy of the REQUEST has the server ask again whether it is heard, when all is here: the last word is said all the same.
#[test]
fn a_question_that_comes_after_the_end_ends_nothing() {
    let mut receiver = Receiver::new(receiving(), at(0));
    answers(&mut receiver, announced(1444));
    answers(&mut receiver, Frame::Data(data(0, 1444)));
    let question = Data {
        width: Width::Bits64,
        status_wanted: true,
        ..data(0, 0)
    };
    assert_eq!(answers(&mut receiver, Frame::Data(question)), []);
    receiver.verified(at(1));
    assert_eq!(frames(&mut receiver, at(1)).len(), 1);
    assert_eq!(answers(&mut receiver, Frame::Data(question)), []);
    let asks = Data {
        status_wanted: true,
        ..data(0, 1444)
    };
    assert_eq!(answers(&mut receiver, Frame::Data(asks)).len(), 1);
}
