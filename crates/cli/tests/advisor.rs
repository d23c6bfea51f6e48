//! What the advisor says of a scenario is what `bentpipe sim run` prints of it, to the last bit.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_advisor::{
    Activity, Alternative, Losses, Measure, PRESETS, Question, Sliders, measure, scenario,
};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Compares what the advisor finds with what the program prints.
fn same(question: &Question, alternative: Alternative, what: Measure) {
    let figure = measure(question, alternative, what).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("advisor.toml");
    let text = scenario(question, alternative, what, figure.seed);
    fs::write(&file, &text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_bentpipe"))
        .args(["sim", "run"])
        .arg(&file)
        .args(["--json", "-"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}\n{text}");
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let flows = printed["flows"].as_array().unwrap();
    let flow = { flows.iter() }.find(|flow| flow["name"] == figure.flow.as_str());
    let seconds = flow.unwrap()["completion_s"].as_f64();
    assert_eq!(
        seconds.map(f64::to_bits),
        figure.seconds.map(f64::to_bits),
        "{text}"
    );
    let bytes: f64 = { flows.iter() }
        .map(|flow| flow["received_bytes"].as_f64().unwrap())
        .sum();
    let last = printed["measures"]["completion"]["value"].as_f64().unwrap();
    assert_eq!(
        (bytes * 8.0 / last / 1e6).to_bits(),
        figure.goodput_mbps.to_bits()
    );
}

fn question(change: impl FnOnce(&mut Sliders)) -> Question {
    let mut sliders = PRESETS[0].sliders.clone();
    change(&mut sliders);
    Question::try_from(sliders).unwrap()
}

#[test]
fn every_figure_is_that_of_sim_run() {
    let lossy = question(|it| it.loss_percent = 1.0);
    for alternative in Alternative::ALL {
        for what in [Measure::Page, Measure::Small, Measure::Medium] {
            same(&lossy, alternative, what);
        }
        let crowd = question(|it| {
            it.users = 3.0;
            it.activity = Activity::Upload;
            it.losses = Losses::Bursts;
        });
        same(&crowd, alternative, Measure::Medium);
        let moving = question(|it| it.losses = Losses::Handovers);
        same(&moving, alternative, Measure::Medium);
    }
    same(&question(|_| ()), Alternative::SplitRate, Measure::Long);
}
