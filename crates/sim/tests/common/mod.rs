//! Scenarios that several tests run.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a test that cannot go on has failed; not every test needs every helper"
)]

use bentpipe_base::Instant;
use bentpipe_outcome::Run;
use bentpipe_scenario::Scenario;
use bentpipe_sim::{EndId, Observer, Options, observe};
use bentpipe_tcp::{Connection, Counters};
use std::collections::BTreeMap;

pub(crate) fn parse(text: &str) -> Scenario {
    Scenario::parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

pub(crate) fn run(text: &str) -> Run {
    bentpipe_sim::run(&parse(text), &Options::default()).unwrap()
}

/// What the TCPs of a run's flows counted, as they were when they acted last: by the number of the flow, and whether it
/// is the end that opens the connection.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct TcpCounters(pub(crate) BTreeMap<(usize, bool), Counters>);

impl Observer for TcpCounters {
    const PACKETS: bool = false;

    fn acted(&mut self, _: Instant, end: EndId, tcp: &Connection) {
        self.0.insert((end.flow(), end.opens()), *tcp.counters());
    }
}

pub(crate) fn counted(scenario: &Scenario, options: &Options) -> (Run, TcpCounters) {
    observe(scenario, options, TcpCounters::default()).unwrap()
}

/// A (10 Mb/s, 30 ms) B (2 Mb/s, 250 ms) C: the topology of the Snoop paper with ns-2's TCP; `ber`
/// on the data's way, `rest` after the flow.
pub(crate) fn paper(variant: &str, seconds: u32, ber: &str, rest: &str) -> Scenario {
    parse(&format!(
        r#"
        name = "paper"
        time_limit = "{seconds}s"
        [hosts.a]
        preset = "ns2"
        [hosts.c]
        preset = "ns2"
        [routers.b]
        [links.ground]
        ends = ["a", "b"]
        rate = "10Mbit/s"
        delay = "30ms"
        queue = {{ packets = 1000000 }}
        [links.space]
        ends = ["b", "c"]
        rate = "2Mbit/s"
        delay = "250ms"
        queue = {{ packets = 1000000 }}
        bit_error_rate = "{ber}"
        [links.space.reverse]
        bit_error_rate = "0"
        [[flows]]
        name = "ftp"
        from = "a"
        to = "c"
        duration = "{seconds}s"
        variant = "{variant}"
        {rest}
        "#
    ))
}

/// Every kind of flow in both directions over a lossy link, with a proxy, in IPv4 or IPv6.
pub(crate) fn mixture(ip: u8) -> Scenario {
    parse(&format!(
        r#"
        name = "mixture"
        time_limit = "60s"
        ip = {ip}
        [hosts.a]
        [hosts.b]
        [hosts.c]
        [routers.hub]
        [peps.agent]
        kind = "snoop"
        node = "hub"
        link = "space"
        [links.space]
        ends = ["hub", "c"]
        rate = "5Mbit/s"
        delay = "100ms"
        queue = {{ packets = 60 }}
        packet_error_rate = "1%"
        [links.first]
        ends = ["a", "hub"]
        rate = "20Mbit/s"
        delay = "5ms"
        [links.second]
        ends = ["b", "hub"]
        delay = "1ms"
        [[flows]]
        name = "down"
        from = "a"
        to = "c"
        duration = "40s"
        variant = "sack"
        [[flows]]
        name = "up"
        from = "c"
        to = "b"
        bytes = "1MB"
        start = "3s"
        variant = "newreno"
        [[flows]]
        name = "pages"
        kind = "request-response"
        response = "20kB"
        from = "b"
        to = "c"
        opened_by = "c"
        bytes = "400kB"
        variant = "sack"
        [[flows]]
        name = "voice"
        kind = "on-off"
        on = "500ms"
        off = "300ms"
        rate = "200kbit/s"
        exponential = true
        from = "b"
        to = "c"
        duration = "30s"
        variant = "sack"
        "#
    ))
}
