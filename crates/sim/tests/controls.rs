//! Congestion controls of the caller's own, in place of the scenario's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use bentpipe_cc::reno::Reno;
use bentpipe_cc::{Ack, Congestion, SlowStart, Window};
use bentpipe_outcome::Run;
use bentpipe_sim::{Options, observe_with};

fn scenario(control: &str) -> String {
    let flow = |name: &str, control: &str| {
        format!(
            "[[flows]]\nname = \"{name}\"\nfrom = \"a\"\nto = \"b\"\nbytes = \"2MB\"\ncongestion_control = \"{control}\"\n"
        )
    };
    format!(
        "name = \"own\"\ntime_limit = \"600s\"\n[hosts.a]\n[hosts.b]\n[links.l]\nends = [\"a\", \"b\"]\nrate = \"10Mbit/s\"\n\
         delay = \"100ms\"\npacket_error_rate = \"1%\"\n{}{}",
        flow("own", control),
        flow("other", "cubic")
    )
}

/// What a scenario of CUBIC does whose flow `own` has what `make` makes.
fn with(make: fn() -> Box<dyn Congestion>, wire: bool) -> Run {
    let options = Options {
        wire,
        ..Options::default()
    };
    let scenario = common::parse(&scenario("cubic"));
    let own = |flow: &str| (flow == "own").then(make);
    observe_with(&scenario, &options, (), &own).unwrap().0
}

#[test]
fn a_control_of_the_callers_is_the_registrys_where_it_does_the_same() {
    let run = common::run(&scenario("reno"));
    assert_eq!(run.flows[0].control, "reno");
    for wire in [false, true] {
        let own = with(|| Box::new(Reno::new(SlowStart::Standard)), wire);
        assert_eq!(own.flows, run.flows, "wire: {wire}");
    }
    let cubic = common::run(&scenario("cubic"));
    assert_ne!(cubic.flows, run.flows, "the two differ here");
}

/// A window that nothing changes.
#[derive(Debug)]
struct Fixed;

impl Congestion for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn governs_recovery(&self) -> bool {
        true
    }

    fn on_ack(&mut self, window: &mut Window, _ack: &Ack) {
        window.cwnd = 4;
    }

    fn ssthresh(&mut self, window: &Window) -> u32 {
        window.ssthresh
    }
}

#[test]
fn what_is_in_no_registry_runs_and_is_named() {
    let run = with(|| Box::new(Fixed), false);
    let names: Vec<&str> = { run.flows.iter() }
        .map(|flow| flow.control.as_str())
        .collect();
    assert_eq!(names, ["fixed", "cubic"]);
    // Four segments a round trip of 200 ms: 4 * 1460 * 8 / 0.2 = 0.234 Mbit/s, less what loss costs.
    let mbps = run.flows[0].goodput().mbps();
    assert!((0.15..0.235).contains(&mbps), "{mbps}");
}
