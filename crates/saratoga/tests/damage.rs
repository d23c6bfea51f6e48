//! Datagrams that come twice: what ends a session, and what must not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_base::Machine;
use bentpipe_saratoga::{Receiver, echo, receiver};
use bentpipe_wire::saratoga::{Data, Frame, Timestamp};
use support::{SESSION, SIZE, announced, at, data, events, frames, receiving};

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
