//! Studies: what their points are, and how each sort of mistake in them is answered.

mod support;

use bentpipe_scenario::study::{FigureKind, TableKind};
use bentpipe_scenario::{Scenario, Study};
use std::time::Duration;
use support::KNOWN;

const STUDY: &str = r#"name = "geo"
[hosts.a]
[hosts.b]
[routers.hub]
[links.ground]
ends = ["a", "hub"]
[links.space]
ends = ["hub", "b"]
rate = "2Mbit/s"
bit_error_rate = 0
[peps.agent]
kind = "snoop"
node = "hub"
link = "space"
[[flows]]
name = "ftp"
from = "a"
to = "b"
duration = "30s"
[[sweep]]
name = "variant"
key = "flows.ftp.variant"
values = ["tahoe", "reno"]
[[sweep]]
name = "ber"
key = "links.space.bit_error_rate"
values = ["1e-5", 1e-6, 0]
[[sweep]]
name = "snoop"
key = "peps.agent.enabled"
values = [{ label = "off", value = false }, { label = "on", value = true }]
[[sweep]]
name = "seed"
key = "seed"
values = "1..20"
quick = "1..2"
[[tables]]
name = "1"
title = "Without"
measure = "segments"
rows = "variant"
columns = "ber"
where = { snoop = "off" }
[[tables]]
name = "2"
title = "Gain"
measure = "segments"
rows = "variant"
columns = "ber"
kind = "percent"
over = "snoop"
from = "off"
to = "on"
[[figures]]
name = "a"
title = "Time"
kind = "time-sequence"
series = "variant"
where = { snoop = "off", ber = "1e-5", seed = "1" }
"#;

fn said(right: &str, wrong: &str) -> String {
    assert_eq!(STUDY.matches(right).count(), 1, "{right:?} must occur once");
    let text = STUDY.replace(right, wrong);
    match Study::parse("geo.toml", &text, KNOWN) {
        Ok(_) => "nothing".to_owned(),
        Err(problems) => problems.to_string(),
    }
}

#[test]
fn the_points_are_the_product_of_the_axes_and_the_last_varies_fastest() {
    let study = Study::parse("geo.toml", STUDY, KNOWN).unwrap();
    assert_eq!(study.len(), 2 * 3 * 2 * 20);
    let expander = study.expander();
    let first = expander.point(0).unwrap();
    assert_eq!(first.labels, ["tahoe", "1e-5", "off", "1"]);
    let point = expander.point(20 + 2).unwrap();
    assert_eq!(point.labels, ["tahoe", "1e-5", "on", "3"]);
    assert!(point.scenario.peps["agent"].enabled);
    let last = expander.point(239).unwrap();
    assert_eq!(last.labels, ["reno", "0", "on", "20"]);
    assert_eq!(last.scenario.seed, 20);
    assert_eq!(last.scenario.flows[0].variant.as_deref(), Some("reno"));
    let errors = |scenario: &Scenario| {
        let way = &scenario.links["space"].forward;
        way.channels.chance("bit_error_rate").value()
    };
    assert_eq!(errors(&last.scenario), 0.0);
    let middle = expander.point(160).unwrap().scenario;
    assert_eq!(errors(&middle), 1e-6);
    // What a point is does not depend on the way it was made.
    let read = Scenario::parse("point.toml", &middle.to_toml()).unwrap();
    assert_eq!(read, middle);
}

#[test]
fn seeds_and_quick_values_take_the_place_of_the_files() {
    let mut study = Study::parse("geo.toml", STUDY, KNOWN).unwrap();
    let identity = study.identity();
    assert!(study.set_seeds(3));
    assert_eq!(study.len(), 36);
    study.set_quick();
    assert_eq!(study.len(), 24);
    assert_eq!(study.identity(), identity);
    let other = Study::parse("geo.toml", &STUDY.replace("2Mbit/s", "3Mbit/s"), KNOWN).unwrap();
    assert_ne!(other.identity(), identity);
}

#[test]
fn tables_and_figures_name_their_axes() {
    let study = Study::parse("geo.toml", STUDY, KNOWN).unwrap();
    let [plain, gain] = study.tables() else {
        panic!("two tables")
    };
    assert_eq!((plain.rows, plain.columns), (0, 1));
    assert_eq!(plain.filter[&2], ["off"]);
    let TableKind::Percent(contrast) = &gain.kind else {
        panic!("{:?}", gain.kind)
    };
    assert_eq!(
        (contrast.axis, contrast.from.as_str(), contrast.to.as_str()),
        (2, "off", "on")
    );
    assert_eq!(study.figures()[0].kind, FigureKind::TimeSequence);
}

#[test]
fn a_value_may_set_several_keys_and_arrays_are_entered_by_name() {
    let text = STUDY.replace(
        "key = \"links.space.bit_error_rate\"\nvalues = [\"1e-5\", 1e-6, 0]",
        "values = [{ label = \"1e-5\", set = { \"links.space.gilbert\" = \
         { mean_burst = 5, error_rate = 0.1 }, \"links.space.bit_error_rate\" = \"1e-9\", \
         \"flows.*.start\" = \"2s\" } }]",
    );
    let study = Study::parse("geo.toml", &text, KNOWN).unwrap_or_else(|e| panic!("{e}"));
    let scenario = study.expander().point(0).unwrap().scenario;
    let space = &scenario.links["space"].forward;
    let bursts = space.channels.under("gilbert").next().unwrap();
    assert_eq!(bursts.chance("error_rate").value(), 0.1);
    assert_eq!(space.channels.chance("bit_error_rate").value(), 1e-9);
    assert_eq!(scenario.flows[0].start, Duration::from_secs(2));
}

#[test]
fn each_mistake_is_answered_with_its_place() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "\"links.space.bit_error_rate\"",
            "\"links.space.bit_eror_rate\"",
            "geo.toml:26:7: unknown key `bit_eror_rate` in [links.space]",
        ),
        (
            "\"links.space.bit_error_rate\"",
            "\"links.spce.bit_error_rate\"",
            "geo.toml:26:7: `links.spce.bit_error_rate` leads nowhere: there is no `spce`: \
             expected `ground` or `space`; did you mean `space`?",
        ),
        (
            "\"flows.ftp.variant\"",
            "\"flows.fpt.variant\"",
            "22:7: `flows.fpt.variant` leads nowhere: no [[flows]] is named `fpt`: expected `ftp`",
        ),
        (
            "\"1e-5\", 1e-6, 0]",
            "\"1e-5\", 2, 0]",
            "27:19: `2` is not a probability",
        ),
        (
            "[\"tahoe\", \"reno\"]",
            "[\"tahoe\", \"rno\"]",
            "23:20: unknown variant of TCP `rno`: expected `tahoe` or `reno`; did you mean `reno`?",
        ),
        ("\"1..20\"", "\"20..1\"", "35:10: `20..1` is no range"),
        ("\"1..20\"", "[]", "35:10: `[]` are no values"),
        (
            "quick = \"1..2\"",
            "quick = [\"x\"]",
            "36:10: `\"x\"` is not a natural number",
        ),
        (
            "value = true }",
            "set = true }",
            "31:45: a value that does not say what it sets",
        ),
        ("key = \"seed\"\n", "", "no range of values for a key"),
        (
            "key = \"seed\"",
            "key = \"flows.ftp.variant\"",
            "is set by two axes",
        ),
        (
            "name = \"seed\"",
            "name = \"ber\"",
            "a second axis named `ber`",
        ),
        (
            "label = \"on\"",
            "label = \"off\"",
            "two values are called `off`",
        ),
        (
            "title = \"Without\"\nmeasure = \"segments\"",
            "title = \"Without\"\nmeasure = \"segment\"",
            "40:11: unknown measure `segment`: expected `segments`, `goodput`, `drops`, `local` or `jain`; did you mean \
             `segments`?",
        ),
        (
            "title = \"Without\"\nmeasure = \"segments\"",
            "title = \"Without\"\nmeasure = \"drops_space\"",
            "40:11: `drops_space` is written otherwise now: expected `drops(space)`",
        ),
        (
            "title = \"Without\"\nmeasure = \"segments\"",
            "title = \"Without\"\nmeasure = \"drops(spase)\"",
            "40:11: `drops` of no link `spase`: expected the name of a link of this file, such as `drops(ground)`; did \
             you mean `drops(space)`?",
        ),
        (
            "title = \"Without\"\nmeasure = \"segments\"",
            "title = \"Without\"\nmeasure = \"goodput(space)\"",
            "40:11: `goodput` of no flow `space`: expected the name of a flow of this file, such as `goodput(ftp)`",
        ),
        (
            "title = \"Without\"\nmeasure = \"segments\"",
            "title = \"Without\"\nmeasure = \"local()\"",
            "40:11: `local` of no PEP or gateway ``: expected the name of a PEP or gateway of this file, such as \
             `local(agent)`",
        ),
        (
            "title = \"Without\"\nmeasure = \"segments\"",
            "title = \"Without\"\nmeasure = \"jain(ftp)\"",
            "40:11: `jain`, a measure of the whole run, of `ftp` alone: expected `jain`",
        ),
        (
            "where = { snoop = \"off\" }",
            "",
            "37:1: 2 values of axis `snoop` in one place",
        ),
        (
            "where = { snoop = \"off\" }",
            "where = { snoop = \"of\" }",
            "43:9: `of` is no value of axis `snoop`: expected one of its 2 labels; did you mean `off`?",
        ),
        (
            "over = \"snoop\"",
            "over = \"snop\"",
            "51:8: `snop` is no axis",
        ),
        (
            "\"time-sequence\"",
            "\"time\"",
            "57:8: unknown kind of figure `time`",
        ),
        (
            "rate = \"2Mbit/s\"",
            "raet = \"2Mbit/s\"",
            "9:1: unknown key `raet`",
        ),
    ];
    for (right, wrong, expected) in cases {
        let said = said(right, wrong);
        assert!(
            said.contains(expected),
            "{wrong:?}: {expected:?} is not in\n{said}"
        );
    }
}

#[test]
fn a_time_sequence_is_of_one_captured_point() {
    let graph = "[[time_sequences]]\nname = \"b\"\ntitle = \"Start\"\nlink = \"space\"\nnode = \"hub\"\nlength = \"1s\"\n\
                 where = { variant = \"reno\", snoop = \"off\", ber = \"1e-5\" }\n[[figures]]";
    let captured = |wrong: (&str, &str)| {
        assert_eq!(graph.matches(wrong.0).count(), 1, "{wrong:?}");
        let text = STUDY.replace("[[figures]]", &graph.replace(wrong.0, wrong.1));
        let text = text.replacen("name =", "capture = true\nname =", 1);
        Study::parse("geo.toml", &text, KNOWN)
    };
    let study = captured(("Start", "Start")).unwrap();
    let [one] = study.time_sequences() else {
        panic!("one graph");
    };
    let second = std::time::Duration::from_secs(1);
    assert_eq!(one.part, Some((std::time::Duration::ZERO, second)));
    let cases = [
        ("\"space\"", "\"spaec\"", "`spaec` is no link"),
        ("\"hub\"", "\"huub\"", "`huub` is at no end of `space`"),
        ("length", "begin", "a part without a length"),
        (
            "\"reno\"",
            "[\"reno\", \"tahoe\"]",
            "2 values of axis `variant` in one place",
        ),
        ("\"b\"", "\"a\"", "two [[figures]] named `a`"),
    ];
    for (right, wrong, expected) in cases {
        let said = captured((right, wrong)).unwrap_err().to_string();
        assert!(said.contains(expected), "{wrong}: {said}");
    }
    let said = said("[[figures]]", graph);
    assert!(said.contains("`capture = true`"), "{said}");
}

#[test]
fn a_measure_may_be_of_one_flow_link_or_proxy() {
    let right = "title = \"Without\"\nmeasure = \"segments\"";
    // Of the copies that an axis may make of a flow any is right.
    for one in [
        "segments(ftp)",
        "segments(ftp-3)",
        "drops(space)",
        "local(agent)",
    ] {
        let text = STUDY.replace(right, &format!("title = \"Without\"\nmeasure = \"{one}\""));
        let study = Study::parse("geo.toml", &text, KNOWN).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(study.tables()[0].measure, one);
    }
}

#[test]
fn one_scenario_is_not_taken_for_a_study() {
    let said = Scenario::parse("geo.toml", STUDY).unwrap_err().to_string();
    assert!(said.contains("`bentpipe study run`"), "{said}");
}
