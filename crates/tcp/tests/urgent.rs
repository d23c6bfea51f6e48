//! Urgent data (RFC 9293, section 3.8.5; RFC 6093): taken in order with the rest of the stream, none of it lost.

#[path = "support/script.rs"]
mod script;

use bentpipe_tcp::{Config, Event};
use bentpipe_wire::{Flags, Payload, TcpOptions};
use bytes::Bytes;
use script::{ACK, FIN, In, Script, mss, plain, seg};

const URG: Flags = Flags::URG;

fn open() -> Script {
    let config = Config {
        sack_blocks: 4,
        ..plain()
    };
    let options = TcpOptions {
        sack_permitted: true,
        ..mss(1000)
    };
    Script::open_with(config, options)
}

fn carrying(flags: Flags, seq: i64, bytes: &'static [u8]) -> In {
    let mut segment = self::seg(flags, seq, 1);
    segment.0.payload = Payload::from(Bytes::from_static(bytes));
    segment
}

fn read(script: &mut Script) -> Vec<u8> {
    let mut all = [0; 100];
    let count = script.tcp.read(&mut all);
    all[..count].to_vec()
}

#[test]
fn urgent_bytes_are_read_in_their_place() {
    let mut script = open();
    script.inject(carrying(ACK, 1, b"before "));
    script.inject(carrying(ACK | URG, 8, b"urgent!"));
    script.inject(carrying(ACK, 15, b" after"));
    assert!(script.events().contains(&Event::Readable));
    assert_eq!(read(&mut script), b"before urgent! after");
    let acks: Vec<u32> = script.out().iter().map(|out| out.ack).collect();
    assert_eq!(acks.last(), Some(&21));
}

#[test]
fn they_may_arrive_in_any_order_and_twice() {
    let mut script = open();
    script.inject(carrying(ACK | URG, 8, b"urgent!"));
    assert_eq!(script.out()[0].sack, [(8, 15)]);
    script.inject(carrying(ACK | URG, 8, b"URGENT?"));
    script.inject(carrying(ACK | URG | FIN, 15, b" after"));
    assert_eq!(read(&mut script), b"");
    script.inject(carrying(ACK | URG, 1, b"before "));
    // The first bytes win.
    assert_eq!(read(&mut script), b"before urgent! after");
    assert!(script.events().contains(&Event::PeerClosed));
}

#[test]
fn an_urgent_pointer_without_data_is_an_acknowledgement() {
    let mut script = open();
    script.tcp.write_virtual(1000);
    script.out();
    script.inject(seg(ACK | URG, 1, 1001));
    assert_eq!(script.tcp.unacknowledged(), 0);
    assert!(script.out().is_empty());
}

#[test]
fn urgent_segments_beyond_a_shut_window_are_answered_and_dropped() {
    let mut script = Script::open(Config {
        receive_buffer: bentpipe_base::Bytes(7),
        ..plain()
    });
    script.inject(carrying(ACK | URG, 1, b"before "));
    script.out();
    script.inject(carrying(ACK | URG, 8, b"urgent!"));
    let out = script.out();
    assert_eq!(
        out.iter()
            .map(|out| (out.ack, out.window))
            .collect::<Vec<_>>(),
        [(8, 0)]
    );
    assert_eq!(read(&mut script), b"before ");
}
