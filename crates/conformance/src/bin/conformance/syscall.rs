//! System calls of a script, made by the table.

mod arguments;
mod options;
mod polling;
mod transfer;

use crate::object::{Object, invoke};
use crate::script::{Call, Expected, Value};
use crate::symbols;
use anyhow::{Result, bail};
use arguments::Arguments;
use core::ffi::{c_int, c_long};
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

/// The port that scripts connect to and listen at.
pub(crate) const PORT: u16 = 8080;

/// The addresses of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    /// The address of the stack under test.
    pub(crate) local: IpAddr,
    /// The address of the peer that the script plays.
    pub(crate) remote: IpAddr,
}

/// True descriptors, by the script's.
pub(crate) type Descriptors = BTreeMap<i64, c_int>;

/// What a call came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) value: i64,
    /// Where the value is -1.
    pub(crate) errno: c_int,
    /// What `accept` told of the peer.
    pub(crate) peer: Option<SocketAddr>,
    /// What it wrote that the script does not expect.
    pub(crate) complaint: Option<String>,
}

impl Outcome {
    /// What a C function returned.
    fn of(value: i64) -> Self {
        let errno = match value {
            -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
            _ => 0,
        };
        Self {
            value,
            errno,
            ..Self::default()
        }
    }
}

/// Makes `call`.
///
/// # Errors
/// A call that is not known here, or arguments that do not fit it.
pub(crate) fn make(
    object: &Object,
    call: &Call,
    addresses: &Addresses,
    descriptors: &Descriptors,
) -> Result<Outcome> {
    let table = object.table();
    let arguments = Arguments::new(call, descriptors);
    let plain = |value: c_int| Ok(Outcome::of(value.into()));
    let a = &arguments;
    match call.name.as_str() {
        "socket" => {
            let domain = match (a.value(0), addresses.local) {
                (Some(Value::Whatever), IpAddr::V4(_)) => libc::AF_INET,
                (Some(Value::Whatever), IpAddr::V6(_)) => libc::AF_INET6,
                _ => a.int(0)?,
            };
            plain(invoke!(table, socket, domain, a.int(1)?, a.int(2)?))
        }
        "bind" => {
            let (at, length) = arguments::address(SocketAddr::new(addresses.local, PORT));
            plain(invoke!(
                table,
                bind,
                a.descriptor(0)?,
                (&raw const at).cast(),
                length
            ))
        }
        "connect" => {
            let (to, length) = arguments::address(SocketAddr::new(addresses.remote, PORT));
            plain(invoke!(
                table,
                connect,
                a.descriptor(0)?,
                (&raw const to).cast(),
                length
            ))
        }
        "listen" => plain(invoke!(table, listen, a.descriptor(0)?, a.int(1)?)),
        "accept" => {
            let (mut peer, mut length) = arguments::no_address();
            let fd = a.descriptor(0)?;
            let value = invoke!(table, accept, fd, (&raw mut peer).cast(), &raw mut length);
            let mut outcome = Outcome::of(value.into());
            if value >= 0 {
                outcome.peer = arguments::read_address(&peer);
            }
            Ok(outcome)
        }
        "read" | "recv" | "recvfrom" => transfer::receive(table, &call.name, a),
        "sendto" if opens_fast(call) => transfer::send_first(table, a, addresses),
        "write" | "send" | "sendto" => transfer::send(table, &call.name, a),
        "readv" | "writev" => transfer::vectors(table, &call.name, a),
        "sendmsg" | "recvmsg" => transfer::message(table, &call.name, a),
        "fcntl" => {
            let argument = if a.count() > 2 { a.number(2)? } else { 0 };
            plain(invoke!(
                table,
                fcntl,
                a.descriptor(0)?,
                a.int(1)?,
                argument as c_long
            ))
        }
        "ioctl" => options::ioctl(table, a),
        "close" => plain(invoke!(table, close, a.descriptor(0)?)),
        "shutdown" => plain(invoke!(table, shutdown, a.descriptor(0)?, a.int(1)?)),
        "setsockopt" => options::set(table, a),
        "getsockopt" => options::get(table, a),
        "poll" => polling::poll(table, a),
        "epoll_create" => plain(invoke!(table, epoll_create, a.int(0)?)),
        "epoll_ctl" => polling::epoll_ctl(table, a),
        "epoll_wait" => polling::epoll_wait(table, a),
        other => bail!("system call `{other}` is not known here"),
    }
}

/// Whether a call came to what the script says; `None`: it did.
pub(crate) fn judge(call: &Call, outcome: &Outcome) -> Option<String> {
    let got = match outcome.value {
        -1 => format!("-1 {}", symbols::errno(outcome.errno)),
        value => value.to_string(),
    };
    let right = match &call.result {
        Expected::Anything => true,
        // A new descriptor has the script's number here.
        Expected::Value(_) if makes_descriptor(call) => outcome.value >= 0,
        Expected::Value(value) => *value == outcome.value,
        Expected::Error(name) => {
            outcome.value == -1 && symbols::errno_number(name) == Some(outcome.errno)
        }
    };
    let expected = match &call.result {
        Expected::Anything => "anything".to_owned(),
        Expected::Value(value) => value.to_string(),
        Expected::Error(name) => format!("-1 {name}"),
    };
    if right {
        outcome
            .complaint
            .as_ref()
            .map(|what| format!("{}: {what}", call.name))
    } else {
        Some(format!("{}: expected {expected}, got {got}", call.name))
    }
}

/// Whether `call` connects, and sends data with its SYN where it can.
pub(crate) fn opens_fast(call: &Call) -> bool {
    let flag = i64::from(libc::MSG_FASTOPEN);
    let flags = call.arguments.get(3);
    call.name == "sendto" && matches!(flags, Some(Value::Number(flags)) if flags & flag != 0)
}

/// Whether `call` returns a new descriptor.
pub(crate) fn makes_descriptor(call: &Call) -> bool {
    let makes = matches!(call.name.as_str(), "socket" | "accept" | "epoll_create");
    makes && matches!(call.result, Expected::Value(0..))
}
