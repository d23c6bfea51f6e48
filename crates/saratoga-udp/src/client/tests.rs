//! How long a client's REQUEST is believed.

use super::*;
use crate::authenticate::{Proof, now};
use crate::seal::{DOUBT, Seal, Side};
use bentpipe_base::Instant;
use bentpipe_saratoga::HoleEnd;
use bentpipe_saratoga::sender::Congestion;
use bentpipe_wire::saratoga::{Data, Kind, Status, Timestamp, Width};

const SECOND: u64 = 1_000_000_000;
const ID: u32 = 7;

fn key() -> Key {
    Key::of(b"0123456789abcdef")
}

fn client() -> Client {
    let link = Link {
        rate: Rate::from_bits_per_sec(50_000_000),
        packet: 1500,
        congestion: Congestion::None,
        silence: Duration::from_secs(600),
        hole_end: HoleEnd::Inclusive,
        timestamps: true,
        peer_port: None,
    };
    let config = ClientConfig {
        link,
        key: Some(key()),
        checksum: Algorithm::Crc32c,
        max_size: 1000,
        parallel: 8,
        blind: false,
    };
    Client::new("127.0.0.1:9".parse().unwrap(), config).unwrap()
}

/// The session of `job`, whose REQUEST was signed `age` seconds ago, and that REQUEST.
fn session(job: &Job, age: u64) -> (Session, Request) {
    let client = client();
    let mut request = client.request(job, ID);
    key().sign_at(&mut request, now() - age * SECOND);
    let work = client.work(job, ID, Some(request.clone())).unwrap();
    let (path, asked) = (job.remote().to_owned(), Some(request.clone()));
    let session = Session::asking(client.server, path, work, asked, Some(&key()));
    (session, request)
}

fn rm() -> Job {
    Job::Delete {
        remote: "a".to_owned(),
    }
}

/// What `session` says next, as soon as it is prepared.
fn said(session: &mut Session, at: Instant) -> Frame {
    let mut out = Vec::new();
    for _ in 0..500 {
        assert!(session.timeout(at).is_none());
        if session.transmit(at, &mut out) {
            return Frame::parse(&out).unwrap().0;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("nothing is said");
}

/// `frame` as the server says it who was asked by `request`.
fn sealed(frame: &Frame, request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    frame.emit(&mut out).unwrap();
    Seal::of_session(&key(), &request.authentication, Side::Server).close(&mut out, 0);
    out
}

/// The server wants to know whether it is heard.
fn question() -> Frame {
    Frame::Data(Data {
        session: ID,
        width: Width::Bits16,
        kind: Kind::File,
        timestamp: Some(Timestamp([1; 16])),
        status_wanted: true,
        end: false,
        offset: 0,
        len: 0,
    })
}

#[test]
fn a_request_that_nobody_has_answered_for_a_minute_is_signed_anew() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("a");
    std::fs::write(&file, "a").unwrap();
    let tree = bentpipe_saratoga_files::Tree::open(here.path()).unwrap();
    let get = |take| Job::Get {
        remote: "a".to_owned(),
        target: Target::File(tree.clone(), format!("got{take}")),
        take,
        size: None,
    };
    let put = |give| Job::Put {
        local: Some(LocalFile::named(file.clone())),
        remote: "a".to_owned(),
        give,
        size: None,
    };
    let list = Job::List {
        remote: "a".to_owned(),
    };
    // After all of this was made.
    let start = timer::now() + Duration::from_secs(5);
    for job in [get(false), get(true), put(false), put(true), list, rm()] {
        let (mut young, request) = session(&job, 50);
        assert_eq!(said(&mut young, start), Frame::Request(request), "{job:?}");
        // It has the file that the next one writes.
        drop(young);
        // That of a file that takes long to be summed up is old before it is said.
        for age in [70, 1000] {
            let (mut session, request) = session(&job, age);
            let Frame::Request(anew) = said(&mut session, start) else {
                panic!("{job:?} does not ask");
            };
            assert_ne!(anew.authentication, request.authentication, "{job:?}");
            assert_eq!(key().verify(&anew), Proof::Valid);
            // A late answer to the older one counts for nothing, and one to this all.
            let refusal = refusal(ID, Code::NOT_FOUND);
            session.take(&sealed(&refusal, &request), start);
            assert!(session.timeout(start).is_none(), "{job:?}");
            session.take(&sealed(&refusal, &anew), start);
            let said = session.timeout(start).unwrap().unwrap_err();
            assert_eq!(said.code(), Code::NOT_FOUND, "{said}");
        }
    }
}

/// A server deletes nothing before it is told that its question was heard: of what was heard it may be done.
#[test]
fn a_deletion_that_may_be_done_is_not_signed_anew() {
    // After all of this was made.
    let start = timer::now() + Duration::from_secs(5);
    let (mut waited, first) = session(&rm(), 70);
    let anew = said(&mut waited, start);
    let Frame::Request(request) = anew.clone() else {
        panic!("it does not ask");
    };
    assert_ne!(request, first);
    waited.take(&sealed(&question(), &request), start);
    assert!(matches!(said(&mut waited, start), Frame::Status(_)));
    let later = start + Duration::from_secs(5);
    assert_eq!(said(&mut waited, later), anew, "not the first again");
    for age in [70, 110, 130] {
        let (mut session, request) = session(&rm(), age);
        session.take(&sealed(&question(), &request), start);
        assert!(matches!(said(&mut session, start), Frame::Status(_)));
        let again = said(&mut session, start);
        assert_eq!(again, Frame::Request(request), "{age}");
        // Who believes the REQUEST no more has no seal for it. Until it is that old, somebody else says so.
        let mut denied = Vec::new();
        let frame = refusal(ID, Code::DENIED);
        frame.emit(&mut denied).unwrap();
        session.take(&denied, start);
        let over = session.timeout(start + DOUBT);
        assert_eq!(over.is_some(), age > 120, "{over:?}");
        if let Some(over) = over {
            let said = over.unwrap_err().to_string();
            assert!(said.contains("two minutes"), "{said}");
            assert!(!said.contains("key") && !said.contains("clock"), "{said}");
        }
    }
}

/// A NAT has another port for this side by now, and the server knows none of it; what it says of the session of before still comes.
#[test]
fn what_nobody_has_asked_for_contradicts_no_refusal_under_the_key() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("a");
    std::fs::write(&file, "a").unwrap();
    let put = Job::Put {
        local: Some(LocalFile::named(file)),
        remote: "a".to_owned(),
        give: false,
        size: None,
    };
    let start = timer::now() + Duration::from_secs(5);
    for voluntary in [true, false] {
        let (mut session, request) = session(&put, 0);
        said(&mut session, start);
        let Frame::Status(status) = refusal(ID, Code::OK) else {
            panic!("a refusal is a STATUS");
        };
        let status = Frame::Status(Status {
            voluntary,
            ..status
        });
        let mut unknown = Vec::new();
        refusal(ID, Code::UNKNOWN_ID).emit(&mut unknown).unwrap();
        Seal::of_stranger(&key(), ID, Side::Server).close(&mut unknown, 0);
        session.take(&unknown, start);
        session.take(&sealed(&status, &request), start);
        let over = session.timeout(start + DOUBT);
        assert_eq!(over.is_some(), voluntary, "{over:?}");
    }
}
