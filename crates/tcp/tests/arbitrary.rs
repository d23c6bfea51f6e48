//! Whatever segments, calls and times an endpoint meets: it does not panic, asks for no deadline in
//! the past for ever, and answers no segment with a flood.

use bentpipe_base::{Bytes, Instant, Seq};
use bentpipe_tcp::{Config, Connection, EcnMode, VARIANTS};
use bentpipe_wire::{Ecn, Flags, Payload, SackBlock, Segment, TcpOptions, Timestamps};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

const ISS: Seq = Seq(u32::MAX - 50);
const IRS: Seq = Seq(1000);

/// Numbers near what matters, and any.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..12_000, 1 => any::<u32>()]
}

fn segment() -> impl Strategy<Value = Segment> {
    let options = (
        prop::option::of(any::<u16>()),
        prop::option::of(any::<u8>()),
        any::<bool>(),
        prop::collection::vec((number(), number()), 0..6),
    );
    (
        (number(), number(), any::<u8>(), any::<u16>()),
        prop::option::of((any::<u32>(), any::<u32>())),
        prop::option::of(options),
        prop_oneof![Just(0u32), 1u32..3000, any::<u32>()],
    )
        .prop_map(|((seq, ack, bits, window), stamp, options, len)| {
            let all = [
                Flags::FIN,
                Flags::SYN,
                Flags::RST,
                Flags::PSH,
                Flags::ACK,
                Flags::URG,
                Flags::ECE,
                Flags::CWR,
            ];
            let set = (0..8).filter(|i| bits >> i & 1 == 1);
            Segment {
                seq: IRS + seq,
                ack: ISS + ack,
                // Most segments acknowledge.
                flags: set.fold(
                    if bits % 64 > 40 {
                        Flags::ACK
                    } else {
                        Flags::default()
                    },
                    |flags, i| flags | all[i],
                ),
                window,
                timestamps: stamp.map(|(value, echo)| Timestamps { value, echo }),
                options: options.map(|(mss, window_scale, sack_permitted, blocks)| {
                    let sack = blocks.into_iter().map(|(left, right)| SackBlock {
                        left: ISS + left,
                        right: ISS + right,
                    });
                    Box::new(TcpOptions {
                        mss,
                        window_scale,
                        sack_permitted,
                        sack: sack.collect(),
                        unknown: None,
                    })
                }),
                payload: match len {
                    0 => Payload::Absent,
                    len => Payload::Virtual { offset: 0, len },
                },
            }
        })
}

#[derive(Clone, Debug)]
enum Step {
    Input(Segment, u8),
    Wait(u64),
    Write(u64),
    Read(u64),
    Close,
    Abort,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        20 => (segment(), any::<u8>()).prop_map(|(segment, class)| Step::Input(segment, class)),
        6 => (0u64..3000).prop_map(Step::Wait),
        4 => (0u64..20_000).prop_map(Step::Write),
        4 => (0u64..20_000).prop_map(Step::Read),
        1 => Just(Step::Close),
        1 => Just(Step::Abort),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn an_endpoint_bears_whatever_comes(
        variant in 0..VARIANTS.len(),
        ns2 in any::<bool>(),
        open in 0..3,
        mss in prop_oneof![Just(1u16), 500u16..1500],
        ecn in prop::sample::select(&[EcnMode::Off, EcnMode::Accept, EcnMode::Ask][..]),
        user_timeout in prop::option::of((0u64..20_000).prop_map(Duration::from_millis)),
        buffer in prop_oneof![Just(1u64), Just(5000), Just(1u64 << 40)],
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let preset = if ns2 { Config::ns2() } else { Config::rfc() };
        let config = Config {
            mss,
            receive_buffer: Bytes(buffer),
            max_retries: 5,
            ecn,
            user_timeout,
            ..preset.variant(VARIANTS[variant].name).expect("a variant of the table")
        };
        let config = Arc::new(config);
        let mut now = Instant::from_nanos(5);
        let mut tcp = match open {
            0 => Connection::connect(config, ISS, now),
            1 => Connection::listen(config, ISS, now),
            _ => Connection::established(config, ISS, IRS, now),
        };
        for step in steps {
            match step {
                Step::Input(segment, class) => {
                    tcp.receive_marked(&segment, Ecn::of_traffic_class(class), now);
                }
                Step::Wait(millis) => {
                    now += Duration::from_millis(millis);
                    for _ in 0..100 {
                        if tcp.deadline().is_none_or(|at| at > now) {
                            break;
                        }
                        tcp.timeout(now);
                    }
                    prop_assert!(tcp.deadline().is_none_or(|at| at > now));
                }
                Step::Write(len) => drop(tcp.write_virtual(len)),
                Step::Read(len) => drop(tcp.consume(len)),
                Step::Close => tcp.close(now),
                Step::Abort => tcp.abort(now),
            }
            let sent = std::iter::from_fn(|| tcp.transmit(now)).take(30_000).count();
            prop_assert!(sent < 30_000, "{tcp:?}");
            while tcp.event().is_some() {}
            let _ = (tcp.gauges(), tcp.congestion_gauges(), tcp.readable());
        }
    }
}
