//! `sack` of a host: without it at either end no selective acknowledgement is sent, as on Linux.

mod common;

use std::time::Duration;

/// How long a megabyte takes of which eight segments of one window are lost.
fn took(server: bool, terminal: bool, preset: &str) -> Duration {
    let outcome = common::run(&format!(
        r#"
        name = "sack"
        time_limit = "60s"
        [hosts.server]
        sack = {server}
        preset = "{preset}"
        tcp = {{ recovery = "sack" }}
        [hosts.terminal]
        sack = {terminal}
        preset = "{preset}"
        tcp = {{ recovery = "sack" }}
        [links.l]
        ends = ["server", "terminal"]
        rate = "20Mbit/s"
        delay = "100ms"
        drops = [60, 63, 66, 69, 72, 75, 78, 81]
        [links.l.reverse]
        drops = []
        [[flows]]
        name = "f"
        from = "server"
        to = "terminal"
        bytes = "1MB"
        congestion_control = "reno"
        "#
    ));
    outcome.flows[0].completion.expect("all of it arrives")
}

#[test]
fn sack_is_used_where_both_hosts_agree() {
    for preset in ["rfc", "ns2"] {
        let with = took(true, true, preset);
        let without = took(false, true, preset);
        // NewReno repairs one segment a round trip, of 200 ms.
        let more = without.saturating_sub(with);
        assert!(
            more > Duration::from_millis(350),
            "{preset}: {with:?}, {without:?}"
        );
        assert_eq!(took(true, false, preset), without, "{preset}");
        assert_eq!(took(false, false, preset), without, "{preset}");
    }
}
