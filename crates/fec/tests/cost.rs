//! What the layer costs a packet. Nothing is asserted of it: docs/fec.md has what was measured.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "it asks the kernel for the time that it took, and prints it"
)]

use bentpipe_base::{Instant, Machine, Output};
use bentpipe_fec::{Config, Layer, Overhead, Side, Strength};
use bytes::Bytes;
use core::time::Duration;

/// QUIC's packets on a path of 1,500 octets.
const PACKET: usize = 1438;
const PACKETS: usize = 20_000;

fn layer(strength: Strength) -> Layer {
    Layer::new(Config {
        overhead: Overhead::Fixed(strength),
        silence: Duration::from_millis(4),
    })
}

fn turn(layer: &mut Layer, arrived: (Side, Bytes), out: &mut Vec<Bytes>) {
    layer.turn(Some(arrived), Instant::ZERO, |output| match output {
        Output::Packet(_, packet) => out.push(packet),
        Output::Event(event) => match event {},
    });
}

/// The nanoseconds that this thread has had a processor: what runs beside it does not count.
fn processor_time() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    told.split_whitespace().next().unwrap().parse().unwrap()
}

/// Prints the nanoseconds of processor time that each end takes for a packet:
/// `cargo test --release -p bentpipe-fec --test cost -- --ignored --nocapture`.
#[test]
#[ignore = "measures, and asserts nothing"]
fn nanoseconds_a_packet() {
    for (every, window) in [(20, 200), (10, 200), (7, 200), (20, 500)] {
        for one_in in [usize::MAX, 100, 20] {
            let strength = Strength {
                every,
                window,
                tail: 0,
            };
            let (mut near, mut far) = (layer(strength), layer(strength));
            let packet = Bytes::from(vec![7; PACKET]);
            let mut sent = Vec::new();
            let began = processor_time();
            for _ in 0..PACKETS {
                turn(&mut near, (Side::Quic, packet.clone()), &mut sent);
            }
            let sending = processor_time() - began;
            let arrived = sent.drain(..).zip(1..).filter(|(_, n)| n % one_in != 0);
            let mut given = Vec::new();
            let began = processor_time();
            arrived.for_each(|(frame, _)| turn(&mut far, (Side::Path, frame), &mut given));
            let receiving = processor_time() - began;
            let [sending, receiving] = [sending, receiving].map(|time| time / PACKETS as u64);
            let recovered = far.counters().received.recovered;
            let loss = 100.0 / one_in as f64;
            println!(
                "every {every}, window {window}, {loss:.0}% lost: \
                 sender {sending} ns, receiver {receiving} ns a packet; {recovered} recovered"
            );
        }
    }
}
