//! Short scenarios, run on a machine with other work.
#![allow(dead_code, reason = "each test crate uses a part")]

use bentpipe_lab::{Measured, RunOptions, RunResult, run};
use bentpipe_outcome::{Point, TcpState};
use bentpipe_scenario::Scenario;
use std::time::Duration;

/// server - hub - terminal, 10 Mbit/s and 50 ms on the way to the terminal; the test's own keys are
/// put in by name.
pub(crate) fn scenario(name: &str, link: &str, flows: &str) -> Scenario {
    let text = format!(
        r#"
name = "{name}"
seed = 3
time_limit = "10s"
[hosts.terminal]
[hosts.server]
[routers.hub]
[links.space]
ends = ["hub", "terminal"]
rate = "10Mbit/s"
delay = "50ms"
queue = {{ bytes = "125kB" }}
{link}
[links.ground]
ends = ["server", "hub"]
{flows}
"#
    );
    Scenario::parse(name, &text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// What is judged here is wide enough for a machine with other work.
pub(crate) fn patient() -> RunOptions {
    RunOptions {
        lateness_limit: Some(Duration::from_millis(50)),
        ..RunOptions::default()
    }
}

pub(crate) fn measure(scenario: &Scenario) -> RunResult {
    run(scenario, &patient()).expect("a run")
}

pub(crate) fn valid(result: &RunResult) -> &Measured {
    result
        .measured()
        .unwrap_or_else(|reasons| panic!("the run is no result: {reasons:?}"))
}

/// The last state of the first flow's sender.
pub(crate) fn last_of(measured: &Measured) -> TcpState {
    let samples = measured.samples.iter();
    let mut own = samples.filter(|it| it.flow == 0 && it.point == Point::Sender);
    let last = own.next_back().and_then(|sample| sample.tcp);
    last.expect("a sample of the sender")
}
