//! Runs the C rules in the kernel, one step a call, for tests that hold their Rust twins against
//! them.

use crate::{LoadError, object};
use libbpf_rs::{Object, ProgramInput};

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

    /// Runs the program `name` once; it reads and writes `context`.
    ///
    /// # Errors
    /// Fails when there is no such program or the kernel refuses to run it.
    pub fn run(&self, name: &str, context: &mut [u8]) -> Result<(), LoadError> {
        let kernel = |source| LoadError::Kernel {
            doing: "running a replay program",
            source,
        };
        let program = self
            .0
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or(LoadError::NoStructOps)?;
        let input = ProgramInput {
            context_in: Some(context),
            ..ProgramInput::default()
        };
        program.test_run(input).map_err(kernel)?;
        Ok(())
    }
}
