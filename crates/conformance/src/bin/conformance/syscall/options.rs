//! setsockopt(2), getsockopt(2) and ioctl(2). What the kernel writes is compared with what the script has in its place.

use super::Outcome;
use super::arguments::{self, Arguments};
use crate::object::invoke;
use anyhow::Result;
use bentpipe_conformance::table::Table;
use core::ffi::{c_int, c_void};

/// `setsockopt(3, SOL_TCP, TCP_NODELAY, [1], 4)`.
pub(super) fn set(table: &Table, a: &Arguments<'_>) -> Result<Outcome> {
    let values = a.option(3)?;
    let length = (values.len() * size_of::<c_int>()) as libc::socklen_t;
    let data = values.as_ptr().cast::<c_void>();
    let (fd, level, name) = (a.descriptor(0)?, a.int(1)?, a.int(2)?);
    let value = invoke!(table, setsockopt, fd, level, name, data, length);
    Ok(Outcome::of(value.into()))
}

/// `getsockopt(3, SOL_TCP, TCP_NODELAY, [1], [4])`.
pub(super) fn get(table: &Table, a: &Arguments<'_>) -> Result<Outcome> {
    let mut written = [-1 as c_int; 2];
    let wanted = a.option(3)?.len().clamp(1, 2);
    let mut length = (wanted * size_of::<c_int>()) as libc::socklen_t;
    let (fd, data) = (a.descriptor(0)?, written.as_mut_ptr().cast::<c_void>());
    let (level, name) = (a.int(1)?, a.int(2)?);
    let value = invoke!(table, getsockopt, fd, level, name, data, &raw mut length);
    let mut outcome = Outcome::of(value.into());
    let written = &written[..wanted];
    outcome.complaint = arguments::compare("option", a.value(3), written, value == 0)?;
    Ok(outcome)
}

/// `ioctl(3, SIOCINQ, [1000])`.
pub(super) fn ioctl(table: &Table, a: &Arguments<'_>) -> Result<Outcome> {
    let mut written: c_int = -1;
    let (fd, request) = (a.descriptor(0)?, a.number(1)? as u64);
    let value = invoke!(table, ioctl, fd, request, (&raw mut written).cast());
    let mut outcome = Outcome::of(value.into());
    outcome.complaint = arguments::compare("value", a.value(2), &[written], value == 0)?;
    Ok(outcome)
}
