//! What is still on its way of an earlier session counts for no later one, though the server hears both from one port.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::time::Duration;
use support::line::Line;
use support::{Served, client, config, content, get, give, run_at};

const DELAY: Duration = Duration::from_millis(150);

/// The same name with another content each time, one behind the other, each way: with an echo of what is sent, and by
/// the ways to peers that echo nothing.
#[test]
fn what_is_given_or_got_is_of_now() {
    for (blind, timestamps) in [(false, true), (true, true), (false, false), (true, false)] {
        let case = format!("blind {blind}, timestamps {timestamps}");
        let mut config = config();
        config.link.timestamps = timestamps;
        let served = Served::new(config);
        let line = Line::delayed(served.address, DELAY);
        let here = tempfile::tempdir().unwrap();
        let mut client = client();
        client.blind = blind;
        client.link.timestamps = timestamps;
        let local = here.path().join("a");
        for round in 0..3u8 {
            let given = [vec![round; 10], content(50_000)].concat();
            std::fs::write(&local, &given).unwrap();
            let report = run_at(line.address, client.clone(), give(&local, "a"));
            let there = std::fs::read(served.file("a")).unwrap_or_default();
            assert!(there == given, "{case}, {round}: {:?}", report.result);
            report.result.unwrap();
            assert!(!local.exists());
        }
        for round in 3..6u8 {
            let there = [vec![round; 10], content(50_000)].concat();
            std::fs::write(served.file("a"), &there).unwrap();
            let report = run_at(line.address, client.clone(), get("a", here.path()));
            report.result.unwrap();
            let got = std::fs::read(here.path().join("got")).unwrap();
            assert!(got == there, "{case}, {round}");
        }
    }
}
