//! Figures of lines, statements and chosen points: what they are read as, and each mistake in them.

mod support;

use bentpipe_scenario::Study;
use bentpipe_scenario::study::{Band, Bound, FigureKind, Scale, Take};
use support::KNOWN;

const STUDY: &str = r#"name = "spoof"
[hosts.a]
[hosts.b]
[links.space]
ends = ["a", "b"]
[[flows]]
name = "ftp"
from = "a"
to = "b"
segments = 1
[[sweep]]
name = "packets"
key = "flows.ftp.segments"
values = [1, 5, 40, 100]
quick = [1, 100]
[[sweep]]
name = "delay"
key = "links.space.delay"
values = ["1ms", "2ms"]
[[points]]
where = { packets = "5..", delay = "1ms" }
[[figures]]
name = "5"
title = "Throughput"
kind = "lines"
x = "packets"
scale = "linear"
measure = ["goodput", "segments"]
series = ["delay"]
band = "range"
zoom = 40
[[statements]]
id = "rise"
text = "It rises."
place = "section 4"
measure = "goodput"
take = "trend"
along = "packets"
where = { packets = "..40" }
each = "delay"
holds = ">= 0.5"
"#;

#[test]
fn figures_and_statements_are_read() {
    let mut study = Study::parse("s.toml", STUDY, KNOWN).unwrap_or_else(|e| panic!("{e}"));
    let FigureKind::Lines(lines) = &study.figures()[0].kind else {
        panic!("{:?}", study.figures()[0].kind)
    };
    assert_eq!(
        (lines.scale, lines.band, lines.zoom),
        (Scale::Linear, Band::Range, Some(40.0))
    );
    assert_eq!(lines.measures, ["goodput", "segments"]);
    let statement = &study.statements()[0];
    assert_eq!(statement.filter[&0], ["1", "5", "40"]);
    assert_eq!(statement.take, Take::Trend { along: 0 });
    assert_eq!(statement.holds, Bound::AtLeast(0.5));
    assert_eq!(study.len(), 3, "5, 40 and 100 packets at 1 ms");
    study.set_quick();
    assert_eq!(study.len(), 1, "of the quick values 100 alone");
}

#[test]
fn bounds_are_read_and_hold_at_their_edges() {
    for (text, inside, outside) in [
        (">= 150", 150.0, 149.9),
        ("> 0", 0.1, 0.0),
        ("<= 20", 20.0, 20.1),
        ("< -5", -5.1, -5.0),
        ("300..500", 500.0, 500.1),
    ] {
        let bound: Bound = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(bound.admits(inside) && !bound.admits(outside), "{text}");
    }
    for text in ["", "150", ">= x", "500..300", "> inf", "=> 3"] {
        assert!(text.parse::<Bound>().is_err(), "{text}");
    }
}

#[test]
fn each_mistake_is_answered_with_its_place() {
    for (right, wrong, expected) in [
        (
            "scale = \"linear\"",
            "scale = \"liner\"",
            "27:9: unknown scale `liner`: expected `category`, `linear` or `log`; did you mean `linear`?",
        ),
        (
            "[\"goodput\", \"segments\"]",
            "[\"goodput\", \"segment\"]",
            "unknown measure `segment`",
        ),
        (
            "series = [\"delay\"]",
            "series = [\"dely\"]",
            "`dely` is no axis",
        ),
        (
            "\">= 0.5\"",
            "\"0.5\"",
            "`0.5` is no bound: expected `>= 150`",
        ),
        ("\"trend\"", "\"tend\"", "`tend` cannot be taken"),
        (
            "each = \"delay\"\n",
            "",
            "2 values of axis `delay` in one place",
        ),
        ("along = \"packets\"\n", "", "lacks `along`"),
        ("\"..40\"", "\"..0\"", "`..0` is no value of axis `packets`"),
        ("place = \"section 4\"\n", "", "lacks `place`"),
        ("band = \"range\"", "bend = \"range\"", "unknown key `bend`"),
    ] {
        assert_eq!(STUDY.matches(right).count(), 1, "{right:?}");
        let text = STUDY.replace(right, wrong);
        let said = match Study::parse("s.toml", &text, KNOWN) {
            Ok(_) => "nothing".to_owned(),
            Err(problems) => problems.to_string(),
        };
        assert!(
            said.contains(expected),
            "{wrong:?}: {expected:?} is not in\n{said}"
        );
    }
}
