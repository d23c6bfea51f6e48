//! Explicit congestion notification in the simulator (RFC 3168).

mod common;

use bentpipe_outcome::Run;
use bentpipe_sim::Options;
use bentpipe_tcp::Counters;
use common::TcpCounters;

/// Two flows over a narrow link behind a RED queue; `queue` of it, and `hosts` of both.
fn scenario(hosts: [&str; 2], queue: &str, rest: &str) -> String {
    let [a, b] = hosts;
    format!(
        "name = \"ecn\"\ntime_limit = \"60s\"\n[hosts.a]\n{a}\n[hosts.b]\n{b}\n[routers.r]\n\
         [links.near]\nends = [\"a\", \"r\"]\nrate = \"20Mbit/s\"\ndelay = \"5ms\"\n\
         [links.far]\nends = [\"r\", \"b\"]\nrate = \"4Mbit/s\"\ndelay = \"40ms\"\n\
         queue = {{ kind = \"red\", packets = 200, min_threshold = 10, max_threshold = 60, {queue} }}\n\
         [[flows]]\nname = \"f\"\ncount = 2\nfrom = \"a\"\nto = \"b\"\nbytes = \"8MB\"\n{rest}\n"
    )
}

fn marks(outcome: &Run) -> u64 {
    outcome.links.iter().map(|link| link.marked).sum()
}

/// `of` the sources of all flows, which open their connections, or of the receivers.
fn sum(counters: &TcpCounters, sources: bool, of: fn(&Counters) -> u64) -> u64 {
    let own = counters
        .0
        .iter()
        .filter(|((_, opens), _)| *opens == sources);
    own.map(|(_, counters)| of(counters)).sum()
}

#[test]
fn who_speaks_ecn_is_marked_and_slows_down_without_losing_anything() {
    for control in ["reno", "cubic", "hybla"] {
        let rest = format!("congestion_control = \"{control}\"");
        let asks = ["ecn = \"ask\"", ""];
        let [with, without] = [("ecn = true", asks), ("", asks)]
            .map(|(queue, hosts)| common::parse(&scenario(hosts, queue, &rest)))
            .map(|scenario| common::counted(&scenario, &Options::default()));
        let ((with, counted), (without, counted_without)) = (with, without);
        assert!(marks(&with) > 0, "{control}");
        assert_eq!(marks(&without), 0);
        let reductions = sum(&counted, true, |tcp| tcp.mark_reductions);
        assert!(
            (1..=marks(&with)).contains(&reductions),
            "{control}: {reductions}"
        );
        assert_eq!(
            sum(&counted, false, |tcp| tcp.marks),
            marks(&with),
            "{control}"
        );
        let [again, again_without] =
            [&counted, &counted_without].map(|it| sum(it, true, |tcp| tcp.retransmitted));
        assert!(again_without > 10, "{control}: {again_without}");
        assert!(again < again_without, "{control}: {again}");
        for flow in &with.flows {
            assert!(flow.completion.is_some(), "{control}: {flow:?}");
        }
    }
}

/// The bytes that would be on the wire carry the field, and give the same outcome.
#[test]
fn marks_are_on_the_wire() {
    let text = scenario(["ecn = \"ask\"", ""], "ecn = true", "");
    let parsed = common::parse(&text);
    let wire = Options {
        wire: true,
        ..Options::default()
    };
    let run = |options| bentpipe_sim::run(&parsed, options).expect("it can run");
    assert_eq!(run(&Options::default()), run(&wire));
}

/// What nobody asks for changes nothing: neither what hosts would agree to, nor a queue that would mark.
#[test]
fn without_a_host_that_asks_all_is_as_before() {
    let run = |hosts, queue| common::run(&scenario(hosts, queue, ""));
    let off = ["ecn = \"off\"", "ecn = \"off\""];
    let before = run(off, "");
    for hosts in [
        ["", ""],
        ["ecn = \"accept\"", "ecn = \"ask\""],
        ["ecn = \"ask\"", off[1]],
    ] {
        let now = run(hosts, "ecn = true");
        assert_eq!(marks(&now), 0, "{hosts:?}");
        assert_eq!(now, before, "{hosts:?}");
    }
}

/// A split takes connections over on which its ends have agreed: its legs mark, echo and heed as these expect.
#[test]
fn a_split_heeds_and_echoes_marks_on_both_of_its_legs() {
    let text = "name = \"ecn\"\ntime_limit = \"60s\"\n[hosts.a]\necn = \"ask\"\n[hosts.b]\n\
        [gateways.g]\nsat = \"far\"\nlan = \"near\"\n\
        [gateways.g.split.sat]\ncongestion_control = \"reno\"\n\
        [links.near]\nends = [\"a\", \"g\"]\nrate = \"5Mbit/s\"\ndelay = \"20ms\"\n\
        queue = { kind = \"red\", packets = 200, min_threshold = 5, max_threshold = 20, ecn = true }\n\
        [links.far]\nends = [\"g\", \"b\"]\nrate = \"4Mbit/s\"\ndelay = \"250ms\"\n\
        queue = { kind = \"red\", packets = 800, min_threshold = 20, max_threshold = 200, ecn = true }\n\
        [[flows]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nbytes = \"10MB\"\n";
    let (outcome, counted) = common::counted(&common::parse(text), &Options::default());
    let [near, far] = ["near", "far"].map(|name| {
        let links = outcome.links.iter().filter(|link| link.link == name);
        links.map(|link| link.marked).sum::<u64>()
    });
    let flow = &outcome.flows[0];
    assert!(flow.completion.is_some(), "{flow:?}");
    assert!(near > 0 && far > 0, "{near} {far}");
    let reductions = sum(&counted, true, |tcp| tcp.mark_reductions);
    assert!(reductions > 0, "the gateway echoes: {flow:?}");
    let marks = sum(&counted, false, |tcp| tcp.marks);
    assert!(marks > 0, "what the gateway sends is capable: {flow:?}");
}
