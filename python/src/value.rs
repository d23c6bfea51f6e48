//! Values of Python as TOML writes them.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use toml::Value;

/// Deeper than any scenario; a list that holds itself has no end.
const DEEPEST: usize = 32;

/// `value`, which is called `name` in errors, as a value of TOML.
///
/// # Errors
/// `TypeError` where TOML has no such type, `ValueError` where it has no such value.
pub(crate) fn toml(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Value> {
    below(name, value, 0)
}

fn below(name: &str, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > DEEPEST {
        let why = format!("`{name}` is nested more than {DEEPEST} deep");
        return Err(PyValueError::new_err(why));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(text.to_str()?.to_owned()));
    }
    if let Ok(truth) = value.cast::<PyBool>() {
        return Ok(Value::Boolean(truth.is_true()));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        return table(name, dict, depth).map(Value::Table);
    }
    let items = match (value.cast::<PyList>(), value.cast::<PyTuple>()) {
        (Ok(list), _) => Some(list.iter().collect()),
        (_, Ok(tuple)) => Some(tuple.iter().collect::<Vec<_>>()),
        _ => None,
    };
    if let Some(items) = items {
        let items = items.iter().enumerate();
        let values = items.map(|(at, item)| below(&format!("{name}[{at}]"), item, depth + 1));
        return values.collect::<PyResult<_>>().map(Value::Array);
    }
    // Numbers of numpy are numbers too: they have `__index__`, or are floats.
    if value.is_instance_of::<PyInt>() || value.hasattr("__index__")? {
        let number = value.extract::<i64>().map_err(|_| {
            PyValueError::new_err(format!(
                "`{name}` is {value}, which is no number of 64 bits"
            ))
        })?;
        return Ok(Value::Integer(number));
    }
    if value.is_instance_of::<PyFloat>() || value.hasattr("__float__")? {
        return Ok(Value::Float(value.extract()?));
    }
    Err(PyTypeError::new_err(format!(
        "`{name}` is a {}: a scenario has texts (quantities with their unit, such as \"300ms\"), numbers, truth values, \
         lists and dicts",
        value.get_type().name()?
    )))
}

/// A table of TOML.
pub(crate) fn table(name: &str, dict: &Bound<'_, PyDict>, depth: usize) -> PyResult<toml::Table> {
    let mut table = toml::Table::new();
    for (key, value) in dict {
        let Ok(key) = key.cast::<PyString>() else {
            let why = format!(
                "a key of `{name}` is a {}: give a text",
                key.get_type().name()?
            );
            return Err(PyTypeError::new_err(why));
        };
        let key = key.to_str()?;
        let inner = match name {
            "" => key.to_owned(),
            outer => format!("{outer}.{key}"),
        };
        table.insert(key.to_owned(), below(&inner, &value, depth + 1)?);
    }
    Ok(table)
}
