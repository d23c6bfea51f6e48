//! Lines and statements from rows that are known, against closed forms.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_scenario::{Known, Study};
use bentpipe_study::{Judged, Line, ReferenceValues, Samples, judge, lines};
use std::fs;

const TEXT: &str = r#"name = "lines"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
delay = "1ms"
[[flows]]
name = "f"
from = "a"
to = "b"
segments = 1
[[sweep]]
name = "packets"
key = "flows.f.segments"
values = [1, 2, 4, 8, 16]
[[sweep]]
name = "mode"
key = "links.l.mtu"
values = [{ label = "plain", value = "1300B" }, { label = "spoofed", value = "1500B" }]
[[sweep]]
name = "pause"
key = "flows.f.start"
values = ["0s", "1s"]
[[sweep]]
name = "seed"
key = "seed"
values = "1..2"
[[points]]
where = { pause = "0s" }
[[points]]
where = { packets = ["4", "8"] }
[[tables]]
name = "plain"
title = "t"
measure = "send"
rows = "packets"
columns = "pause"
where = { mode = "plain" }
[[tables]]
name = "spoofed"
title = "t"
measure = "send"
rows = "packets"
columns = "pause"
where = { mode = "spoofed" }
[[figures]]
name = "5"
title = "t"
kind = "lines"
x = "packets"
scale = "linear"
series = "mode"
measure = ["send", "receive"]
band = "interval"
where = { pause = "0s" }
[[figures]]
name = "6"
title = "t"
kind = "lines"
x = "packets"
scale = "log"
series = "pause"
measure = "send"
show = "percent"
over = "mode"
from = "plain"
to = "spoofed"
band = "range"
[[statements]]
id = "gain"
text = "t"
place = "p"
measure = "send"
show = "percent"
over = "mode"
from = "plain"
to = "spoofed"
where = { packets = "2..8" }
each = "pause"
take = "least"
holds = ">= 45"
[[statements]]
id = "first"
text = "t"
place = "p"
measure = "send"
along = "packets"
when = "> 1000"
where = { mode = "plain", pause = "0s" }
take = "first"
holds = "10..20"
[[statements]]
id = "between"
text = "t"
place = "p"
measure = "receive"
against = "send"
where = { packets = "4..", pause = "0s" }
take = "largest"
holds = "<= 10"
"#;

fn study() -> Study {
    Study::parse("lines.toml", TEXT, Known::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// `send` is 100 a packet, 10 less at seed 1 and 10 more at seed 2; spoofed half as much again;
/// `receive` is 90% of `send`.
fn samples(study: &Study) -> Samples {
    let expander = study.expander();
    let mut samples = Samples::new(study).unwrap();
    for index in 0..study.len() {
        let labels = expander.point(index).unwrap().labels;
        let around = if labels[3] == "1" { -10.0 } else { 10.0 };
        let plain = 100.0 * labels[0].parse::<f64>().unwrap() + around;
        let send = if labels[1] == "plain" {
            plain
        } else {
            1.5 * plain
        };
        let measures = [("send", send), ("receive", 0.9 * send)];
        let measures = measures.map(|(name, value)| (name.to_owned(), Some(value)));
        samples.put(index, &measures.into());
    }
    samples
}

fn figure(name: &str) -> Vec<Line> {
    let study = study();
    let figures = study.figures();
    let figure = figures.iter().find(|figure| figure.name == name).unwrap();
    lines(&study, figure, &samples(&study), &|_| {
        unreachable!("no run")
    })
    .unwrap()
}

#[test]
fn only_the_points_that_are_named_are_run() {
    let mut study = study();
    // Five sizes at one pause, two of them at the other; two modes, two seeds.
    assert_eq!(study.len(), (5 + 2) * 2 * 2);
    let labels = |study: &Study, index| study.expander().point(index).unwrap().labels;
    assert_eq!(labels(&study, 0), ["1", "plain", "0s", "1"]);
    assert_eq!(labels(&study, 27), ["16", "spoofed", "0s", "2"]);
    assert_eq!(study.index_of(&[2, 1, 1, 0]), Some(14), "4, spoofed, 1s, 1");
    assert_eq!(study.index_of(&[0, 0, 1, 0]), None, "not among them");
    study.set_seeds(3);
    assert_eq!(study.len(), (5 + 2) * 2 * 3);
}

#[test]
fn means_stand_at_their_numbers_within_their_interval() {
    let made = figure("5");
    let names: Vec<&str> = made.iter().map(|line| line.label.as_str()).collect();
    assert_eq!(
        names,
        [
            "plain, send",
            "plain, receive",
            "spoofed, send",
            "spoofed, receive"
        ]
    );
    assert_eq!(made[0].x, [1.0, 2.0, 4.0, 8.0, 16.0]);
    assert_eq!(made[0].y, [100.0, 200.0, 400.0, 800.0, 1600.0]);
    // Two samples 20 apart: se 10, and Student's t of one degree of freedom is 12.706.
    assert!((made[0].high[0] - 227.06).abs() < 1e-9 && (made[0].low[0] + 27.06).abs() < 1e-9);
    assert_eq!(made[2].y[4], 2400.0);
}

#[test]
fn a_percentage_is_that_of_the_means() {
    let made = figure("6");
    assert_eq!(
        (made[0].label.as_str(), made[1].label.as_str()),
        ("0s", "1s")
    );
    assert!(
        made[0].y.iter().all(|gain| (gain - 50.0).abs() < 1e-9),
        "{made:?}"
    );
    assert_eq!(made[1].x, [4.0, 8.0], "the others were not run");
    assert_eq!((made[0].low.len(), made[0].high.len()), (5, 5));
}

fn judged(reference: &str) -> Vec<Judged> {
    let folder = tempfile::tempdir().unwrap();
    let [none, file] = ["none.csv", "reference.csv"].map(|name| folder.path().join(name));
    fs::write(&file, reference).unwrap();
    let study = study();
    let beside = ReferenceValues::read(&study, &none, &file).unwrap_or_else(|e| panic!("{e}"));
    judge(&study, &samples(&study), &beside, None)
}

#[test]
fn statements_are_judged_on_our_points_and_on_those_of_the_reference() {
    let made = judged(
        "table,row,column,mean,sd,n\nplain,2,0s,100,0,5\nspoofed,2,0s,140,0,5\n\
         plain,4,0s,100,0,5\nspoofed,4,0s,160,0,5\nplain,8,0s,1001,0,5\n",
    );
    let [gain, later, first, between] = made.as_slice() else {
        panic!("{made:?}")
    };
    assert_eq!(gain.model.as_deref(), Some("pause 0s"));
    assert!((gain.ours.unwrap() - 50.0).abs() < 1e-9);
    assert_eq!((gain.points, gain.holds), (3, Some(true)));
    // Of 40% and 60% the least; of 8 packets there is one side only.
    assert!((gain.reference.unwrap() - 40.0).abs() < 1e-9);
    assert_eq!(
        (gain.reference_points, gain.reference_holds),
        (2, Some(false))
    );
    assert_eq!(
        (later.points, later.reference, later.reference_holds),
        (2, None, None)
    );
    assert_eq!((first.ours, first.holds), (Some(16.0), Some(true)));
    assert_eq!(
        (first.reference, first.reference_holds),
        (Some(8.0), Some(false))
    );
    assert!((between.ours.unwrap() - 10.0).abs() < 1e-9, "{between:?}");
    assert_eq!(between.points, 6, "4, 8 and 16 packets, both modes");
    assert_eq!(
        gain.check,
        "least % change of send from plain to spoofed ≥ 45"
    );
}
