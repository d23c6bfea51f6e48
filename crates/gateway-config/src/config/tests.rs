use super::*;
use crate::{LossCause, SconeRates};
use bentpipe_base::{Probability, Rate};
use proptest::prelude::*;

fn wrong(text: &str) -> String {
    Config::parse("gw.toml", text).unwrap_err().to_string()
}

#[test]
fn every_key_is_read() {
    let text = r#"
        port = 4000
        intercept = "sat"
        handshake = "early"
        threads = 3
        drain = "5s"
        control = "/run/here.sock"
        quic = "reject"
        metrics = "[::1]:9463"
        flow_log = "/var/log/flows"
        [lan]
        interface = ["eth0", "eth2.20"]
        mss = "1360B"
        congestion_control = "reno"
        send_buffer = "1MiB"
        receive_buffer = "3MB"
        [sat]
        interface = "eth1"
        congestion_control = "bentpipe_hybla"
        insist = true
        rate = "10Mbit/s"
        pacing = "97%"
        rtt0 = "30ms"
        aggressive = true
        guard = "off"
        overhead = "20B"
        notsent_lowat = "32kB"
        receive_rate = "50Mbit/s"
        ack_rate = "250kbit/s"
        scone = "50%"
        [leg.bulk]
        congestion_control = "cubic"
        receive_buffer = "1MiB"
        notsent_lowat = "64KiB"
        [leg.office]
        like = "lan"
        mss = "off"
        send_buffer = "8MiB"
        insist = true
        [[policy]]
        name = "voice"
        from = ["10.1.0.0/16", "10.0.0.0/8", "fd00::/8"]
        to = "192.0.2.7"
        port = [5060, "6000-6999", "6500-7000"]
        dscp = "ef"
        arrives = "sat"
        interface = "eth1"
        vlan = [20, 30]
        action = "bypass"
        [[policy]]
        dscp = 10
        action = "split"
        leg = "office"
        [limits]
        flows = 10
        half_open = 20
        idle = "600s"
        stalled = "60s"
        keepalive = "90s"
        client_buffered = "2MiB"
        descriptors = 200
        buffered = "64MiB"
        pipe = "64KiB"
        pipes = 7
    "#;
    let config = Config::parse("gw.toml", text).unwrap();
    assert_eq!(config.port, 4000);
    assert!(config.intercept.includes(LegId::Sat) && !config.intercept.includes(LegId::Lan));
    assert_eq!(config.handshake, crate::Handshake::Early);
    assert_eq!((config.threads, config.drain.as_secs()), (Some(3), 5));
    assert_eq!(config.metrics, "[::1]:9463".parse().ok());
    assert_eq!(
        config.flow_log.as_deref(),
        Some(Path::new("/var/log/flows"))
    );
    let control = config.control.path();
    assert_eq!(control, Some(Path::new("/run/here.sock")));
    assert_eq!(config.lan_interfaces, ["eth0", "eth2.20"]);
    assert_eq!((config.lan.mss, config.sat.mss), (Some(Bytes(1360)), None));
    assert_eq!(config.lan.congestion.as_deref(), Some("reno"));
    assert_eq!(config.lan.send_buffer, Bytes(1 << 20));
    assert_eq!(config.lan.receive_buffer, Bytes(3_000_000));
    assert_eq!(config.sat_interfaces, ["eth1"]);
    assert_eq!(config.sat.congestion.as_deref(), Some("bentpipe_hybla"));
    assert!(config.sat.insist && !config.lan.insist);
    assert_eq!(
        config.sat.link.rate,
        Some(Rate::from_bits_per_sec(10_000_000))
    );
    assert_eq!(Some(config.sat.link.pace), Probability::new(0.97));
    assert_eq!(config.sat.link.rtt0, Duration::from_millis(30));
    assert_eq!(
        (config.sat.link.guard, config.sat.link.overhead),
        (None, Bytes(20))
    );
    assert!(config.sat.link.aggressive && !config.lan.link.aggressive);
    assert_eq!(config.sat.ack_rate, Some(Rate::from_bits_per_sec(250_000)));
    let told = SconeRates {
        to_sat: Some(Rate::from_bits_per_sec(5_000_000)),
        from_sat: Some(Rate::from_bits_per_sec(25_000_000)),
    };
    assert_eq!(config.sat.scone, told);
    assert_eq!(config.sat.notsent_lowat, Some(Bytes(32_000)));
    assert_eq!(config.sat.send_buffer, Bytes(6_000_000));
    assert_eq!(config.sat.receive_buffer, Bytes(30_000_000));
    let [bulk, office] = config.profiles.as_slice() else {
        panic!("{:?}", config.profiles);
    };
    assert_eq!((bulk.name.as_str(), bulk.like), ("bulk", LegId::Sat));
    let expected = Leg {
        congestion: Some("cubic".to_owned()),
        receive_buffer: Bytes(1 << 20),
        notsent_lowat: Some(Bytes(64 << 10)),
        ..config.sat.clone()
    };
    assert_eq!(bulk.leg, expected);
    assert_eq!((office.name.as_str(), office.like), ("office", LegId::Lan));
    let expected = Leg {
        mss: None,
        insist: true,
        send_buffer: Bytes(8 << 20),
        ..config.lan.clone()
    };
    assert_eq!(office.leg, expected);
    assert_eq!(config.quic, crate::Quic::Reject);
    let [voice, second] = config.policies.as_slice() else {
        panic!("{:?}", config.policies);
    };
    assert_eq!(voice.name, "voice");
    let from: Vec<String> = voice.from.iter().map(ToString::to_string).collect();
    assert_eq!(from, ["10.0.0.0/8", "fd00::/8"], "one holds the other");
    assert_eq!(voice.to[0].to_string(), "192.0.2.7/32");
    assert_eq!(voice.ports, [5060..=5060, 6000..=7000]);
    assert_eq!((voice.dscp, voice.arrives), (Some(46), Some(LegId::Sat)));
    assert_eq!(voice.interfaces, ["eth1"]);
    assert_eq!((&voice.vlans[..], voice.profile), (&[20, 30][..], None));
    assert_eq!(voice.action, crate::Action::Bypass);
    assert_eq!(
        (second.action, second.profile),
        (crate::Action::Split, Some(1))
    );
    assert_eq!((second.name.as_str(), second.dscp), ("2", Some(10)));
    let limits = Limits {
        flows: 10,
        half_open: 20,
        idle: Some(Duration::from_secs(600)),
        stalled: Duration::from_secs(60),
        keepalive: Duration::from_secs(90),
        client_buffered: Some(Bytes(2 << 20)),
        descriptors: Some(200),
        buffered: Some(Bytes(64 << 20)),
        pipe: Bytes(65_536),
        pipes: 7,
        ..Limits::default()
    };
    assert_eq!(config.limits, limits);
}

/// Neither policies nor their addresses, nor mistakes, take more than their number's time: with its square this would take minutes.
#[test]
fn a_long_file_is_read_soon() {
    const MANY: u32 = 100_000;
    let address = |number: u32| std::net::Ipv4Addr::from(number.wrapping_mul(2_654_435_761));
    let addresses: Vec<_> = (0..MANY)
        .map(|number| format!("\"{}\"", address(number)))
        .collect();
    let list = format!(
        "[[policy]]\naction = \"bypass\"\nto = [{}]\n",
        addresses.join(", ")
    );
    let config = Config::parse("gw.toml", &list).unwrap();
    assert_eq!(config.policies[0].to.len(), MANY as usize);
    let policy = |number| {
        let to = address(number);
        format!("[[policy]]\naction = \"bypass\"\nto = \"{to}\"\n")
    };
    let text: String = (0..MANY).map(policy).collect();
    let config = Config::parse("gw.toml", &text).unwrap();
    assert_eq!(config.policies.len(), MANY as usize);
    assert_eq!(config.warnings().len(), 1, "not all are compared");
    let wrong = text.replace("bypass", "by-pass");
    let problems = Config::parse("gw.toml", &wrong).unwrap_err();
    let last = problems.iter().last().unwrap();
    assert_eq!(
        (problems.iter().count() as u32, last.line as u32),
        (MANY, 3 * MANY - 1)
    );
}

/// A key that is added without a wrong value among [`MISTAKES`] fails here.
#[test]
fn every_key_has_a_mistake_of_its_own() {
    let mut seen = 0;
    for (table, before) in [
        ("", ""),
        ("[lan]", ""),
        ("[limits]", ""),
        ("[snoop]", ""),
        ("[leg.bulk]", ""),
        ("[[policy]]", "action = \"split\"\n"),
    ] {
        // The message about a key that there is not lists those there are.
        let message = wrong(&format!("{table}\n{before}no_such_key = 1"));
        let (_, keys) = message.split_once("expected ").unwrap();
        for key in keys.split('`').skip(1).step_by(2) {
            seen += 1;
            // What a leg has, either may show.
            let tables = [table, if table == "[lan]" { "[sat]" } else { table }];
            let shown = MISTAKES
                .iter()
                .any(|(text, _)| tables.iter().any(|table| is_of(table, key, text)));
            assert!(shown, "no wrong value of `{key}` in {table}");
        }
    }
    assert!(seen >= 50, "only {seen} keys");
}

/// Whether the mistake in `text` stands at `key` of `table`.
fn is_of(table: &str, key: &str, text: &str) -> bool {
    let message = wrong(text);
    let line: usize = message.split(':').nth(1).unwrap().parse().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let header = lines[..line]
        .iter()
        .rev()
        .find(|line| line.starts_with('['));
    let there = lines[line - 1].split('=').next().unwrap().trim();
    header.copied().unwrap_or("") == table && (there == key || there == format!("[[{key}]]"))
}

#[test]
fn what_losses_mean_to_a_leg_by_scps_is_read() {
    let text = "[sat]\ncarrier = \"scps\"\nrate = \"1Mbit/s\"\nloss_cause = \"congestion\"\n\
                corruption_experienced = \"2s\"\n\
                [leg.bulk]\nloss_cause = \"corruption\"\ncorruption_experienced = \"off\"\n";
    let config = Config::parse("gw.toml", text).unwrap();
    let told = |leg: &crate::Leg| (leg.loss_cause, leg.corruption_experienced);
    let two = Duration::from_secs(2);
    assert_eq!(told(&config.sat), (Some(LossCause::Congestion), Some(two)));
    let bulk = &config.profiles[0].leg;
    assert_eq!(told(bulk), (Some(LossCause::Corruption), None));
    assert_eq!(told(&config.lan), (None, None));
}

#[test]
fn too_many_legs_are_refused() {
    let legs = |count: usize| -> String { (0..count).map(|i| format!("[leg.l{i}]\n")).collect() };
    assert_eq!(
        Config::parse("gw.toml", &legs(7)).unwrap().profiles.len(),
        7
    );
    assert!(wrong(&legs(8)).contains("more than 7"));
}

#[test]
fn a_policy_on_a_strange_interface_is_doubtful() {
    let policy = "[[policy]]\naction = \"split\"\nname = \"x\"\ninterface = [\"eth0\", \"eth7\"]";
    let config = Config::parse("gw.toml", policy).unwrap();
    assert!(config.warnings().is_empty(), "the command line may name it");
    let config = config.between("eth0", "eth1");
    let warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings[0].contains("policy `x` matches on interface `eth7`"),
        "{warnings:?}"
    );
}

#[test]
fn a_leg_that_no_policy_chooses_is_doubtful() {
    let text = "[leg.bulk]\n[leg.rest]\n[[policy]]\naction = \"split\"\nleg = \"rest\"";
    let config = Config::parse("gw.toml", text).unwrap();
    let warnings: Vec<String> = config.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["[leg.bulk] is never used: no policy has `leg = \"bulk\"`"]
    );
}

#[test]
fn idle_connections_are_probed_before_others_forget_them() {
    // Azure's load balancers; others wait longer.
    assert!(Limits::default().keepalive < Duration::from_secs(240));
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(Config::parse("gw.toml", "").unwrap(), Config::default());
}

/// Texts with one mistake, and what is said of it.
const MISTAKES: &[(&str, &str)] = &[
    (
        "prot = 1",
        "gw.toml:1:1: unknown key `prot` in the file: expected",
    ),
    ("prot = 1", "did you mean `port`?"),
    ("port = 70000", "gw.toml:1:8: `70000` is out of range"),
    ("port = \"x\"", "from 0 to 65520"),
    ("intercept = \"boht\"", "did you mean `both`?"),
    ("handshake = \"erly\"", "did you mean `early`?"),
    ("threads = 0", "from 1 to 1024"),
    ("drain = 30", "\"300ms\""),
    ("retire = 24", "\"300ms\""),
    ("control = \"gateway.sock\"", "is no path from the root"),
    ("control = \"on\"", "or \"off\""),
    ("metrics = \"localhost\"", "an address and a port"),
    ("metrics = 9463", "text"),
    ("flow_log = \"flows\"", "is no path from the root"),
    ("\n[sat]\nrate = \"10MB\"", "gw.toml:3:8: "),
    ("[sat]\nraet = \"1Mbit/s\"", "did you mean `rate`?"),
    ("[sat]\npacing = 1.2", "from 10% to 100%"),
    ("[sat]\npacing = 0.01", "from 10% to 100%"),
    ("[sat]\nrtt0 = \"0s\"", "from 1ms to 1s"),
    ("[sat]\nrate = \"1kbit/s\"", "from 8kbit/s to 100Gbit/s"),
    ("[sat]\nguard = \"of\"", "or \"off\""),
    ("[sat]\nguard = \"1min\"", "from 1ms to 16s"),
    ("[sat]\noverhead = \"2kB\"", "from 0B to 1500B"),
    (
        "[sat]\ncarrier = \"scps\"\nrate = \"1Mbit/s\"\nack_every = 0",
        "from 1 to 64",
    ),
    (
        "[sat]\ncarrier = \"scps\"\nrate = \"1Mbit/s\"\nack_delay = \"1s\"",
        "up to 500ms",
    ),
    ("[sat]\nack_every = 4", "the kernel's TCP carries"),
    (
        "[leg.bulk]\nloss_cause = \"congestion\"",
        "the kernel's TCP carries",
    ),
    (
        "[leg.bulk]\ncorruption_experienced = \"2s\"",
        "the kernel's TCP carries",
    ),
    (
        "[sat]\ncarrier = \"scps\"\nrate = \"1Mbit/s\"\nloss_cause = \"congestive\"",
        "congestion",
    ),
    (
        "[sat]\ncarrier = \"scps\"\nrate = \"1Mbit/s\"\ncorruption_experienced = \"1h\"",
        "from 10ms to 60s",
    ),
    (
        "[leg.bulk]\ncorruption_experienced = \"1s\"",
        "the kernel's TCP carries",
    ),
    ("[lan]\nack_delay = \"10ms\"", "the kernel's TCP carries"),
    ("[leg.bulk]\nack_every = 4", "the kernel's TCP carries"),
    (
        "[leg.bulk]\nack_delay = \"10ms\"",
        "the kernel's TCP carries",
    ),
    ("[sat]\naggressive = \"yes\"", "`true` or `false`"),
    ("[sat]\ninterface = \"a b\"", "cannot name an interface"),
    (
        "[lan]\ninterface = \"eth0\"\n[sat]\ninterface = \"eth0\"",
        "gw.toml:4:13: `eth0` is named twice",
    ),
    (
        "[lan]\ninterface = [\"eth0\", \"eth0\"]",
        "each interface once",
    ),
    (
        "[sat]\ninterface = \"\\\" accept\"",
        "cannot name an interface",
    ),
    (
        "[lan]\ncongestion_control = \"a name too long\"",
        "congestion control",
    ),
    ("[lan]\ninsist = 1", "`true` or `false`"),
    ("[lan]\ninsist = true", "both, or neither"),
    ("[lan]\nsend_buffer = \"1B\"", "from 4KiB to 1GiB"),
    ("[lan]\nreceive_buffer = \"2GiB\"", "from 4KiB to 1GiB"),
    ("[lan]\nnotsent_lowat = \"x\"", "an amount of data"),
    ("[limits]\nflows = 0", "from 1 to 10000000"),
    ("[limits]\nhalf_open = 0", "from 1 to 65536"),
    ("[limits]\nidle = \"1ms\"", "or \"off\""),
    ("[limits]\nstalled = \"off\"", "from 1s to 9 hours"),
    ("[limits]\nkeepalive = \"0s\"", "from 1s to 9 hours"),
    ("[limits]\nclient_buffered = \"1kB\"", "from 1MiB to 1TiB"),
    ("[limits]\ndescriptors = 10", "from 100"),
    ("[limits]\nbuffered = \"1kB\"", "from 1MiB to 1TiB"),
    ("[limits]\npipe = \"1B\"", "from 64KiB to 1MiB"),
    ("[limits]\npipes = -1", "from 0 to"),
    ("[limits]\nsnoop_cache = \"1kB\"", "from 1MiB to 1TiB"),
    ("[limits]\nsnoop_flows = 0", "from 1 to"),
    ("snoop = 3", "expected a table `[snoop]`"),
    (
        "[snoop]\ntoward = \"space\"",
        "`space` is no link that loses packets",
    ),
    ("[snoop]\ncache = \"1kB\"", "from 16KiB to 1GiB"),
    ("quic = \"block\"", "`count` or `reject`"),
    ("policy = 3", "tables under `[[policy]]`"),
    ("[[policy]]", "lacks `action`"),
    (
        "[[policy]]\naction = \"bypas\"",
        "gw.toml:2:10: `bypas` is no action",
    ),
    ("[[policy]]\naction = \"bypas\"", "did you mean `bypass`?"),
    (
        "[[policy]]\naction = \"split\"\nname = \"a b\"",
        "1 to 32 letters",
    ),
    (
        "[[policy]]\naction = \"split\"\nname = \"2\"\n[[policy]]\naction = \"split\"",
        "the second policy that is called `2`",
    ),
    (
        "[[policy]]\naction = \"split\"\nfrom = \"10.0.0.0/33\"",
        "10.1.0.0/16",
    ),
    ("[[policy]]\naction = \"split\"\nto = []", "at least one"),
    (
        "[[policy]]\naction = \"split\"\nfrom = \"fd00::/8\"\nto = \"10.0.0.1\"",
        "one family",
    ),
    (
        "[[policy]]\naction = \"split\"\nport = 0",
        "from 1 to 65535",
    ),
    (
        "[[policy]]\naction = \"split\"\nport = \"9-1\"",
        "\"8000-8099\"",
    ),
    ("[[policy]]\naction = \"split\"\ndscp = 64", "from 0 to 63"),
    (
        "[[policy]]\naction = \"split\"\ndscp = \"eff\"",
        "did you mean `ef`?",
    ),
    (
        "[[policy]]\naction = \"split\"\narrives = \"wan\"",
        "`lan` or `sat`",
    ),
    (
        "[[policy]]\naction = \"split\"\nprot = 1",
        "unknown key `prot`",
    ),
    ("limits = 3", "expected a table `[limits]`"),
    ("[lan", "not TOML"),
    ("lan = 3", "expected a table `[lan]`"),
    ("sat = \"eth1\"", "expected a table `[sat]`"),
    ("leg = 3", "expected a table `[leg]`"),
    ("[leg.\"a b\"]", "1 to 32 letters"),
    ("[leg.bulk]\nlike = \"wan\"", "`lan` or `sat`"),
    ("[sat]\ncarrier = \"scsp\"", "did you mean `scps`?"),
    ("[lan]\ncarrier = \"scps\"", "of a satellite leg only"),
    (
        "[sat]\nwhen_down = \"pass\"",
        "`carrier = \"quic\"` beside it",
    ),
    ("[leg.bulk]\ncarrier = \"scps\"", "beside a `rate` in [sat]"),
    ("[leg.bulk]\nrate = \"1Mbit/s\"", "unknown key `rate`"),
    ("[leg.bulk]\nmss = \"1B\"", "from 88B to 16KiB"),
    ("[leg.bulk]\ninsist = 1", "`true` or `false`"),
    ("[leg.bulk]\nsend_buffer = \"1B\"", "from 4KiB to 1GiB"),
    ("[leg.bulk]\nreceive_buffer = 7", "an amount of data"),
    ("[leg.bulk]\nnotsent_lowat = \"x\"", "an amount of data"),
    (
        "[leg.bulk]\ncongestion_control = \"\"",
        "cannot name a congestion control",
    ),
    ("[sat]\nmss = \"20kB\"", "from 88B to 16KiB"),
    ("[sat]\nreceive_rate = \"fast\"", "\"10Mbit/s\""),
    ("[sat]\nack_rate = \"half\"", "\"10Mbit/s\""),
    (
        "[sat]\nscone = \"50%\"",
        "`scone` of a link of unknown rate",
    ),
    (
        "[sat]\nrate = \"1Mbit/s\"\nscone = \"on\"",
        "\"50%\" or 0.5, or \"off\"",
    ),
    ("[sat]\nrate = \"1Mbit/s\"\nscone = \"0.1%\"", "too little"),
    ("[lan]\nscone = \"50%\"", "unknown key `scone`"),
    ("[lan]\nack_rate = \"1Mbit/s\"", "unknown key `ack_rate`"),
    (
        "[[policy]]\naction = \"split\"\ninterface = \"a b\"",
        "cannot name an interface",
    ),
    (
        "[[policy]]\naction = \"split\"\nvlan = 4095",
        "from 1 to 4094",
    ),
    (
        "[leg.bulk]\n[[policy]]\naction = \"split\"\nleg = \"bluk\"",
        "did you mean `bulk`?",
    ),
    (
        "[leg.bulk]\n[[policy]]\naction = \"bypass\"\nleg = \"bulk\"",
        "or no `leg`",
    ),
    (
        "[[policy]]\naction = \"bypass\"\nfrom = \"::ffff:10.1.0.0/112\"",
        "expected the IPv4 prefix, such as \"10.1.0.0/16\"",
    ),
    (
        "[[policy]]\naction = \"bypass\"\nto = [\"::1\", \"::ffff:10.1.0.0/24\"]",
        "such as \"10.1.0.0/24\"",
    ),
];

#[test]
fn each_mistake_names_its_place_and_the_remedy() {
    for (text, expected) in MISTAKES {
        let message = wrong(text);
        assert!(message.contains(expected), "{text:?} gave {message}");
        assert!(message.starts_with("gw.toml:"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = Config::parse("gw.toml", &text);
    }

    #[test]
    fn any_policy_is_read_or_refused(
        key in prop::sample::select(vec!["from", "to", "port", "dscp", "arrives", "name", "action"]),
        value in "[-0-9a-f:./\",\\[\\]]{0,16}",
    ) {
        let text = format!("[[policy]]\naction = \"bypass\"\n{key} = {value}");
        let _ = Config::parse("gw.toml", &text);
        let text = format!("[[policy]]\naction = \"bypass\"\n{key} = \"{}\"", value.replace('"', ""));
        let _ = Config::parse("gw.toml", &text);
    }

    #[test]
    fn any_value_is_read_or_refused(
        key in prop::sample::select(vec!["port", "threads", "drain", "intercept"]),
        value in "[-0-9a-z\".]{0,12}",
    ) {
        let _ = Config::parse("gw.toml", &format!("{key} = {value}"));
    }
}

#[test]
fn how_connections_are_snooped_is_said() {
    let text = "[sat]\nrate = \"2Mbit/s\"\n[snoop]\ntoward = \"both\"\n[limits]\nsnoop_cache = \"2MiB\"\nsnoop_flows = 7\n[[policy]]\naction = \"snoop\"\n";
    let config = Config::parse("f", text).unwrap();
    assert!(config.snoops());
    assert_eq!(config.snoop.toward, crate::Toward::Both);
    assert_eq!(config.snoop.cache_of(&config.sat), Bytes(150_000));
    assert_eq!(config.limits.snoop_cache, Bytes(2 << 20));
    assert_eq!(config.limits.snoop_flows, 7);
    let usual = Config::parse("f", "").unwrap();
    assert!(!usual.snoops());
    assert_eq!(usual.snoop.cache_of(&usual.sat), Bytes(750_000));
    let slow = Config::parse("f", "[sat]\nrate = \"64kbit/s\"").unwrap();
    assert_eq!(slow.snoop.cache_of(&slow.sat), Bytes(64_000));
}
