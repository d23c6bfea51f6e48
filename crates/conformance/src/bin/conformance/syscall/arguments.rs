//! Arguments, from the script's values to C's.

use super::Descriptors;
use crate::script::{Call, Value};
use anyhow::{Context, Result, bail, ensure};
use core::ffi::c_int;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use libc::{iovec, msghdr, sockaddr_storage, socklen_t};

/// The most that one call of a script reads or writes.
const MOST: i64 = 64 << 20;

pub(super) struct Arguments<'a> {
    call: &'a Call,
    descriptors: &'a Descriptors,
}

impl<'a> Arguments<'a> {
    pub(super) const fn new(call: &'a Call, descriptors: &'a Descriptors) -> Self {
        Self { call, descriptors }
    }

    pub(super) fn count(&self) -> usize {
        self.call.arguments.len()
    }

    pub(super) fn value(&self, at: usize) -> Option<&'a Value> {
        self.call.arguments.get(at)
    }

    pub(super) fn number(&self, at: usize) -> Result<i64> {
        match self.value(at) {
            Some(Value::Number(number)) => Ok(*number),
            _ => bail!("{}: argument {} is to be a number", self.call.name, at + 1),
        }
    }

    pub(super) fn int(&self, at: usize) -> Result<c_int> {
        // Unsigned values fit as their bits.
        let number = self.number(at)?;
        c_int::try_from(number)
            .or_else(|_| u32::try_from(number).map(|bits| bits as c_int))
            .with_context(|| format!("{}: argument {} is no int", self.call.name, at + 1))
    }

    pub(super) fn length(&self, at: usize) -> Result<usize> {
        let length = self.number(at)?;
        ensure!(
            (0..=MOST).contains(&length),
            "{}: a length is 0 to {MOST}",
            self.call.name
        );
        Ok(length as usize)
    }

    /// A descriptor; one that the script has not opened is passed on as it is.
    pub(super) fn descriptor(&self, at: usize) -> Result<c_int> {
        Ok(self.live(self.number(at)?))
    }

    pub(super) fn live(&self, script: i64) -> c_int {
        let found = self.descriptors.get(&script);
        // None that is open has such a number.
        found.copied().unwrap_or(1_000_000)
    }

    /// The value of a socket option: `[1]`, `1` or `{onoff=1, linger=0}`.
    pub(super) fn option(&self, at: usize) -> Result<Vec<c_int>> {
        let single = |value: &Value| match value {
            Value::Number(number) => Ok(*number as c_int),
            _ => bail!("{}: an option is a number in brackets", self.call.name),
        };
        match self.value(at) {
            Some(Value::List(list)) => list.iter().map(single).collect(),
            Some(Value::Record(fields)) => fields.iter().map(|(_, value)| single(value)).collect(),
            Some(value @ Value::Number(_)) => Ok(vec![single(value)?]),
            _ => bail!("{}: an option is a number in brackets", self.call.name),
        }
    }

    /// `[{..., 1000}, {..., 500}]`.
    pub(super) fn vectors(&self, at: usize) -> Result<Vectors> {
        let Some(Value::List(list)) = self.value(at) else {
            bail!("{}: buffers are written `[{{..., 1000}}]`", self.call.name);
        };
        Vectors::new(list)
    }

    /// The buffers of `{msg_iov(1)=[{..., 1000}], msg_flags=0}`.
    pub(super) fn message(&self, at: usize) -> Result<Vectors> {
        let Some(Value::Record(fields)) = self.value(at) else {
            bail!("{}: a message is written in braces", self.call.name);
        };
        let buffers = fields.iter().find(|(name, _)| name == "msg_iov");
        match buffers {
            Some((_, Value::List(list))) => Vectors::new(list),
            _ => bail!("{}: a message has `msg_iov(1)=[...]`", self.call.name),
        }
    }
}

/// Buffers with what they point to.
pub(super) struct Vectors {
    _buffers: Vec<Vec<u8>>,
    list: Vec<iovec>,
}

impl Vectors {
    fn new(list: &[Value]) -> Result<Self> {
        let lengths: Vec<usize> = list
            .iter()
            .map(|value| match value {
                Value::Record(fields) => match fields.as_slice() {
                    [_, (_, Value::Number(length @ 0..=MOST))] => Ok(*length as usize),
                    _ => bail!("a buffer is written `{{..., 1000}}`"),
                },
                _ => bail!("a buffer is written `{{..., 1000}}`"),
            })
            .collect::<Result<_>>()?;
        let mut buffers: Vec<Vec<u8>> = lengths.into_iter().map(|length| vec![0; length]).collect();
        let list = buffers.iter_mut().map(|buffer| iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        });
        Ok(Self {
            list: list.collect(),
            _buffers: buffers,
        })
    }

    pub(super) fn list(&mut self) -> *mut iovec {
        self.list.as_mut_ptr()
    }

    pub(super) fn header(&mut self) -> msghdr {
        // SAFETY: all zeros is a header without anything.
        let mut header: msghdr = unsafe { core::mem::zeroed() };
        (header.msg_iov, header.msg_iovlen) = (self.list.as_mut_ptr(), self.list.len());
        header
    }
}

/// Compares what a call wrote with what the script expects, if it expects anything; `None`: they agree.
pub(super) fn compare(
    what: &str,
    expected: Option<&Value>,
    returned: &[c_int],
    succeeded: bool,
) -> Result<Option<String>> {
    let numbers = match expected {
        Some(Value::List(list)) => list.clone(),
        Some(Value::Record(fields)) => fields.iter().map(|(_, value)| value.clone()).collect(),
        _ => return Ok(None),
    };
    if !succeeded {
        return Ok(None);
    }
    for (wanted, returned) in numbers.iter().zip(returned) {
        match wanted {
            Value::Whatever => {}
            Value::Number(wanted) if *wanted == i64::from(*returned) => {}
            Value::Number(wanted) => {
                return Ok(Some(format!(
                    "the {what} is {returned}, and {wanted} was expected"
                )));
            }
            _ => bail!("a value is a number in brackets"),
        }
    }
    Ok(None)
}

/// `at` as C has it.
pub(super) fn address(at: SocketAddr) -> (sockaddr_storage, socklen_t) {
    let (mut storage, _) = no_address();
    let length = match at {
        SocketAddr::V4(v4) => {
            let one = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage has room for every address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(one) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let one = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: 0,
            };
            // SAFETY: the storage has room for every address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(one) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as socklen_t)
}

/// Room for an address.
pub(super) fn no_address() -> (sockaddr_storage, socklen_t) {
    // SAFETY: all zeros is an address of no family.
    let storage: sockaddr_storage = unsafe { core::mem::zeroed() };
    (storage, size_of::<sockaddr_storage>() as socklen_t)
}

/// The address that a call wrote.
pub(super) fn read_address(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let at = core::ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the storage is longer than such an address, and aligned for it.
            let one = unsafe { at.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(one.sin_addr.s_addr));
            Some((ip, u16::from_be(one.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let one = unsafe { at.cast::<libc::sockaddr_in6>().read() };
            Some(
                (
                    Ipv6Addr::from(one.sin6_addr.s6_addr),
                    u16::from_be(one.sin6_port),
                )
                    .into(),
            )
        }
        _ => None,
    }
}
