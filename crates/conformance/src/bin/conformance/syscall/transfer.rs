//! read(2), write(2) and their kin. Scripts say how many bytes, which are all zero.

use super::arguments::{self, Arguments};
use super::{Addresses, Outcome, PORT};
use crate::object::invoke;
use anyhow::Result;
use bentpipe_conformance::table::Table;
use core::ffi::c_void;
use core::net::SocketAddr;

/// `read`, `recv` or `recvfrom`.
pub(super) fn receive(table: &Table, name: &str, a: &Arguments<'_>) -> Result<Outcome> {
    let mut room = vec![0xffu8; a.length(2)?];
    let (fd, data, length) = (a.descriptor(0)?, room.as_mut_ptr().cast(), room.len());
    let none = core::ptr::null_mut::<c_void>();
    let mut outcome = Outcome::of(match name {
        "read" => invoke!(table, read, fd, data, length),
        "recv" => invoke!(table, recv, fd, data, length, a.int(3)?),
        _ => invoke!(
            table,
            recvfrom,
            fd,
            data,
            length,
            a.int(3)?,
            none.cast(),
            none.cast()
        ),
    } as i64);
    let read = usize::try_from(outcome.value).unwrap_or(0);
    if room
        .get(..read)
        .is_none_or(|got| got.iter().any(|byte| *byte != 0))
    {
        outcome.complaint = Some("the bytes read are not those that arrived".to_owned());
    }
    Ok(outcome)
}

/// `write`, `send` or `sendto`.
pub(super) fn send(table: &Table, name: &str, a: &Arguments<'_>) -> Result<Outcome> {
    let bytes = vec![0u8; a.length(2)?];
    let (fd, data, length) = (a.descriptor(0)?, bytes.as_ptr().cast(), bytes.len());
    let none = core::ptr::null();
    Ok(Outcome::of(match name {
        "write" => invoke!(table, write, fd, data, length),
        "send" => invoke!(table, send, fd, data, length, a.int(3)?),
        _ => invoke!(table, sendto, fd, data, length, a.int(3)?, none, 0),
    } as i64))
}

/// `sendto(3, ..., 1000, MSG_FASTOPEN, ..., ...)`.
pub(super) fn send_first(
    table: &Table,
    a: &Arguments<'_>,
    addresses: &Addresses,
) -> Result<Outcome> {
    let (to, to_length) = arguments::address(SocketAddr::new(addresses.remote, PORT));
    let bytes = vec![0u8; a.length(2)?];
    let value = invoke!(
        table,
        sendto,
        a.descriptor(0)?,
        bytes.as_ptr().cast(),
        bytes.len(),
        a.int(3)?,
        (&raw const to).cast(),
        to_length
    );
    Ok(Outcome::of(value as i64))
}

/// `readv` or `writev`.
pub(super) fn vectors(table: &Table, name: &str, a: &Arguments<'_>) -> Result<Outcome> {
    let mut vectors = a.vectors(1)?;
    let (fd, list, count) = (a.descriptor(0)?, vectors.list(), a.int(2)?);
    Ok(Outcome::of(match name {
        "readv" => invoke!(table, readv, fd, list, count),
        _ => invoke!(table, writev, fd, list, count),
    } as i64))
}

/// `sendmsg` or `recvmsg`.
pub(super) fn message(table: &Table, name: &str, a: &Arguments<'_>) -> Result<Outcome> {
    let mut vectors = a.message(1)?;
    let fd = a.descriptor(0)?;
    let mut header = vectors.header();
    Ok(Outcome::of(match name {
        "sendmsg" => invoke!(table, sendmsg, fd, &raw const header, a.int(2)?),
        _ => invoke!(table, recvmsg, fd, &raw mut header, a.int(2)?),
    } as i64))
}
