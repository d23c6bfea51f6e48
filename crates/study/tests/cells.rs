//! Tables from rows that are known, beside values that are known.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_scenario::{Known, Study};
use bentpipe_study::{Cell, ReferenceValues, Samples, cells};
use std::fs;

const TEXT: &str = r#"name = "cells"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
delay = "1ms"
[[flows]]
from = "a"
to = "b"
bytes = "1MB"
[[sweep]]
name = "delay"
key = "links.l.delay"
values = ["1ms", "2ms"]
[[sweep]]
name = "mtu"
key = "links.l.mtu"
values = [{ label = "small", value = "1300B" }, { label = "large", value = "1500B" }]
[[sweep]]
name = "pause"
key = "flows.*.start"
values = ["0s", "1s"]
[[sweep]]
name = "seed"
key = "seed"
values = "1..20"
[[tables]]
name = "off"
title = "t"
measure = "m"
rows = "delay"
columns = "pause"
where = { mtu = "small" }
[[tables]]
name = "on"
title = "t"
measure = "m"
rows = "delay"
columns = "pause"
where = { mtu = "large" }
[[tables]]
name = "gain"
title = "t"
measure = "m"
rows = "delay"
columns = "pause"
kind = "percent"
over = "mtu"
from = "small"
to = "large"
[[tables]]
name = "more"
title = "t"
measure = "m"
rows = "delay"
columns = "pause"
kind = "difference"
over = "mtu"
from = "small"
to = "large"
"#;

fn study() -> Study {
    Study::parse("cells.toml", TEXT, Known::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Small: 100 at odd seeds and 120 at even ones; large: 150 and 150; the second delay ten times as much.
fn samples(study: &Study) -> Samples {
    let expander = study.expander();
    let mut samples = Samples::new(study).unwrap();
    for index in 0..study.len() {
        let labels = expander.point(index).unwrap().labels;
        let base = match (labels[1].as_str(), labels[3].as_str()) {
            ("small", seed) if seed.parse::<u64>().unwrap() % 2 == 1 => 100.0,
            ("small", _) => 120.0,
            _ => 150.0,
        };
        let scale = if labels[0] == "1ms" { 1.0 } else { 10.0 };
        samples.put(index, &[("m".to_owned(), Some(base * scale))].into());
    }
    samples
}

fn find<'c>(cells: &'c [Cell], table: &str, row: &str) -> &'c Cell {
    let mut cells = cells
        .iter()
        .filter(|cell| cell.table == table && cell.row == row);
    cells.find(|cell| cell.column == "0s").unwrap()
}

#[test]
fn means_differences_and_percentages() {
    let study = study();
    let made = cells(&study, &samples(&study), &ReferenceValues::default());
    assert_eq!(made.len(), 4 * 4);
    let off = find(&made, "off", "1ms");
    let spread = (off.mean, off.min, off.max, off.n);
    assert_eq!(spread, (Some(110.0), Some(100.0), Some(120.0), 20));
    // sd 10 sqrt(20 / 19) over sqrt 20, by Student's t of 19 degrees of freedom: 2.093.
    assert!((off.half.unwrap() - 2.093 * 10.0 / 19f64.sqrt()).abs() < 0.01);
    let on = find(&made, "on", "2ms");
    assert_eq!((on.mean, on.half), (Some(1500.0), Some(0.0)));
    let more = find(&made, "more", "1ms");
    assert_eq!(
        (more.mean, more.min, more.max),
        (Some(40.0), Some(30.0), Some(50.0))
    );
    // Of the means: 150 / 110; by seed: 150 / 120 and 150 / 100.
    let gain = find(&made, "gain", "1ms");
    assert!((gain.mean.unwrap() - 400.0 / 11.0).abs() < 1e-9);
    assert_eq!((gain.min, gain.max), (Some(25.0), Some(50.0)));
    assert_eq!((off.paper, off.reference, off.agrees), (None, None, None));
}

fn beside(expected: &str, reference: &str) -> Result<ReferenceValues, String> {
    let folder = tempfile::tempdir().unwrap();
    let [e, r] = ["expected.csv", "reference.csv"].map(|name| folder.path().join(name));
    fs::write(&e, expected).unwrap();
    fs::write(&r, reference).unwrap();
    ReferenceValues::read(&study(), &e, &r).map_err(|error| error.to_string())
}

#[test]
fn what_others_have_stands_beside_and_is_judged() {
    let study = study();
    // se of ours 10 / sqrt(19) = 2.29, of theirs 0: the tolerance at 118 is 4.59 + 3.54.
    let reference = "table,row,column,mean,sd,n\noff,1ms,0s,118,0,5\noff,2ms,0s,1400,0,5\n\
                     on,1ms,0s,150.7,0,5\non,2ms,0s,1500,0,5\n";
    let beside = beside("table,row,column,value\noff,1ms,0s,99\n", reference).unwrap();
    let made = cells(&study, &samples(&study), &beside);
    let off = find(&made, "off", "1ms");
    assert_eq!(
        (off.paper, off.reference, off.agrees),
        (Some(99.0), Some(118.0), Some(true))
    );
    assert_eq!(
        find(&made, "off", "2ms").agrees,
        Some(false),
        "1100 against 1400 +- 88"
    );
    assert_eq!(
        find(&made, "on", "1ms").agrees,
        Some(true),
        "no spread: 0.47% off"
    );
    // A difference agrees when both its sides do; its reference is that of theirs.
    let more = find(&made, "more", "1ms");
    assert!((more.reference.unwrap() - 32.7).abs() < 1e-9);
    assert_eq!(more.agrees, Some(true));
    assert_eq!(find(&made, "gain", "2ms").agrees, Some(false));
}

#[test]
fn a_mistake_in_the_values_is_placed() {
    let expected = |line: &str| beside(&format!("table,row,column,value\n{line}\n"), "");
    let said = expected("off,1m,0s,99").unwrap_err();
    assert!(
        said.contains("expected.csv:2: the study has no row `1m`"),
        "{said}"
    );
    assert!(said.contains("did you mean `1ms`?"), "{said}");
    let said = expected("off,1ms,0s,x").unwrap_err();
    assert!(said.contains("expected.csv:2:"), "{said}");
    let said = beside("", "table,row,column,mean,sd,n\nof,1ms,0s,1,1,1\n").unwrap_err();
    assert!(
        said.contains("no table `of`: expected one of off, on, gain, more"),
        "{said}"
    );
    assert!(said.contains("did you mean `off`?"), "{said}");
    assert!(beside("", "").is_ok());
}
