//! System calls: `setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0`.

use super::Parsed;
use super::cursor::Cursor;
use crate::script::{Call, Expected, Time, Value};
use crate::symbols;

pub(super) fn call(cursor: &mut Cursor<'_>, end: Option<Time>) -> Parsed<Call> {
    let name = cursor.identifier().to_owned();
    cursor.expect("(")?;
    let arguments = list(cursor, ")")?;
    cursor.expect("=")?;
    let result = expected(cursor)?;
    Ok(Call {
        name,
        arguments,
        result,
        end,
    })
}

/// `3`, `-1 EAGAIN (Resource temporarily unavailable)` or `?`.
fn expected(cursor: &mut Cursor<'_>) -> Parsed<Expected> {
    cursor.skip_space();
    if cursor.take("?") {
        return Ok(Expected::Anything);
    }
    let Value::Number(value) = value(cursor)? else {
        return Err(cursor.error("a call comes to a number, or to `?`"));
    };
    if value != -1 {
        return Ok(Expected::Value(value));
    }
    cursor.skip_space();
    if !cursor.peek().is_some_and(|c| c.is_ascii_uppercase()) {
        return Ok(Expected::Value(-1));
    }
    let name = cursor.identifier().to_owned();
    if symbols::errno_number(&name).is_none() {
        return Err(cursor.error(&format!("`{name}` is no error that is known here")));
    }
    cursor.skip_space();
    if cursor.take("(") && cursor.until(')').is_none() {
        return Err(cursor.error("the text of an error ends with `)`"));
    }
    Ok(Expected::Error(name))
}

/// Values up to `close`, with commas between them.
fn list(cursor: &mut Cursor<'_>, close: &str) -> Parsed<Vec<Value>> {
    let mut values = Vec::new();
    cursor.skip_space();
    if cursor.take(close) {
        return Ok(values);
    }
    loop {
        values.push(value(cursor)?);
        cursor.skip_space();
        if cursor.take(close) {
            return Ok(values);
        }
        cursor.expect(",")?;
    }
}

fn value(cursor: &mut Cursor<'_>) -> Parsed<Value> {
    cursor.skip_space();
    if cursor.take("...") {
        return Ok(Value::Whatever);
    }
    match cursor.peek() {
        Some('"') => {
            cursor.take("\"");
            match cursor.until('"') {
                Some(text) => Ok(Value::Text(text.to_owned())),
                None => Err(cursor.error("a text ends with `\"`")),
            }
        }
        Some('[') => {
            cursor.take("[");
            Ok(Value::List(list(cursor, "]")?))
        }
        Some('{') => {
            cursor.take("{");
            record(cursor)
        }
        _ => number(cursor),
    }
}

fn record(cursor: &mut Cursor<'_>) -> Parsed<Value> {
    let mut fields = Vec::new();
    loop {
        cursor.skip_space();
        let mut ahead = cursor.clone_at();
        let name = ahead.identifier();
        // `msg_iov(1)=...` tells how many there are.
        if ahead.take("(") {
            ahead.until(')');
        }
        ahead.skip_space();
        let named = name.starts_with(|c: char| c.is_ascii_lowercase()) && ahead.take("=");
        let name = if named {
            *cursor = ahead;
            name.to_owned()
        } else {
            String::new()
        };
        fields.push((name, value(cursor)?));
        cursor.skip_space();
        if cursor.take("}") {
            return Ok(Value::Record(fields));
        }
        cursor.expect(",")?;
    }
}

/// Numbers and names, with `|` between them.
fn number(cursor: &mut Cursor<'_>) -> Parsed<Value> {
    let mut whole = 0;
    loop {
        cursor.skip_space();
        whole |= single(cursor)?;
        cursor.skip_space();
        if !cursor.take("|") {
            return Ok(Value::Number(whole));
        }
    }
}

fn single(cursor: &mut Cursor<'_>) -> Parsed<i64> {
    let negative = cursor.take("-");
    let word = cursor.identifier();
    let value = match word.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok().or_else(|| symbols::value(word)),
    };
    match value {
        Some(value) if negative => Ok(-value),
        Some(value) => Ok(value),
        None => Err(cursor.error(&format!(
            "`{word}` is neither a number nor a name that is known here"
        ))),
    }
}
