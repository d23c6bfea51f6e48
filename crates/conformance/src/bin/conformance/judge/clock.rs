//! The time, as the stack under test tells it.

use crate::object::{Object, invoke};
use crate::script::Micros;
use anyhow::{Result, ensure};
use core::ffi::c_uint;

/// Of a wait, the last part is spent looking at the clock: sleeping is not that exact.
const SPIN: Micros = 20;

/// The clock of a run: script time 0 is when it was started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Micros,
}

/// Microseconds of the stack's clock.
pub(super) fn read(object: &Object) -> Result<Micros> {
    let mut time = libc::timeval {
        tv_sec: 0,
        tv_usec: 0,
    };
    let table = object.table();
    let status = invoke!(table, gettimeofday, &raw mut time, core::ptr::null_mut());
    ensure!(status == 0, "the stack does not tell the time");
    Ok(time.tv_sec * 1_000_000 + time.tv_usec)
}

impl Clock {
    pub(super) fn start(object: &Object) -> Result<Self> {
        let start = read(object)?;
        // By the interface every look moves the clock.
        let next = read(object)?;
        for _ in 0..100_000 {
            if next > start || read(object)? > start {
                return Ok(Self { start });
            }
        }
        anyhow::bail!("the stack's clock stands still")
    }

    pub(super) const fn script_time(&self, at: Micros) -> Micros {
        at - self.start
    }

    pub(super) fn now(&self, object: &Object) -> Result<Micros> {
        Ok(self.script_time(read(object)?))
    }

    /// Waits until script time `at`.
    pub(super) fn wait(&self, object: &Object, at: Micros) -> Result<()> {
        loop {
            let left = at - self.now(object)?;
            if left <= 0 {
                return Ok(());
            }
            if left > SPIN {
                let table = object.table();
                let slept = invoke!(table, usleep, (left - SPIN).min(1_000_000) as c_uint);
                ensure!(slept == 0, "the stack does not let time pass");
            }
        }
    }
}
