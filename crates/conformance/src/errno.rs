//! Results of calls, as POSIX has them.

use core::ffi::c_int;

/// Why a call failed: a value of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// What a call comes to.
pub(crate) type Answer<T> = Result<T, Errno>;

/// What a call comes to now: a result, or nothing yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress<T> {
    /// It is over.
    Done(Answer<T>),
    /// A blocking call waits.
    Pending,
}

impl<T> Progress<T> {
    pub(crate) const fn value(value: T) -> Self {
        Self::Done(Ok(value))
    }

    pub(crate) const fn error(errno: c_int) -> Self {
        Self::Done(Err(Errno(errno)))
    }
}

impl<T> From<Answer<T>> for Progress<T> {
    fn from(answer: Answer<T>) -> Self {
        Self::Done(answer)
    }
}

/// The C result of `answer`: its value, or -1 with `errno` set.
pub(crate) fn result<T: From<i8>>(answer: Answer<T>) -> T {
    match answer {
        Ok(value) => value,
        Err(Errno(errno)) => {
            // SAFETY: the C library's address of this thread's `errno` is always valid.
            unsafe { *libc::__errno_location() = errno };
            T::from(-1)
        }
    }
}
