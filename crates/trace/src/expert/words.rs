//! What held each direction back, in words and as JSON.

use super::{Limit, NotJudged, Period, judge};
use crate::output::of;
use crate::{Connection, Series, Side, Trace, letters};
use bentpipe_base::Instant;
use serde_json::{Value, json};
use std::fmt::{self, Write};

/// Periods of one limit that are named at most; JSON has all.
const NAMED: usize = 5;

/// What held each direction with data back, in words: shares, and the longest times of each limit. The series of the
/// connections must have been kept ([`Trace::record`]).
///
/// # Errors
/// What `out` gives.
pub fn expert(out: &mut dyn Write, trace: &Trace, chosen: &[usize]) -> fmt::Result {
    for (index, connection) in of(trace, chosen) {
        let Some(series) = trace.series(index) else {
            continue;
        };
        let (a, b) = letters(index);
        writeln!(
            out,
            "connection {}: {} - {}",
            index + 1,
            connection.a,
            connection.b
        )?;
        for (side, name) in [(Side::A, format!("{a}2{b}")), (Side::B, format!("{b}2{a}"))] {
            match judge(connection, series, side) {
                Ok(periods) => direction(out, connection, &name, &periods)?,
                Err(reason) => writeln!(out, "  {name}: {reason}")?,
            }
        }
    }
    Ok(())
}

fn direction(
    out: &mut dyn Write,
    connection: &Connection,
    name: &str,
    periods: &[Period],
) -> fmt::Result {
    let whole = total(periods);
    if whole == 0 {
        return writeln!(out, "  {name}: all of it was sent and acknowledged at once");
    }
    writeln!(
        out,
        "  {name}: {} from first data to last acknowledgement",
        Span(whole)
    )?;
    for (limit, nanos) in shares(periods) {
        let share = nanos as f64 * 100.0 / whole as f64;
        writeln!(
            out,
            "    {share:5.1}%  {:>9}  {}",
            Span(nanos).to_string(),
            limit.words()
        )?;
        let mut longest: Vec<&Period> = periods.iter().filter(|it| it.limit == limit).collect();
        let count = longest.len();
        longest.sort_by_key(|period| std::cmp::Reverse(period.nanos()));
        longest.truncate(NAMED);
        longest.sort_by_key(|period| period.from);
        let times = longest.iter().map(|period| {
            let at = |at: Instant| seconds(at.nanos_since(connection.first));
            format!("{:.3}-{:.3}", at(period.from), at(period.to))
        });
        let times = times.collect::<Vec<_>>().join(", ");
        let more = match count.saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} shorter"),
        };
        writeln!(out, "                       at {times} s{more}")?;
    }
    Ok(())
}

/// The limits of connection `index` for JSON; nothing if its series was not kept.
pub(crate) fn limits_as_json(connection: &Connection, series: &Series) -> Value {
    let side = |side| match judge(connection, series, side) {
        Ok(periods) => judged(connection, &periods),
        Err(NotJudged::NoData) => Value::Null,
        Err(reason) => json!({ "not_judged": reason.to_string() }),
    };
    json!({ "a2b": side(Side::A), "b2a": side(Side::B) })
}

fn judged(connection: &Connection, periods: &[Period]) -> Value {
    let whole = total(periods);
    let shares = shares(periods).into_iter().map(|(limit, nanos)| {
        (
            limit.key().to_owned(),
            json!(nanos as f64 / whole.max(1) as f64),
        )
    });
    let at = |at: Instant| seconds(at.nanos_since(connection.first));
    let listed = periods.iter().map(|period| {
        json!({ "from_s": at(period.from), "to_s": at(period.to), "limit": period.limit.key() })
    });
    json!({
        "seconds": seconds(whole),
        "shares": shares.collect::<serde_json::Map<_, _>>(),
        "periods": listed.collect::<Vec<_>>(),
    })
}

fn total(periods: &[Period]) -> u64 {
    periods.iter().map(Period::nanos).sum()
}

/// Each limit that there was with its time in nanoseconds, the greatest first.
fn shares(periods: &[Period]) -> Vec<(Limit, u64)> {
    let time = |limit| {
        let own = periods.iter().filter(|period| period.limit == limit);
        own.map(Period::nanos).sum::<u64>()
    };
    let mut shares: Vec<(Limit, u64)> = Limit::ALL.map(|limit| (limit, time(limit))).to_vec();
    shares.retain(|(_, nanos)| *nanos > 0);
    shares.sort_by_key(|(_, nanos)| std::cmp::Reverse(*nanos));
    shares
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// A time that is read at a glance.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            nanos @ ..1_000_000_000 => write!(f, "{:.1} ms", nanos as f64 / 1e6),
            nanos => write!(f, "{:.2} s", seconds(nanos)),
        }
    }
}
