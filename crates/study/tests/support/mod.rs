//! A study of eighteen points whose measure is a closed form.

use bentpipe_scenario::{Known, Scenario, Study};
use bentpipe_study::Measures;

pub(crate) const TEXT: &str = r#"name = "closed"
[hosts.a]
[hosts.b]
[links.l]
ends = ["a", "b"]
rate = "1Mbit/s"
delay = "1ms"
[[flows]]
from = "a"
to = "b"
bytes = "1MB"
[[sweep]]
name = "delay"
key = "links.l.delay"
values = ["1ms", "2ms", "4ms"]
[[sweep]]
name = "seed"
key = "seed"
values = "1..7"
[[tables]]
name = "t"
title = "t"
measure = "sum"
rows = "delay"
columns = "seed"
"#;

pub(crate) fn study(text: &str) -> Study {
    Study::parse("closed.toml", text, Known::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// A third of the delay in milliseconds plus the seed: not exact in decimal.
pub(crate) fn closed(scenario: &Scenario) -> Result<Measures, String> {
    let delay = scenario.links["l"].forward.delay.as_millis() as f64;
    Ok([("sum".to_owned(), Some(delay / 3.0 + scenario.seed as f64))].into())
}
