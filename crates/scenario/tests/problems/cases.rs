//! What is put in the place of what, and what is said of it.

/// What stands in the scenario, what is put there instead, and parts of the answer.
pub(crate) const CASES: &[(&str, &str, &[&str])] = &[
    // Keys.
    (
        "rate = \"10M",
        "raet = \"10M",
        &[
            "geo.toml:13:1: unknown key `raet` in [links.space]: expected ",
            "; did you mean `rate`?",
        ],
    ),
    (
        "seed = 1",
        "sede = 1",
        &["geo.toml:2:1:", "did you mean `seed`?"],
    ),
    (
        "[hosts.server]",
        "[host.server]",
        &["6:2:", "did you mean `hosts`?"],
    ),
    (
        "kind = \"bulk\"",
        "bulk = 1",
        &["20:1: unknown key `bulk` in [flows]"],
    ),
    (
        "seed = 1",
        "sweep = 1",
        &["2:9: `sweep` makes a study", "`bentpipe study run`"],
    ),
    (
        "name = \"geo\"\n",
        "",
        &["1:1: the file lacks `name`: expected `name = \"geo\"`"],
    ),
    ("from = \"server\"\n", "", &["19:1: [flows] lacks `from`"]),
    (
        "seed = 1",
        "seed = 1\nseed = 2",
        &["3:1: not TOML: duplicate key"],
    ),
    // Units and values.
    (
        "\"10Mbit/s\"",
        "\"10MB/s\"",
        &[
            "geo.toml:13:8: `10MB/s` is not a rate: expected a positive number",
            "did you mean `10Mbit/s`?",
        ],
    ),
    ("\"10Mbit/s\"", "10", &["13:8: `10` is not a rate"]),
    (
        "\"10Mbit/s\"",
        "\"0bit/s\"",
        &["13:8: `0bit/s` is not a rate"],
    ),
    (
        "\"300ms\"",
        "\"300msec\"",
        &["14:9:", "did you mean `300ms`?"],
    ),
    (
        "\"300ms\"",
        "\"-300ms\"",
        &["14:9: `-300ms` is not a duration"],
    ),
    (
        "\"300ms\"",
        "\"300h\"",
        &["14:9: a delay of more than a day"],
    ),
    (
        "\"1%\"",
        "\"101%\"",
        &["16:21: `101%` is not a probability"],
    ),
    ("\"1%\"", "1.5", &["16:21: `1.5` is not a probability"]),
    ("\"1%\"", "-1", &["16:21: `-1` is not a probability"]),
    (
        "seed = 1",
        "seed = -1",
        &["2:8: `-1` is not a natural number"],
    ),
    (
        "seed = 1",
        "seed = \"one\"",
        &["2:8: `\"one\"` is not a natural number"],
    ),
    (
        "seed = 1",
        "ip = 5",
        &["2:6: there is no IPv5: expected `4` or `6`"],
    ),
    ("\"60s\"", "\"0s\"", &["3:14: a time limit of nothing"]),
    (
        "\"4096B\", \"16777216B\"",
        "\"16777216B\", \"4096B\"",
        &[
            "5:18:",
            "cannot be a buffer: expected smallest, initial and largest",
        ],
    ),
    (
        "\"4096B\", \"16777216B\"",
        "\"4096B\"",
        &["5:18: `receive_buffer` has 2 values"],
    ),
    ("\"67108864B\"", "\"2GiB\"", &["5:18:", "below 2 GiB"]),
    (
        "congestion_control = \"cubic\"",
        "congestion_control = \"cubic!\"",
        &[
            "7:22: `cubic!` cannot be a congestion control",
            "did you mean `cubic`?",
        ],
    ),
    (
        "\"drop-tail\"",
        "\"droptail\"",
        &["15:18:", "did you mean `drop-tail`?"],
    ),
    (
        "bytes = \"750kB\"",
        "bytes = \"750KB\"",
        &["15:39:", "did you mean `750kB`?"],
    ),
    (
        "bytes = \"750kB\"",
        "bytes = \"1B\", packets = 9",
        &["15:9: the queue's size"],
    ),
    (
        ", bytes = \"750kB\"",
        "",
        &["15:9: the queue's size is not clear"],
    ),
    (
        "rate = \"10Mbit/s\"\n",
        "",
        &["14:9: a queue without a rate"],
    ),
    (
        "delay = \"300ms\"",
        "burst = { bytes = \"128kB\" }",
        &[
            "14:9: ",
            "lacks `ceiling`: expected `ceiling = \"10Mbit/s\"`",
        ],
    ),
    (
        "delay = \"300ms\"",
        "burst = { bytes = \"128kB\", ceiling = \"9Mbit/s\" }",
        &["a ceiling below the rate of 10Mbit/s: expected at least \"10Mbit/s\""],
    ),
    (
        "delay = \"300ms\"",
        "mtu = \"100B\"",
        &["14:7: an MTU of 100B: expected 1280B"],
    ),
    // The simulator's keys.
    (
        "[hosts.server]",
        "[hosts.server]\npreset = \"ns-2\"",
        &["7:10: unknown preset `ns-2`: expected `rfc`, `ns2` or `scps`; did you mean `ns2`?"],
    ),
    (
        "[hosts.server]",
        "[hosts.server]\ntcp = { min_rot = \"1s\" }",
        &[
            "7:9: unknown key `min_rot` in [hosts.server.tcp]",
            "did you mean `min_rto`?",
        ],
    ),
    (
        "[hosts.server]",
        "[hosts.server]\ntcp = { initial_window = 0 }",
        &["an initial window of 0 segments: expected 1 to 1000000"],
    ),
    (
        "[hosts.server]",
        "[hosts.server]\ntcp = { min_rto = \"2s\", max_rto = \"1s\" }",
        &["a `min_rto` above `max_rto`"],
    ),
    (
        "\"drop-tail\", bytes",
        "\"red\", bytes",
        &["15:9: [links.space.queue] lacks `min_threshold`: expected `min_threshold = \"5kB\"`"],
    ),
    (
        "\"drop-tail\", bytes = \"750kB\"",
        "\"red\", packets = 9, min_threshold = 5, max_threshold = 5",
        &["15:73: thresholds of 5 and 5 in a queue of 9"],
    ),
    (
        "\"drop-tail\", bytes = \"750kB\"",
        "\"red\", packets = 9, min_threshold = 2, max_threshold = 5, weight = 0",
        &["a weight of 0: expected more than 0"],
    ),
    (
        "\"drop-tail\", bytes",
        "\"blue\", freeze = \"0s\", bytes",
        &["a freeze time of nothing or of more than a day"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "gilbert = { mean_burst = 0.5, error_rate = \"1%\" }",
        &["16:26: a mean burst of 0.5 packets: expected at least 1"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "gilbert = { mean_burst = 2, error_rate = \"70%\" }",
        &["16:42: an error rate of 0.7 with bursts of 2 packets: expected at most 0.66"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "gilbert = { mean_burst = 2, to_good = 0.5 }",
        &[
            "16:11: [links.space.gilbert] is not clear: expected `mean_burst = 10.0` and `error_rate = \"0.01\"`, or `to_bad = \"0.001\"` and `to_good",
        ],
    ),
    (
        "packet_error_rate = \"1%\"",
        "outage = [{ start = \"1s\", length = \"2s\", every = \"2s\" }]",
        &["16:50: an outage that begins again before it ends"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "outage = [{ start = \"1s\", length = \"2days\" }, { lenght = \"1s\" }]",
        &[
            "16:36: `2days` is not a duration",
            "16:47: [links.space.outage] lacks `start`: expected `start = \"10s\"`",
            "16:47: [links.space.outage] lacks `length`",
            "16:49: unknown key `lenght` in [links.space.outage]",
            "did you mean `length`?",
        ],
    ),
    (
        "packet_error_rate = \"1%\"",
        "outage = [{ start = \"25h\", length = \"0s\" }]",
        &[
            "16:21: a time of more than a day: expected at most a day",
            "16:37: an outage of no time",
        ],
    ),
    (
        "packet_error_rate = \"1%\"",
        "outage = { start = \"1s\", length = \"2s\" }",
        &["16:10: `outage` is a table: expected tables under `[[outage]]`"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "drops = [3, 3]",
        &["16:9: `drops` are not in order"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "drops = 3",
        &["16:9: `drops` is an integer: expected `drops = [17, 230]`"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "packet_error_rate = \"1 percent\"",
        &["16:21: `1 percent` is not a probability"],
    ),
    (
        "packet_error_rate = \"1%\"",
        "gilbrt = { mean_burst = 2, error_rate = \"1%\" }",
        &[
            "16:1: unknown key `gilbrt` in [links.space]",
            "did you mean `gilbert`?",
        ],
    ),
    (
        "packet_error_rate = \"1%\"",
        "gilbert = { to_bad = \"1%\", bad_error_rate = \"2\" }",
        &[
            "lacks `to_good`: expected `to_good = \"0.1\"`",
            "`2` is not",
        ],
    ),
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"snop\"\n[[flows]]",
        &["20:8: unknown kind of PEP `snop`", "did you mean `snoop`?"],
    ),
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"ack-filter\"\nnode = \"hub\"\nlink = \"space\"\npackets = 5000000000\n[[flows]]",
        &["23:11: more packets than can be counted: expected such as 100"],
    ),
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"snoop\"\nnode = \"server\"\nlink = \"space\"\n[[flows]]",
        &["21:8: `server` is no router or gateway: expected `hub`"],
    ),
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"snoop\"\nnode = \"hub\"\nlink = \"sapce\"\n[[flows]]",
        &["22:8: `sapce` is no link of `hub`", "did you mean `space`?"],
    ),
    // The simulator took the last without a word.
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"snoop\"\nnode = \"hub\"\nlink = \"space\"\n\
         [peps.other]\nkind = \"ack-filter\"\nnode = \"hub\"\nlink = \"space\"\n[[flows]]",
        &[
            "25:8: `agent` and PEP `other` both at `hub` on link `space`",
            "`enabled = false`",
        ],
    ),
    (
        "[[flows]]",
        "[gateways.hub.split]\n[peps.agent]\nkind = \"snoop\"\nnode = \"hub\"\nlink = \"space\"\n[[flows]]",
        &["22:8: `hub` and PEP `agent` both at `hub` on link `space`"],
    ),
    // A gateway's own keys, placed where they stand in the scenario.
    (
        "[[flows]]",
        "[gateways.hub.split.sat]\nraet = \"1Mbit/s\"\n[[flows]]",
        &[
            "20:1: unknown key `raet` in [gateways.hub.split.sat]",
            "did you mean `rate`?",
        ],
    ),
    // The two ends of a leg over QUIC.
    (
        "[[flows]]",
        "[gateways.hub.split.sat]\ncarrier = \"quic\"\nproxy = \"far\"\n[[flows]]",
        &[
            "`proxy = \"far\"` of gateway `hub`",
            "an enabled `[gateways.far]` with `carrier = \"quic\"` and no `proxy`",
        ],
    ),
    (
        "[[flows]]",
        "[gateways.hub.split.sat]\ncarrier = \"quic\"\nidentity = \"/key\"\nhandshake = \"early\"\n[[flows]]",
        &[
            "21:12: `identity` in a scenario",
            "22:13: `handshake` of a far end, which takes nothing off clients",
        ],
    ),
    (
        "[[flows]]",
        "[gateways.hub.split]\nhandshake = \"early\"\n[gateways.hub.split.sat]\ncarrier = \"quic\"\n[[flows]]",
        &["more than [sat] of a far end of QUIC"],
    ),
    (
        "[[flows]]",
        "[gateways.hub.split.leg.bulk]\ncarrier = \"quic\"\n[[flows]]",
        &["20:11: a variant of a leg, in a scenario, that QUIC carries"],
    ),
    (
        "[[flows]]",
        "[gateways.hub.split.sat]\nvariant = \"sack\"\ncongestion_control = \"reno\"\n[[flows]]",
        &["20:11: `variant` beside `congestion_control`: expected one of the two"],
    ),
    // The form of older files.
    (
        "[[flows]]",
        "[peps.agent]\nkind = \"split\"\nnode = \"hub\"\nlink = \"space\"\nsetup = \"early\"\nbuffer = \"185kB\"\n\
         [peps.agent.space]\nrate = \"1Mbit/s\"\nreceive_window = \"1MB\"\n[[flows]]",
        &[
            "20:8: a split is a gateway",
            "`[gateways.hub]` in place of this table and of [routers.hub], with `sat = \"space\"`",
            "in `[gateways.hub.split]`",
            "23:9: `setup` of a split: expected `handshake` in [gateways.hub.split]",
            "24:10: `buffer` of a split: expected `send_buffer` and `receive_buffer`",
            "25:1: `space` of a split: expected the same keys in [gateways.hub.split.sat]",
            "27:18: `receive_window` of a leg: expected twice as much as `receive_buffer`",
        ],
    ),
    (
        "kind = \"bulk\"",
        "kind = \"on-of\"",
        &[
            "20:8: unknown kind of flow `on-of`",
            "did you mean `on-off`?",
        ],
    ),
    (
        "kind = \"bulk\"",
        "kind = \"request-response\"",
        &["19:1: [flows] lacks `response`"],
    ),
    (
        "kind = \"bulk\"",
        "congestion_control = \"reno\"\nvariant = \"reno\"",
        &["21:11: a variant is a congestion control and a recovery"],
    ),
    (
        "kind = \"bulk\"",
        "count = 0",
        &["20:9: 0 flows in one: expected a `count` of 1 to 10000"],
    ),
    (
        "kind = \"bulk\"",
        "name = \"fourteenletter\"\ncount = 2",
        &["20:8: `fourteenletter-2` is not a name"],
    ),
    // Names.
    (
        "[\"terminal\", \"hub\"]",
        "[\"terminal\", \"hubb\"]",
        &[
            "12:8: link `space` leads to `hubb`, which is no node",
            "did you mean `hub`?",
        ],
    ),
    (
        "[\"terminal\", \"hub\"]",
        "[\"hub\", \"hub\"]",
        &["12:8: both ends of link `space`"],
    ),
    (
        "[\"terminal\", \"hub\"]",
        "[\"terminal\"]",
        &["12:8: `ends` has 1 values"],
    ),
    (
        "sat = \"space\"",
        "sat = \"spice\"",
        &[
            "9:7: `spice` is no link of gateway `hub`",
            "did you mean `space`?",
        ],
    ),
    (
        "sat = \"space\"",
        "sat = \"ground\"",
        &["10:7: both legs of gateway `hub`"],
    ),
    (
        "[hosts.server]",
        "[hosts.hub]",
        &["8:11: a second node named `hub`"],
    ),
    (
        "[hosts.server]",
        "[hosts.\"a b\"]",
        &["6:8: `a b` is not a name"],
    ),
    (
        "to = \"terminal\"",
        "to = \"terminl\"",
        &["22:6:", "did you mean `terminal`?"],
    ),
    (
        "to = \"terminal\"",
        "to = \"hub\"",
        &["22:6: `hub` is no host"],
    ),
    (
        "to = \"terminal\"",
        "to = \"server\"",
        &["22:6: flow `flow1` goes from `server`"],
    ),
    (
        "[\"hub\", \"server\"]",
        "[\"hub\", \"terminal\"]",
        &["22:6: no links lead from"],
    ),
    (
        "opened_by = \"terminal\"",
        "opened_by = \"hub\"",
        &["23:13: `hub` is no end of flow `flow1`"],
    ),
    // Flows.
    (
        "kind = \"bulk\"",
        "kind = \"bluk\"",
        &["20:8:", "did you mean `bulk`?"],
    ),
    (
        "duration = \"30s\"",
        "",
        &["19:1: [flows] does not say how much to send"],
    ),
    (
        "duration = \"30s\"",
        "duration = \"1s\"\nbytes = \"1B\"",
        &["24:12: [flows]"],
    ),
    (
        "duration = \"30s\"",
        "duration = \"30s\"\npath_rate = \"9Mbit/s\"",
        &["25:13: `cubic` does not ask for the rate of its path"],
    ),
    (
        "duration = \"30s\"",
        "duration = \"30s\"\napp = \"scp\"",
        &["25:7: `scp` moves files: expected", "an amount in `bytes`"],
    ),
    (
        "duration = \"30s\"",
        "bytes = \"2MB\"\napp = \"scp\"\ncongestion_control = \"bbr\"",
        &["26:22: `scp` takes the congestion control of its host"],
    ),
    (
        "duration = \"30s\"",
        "bytes = \"2MB\"\napp = \"saratoga\"\ncongestion_control = \"tfrk\"",
        &[
            "26:22: unknown congestion control `tfrk`",
            "did you mean `tfrc`?",
        ],
    ),
    (
        "duration = \"30s\"",
        "bytes = \"0B\"",
        &["24:9: a flow of no bytes"],
    ),
    (
        "duration = \"30s\"",
        "duration = \"61s\"",
        &["24:12: flow `flow1` lasts until 61s"],
    ),
    (
        "[[flows]]",
        "[flows]",
        &["19:1: `flows` is a table: expected tables under `[[flows]]`"],
    ),
    // Cross traffic.
    (
        "[[flows]]",
        "[traffic]\nflows = 5\nbetween = [\"server\", \"mars\"]\n[[flows]]",
        &[
            "geo.toml:21:11: traffic to `mars`, which is no host",
            "expected `server` or `terminal`",
        ],
    ),
    (
        "[[flows]]",
        "[traffic]\nbetween = [\"server\", \"terminal\"]\nflows = 10001\n[[flows]]",
        &["geo.toml:21:9: 10001 flows of traffic: expected 0 to 10000"],
    ),
    (
        "[[flows]]",
        "[traffic]\nbetween = [\"server\", \"terminal\"]\nflows = -1\n[[flows]]",
        &["geo.toml:21:9: ", "whole number"],
    ),
    (
        "[[flows]]",
        "[traffic]\nbetween = [\"server\", \"terminal\"]\nflows = 5\nmodel = \"refrence\"\n[[flows]]",
        &[
            "geo.toml:22:9: unknown model of traffic `refrence`",
            "did you mean `reference`?",
        ],
    ),
    (
        "[[flows]]",
        "[traffic]\nbetween = [\"server\", \"terminal\"]\nflows = 5\nprofile = \"p.csv\"\n[[flows]]",
        &[
            "geo.toml:21:",
            "`flows` beside a profile",
            "either `profile` or `model` with `flows`",
        ],
    ),
    (
        "[[flows]]",
        "[traffic]\nflows = 5\n[[flows]]",
        &["geo.toml:19:1: [traffic] lacks `between`: expected `between = "],
    ),
    (
        "[[flows]]",
        "[traffic]\nbetween = [\"server\", \"terminal\"]\nflwos = 5\n[[flows]]",
        &["unknown key `flwos` in [traffic]", "did you mean `flows`?"],
    ),
    // Splits.
    (
        "[[flows]]",
        "[gateways.hub.split]\nhandshake = \"erly\"\n[[flows]]",
        &[
            "20:13: `erly` is no way to answer a SYN",
            "did you mean `early`?",
        ],
    ),
    (
        "[[flows]]",
        "[gateways.hub.split.limits]\nflows = 0\n[[flows]]",
        &["20:9: `0` is out of range: expected a whole number from 1 to"],
    ),
    (
        "[[flows]]",
        "[gateways.hub.split.lan]\ninitial_window = 0\nsend_buffer = \"0B\"\n[[flows]]",
        &["20:18: `0` is out of range", "21:15: `0B` is out of range"],
    ),
];
