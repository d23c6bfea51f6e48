//! What is written reads back the same; the example scenarios are right.

use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_cc::SlowStart;
use bentpipe_link::Burst;
use bentpipe_link::channel::{self, Form};
use bentpipe_link::keys::{Key, Otherwise, Value};
use bentpipe_link::queue;
use bentpipe_scenario::{
    AckFilter, Amount, BufferRange, Change, Channel, Channels, Direction, EcnMode, Endpoint, Flow,
    FlowKind, Gateway, Host, Ip, Link, Pep, PepKind, Preset, Queue, QueueLimit, Router, Scenario,
    Snoop, SnoopPreset, Split, TcpSettings, Traffic, TrafficSource,
};
use bentpipe_traffic::Model;
use core::time::Duration;
use proptest::prelude::*;

fn bytes(range: core::ops::Range<u64>) -> impl Strategy<Value = Bytes> {
    range.prop_map(Bytes)
}

fn duration(nanos: core::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    nanos.prop_map(Duration::from_nanos)
}

fn tcp() -> impl Strategy<Value = TcpSettings> {
    let range = || {
        prop::array::uniform3(1u64..1 << 31).prop_map(|mut sizes| {
            sizes.sort_unstable();
            BufferRange::new(sizes[0], sizes[1], sizes[2])
        })
    };
    (range(), range(), "[a-z][a-z0-9_]{0,14}").prop_map(
        |(receive_buffer, send_buffer, congestion_control)| TcpSettings {
            receive_buffer,
            send_buffer,
            congestion_control,
            ..TcpSettings::default()
        },
    )
}

fn share() -> impl Strategy<Value = Probability> {
    (0.0..=1.0f64).prop_map(|share| Probability::new(share).expect("drawn from [0, 1]"))
}

fn limit() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        any::<u32>().prop_map(QueueLimit::Packets),
        bytes(0..1 << 40).prop_map(QueueLimit::Bytes),
    ]
}

/// A value as a key has it that is like `example`.
fn value(example: Value) -> BoxedStrategy<Value> {
    match example {
        Value::Chance(_) => share().prop_map(Value::Chance).boxed(),
        Value::Time(_) => duration(1..1 << 42).prop_map(Value::Time).boxed(),
        Value::Size(_) => bytes(1..65_536).prop_map(Value::Size).boxed(),
        Value::Number(_) => prop_oneof![0.001..=1.0f64, 1.0..1e6f64]
            .prop_map(Value::Number)
            .boxed(),
        Value::Flag(_) => any::<bool>().prop_map(Value::Flag).boxed(),
        Value::Length(_) => (0u64..50).prop_map(Value::Length).boxed(),
        Value::Numbers(_) => prop::collection::btree_set(0u64..1 << 40, 0..4)
            .prop_map(|numbers| Value::Numbers(numbers.into_iter().collect()))
            .boxed(),
    }
}

/// Of any kind there is, with any of its keys said that fit together.
fn queue() -> impl Strategy<Value = Queue> {
    let kinds = queue::registry::<()>().iter().map(|entry| entry.spec);
    let kinds: Vec<_> = kinds.collect();
    let kind = prop::sample::select(kinds);
    (kind, limit()).prop_flat_map(move |(spec, limit)| {
        said(spec.keys).prop_map(move |said| {
            Queue::new(spec.name, limit, &said)
                .unwrap_or_else(|_| Queue::new("drop-tail", limit, &[]).expect("it has no keys"))
        })
    })
}

/// What must be said of `keys`, and any of what may be.
fn said(keys: &'static [Key]) -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let one = |key: &'static Key| {
        let required = key.otherwise == Otherwise::Required;
        let said = any::<bool>().prop_map(move |said| said || required);
        (value((key.example)()), said).prop_map(|(value, said)| said.then_some((key.name, value)))
    };
    let all: Vec<_> = keys.iter().map(one).collect();
    all.prop_map(|said| said.into_iter().flatten().collect())
}

/// Of the kinds that there are, in any of the ways to describe them.
fn channels() -> impl Strategy<Value = Channels> {
    let kinds = channel::REGISTRY.iter().map(|spec| {
        let most = if spec.form == Form::List { 2 } else { 1 };
        let ways = spec.ways.iter().map(|keys| said(keys));
        let any = prop::collection::vec(prop::strategy::Union::new(ways), 0..=most);
        any.prop_map(move |all| {
            let all = all.iter().map(|said| Channel::new(spec.key, said));
            all.filter_map(Result::ok).collect::<Vec<_>>()
        })
    });
    // Back to front: what stands first in a file is for the registry to say.
    kinds
        .collect::<Vec<_>>()
        .prop_map(|all| all.into_iter().rev().flatten().collect())
}

/// In order, none at the same time; of the rate only where there is one from the start.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    let rate = prop::option::of(1u64..1 << 40);
    let change = (1u64..1 << 40, rate, duration(0..1 << 42));
    prop::collection::vec(change, 0..3).prop_map(|steps| {
        let mut at = Duration::ZERO;
        let change = |(later, rate, delay): (u64, Option<u64>, Duration)| {
            at += Duration::from_nanos(later);
            Change {
                at,
                rate: rate.map(Rate::from_bits_per_sec),
                delay: (rate.is_none() || later % 2 == 0).then_some(delay),
            }
        };
        steps.into_iter().map(change).collect()
    })
}

fn direction() -> impl Strategy<Value = Direction> {
    let rate = prop::option::of((1u64..1 << 40, queue()));
    let way = (duration(0..1 << 42), changes());
    (rate, way, (channels(), any::<bool>()), bytes(0..9999)).prop_map(
        |(rate, (delay, changes), (channels, errors_before_queue), overhead)| Direction {
            changes: if rate.is_some() { changes } else { Vec::new() },
            rate: { rate.as_ref() }.map(|(rate, _)| Rate::from_bits_per_sec(*rate)),
            burst: rate
                .as_ref()
                .filter(|_| overhead.0 % 2 == 1)
                .map(|(rate, _)| Burst {
                    bytes: Bytes(overhead.0 * 20),
                    ceiling: Rate::from_bits_per_sec(rate + overhead.0 % 3),
                }),
            queue: rate.map_or_else(Queue::default, |(_, queue)| queue),
            delay,
            jitter: delay / 3,
            channels,
            errors_before_queue,
            overhead,
        },
    )
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    use prop::option::of;
    let sizes = (
        of(bytes(1..65_496)),
        of(bytes(1..1 << 29)),
        of(bytes(0..65_536)),
        of(bytes(0..65_536)),
    );
    let times = (
        of(duration(0..1 << 42)),
        of(duration(1..1 << 42)),
        of(duration(1..1 << 40)),
        of(duration(1 << 40..1 << 42)),
    );
    let flags = prop::array::uniform6(of(any::<bool>()));
    (any::<bool>(), of(1u32..=1_000_000), sizes, times, flags).prop_map(
        |(ns2, initial_window, sizes, times, flags)| Endpoint {
            handshake: None,
            first_is_syn: flags[1],
            preset: if ns2 { Preset::Ns2 } else { Preset::Rfc },
            recovery: flags[0].map(|_| "prr-rack".to_owned()),
            slow_start: initial_window.map(|it| SlowStart::ALL[it as usize % 3]),
            mss: sizes.0,
            initial_window,
            delayed_ack: times.0,
            quick_acks: flags[1].map(|more| if more { 16 } else { 0 }),
            initial_rto: times.1,
            min_rto: times.2,
            rto_variance: times.0,
            timer_tick: times.1,
            max_rto: times.3,
            limited_transmit: flags[0],
            dsack: flags[3],
            linux_sack: flags[2],
            frto: flags[4],
            eifel: flags[5],
            timestamps: flags[1],
            nagle: flags[2],
            receive_window: sizes.1,
            data_header: sizes.2,
            ack_header: sizes.3,
            syn_length: sizes.3.map(|size| size.max(Bytes(1))),
        },
    )
}

fn pep() -> impl Strategy<Value = Pep> {
    let filter = any::<Option<u32>>().prop_map(|packets| Pep {
        node: "hub".to_owned(),
        link: "space".to_owned(),
        enabled: true,
        kind: PepKind::AckFilter(AckFilter { packets }),
    });
    prop_oneof![1 => filter, 4 => snoop()]
}

fn snoop() -> impl Strategy<Value = Pep> {
    use prop::option::of;
    let flags = any::<[bool; 3]>();
    (
        flags,
        of(limit()),
        of(duration(1..1 << 42)),
        any::<Option<u32>>(),
    )
        .prop_map(
            |([near, enabled, ns2], cache, min_timeout, max_retransmissions)| Pep {
                node: if near { "near" } else { "hub" }.to_owned(),
                link: "space".to_owned(),
                enabled,
                kind: PepKind::Snoop(Snoop {
                    preset: if ns2 {
                        SnoopPreset::Ns2
                    } else {
                        SnoopPreset::Standard
                    },
                    cache,
                    min_timeout,
                    max_retransmissions,
                }),
            },
        )
}

/// How a gateway splits, in its own keys and those that only simulated legs have.
fn split() -> impl Strategy<Value = Split> {
    let control = prop_oneof![
        Just(""),
        Just("variant = \"sack\", initial_window = 30, "),
        Just("congestion_control = \"cubic\", insist = true, "),
    ];
    let rate = prop::option::of(8_000u64..1 << 30);
    let buffer = prop_oneof![
        Just("infinite".to_owned()),
        (4u64 << 10..1 << 30).prop_map(|size| format!("{size}B")),
    ];
    let head = prop_oneof![
        Just(""),
        Just(
            "handshake = \"early\", intercept = \"lan\", limits = { flows = 9, idle = \"30s\" }, "
        ),
        Just(
            "flow_log = '/a\"b\\c', policy = [{ port = [80, \"6000-6999\"], action = \"bypass\" }], "
        ),
    ];
    (head, control, rate, buffer).prop_map(|(head, control, rate, buffer)| {
        let rate = rate.map_or_else(String::new, |rate| {
            format!("rate = \"{rate}bit/s\", pacing = 0.99, ")
        });
        let legs = format!(
            "sat = {{ {control}{rate}send_buffer = \"{buffer}\" }}, lan = {{ receive_buffer = \"{buffer}\" }}"
        );
        let text = format!(
            "name = \"split\"\n[hosts.a]\n[hosts.b]\n[gateways.g]\nsat = \"x\"\nlan = \"y\"\n\
             split = {{ {head}{legs} }}\n\
             [links.x]\nends = [\"a\", \"g\"]\n[links.y]\nends = [\"g\", \"b\"]\n"
        );
        let read = Scenario::parse("split.toml", &text).unwrap_or_else(|all| panic!("{all}"));
        read.gateways["g"].split.clone().expect("it has one")
    })
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let source = prop_oneof![
        (any::<bool>(), 0usize..=10_000).prop_map(|(ftp, flows)| TrafficSource::Model {
            model: if ftp {
                Model::ftp()
            } else {
                Model::reference()
            },
            flows,
        }),
        "[a-z\"\\\\ ]{1,9}\\.csv".prop_map(|file| TrafficSource::Profile {
            file,
            profile: None,
        }),
    ];
    (source, prop::option::of(Just("sack".to_owned()))).prop_map(|(source, variant)| Traffic {
        source,
        between: ["server".to_owned(), "terminal".to_owned()],
        variant,
    })
}

fn link(a: &'static str, b: &'static str) -> impl Strategy<Value = Link> {
    let wire = Just((Direction::default(), Direction::default()));
    let directions = prop_oneof![wire, (direction(), direction())];
    (directions, bytes(1280..9001)).prop_map(move |((forward, reverse), mtu)| Link {
        mtu,
        forward,
        reverse,
        ..Link::wire(a, b)
    })
}

fn flow() -> impl Strategy<Value = Flow> {
    let kind = prop_oneof![
        Just(FlowKind::Bulk),
        (bytes(1..1 << 40), bytes(1..1 << 40), duration(0..1 << 42)).prop_map(
            |(request, response, think)| FlowKind::RequestResponse {
                request,
                response,
                think
            }
        ),
        (
            duration(1..1 << 42),
            duration(1..1 << 42),
            prop::option::of(1u64..1 << 40),
            any::<bool>()
        )
            .prop_map(|(on, off, rate, exponential)| FlowKind::OnOff {
                on,
                off,
                rate: rate.map(Rate::from_bits_per_sec),
                exponential,
            }),
    ];
    let amount = prop_oneof![
        (1u64..1 << 50).prop_map(Amount::Segments),
        bytes(1..1 << 50).prop_map(Amount::Bytes),
        duration(1..1 << 33).prop_map(Amount::Duration),
    ];
    let control = prop_oneof![
        Just((None, None, None)),
        "[a-z][a-z0-9_]{0,14}".prop_map(|name| (Some(name), None, None)),
        "[a-z][a-z0-9_+]{0,14}".prop_map(|name| (None, Some(name), None)),
        (1u64..1 << 40).prop_map(|rate| {
            let rate = Rate::from_bits_per_sec(rate);
            (Some("bentpipe_hybla".to_owned()), None, Some(rate))
        }),
    ];
    let times = (duration(0..1 << 33), amount);
    (any::<[bool; 2]>(), kind, times, control).prop_map(
        |([down, passive], kind, (start, amount), (congestion_control, variant, path_rate))| {
            let mut ends = ["terminal".to_owned(), "server".to_owned()];
            if down {
                ends.reverse();
            }
            let plain = congestion_control.is_none() && variant.is_none();
            let file = kind == FlowKind::Bulk && matches!(amount, Amount::Bytes(_)) && plain;
            Flow {
                name: String::new(),
                kind,
                app: file.then(|| "saratoga".to_owned()),
                opened_by: ends[usize::from(passive)].clone(),
                from: ends[0].clone(),
                to: ends[1].clone(),
                start,
                amount,
                congestion_control,
                variant,
                path_rate,
            }
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let split = (prop::option::of(split()), any::<bool>(), endpoint());
    let links = (
        link("terminal", "near"),
        link("hub", "near"),
        link("hub", "server"),
    );
    let flows = prop::collection::vec(flow(), 0..4);
    let settings = (tcp(), tcp(), tcp());
    let extras = (
        endpoint(),
        (any::<bool>(), prop::sample::select(&EcnMode::ALL[..])),
        prop::option::of(pep()),
        prop::option::of(traffic()),
    );
    let heads = ("[a-zA-Z][a-zA-Z0-9_-]{3,14}", 0..1u64 << 63, any::<bool>());
    (heads, settings, extras, split, links, flows).prop_map(
        |(
            (name, seed, six),
            (terminal, server, hub),
            (endpoint, (sack, ecn), pep, traffic),
            (split, enabled, legs),
            links,
            mut flows,
        )| {
            for (index, flow) in flows.iter_mut().enumerate() {
                flow.name = format!("f{index}");
            }
            let hub = Gateway {
                sat: "space".into(),
                lan: "ground".into(),
                tcp: hub,
                endpoint: legs,
                enabled,
                // A node and link have one proxy.
                split: split.filter(|_| pep.is_none()),
            };
            let host = |tcp, endpoint| Host { tcp, endpoint };
            Scenario {
                traffic,
                name: if name == "default" {
                    "other".into()
                } else {
                    name
                },
                seed,
                time_limit: Duration::from_secs(60),
                ip: if six { Ip::V6 } else { Ip::V4 },
                hosts: [
                    (
                        "terminal".into(),
                        host(
                            TcpSettings {
                                sack,
                                ecn,
                                ..terminal
                            },
                            endpoint,
                        ),
                    ),
                    ("server".into(), host(server, Endpoint::default())),
                ]
                .into(),
                routers: [("near".into(), Router {})].into(),
                peps: pep.map(|pep| ("agent".into(), pep)).into_iter().collect(),
                gateways: [("hub".into(), hub)].into(),
                links: [
                    ("access".into(), links.0),
                    ("space".into(), links.1),
                    ("ground".into(), links.2),
                ]
                .into(),
                flows,
            }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_reads_back_the_same(scenario in scenario()) {
        let text = scenario.to_toml();
        match Scenario::parse("written.toml", &text) {
            Ok(read) => prop_assert_eq!(read, scenario, "{}", text),
            Err(problems) => prop_assert!(false, "{}\n{}", problems, text),
        }
    }
}

#[test]
fn the_examples_are_right_and_read_back_the_same() {
    let examples = [
        (
            "asymmetric6",
            include_str!("../../../scenarios/asymmetric6.toml"),
        ),
        ("geo", include_str!("../../../scenarios/geo.toml")),
        (
            "reference",
            include_str!("../../../scenarios/reference.toml"),
        ),
        ("split", include_str!("../../../scenarios/split.toml")),
    ];
    for (name, text) in examples {
        let scenario = Scenario::parse(name, text).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(scenario.name, name);
        let again = Scenario::parse("again", &scenario.to_toml());
        assert_eq!(again.as_ref(), Ok(&scenario), "{name}");
    }
    // The reference states the defaults truly: its terminal says what its server leaves out.
    let text = examples[2].1;
    let reference = Scenario::parse("reference", text).unwrap();
    assert_eq!(reference.hosts["terminal"], reference.hosts["server"]);
    assert_eq!(reference.gateways["hub"].tcp, TcpSettings::default());
}

#[test]
fn what_a_file_leaves_out_is_what_the_documentation_says() {
    let text = "name = \"least\"\n[hosts.a]\n[hosts.b]\n[links.l]\nends = [\"a\", \"b\"]\n\
                [[flows]]\nfrom = \"a\"\nto = \"b\"\nbytes = \"1B\"\n";
    let read = Scenario::parse("least.toml", text).unwrap();
    let stock = TcpSettings {
        receive_buffer: BufferRange::new(4096, 131_072, 6_291_456),
        send_buffer: BufferRange::new(4096, 16_384, 4_194_304),
        congestion_control: "cubic".into(),
        sack: true,
        ecn: EcnMode::Accept,
    };
    assert_eq!(read.hosts["a"].tcp, stock);
    assert!(!read.links["l"].is_emulated());
    assert_eq!(read.links["l"].mtu, Bytes(1500));
    assert_eq!((read.seed, read.ip), (1, Ip::V4));
    assert_eq!(read.time_limit, Duration::from_secs(60));
    assert_eq!(read.flows[0].opened_by, "a");
    assert_eq!(read.flows[0].name, "flow1");
    assert_eq!(
        Direction::default().queue,
        Queue::drop_tail(QueueLimit::Packets(1000))
    );
}

#[test]
fn the_reverse_is_as_forward_save_what_it_says() {
    let text = include_str!("../../../scenarios/asymmetric6.toml");
    let space = &Scenario::parse("asymmetric6.toml", text).unwrap().links["space"];
    assert_eq!(space.forward.rate.unwrap().mbps(), 50.0);
    assert_eq!(space.reverse.rate.unwrap().mbps(), 5.0);
    assert_eq!(
        space.reverse.queue,
        Queue::drop_tail(QueueLimit::Packets(100))
    );
    assert_eq!(space.reverse.delay, space.forward.delay);
    assert_eq!(space.reverse.channels, space.forward.channels);
}
