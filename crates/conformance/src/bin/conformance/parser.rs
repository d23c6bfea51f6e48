//! Reads scripts: a subset of packetdrill's language, which docs/conformance.md describes.

mod call;
mod cursor;
mod packet;

use crate::script::{Action, Event, Micros, Script, Time};
use cursor::Cursor;
use thiserror::Error;

/// A script that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    pub(crate) what: String,
}

type Parsed<T> = Result<T, SyntaxError>;

/// Reads a script.
pub(crate) fn parse(text: &str) -> Parsed<Script> {
    let mut cursor = Cursor::new(text);
    let mut script = Script::default();
    loop {
        cursor.skip_space();
        if cursor.is_at_end() {
            return Ok(script);
        }
        if cursor.take("--") {
            script.options.push(option(&mut cursor)?);
            continue;
        }
        script.events.push(event(&mut cursor)?);
    }
}

/// `name=value` behind two dashes.
fn option(cursor: &mut Cursor<'_>) -> Parsed<(String, String)> {
    let line = cursor.rest_of_line();
    match line.split_once('=') {
        Some((name, value)) => Ok((name.trim().to_owned(), value.trim().to_owned())),
        None => Ok((line.trim().to_owned(), String::new())),
    }
}

fn event(cursor: &mut Cursor<'_>) -> Parsed<Event> {
    let line = cursor.line();
    // Commands before the first event need no time.
    if cursor.peek() == Some('`') {
        let action = block(cursor)?;
        return Ok(Event {
            line,
            time: Time::After(0),
            action,
        });
    }
    let (time, end) = time(cursor)?;
    cursor.skip_space();
    let action = match cursor.peek() {
        Some('`' | '%') => block(cursor)?,
        Some('<') => {
            cursor.take("<");
            Action::Inbound(packet::packet(cursor)?)
        }
        Some('>') => {
            cursor.take(">");
            Action::Outbound(packet::packet(cursor)?)
        }
        Some(letter) if letter.is_ascii_alphabetic() => Action::Call(call::call(cursor, end)?),
        _ => {
            return Err(
                cursor.error("after a time comes `<`, `>`, a system call, `%{` or a backtick")
            );
        }
    };
    if end.is_some() && !matches!(action, Action::Call(_)) {
        return Err(cursor.error("only a system call has an end (`...`)"));
    }
    Ok(Event { line, time, action })
}

/// A command in backticks, or code in `%{ }%`.
fn block(cursor: &mut Cursor<'_>) -> Parsed<Action> {
    let command = cursor.take("`");
    let (open, close) = if command { ("`", "`") } else { ("%{", "}%") };
    let inside = if command || cursor.take(open) {
        cursor.up_to(close)
    } else {
        None
    };
    match inside {
        Some(text) if command => Ok(Action::Command(text.to_owned())),
        Some(_) => Ok(Action::Code),
        None => Err(cursor.error(&format!(
            "a block is opened by `{open}` and closed by `{close}`"
        ))),
    }
}

/// A time, and where the end of a blocking call follows, that.
fn time(cursor: &mut Cursor<'_>) -> Parsed<(Time, Option<Time>)> {
    if cursor.take("*") {
        return Ok((Time::Any, None));
    }
    let relative = cursor.take("+");
    let from = seconds(cursor)?;
    let one = |relative: bool, time: Micros| {
        if relative {
            Time::After(time)
        } else {
            Time::At(time)
        }
    };
    if cursor.take("~") {
        // A plus before the second time is allowed and changes nothing.
        cursor.take("+");
        let to = seconds(cursor)?;
        if to < from {
            return Err(cursor.error("a range of times ends before it begins"));
        }
        return Ok(if relative {
            (Time::AfterBetween(from, to), None)
        } else {
            (Time::Between(from, to), None)
        });
    }
    // The end of a blocking call may stand apart from its begin.
    cursor.skip_space();
    if cursor.take("...") {
        cursor.skip_space();
        cursor.take("+");
        let to = seconds(cursor)?;
        return Ok((one(relative, from), Some(one(relative, to))));
    }
    Ok((one(relative, from), None))
}

/// A number of seconds, with at most six digits behind the point.
fn seconds(cursor: &mut Cursor<'_>) -> Parsed<Micros> {
    let whole = cursor.digits();
    // Three points are the end of a blocking call, not a fraction.
    let point = cursor.peek() == Some('.') && !cursor.is_next("...");
    let fraction = if point {
        cursor.take(".");
        cursor.digits()
    } else {
        ""
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(cursor.error("a time is expected, such as `0.1`, `+.05` or `*`"));
    }
    if whole.len() > 9 || fraction.len() > 6 {
        return Err(
            cursor.error("a time has at most nine digits before its point and six behind it")
        );
    }
    let number = |digits: &str| digits.parse::<Micros>().unwrap_or(0);
    let scale = 10i64.pow(6 - fraction.len() as u32);
    Ok(number(whole) * 1_000_000 + number(fraction) * scale)
}

#[cfg(test)]
mod tests;
