//! What is written reads back the same; the example scenarios are right.

use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_scenario::{
    Amount, BufferRange, Direction, Flow, FlowKind, Gateway, Host, Ip, Link, Queue, QueueLimit,
    Router, Scenario, TcpSettings,
};
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
        },
    )
}

fn direction() -> impl Strategy<Value = Direction> {
    let limit = prop_oneof![
        any::<u32>().prop_map(QueueLimit::Packets),
        bytes(0..1 << 40).prop_map(QueueLimit::Bytes),
    ];
    let share =
        || (0.0..=1.0f64).prop_map(|share| Probability::new(share).expect("drawn from [0, 1]"));
    let rate = prop::option::of((1u64..1 << 40, limit));
    (rate, duration(0..1 << 42), share(), share(), bytes(0..9999)).prop_map(
        |(rate, delay, packet_error_rate, bit_error_rate, overhead)| Direction {
            rate: rate.map(|(rate, _)| Rate::from_bits_per_sec(rate)),
            queue: rate.map_or_else(Queue::default, |(_, limit)| Queue::DropTail(limit)),
            delay,
            packet_error_rate,
            bit_error_rate,
            overhead,
        },
    )
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
    let amount = prop_oneof![
        bytes(1..1 << 50).prop_map(Amount::Bytes),
        duration(1..1 << 33).prop_map(Amount::Duration),
    ];
    let control = prop_oneof![
        Just((None, None)),
        "[a-z][a-z0-9_]{0,14}".prop_map(|name| (Some(name), None)),
        (1u64..1 << 40).prop_map(|rate| {
            let rate = Rate::from_bits_per_sec(rate);
            (Some("bentpipe_hybla".to_owned()), Some(rate))
        }),
    ];
    (any::<[bool; 2]>(), duration(0..1 << 33), amount, control).prop_map(
        |([down, passive], start, amount, (congestion_control, path_rate))| {
            let mut ends = ["terminal".to_owned(), "server".to_owned()];
            if down {
                ends.reverse();
            }
            Flow {
                name: String::new(),
                kind: FlowKind::Bulk,
                opened_by: ends[usize::from(passive)].clone(),
                from: ends[0].clone(),
                to: ends[1].clone(),
                start,
                amount,
                congestion_control,
                path_rate,
            }
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let split = prop::option::of("[a-z\"\n\\\\]{0,9}").prop_map(|text| {
        text.map(|text| {
            let legs = toml::toml! { sat = { rate = "10Mbit/s", pace = 0.99 } lan = {} };
            toml::Table::from_iter([
                ("flows".to_owned(), toml::Value::Integer(9)),
                ("note".to_owned(), toml::Value::String(text)),
                ("legs".to_owned(), toml::Value::Table(legs)),
            ])
        })
    });
    let links = (
        link("terminal", "near"),
        link("hub", "near"),
        link("hub", "server"),
    );
    let flows = prop::collection::vec(flow(), 0..4);
    let settings = (tcp(), tcp(), tcp());
    let heads = ("[a-zA-Z][a-zA-Z0-9_-]{3,14}", 0..1u64 << 63, any::<bool>());
    (heads, settings, split, links, flows).prop_map(
        |((name, seed, six), (terminal, server, hub), split, links, mut flows)| {
            for (index, flow) in flows.iter_mut().enumerate() {
                flow.name = format!("f{index}");
            }
            let hub = Gateway {
                sat: "space".into(),
                lan: "ground".into(),
                tcp: hub,
                split,
            };
            let host = |tcp| Host { tcp };
            Scenario {
                name: if name == "default" {
                    "other".into()
                } else {
                    name
                },
                seed,
                time_limit: Duration::from_secs(60),
                ip: if six { Ip::V6 } else { Ip::V4 },
                hosts: [
                    ("terminal".into(), host(terminal)),
                    ("server".into(), host(server)),
                ]
                .into(),
                routers: [("near".into(), Router {})].into(),
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
        Queue::DropTail(QueueLimit::Packets(1000))
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
        Queue::DropTail(QueueLimit::Packets(100))
    );
    assert_eq!(space.reverse.delay, space.forward.delay);
    assert_eq!(space.reverse.bit_error_rate, space.forward.bit_error_rate);
}
