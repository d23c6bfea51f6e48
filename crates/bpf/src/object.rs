//! Opens a compiled BPF object, adapts it to the running kernel, loads it and attaches it.

use crate::kernel::{Kernel, Signature};
use crate::{LoadError, kernel_name};
use libbpf_rs::{ErrorKind, Link, MapCore, MapHandle, MapType, Object, ObjectBuilder, OpenObject};
use std::os::fd::AsFd;

/// The map of parameters.
pub(crate) const LINKS: &str = "bentpipe_links";
/// The map of the state that the flows of a link share.
pub(crate) const SHARES: &str = "bentpipe_shares";

/// Bytes at an alignment fit for ELF headers.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

/// The compiled programs of a control.
pub(crate) struct Program {
    /// How users call the control.
    name: &'static str,
    code: &'static Aligned<[u8]>,
}

pub(crate) static HYBLA: Program = Program {
    name: crate::HYBLA,
    code: &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/hybla.bpf.o"))),
};
pub(crate) static RATE: Program = Program {
    name: crate::RATE,
    code: &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/rate.bpf.o"))),
};
pub(crate) static SCONE: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/scone.bpf.o")));
static REPLAY: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/replay.bpf.o")));

/// A control in the kernel, registered under this process's name for it.
#[derive(Debug)]
pub(crate) struct Control {
    object: Object,
    /// Keeps the registration.
    _link: Link,
}

impl Control {
    /// Loads the control `program` and registers it; its programs read `links`, or a map of their own.
    pub(crate) fn load(
        program: &'static Program,
        kernel_offers: Kernel,
        links: Option<&MapHandle>,
    ) -> Result<Self, LoadError> {
        let name = program.name;
        let mut open = open(&program.code.0)?;
        let is_there = |wanted: &str| open.maps().any(|map| map.name() == wanted);
        let chosen = variant(name, kernel_offers, is_there);
        for mut map in open.maps_mut() {
            if map.map_type() == MapType::StructOps {
                map.set_autocreate(map.name() == chosen.as_str())
                    .map_err(kernel("choosing the programs"))?;
                if let Some(value) = map.initial_value_mut() {
                    rename(value, name, kernel_name(name));
                }
            } else if map.name() == LINKS
                && let Some(links) = links
            {
                map.reuse_fd(links.as_fd())
                    .map_err(kernel("sharing a map"))?;
            }
        }
        let mut object = open.load().map_err(|source| match source.kind() {
            ErrorKind::PermissionDenied => LoadError::NotPermitted,
            _ => kernel("loading the programs")(source),
        })?;
        let mut maps = object.maps_mut();
        let ops = maps.find(|map| map.map_type() == MapType::StructOps && map.autocreate());
        let link = ops
            .ok_or(LoadError::NoStructOps)?
            .attach_struct_ops()
            .map_err(|source| match source.kind() {
                ErrorKind::AlreadyExists => LoadError::Taken {
                    name: kernel_name(name).to_owned(),
                },
                ErrorKind::PermissionDenied => LoadError::NotPermitted,
                _ => kernel("registering a congestion control")(source),
            })?;
        drop(maps);
        Ok(Self {
            object,
            _link: link,
        })
    }

    /// A handle to one of its maps.
    pub(crate) fn map(&self, name: &str) -> Result<MapHandle, LoadError> {
        let mut maps = self.object.maps();
        let map = maps
            .find(|map| map.name() == name)
            .ok_or(LoadError::NoStructOps)?;
        MapHandle::try_from(&map).map_err(kernel("opening a map"))
    }
}

/// Which of the registrations of control `name` suits the kernel.
fn variant(name: &str, offers: Kernel, is_there: impl Fn(&str) -> bool) -> String {
    let cautious = format!("{name}3");
    match offers.signature {
        Signature::Two => format!("{name}2"),
        Signature::Four if offers.skips && is_there(&cautious) => cautious,
        Signature::Four => name.to_owned(),
    }
}

/// The programs that replay traces, loaded.
pub(crate) fn replay() -> Result<Object, LoadError> {
    open(&REPLAY.0)?
        .load()
        .map_err(kernel("loading the replay programs"))
}

pub(crate) fn open(code: &[u8]) -> Result<OpenObject, LoadError> {
    ObjectBuilder::default()
        .open_memory(code)
        .map_err(kernel("reading the compiled programs"))
}

pub(crate) fn kernel(doing: &'static str) -> impl FnOnce(libbpf_rs::Error) -> LoadError {
    move |source| LoadError::Kernel { doing, source }
}

/// `TCP_CA_NAME_MAX`, the closing zero included.
const NAME: usize = 16;

/// Replaces the zero-terminated `name` in the initial value of a `tcp_congestion_ops`.
fn rename(value: &mut [u8], name: &str, alias: &str) {
    let at = value
        .windows(name.len())
        .position(|bytes| bytes == name.as_bytes());
    if let Some(field) = at.and_then(|at| value.get_mut(at..at + NAME))
        && alias.len() < NAME
    {
        field.fill(0);
        field[..alias.len()].copy_from_slice(alias.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where programs may be skipped, the kernel asks none for the segments of a burst.
    #[test]
    fn a_kernel_that_skips_programs_is_asked_for_less() {
        let has = |program: &Program, wanted: &str| {
            let open = open(&program.code.0).unwrap();
            open.maps().any(|map| map.name() == wanted)
        };
        for (signature, skips, rate, hybla) in [
            (Signature::Four, false, "bentpipe_rate", "bentpipe_hybla"),
            (Signature::Four, true, "bentpipe_rate3", "bentpipe_hybla"),
            (Signature::Two, false, "bentpipe_rate2", "bentpipe_hybla2"),
        ] {
            let offers = Kernel { signature, skips };
            for (program, expected) in [(&RATE, rate), (&HYBLA, hybla)] {
                let chosen = variant(program.name, offers, |name| has(program, name));
                assert_eq!(chosen, expected);
                assert!(has(program, &chosen));
            }
        }
    }
}
