//! The SCONE element of an interface: the programs of `scone.bpf.c`, and what they are to write.

use crate::object::{SCONE, kernel, open};
use crate::{LoadError, controls};
use bentpipe_wire::scone::Advice;
use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput, ProgramMut};
use std::os::fd::{AsFd, BorrowedFd};

/// Which way packets cross the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They leave by it.
    Leaving = 0,
    /// They arrive by it.
    Arriving = 1,
}

impl Way {
    /// Both, in the order of their numbers in the maps.
    pub const BOTH: [Self; 2] = [Self::Leaving, Self::Arriving];

    const fn program(self) -> &'static str {
        match self {
            Self::Leaving => "scone_leaving",
            Self::Arriving => "scone_arriving",
        }
    }
}

/// SCONE packets that have crossed an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SconeCounts {
    /// All of them, where there was any advice to write.
    pub seen: u64,
    /// Those whose advice was lowered.
    pub lowered: u64,
}

/// The programs for one interface, loaded; they do nothing until somebody attaches them, and writes advice.
#[derive(Debug)]
pub struct SconeElement(Object);

impl SconeElement {
    /// Loads them for an interface whose packets have `link_header` octets before the IP header.
    ///
    /// # Errors
    /// Without the capabilities, or when the kernel does not take them.
    pub fn load(link_header: u32) -> Result<Self, LoadError> {
        controls::log_through_tracing();
        let mut open = open(&SCONE.0)?;
        for mut map in open.maps_mut() {
            // The one constant of the programs.
            if map.name().to_string_lossy().ends_with(".rodata")
                && let Some(value) = map.initial_value_mut()
                && let Some(value) = value.first_chunk_mut::<4>()
            {
                *value = link_header.to_ne_bytes();
            }
        }
        let loaded = open.load().map_err(|source| match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => LoadError::NotPermitted,
            _ => kernel("loading the SCONE programs")(source),
        });
        let element = Self(loaded?);
        for way in Way::BOTH {
            element.advise(way, None)?;
        }
        Ok(element)
    }

    /// Has packets that cross `way` advise no more than `advice`; `None` leaves them alone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn advise(&self, way: Way, advice: Option<Advice>) -> Result<(), LoadError> {
        let signal = u32::from(advice.unwrap_or(Advice::UNKNOWN).signal());
        let doing = kernel("writing SCONE's advice");
        let map = self.0.maps().find(|map| map.name() == "scone_advice");
        let map = map.ok_or(LoadError::NoStructOps)?;
        let key = (way as u32).to_ne_bytes();
        map.update(&key, &signal.to_ne_bytes(), MapFlags::ANY)
            .map_err(doing)
    }

    /// What has crossed.
    pub fn counts(&self, way: Way) -> SconeCounts {
        let map = self.0.maps().find(|map| map.name() == "scone_counts");
        let key = (way as u32).to_ne_bytes();
        let values = map.and_then(|map| map.lookup_percpu(&key, MapFlags::ANY).ok()?);
        let mut counts = SconeCounts::default();
        for value in values.unwrap_or_default() {
            let word = |at: usize| {
                let octets = value.get(at..at + 8).and_then(|it| it.first_chunk::<8>());
                octets.map_or(0, |octets| u64::from_ne_bytes(*octets))
            };
            counts.seen += word(0);
            counts.lowered += word(8);
        }
        counts
    }

    /// Calls `with` the descriptor of the program for packets that cross `way`.
    pub fn with_program<T>(&self, way: Way, with: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let mut programs = self.0.progs();
        let program = programs.find(|program| program.name() == way.program())?;
        Some(with(program.as_fd()))
    }

    /// Runs the program on a frame, for tests that hold its twin against it: the frame as it passes.
    ///
    /// # Errors
    /// When the kernel refuses to run it.
    #[doc(hidden)]
    pub fn run(&mut self, way: Way, frame: &[u8]) -> Result<Vec<u8>, LoadError> {
        let mut programs = self.0.progs_mut();
        let program: ProgramMut<'_> = programs
            .find(|program| program.name() == way.program())
            .ok_or(LoadError::NoStructOps)?;
        let mut out = vec![0; frame.len()];
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            ..ProgramInput::default()
        };
        program
            .test_run(input)
            .map_err(kernel("running a SCONE program"))?;
        Ok(out)
    }
}
