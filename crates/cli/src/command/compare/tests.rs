use super::figures::on_grid;
use super::*;
use std::time::Duration;

#[test]
fn a_window_is_that_of_the_last_change() {
    let at = Duration::from_millis;
    let points = [(at(50), 10.0), (at(100), 12.0), (at(250), 7.4)];
    assert_eq!(on_grid(&points, at(399)), [0, 12, 12, 7]);
}

#[test]
fn the_file_shipped_has_its_controls_over_a_satellite_and_on_the_ground() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/compare.toml");
    let cases = cases(Path::new(path)).unwrap();
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let paths = [
        "drops",
        "random",
        "20 ms, 0.1%",
        "20 ms, 2%",
        "40 ms, 0.5%",
        "40 ms, 1%",
        "100 ms, 0.1%",
        "100 ms, 1%",
    ];
    let expected: Vec<String> = [
        "reno",
        "cubic",
        "hybla",
        "bbr",
        "bbr 3 beside the kernel's 1",
    ]
    .iter()
    .flat_map(|control| paths.map(|path| format!("{control}, {path}")))
    .collect();
    assert_eq!(names, expected);
    for case in &cases {
        let link = &case.scenario.links["space"];
        let drops = link.forward.channels.under("drops").next().is_some();
        assert_eq!(drops, case.name.ends_with("drops"));
        let loss = link.forward.channels.chance("packet_error_rate");
        assert_eq!(loss.value() > 0.0, !drops);
        assert!(link.reverse.channels.under("drops").next().is_none());
    }
    // What the simulator cannot do would show at once; two runs are alike in all but the seed.
    let simulated = runs::simulate(&cases[..1], 2).unwrap();
    let flow = |run: usize| &simulated[0][run].flows[0];
    assert_eq!(flow(0), flow(1), "the drops are the same whatever the seed");
    assert!(flow(0).goodput_mbps > 0.1 && flow(0).sent_again > Some(0));
}
