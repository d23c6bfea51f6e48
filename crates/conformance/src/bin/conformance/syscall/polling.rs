//! poll(2) and epoll(7), whose arguments are records of events.

use super::Outcome;
use super::arguments::Arguments;
use crate::object::invoke;
use crate::script::Value;
use anyhow::{Context, Result, bail};
use bentpipe_conformance::table::Table;
use libc::{epoll_event, pollfd};

/// The number called `name` in a record.
fn field(fields: &[(String, Value)], name: &str) -> Option<i64> {
    let found = fields.iter().find(|(known, _)| known == name);
    found.and_then(|(_, value)| match value {
        Value::Number(number) => Some(*number),
        _ => None,
    })
}

/// `[{fd=4, events=POLLIN, revents=POLLIN}]`.
pub(super) fn poll(table: &Table, arguments: &Arguments<'_>) -> Result<Outcome> {
    let Some(Value::List(list)) = arguments.value(0) else {
        bail!("poll: descriptors are written `[{{fd=4, events=POLLIN}}]`");
    };
    let mut entries = Vec::new();
    let mut expected = Vec::new();
    for value in list {
        let Value::Record(fields) = value else {
            bail!("poll: a descriptor is written `{{fd=4, events=POLLIN}}`");
        };
        let fd = field(fields, "fd").context("poll: `fd` is missing")?;
        let events = field(fields, "events").context("poll: `events` is missing")?;
        entries.push(pollfd {
            fd: arguments.live(fd),
            events: events as i16,
            revents: 0,
        });
        expected.push(field(fields, "revents"));
    }
    let count = entries.len() as libc::nfds_t;
    let value = invoke!(table, poll, entries.as_mut_ptr(), count, arguments.int(2)?);
    let mut outcome = Outcome::of(value.into());
    for (entry, expected) in entries.iter().zip(expected) {
        if let Some(expected) = expected
            && expected != i64::from(entry.revents)
        {
            let got = entry.revents;
            outcome.complaint = Some(format!(
                "revents are {got:#x}, and {expected:#x} was expected"
            ));
        }
    }
    Ok(outcome)
}

/// The events of one record, and its descriptor as data.
fn event(value: &Value) -> Result<epoll_event> {
    let Value::Record(fields) = value else {
        bail!("an event is written `{{events=EPOLLIN, fd=4}}`");
    };
    let events = field(fields, "events").context("`events` is missing")?;
    Ok(epoll_event {
        events: events as u32,
        u64: field(fields, "fd").unwrap_or(0) as u64,
    })
}

pub(super) fn epoll_ctl(table: &Table, arguments: &Arguments<'_>) -> Result<Outcome> {
    let mut wanted = match arguments.value(3) {
        Some(value @ Value::Record(_)) => event(value)?,
        _ => epoll_event { events: 0, u64: 0 },
    };
    let (set, fd) = (arguments.descriptor(0)?, arguments.descriptor(2)?);
    let value = invoke!(
        table,
        epoll_ctl,
        set,
        arguments.int(1)?,
        fd,
        &raw mut wanted
    );
    Ok(Outcome::of(value.into()))
}

pub(super) fn epoll_wait(table: &Table, arguments: &Arguments<'_>) -> Result<Outcome> {
    let expected = match arguments.value(1) {
        Some(Value::List(list)) => list.iter().map(event).collect::<Result<_>>()?,
        Some(value @ Value::Record(_)) => vec![event(value)?],
        _ => Vec::new(),
    };
    let most = arguments.length(2)?.min(64);
    let mut events = vec![epoll_event { events: 0, u64: 0 }; most];
    let (set, timeout) = (arguments.descriptor(0)?, arguments.int(3)?);
    let value = invoke!(
        table,
        epoll_wait,
        set,
        events.as_mut_ptr(),
        most as i32,
        timeout
    );
    let mut outcome = Outcome::of(value.into());
    let count = usize::try_from(value).unwrap_or(0);
    for (wanted, returned) in expected.iter().zip(&events[..count]) {
        let (wanted, returned) = ((wanted.events, wanted.u64), (returned.events, returned.u64));
        if wanted != returned {
            outcome.complaint = Some(format!(
                "events {:#x} of descriptor {}, and {:#x} of {} were expected",
                returned.0, returned.1, wanted.0, wanted.1
            ));
        }
    }
    Ok(outcome)
}
