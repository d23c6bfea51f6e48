//! Policies of a simulated gateway: which flows it splits, passes and refuses.

mod common;

use bentpipe_outcome::{End, Run, find};
use bentpipe_sim::{Options, SimError, run};

/// Two downloads by `terminal` from `server` (ports 10000 and 10001) and an upload (port 10002) through a gateway with these
/// policies, which split what they do not match. `terminal` is 10.0.1.2 and `server` is 10.0.0.1.
fn through(policies: &str, handshake: &str) -> Result<Run, SimError> {
    let flow = |name, from, to| {
        format!(
            "[[flows]]\nname = \"{name}\"\nfrom = \"{from}\"\nto = \"{to}\"\nopened_by = \"terminal\"\nbytes = \"100kB\"\n"
        )
    };
    let flows = [
        flow("first", "server", "terminal"),
        flow("second", "server", "terminal"),
        flow("upload", "terminal", "server"),
    ];
    let scenario = common::parse(&format!(
        "name = \"policies\"\ntime_limit = \"60s\"\n[hosts.terminal]\n[hosts.server]\n\
         [gateways.hub]\nsat = \"space\"\nlan = \"ground\"\n[gateways.hub.split]\nhandshake = \"{handshake}\"\n\
         policy = [{policies}]\nsat = {{ rate = \"10Mbit/s\" }}\n\
         [links.space]\nends = [\"hub\", \"terminal\"]\nrate = \"10Mbit/s\"\ndelay = \"300ms\"\n\
         [links.ground]\nends = [\"server\", \"hub\"]\n{}",
        flows.concat()
    ));
    run(&scenario, &Options::default())
}

/// By flow: whether it was split, whether it was refused.
fn fates(policies: &str, handshake: &str) -> [(bool, bool); 3] {
    let outcome = through(policies, handshake).expect("it runs");
    let fates = outcome.flows.iter().map(|flow| {
        let refused = flow.end == End::Failed("the other side refused the connection".into());
        assert!(refused || flow.end == End::Finished, "{flow:?}");
        (!flow.gateways.is_empty(), refused)
    });
    fates.collect::<Vec<_>>().try_into().expect("three flows")
}

const SPLIT: (bool, bool) = (true, false);
const PASSES: (bool, bool) = (false, false);
const REFUSED: (bool, bool) = (false, true);

#[test]
fn the_first_policy_that_matches_decides() {
    for handshake in ["end-to-end", "early"] {
        for (policies, expected) in [
            ("", [SPLIT; 3]),
            (
                r#"{ port = 10000, action = "bypass" }"#,
                [PASSES, SPLIT, SPLIT],
            ),
            (
                r#"{ port = 10001, action = "split" }, { port = "10000-10001", action = "reject" }"#,
                [REFUSED, SPLIT, SPLIT],
            ),
            (
                r#"{ port = [10000, 10002], action = "reject" }, { action = "bypass" }"#,
                [REFUSED, PASSES, REFUSED],
            ),
            (
                r#"{ from = "10.0.1.0/24", action = "bypass" }"#,
                [PASSES; 3],
            ),
            (r#"{ from = "10.0.0.0/24", action = "bypass" }"#, [SPLIT; 3]),
            (
                r#"{ to = ["10.0.0.1/32", "fd00::/8"], action = "bypass" }"#,
                [PASSES; 3],
            ),
            (r#"{ to = "fd00::/8", action = "bypass" }"#, [SPLIT; 3]),
            (r#"{ arrives = "sat", action = "bypass" }"#, [PASSES; 3]),
            (r#"{ arrives = "lan", action = "bypass" }"#, [SPLIT; 3]),
            // Nobody marks packets.
            (r#"{ dscp = "ef", action = "bypass" }"#, [SPLIT; 3]),
            (r#"{ dscp = 0, action = "bypass" }"#, [PASSES; 3]),
        ] {
            assert_eq!(
                fates(policies, handshake),
                expected,
                "{handshake}: {policies}"
            );
        }
    }
}

#[test]
fn what_policies_did_is_counted() {
    let policies = r#"{ port = 10000, action = "bypass" }, { port = 10001, action = "reject" }"#;
    let outcome = through(policies, "end-to-end").expect("it runs");
    let counted = |name| {
        let mut counters = outcome.proxies[0].counters.iter();
        counters
            .find(|(own, _)| *own == name)
            .map(|(_, count)| *count)
    };
    assert_eq!(["split", "bypassed", "rejected"].map(counted), [Some(1); 3]);
    let outcome = through("", "end-to-end").expect("it runs");
    assert!(
        outcome.proxies[0]
            .counters
            .iter()
            .all(|(name, _)| *name != "bypassed")
    );
}

#[test]
fn what_a_simulated_gateway_cannot_tell_is_refused() {
    for (policy, key) in [
        (
            r#"{ interface = "eth0", action = "bypass" }"#,
            "policy.interface",
        ),
        (r#"{ vlan = 20, action = "bypass" }"#, "policy.vlan"),
    ] {
        let error = through(policy, "end-to-end").expect_err("no interface has a name here");
        assert!(error.to_string().contains(key), "{error}");
    }
}

/// `space` loses 1% of the packets; the hub is `node`.
fn helped(node: &str) -> Run {
    let text = format!(
        "name = \"helped\"\ntime_limit = \"60s\"\n[hosts.terminal]\n[hosts.server]\n{node}\n\
         [links.space]\nends = [\"hub\", \"terminal\"]\nrate = \"10Mbit/s\"\ndelay = \"300ms\"\n\
         packet_error_rate = \"1%\"\n[links.space.reverse]\npacket_error_rate = \"0\"\n\
         [links.ground]\nends = [\"server\", \"hub\"]\n\
         [[flows]]\nname = \"download\"\nfrom = \"server\"\nto = \"terminal\"\nopened_by = \"terminal\"\nbytes = \"4MB\"\n"
    );
    run(&common::parse(&text), &Options::default()).expect("it runs")
}

/// The gateway's agent is the proxy of the same name: one rate times 600 ms is its cache.
#[test]
fn a_gateway_that_snoops_all_is_its_agent() {
    let keys = "lan = \"ground\"\nsat = \"space\"\n[gateways.hub.split]\n\
                sat = { rate = \"10Mbit/s\" }\npolicy = [{ action = \"snoop\" }]";
    let gateway = helped(&format!("[gateways.hub]\n{keys}"));
    let agent =
        helped("[routers.hub]\n[peps.hub]\nkind = \"snoop\"\nnode = \"hub\"\nlink = \"space\"");
    let alone = helped("[routers.hub]");
    let end = |outcome: &Run| outcome.flows[0].elapsed;
    assert_eq!(end(&gateway), end(&agent));
    assert_eq!(gateway.proxies, agent.proxies, "{:?}", gateway.proxies);
    assert!(end(&gateway) < end(&alone));
    // What a split sends again itself is counted by the same measure.
    let split = helped(&format!(
        "[gateways.hub]\n{}",
        keys.replace("snoop", "split")
    ));
    let local = |outcome: &Run| find("local(hub)").unwrap().of(outcome);
    // Of some 2,760 segments 1% are lost; the source resends none.
    for helped in [&gateway, &split] {
        assert!(
            local(helped).is_some_and(|again| again > 15.0),
            "{:?}",
            local(helped)
        );
    }
    assert_eq!((local(&alone), local(&agent)), (None, local(&gateway)));
    // Where the losses are on the other side of it, its data is the other direction's.
    let other = helped(&format!("[gateways.hub]\n{keys}\nsnoop.toward = \"lan\""));
    assert_eq!(end(&other), end(&alone));
}

#[test]
fn a_gateway_that_snoops_some_is_refused() {
    for policies in [
        r#"{ port = 10000, action = "snoop" }"#,
        r#"{ port = 10001, action = "split" }, { action = "snoop" }"#,
    ] {
        let refused = through(policies, "end-to-end").unwrap_err().to_string();
        assert!(refused.contains("bentpipe lab run"), "{refused}");
        assert!(refused.contains("`policy.action"), "{refused}");
    }
    assert!(through(r#"{ action = "snoop" }"#, "early").is_ok());
}

/// Transfers of cross traffic come and go: those of one direction have one port, as the lab's, and a policy takes all of them.
#[test]
fn a_policy_by_port_takes_a_whole_direction_of_cross_traffic() {
    let bypassed = |port: u16| {
        let scenario = common::parse(&format!(
            "name = \"crossed\"\ntime_limit = \"60s\"\n[hosts.terminal]\n[hosts.server]\n\
             [gateways.hub]\nsat = \"space\"\nlan = \"ground\"\n\
             [gateways.hub.split]\npolicy = [{{ port = {port}, action = \"bypass\" }}]\n\
             [links.space]\nends = [\"hub\", \"terminal\"]\nrate = \"10Mbit/s\"\ndelay = \"300ms\"\n\
             [links.ground]\nends = [\"server\", \"hub\"]\n\
             [traffic]\nflows = 6\nbetween = [\"server\", \"terminal\"]\n\
             [[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"1MB\"\n"
        ));
        let outcome = run(&scenario, &Options::default()).unwrap();
        let wire = Options {
            wire: true,
            ..Options::default()
        };
        assert_eq!(run(&scenario, &wire).as_ref(), Ok(&outcome), "{port}");
        let counters = &outcome.proxies[0].counters;
        let count = |name| counters.iter().find(|(own, _)| *own == name).unwrap().1;
        [count("bypassed"), count("split")]
    };
    // Six flows in alternating directions behind the scenario's one.
    let [own, forward, reverse, none] = [10_000, 10_001, 10_002, 10_003].map(bypassed);
    assert_eq!((own[0], none[0]), (1, 0));
    assert!(
        forward[0] >= 3 && reverse[0] >= 3,
        "{forward:?} {reverse:?}"
    );
    assert!(
        forward[1] >= 4 && reverse[1] >= 4,
        "{forward:?} {reverse:?}"
    );
}
