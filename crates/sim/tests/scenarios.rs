//! The scenarios that come with the program, and what the simulator says where it has to refuse.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use bentpipe_base::Instant;
use bentpipe_outcome::End;
use bentpipe_scenario::{Pep, PepKind, Scenario, Snoop};
use bentpipe_sim::{EndId, Observer, Options, observe, run};
use bentpipe_wire::Segment;
use std::sync::atomic::{AtomicBool, Ordering};

fn refusal(text: &str) -> String {
    run(&common::parse(text), &Options::default())
        .unwrap_err()
        .to_string()
}

/// One file runs in the lab and here.
#[test]
fn the_geostationary_download_runs() {
    let text = include_str!("../../../scenarios/geo.toml");
    let scenario = Scenario::parse("geo.toml", text).unwrap();
    let outcome = run(&scenario, &Options::default()).unwrap();
    let flow = &outcome.flows[0];
    assert_eq!(flow.end, End::Finished);
    assert_eq!(flow.elapsed.as_secs(), 30);
    // 1% loss at 600 ms: the formula of Mathis et al., mss/RTT * 1.22/sqrt(p), gives 0.24 Mb/s for
    // Reno; the kernel's CUBIC reached 0.44. The limit of the link is 9.5.
    let mbps = flow.goodput().mbps();
    assert!((0.15..1.2).contains(&mbps), "{mbps}");
    assert!((flow.limit.unwrap().mbps() - 9.557).abs() < 0.01);
}

#[test]
fn what_only_the_real_gateway_does_is_refused_with_the_way_out() {
    let split = include_str!("../../../scenarios/split.toml");
    let policy = "[[gateways.hub.split.policy]]\naction = \"bypass\"\ninterface = \"eth0\"\n";
    let snooped = "[[gateways.hub.split.policy]]\naction = \"snoop\"\nport = 80\n";
    for (key, text) in [
        ("policy.interface", format!("{split}\n{policy}")),
        ("policy.action", format!("{split}\n{snooped}")),
    ] {
        let said = refusal(&text);
        assert!(
            said.contains(&format!("`{key}`"))
                && said.contains("in [gateways.hub.split]")
                && said.contains("bentpipe lab run"),
            "{said}"
        );
    }
}

/// What is read from a file was asked before; what is built in code was not.
#[test]
fn two_proxies_in_one_place_are_refused_with_both_names() {
    let text = include_str!("../../../scenarios/geo.toml");
    let mut scenario = Scenario::parse("geo.toml", text).unwrap();
    let pep = |enabled| Pep {
        node: "hub".to_owned(),
        link: "space".to_owned(),
        enabled,
        kind: PepKind::Snoop(Snoop::default()),
    };
    scenario.peps.insert("agent".to_owned(), pep(true));
    scenario.peps.insert("other".to_owned(), pep(true));
    let said = run(&scenario, &Options::default()).unwrap_err().to_string();
    assert!(
        said.contains("`agent` and PEP `other` are both at `hub` on link `space`"),
        "{said}"
    );
    scenario.peps.insert("other".to_owned(), pep(false));
    let outcome = run(&scenario, &Options::default()).unwrap();
    assert_eq!(outcome.proxies.len(), 1);
}

#[test]
fn a_control_of_the_kernel_alone_is_refused_with_those_there_are() {
    let text = include_str!("../../../scenarios/asymmetric6.toml");
    assert!(text.contains("\"bbr\""), "the scenario has another control");
    let said = refusal(&text.replace("\"bbr\"", "\"illinois\""));
    assert!(
        said.contains("`illinois`") && said.contains("`second`"),
        "{said}"
    );
    assert!(said.contains("hybla") && said.contains("reno"), "{said}");
}

/// Hosts a and b beside a router, the link of b as it says; a sends what `flow` says.
fn beside(link: &str, flow: &str) -> String {
    format!(
        "name = \"still\"\ntime_limit = \"10s\"\n[hosts.a]\n[hosts.b]\n[routers.r]\n\
         [links.one]\nends = [\"a\", \"r\"]\n[links.two]\nends = [\"r\", \"b\"]\n{link}\n\
         [[flows]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
    )
}

#[test]
fn what_would_never_end_for_time_stands_still_is_refused_with_words() {
    let request = "kind = \"request-response\"\nresponse = \"10kB\"\nduration = \"1s\"";
    let on_off = "kind = \"on-off\"\non = \"1s\"\noff = \"1s\"\nduration = \"5s\"";
    for flow in ["duration = \"1ns\"", "duration = \"5s\"", request, on_off] {
        let said = refusal(&beside("", flow));
        assert!(
            said.contains("flow `f`") && said.contains("`rate` or a `delay`"),
            "{said}"
        );
    }
    // Delays of nanoseconds would let it send thousands of millions of segments.
    let said = refusal(&beside("delay = \"900ns\"", "duration = \"1s\""));
    assert!(said.contains("microsecond"), "{said}");
    // Nor does a lossy link take time; and a split whose buffer has no bound takes all at once.
    let said = refusal(&beside("packet_error_rate = \"1%\"", "duration = \"1s\""));
    assert!(said.contains("flow `f`"), "{said}");
    let split = "[gateways.r]\nsat = \"two\"\nlan = \"one\"\nsplit = { sat = { send_buffer = \"infinite\" } }\n";
    let text = beside("rate = \"1Mbit/s\"\ndelay = \"10ms\"", "duration = \"1s\"")
        .replace("[routers.r]\n", split);
    let said = refusal(&text);
    assert!(said.contains("before a split"), "{said}");
    // What ends by its amount ends here too, and what takes time does.
    for (link, flow) in [
        ("", "bytes = \"10MB\""),
        ("delay = \"1ms\"", "duration = \"1s\""),
        ("", &*format!("{request}\nthink = \"1ms\"")),
    ] {
        let outcome = run(&common::parse(&beside(link, flow)), &Options::default()).unwrap();
        assert_eq!(outcome.flows[0].end, End::Finished, "{link} {flow}");
    }
}

/// A transfer of cross traffic begins when the one before has ended: without a pause, over links that take no time,
/// all of them at one instant.
#[test]
fn cross_traffic_without_pauses_over_timeless_links_is_refused_with_words() {
    let run = |link: &str, head: &str| {
        let traffic = "[traffic]\nprofile = \"p.csv\"\nbetween = [\"a\", \"b\"]\n";
        let mut scenario =
            common::parse(&(beside(link, "bytes = \"1kB\"\nstart = \"2s\"") + traffic));
        let profile =
            format!("{head}\nflow,direction,start,bytes\n0,forward,0,1000\n1,reverse,0.5,0\n");
        let length = scenario.time_limit;
        scenario
            .traffic
            .as_mut()
            .unwrap()
            .load(&profile, length)
            .unwrap();
        run(&scenario, &Options::default())
    };
    for head in [
        "# idle = 0\n# settle = 0",
        "# idle = 0.000000001",
        "# model = reference\n# idle = 0\n# settle = 0",
    ] {
        let said = run("", head).unwrap_err().to_string();
        assert!(
            said.contains("between `a` and `b`")
                && said.contains("`rate` or a `delay`")
                && said.contains("`idle`"),
            "{said}"
        );
    }
    // A pause, or a single link that takes time in one direction, lets the time go on.
    for (link, head) in [
        ("", "# idle = 0.01"),
        ("", "# idle = 0\n# settle = 0.01"),
        ("delay = \"10ms\"", "# idle = 0"),
        ("[links.two.reverse]\ndelay = \"10ms\"", "# idle = 0"),
    ] {
        let outcome = run(link, head).unwrap();
        assert_eq!(outcome.flows[0].end, End::Finished, "{link} {head}");
    }
}

#[test]
fn vegas_is_warned_of_a_short_syn_and_a_long_one_helps() {
    let link = "rate = \"2Mbit/s\"\ndelay = \"100ms\"\nqueue = { packets = 1000 }";
    let flow = "duration = \"9s\"\nvariant = \"vegas\"";
    let with = |length: &str| {
        let tcp = format!("tcp = {{ timestamps = false{length} }}");
        let hosts = format!("[hosts.a]\n{tcp}\n[hosts.b]\n{tcp}\n");
        common::parse(&beside(link, flow).replace("[hosts.a]\n[hosts.b]\n", &hosts))
    };
    let (short, long) = (with(""), with(", syn_length = \"1500B\""));
    let warnings = bentpipe_sim::warnings(&short).unwrap();
    assert!(
        warnings[0].contains("flow `f`") && warnings[0].contains("syn_length"),
        "{warnings:?}"
    );
    assert_eq!(bentpipe_sim::warnings(&long).unwrap(), Vec::<String>::new());
    let [short, long] = [short, long].map(|scenario| run(&scenario, &Options::default()).unwrap());
    let [short, long] = [short, long].map(|outcome| outcome.flows[0].clone());
    assert!(
        long.segments > short.segments,
        "{:?} {:?}",
        long.segments,
        short.segments
    );
    // The SYN takes 1500 bytes of 2 Mbit/s, 6 ms, and its answer as much; one of 48 bytes 0.2 ms.
    let longer = long.connect.unwrap() - short.connect.unwrap();
    assert_eq!(longer.as_micros(), 2 * (6000 - 48 * 4));
}

#[test]
fn segments_longer_than_the_path_takes_are_refused() {
    let mut scenario = common::paper("sack", 10, "0", "");
    for host in scenario.hosts.values_mut() {
        host.endpoint.mss = Some(bentpipe_base::Bytes(1490));
    }
    let said = run(&scenario, &Options::default()).unwrap_err().to_string();
    assert!(said.contains("1506B") && said.contains("1500B"), "{said}");
}

#[test]
fn ends_that_cannot_talk_are_refused() {
    let mut scenario = common::paper("sack", 10, "0", "");
    scenario.hosts.get_mut("a").unwrap().endpoint = Default::default();
    let said = run(&scenario, &Options::default()).unwrap_err().to_string();
    assert!(said.contains("preset"), "{said}");
}

/// Errors that strike before the queue are counted by themselves, and take nothing of the rate.
#[test]
fn errors_before_the_queue_have_a_measure() {
    let found = |place: &str| {
        let text = format!(
            "name = \"place\"\ntime_limit = \"60s\"\n[hosts.a]\n[hosts.b]\n\
             [links.x]\nends = [\"a\", \"b\"]\nrate = \"2Mbit/s\"\ndelay = \"10ms\"\n\
             packet_error_rate = \"2%\"\n{place}\n\
             [[flows]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nbytes = \"2MB\"\n"
        );
        run(&common::parse(&text), &Options::default()).unwrap()
    };
    let [behind, before] = ["", "errors_before_queue = true"].map(found);
    let measured = |run, name: &str| bentpipe_outcome::find(name).unwrap().of(run).unwrap();
    let names = ["corrupted", "errors_before_queue"];
    let [lost, none] = names.map(|name| measured(&behind, name));
    let [also_none, struck] = names.map(|name| measured(&before, name));
    assert_eq!((none, also_none), (0.0, 0.0));
    assert!(lost > 20.0 && struck > 20.0, "{lost} {struck}");
    let sent = before.links[0].packets as f64;
    assert_eq!(
        measured(&before, "delivered(x)"),
        sent + before.links[1].packets as f64
    );
    // 2% of what the link carries are lost of the one bound, and none of the other.
    let [narrow, wide] = [&behind, &before].map(|run| run.flows[0].limit.unwrap().mbps());
    assert!((narrow / wide - 0.98).abs() < 1e-4, "{narrow} {wide}");
}

/// Raises a flag after so many segments, and so ends the run.
struct Impatient<'f> {
    flag: &'f AtomicBool,
    segments: u32,
}

impl Observer for Impatient<'_> {
    fn segment(&mut self, _now: Instant, _end: EndId, _segment: &Segment) {
        self.segments += 1;
        self.flag.store(self.segments >= 100, Ordering::Relaxed);
    }
}

#[test]
fn a_run_that_someone_stops_ends_there_with_its_flows_cut_off() {
    let scenario = common::parse(include_str!("../../../scenarios/geo.toml"));
    let flag = AtomicBool::new(false);
    let whole = run(&scenario, &Options::default()).unwrap();
    let (calm, _) = observe(&scenario, &Options::default(), &flag).unwrap();
    assert_eq!(calm, whole, "nobody has stopped it");
    let impatient = Impatient {
        flag: &flag,
        segments: 0,
    };
    let (stopped, (_, seen)) = observe(&scenario, &Options::default(), (&flag, impatient)).unwrap();
    assert_eq!(stopped.flows[0].end, End::CutOff);
    assert!(stopped.elapsed < whole.elapsed / 4, "{:?}", stopped.elapsed);
    // What is sent within the one event goes out.
    assert!((100..150).contains(&seen.segments), "{}", seen.segments);
}
