//! Runs the C rules in the kernel, one step a call, for tests that hold their Rust twins against
//! them.

use crate::{LoadError, object};
use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};

/// The replay programs, loaded into the kernel.
#[derive(Debug)]
pub struct Replay(Object);

impl Replay {
    /// Loads them.
    ///
    /// # Errors
    /// As [`Controls::load`](crate::Controls::load).
    pub fn load() -> Result<Self, LoadError> {
        object::replay().map(Self)
    }

    /// Runs one step of `rule` ("hybla" or "rate"), which reads `state` and writes it.
    ///
    /// # Errors
    /// Fails when there is no such rule, `state` has not its size, or the kernel refuses to run it.
    pub fn run(&self, rule: &str, state: &mut [u8]) -> Result<(), LoadError> {
        let kernel = |source| LoadError::Kernel {
            doing: "running a replay program",
            source,
        };
        let (program, map) = (format!("replay_{rule}"), format!("{rule}_steps"));
        let map = self.0.maps().find(|found| found.name() == map.as_str());
        let program = self
            .0
            .progs_mut()
            .find(|found| found.name() == program.as_str());
        let (Some(map), Some(program)) = (map, program) else {
            return Err(LoadError::NoStructOps);
        };
        let key = 0_u32.to_ne_bytes();
        map.update(&key, state, MapFlags::ANY).map_err(kernel)?;
        program.test_run(ProgramInput::default()).map_err(kernel)?;
        map.lookup_into(&key, state, MapFlags::ANY)
            .map_err(kernel)?;
        Ok(())
    }
}
