//! One compiled BPF object: opened, fitted to the kernel, loaded, attached.

use crate::LoadError;
use crate::kernel::Signature;
use crate::maps::{Kind, LINKS, SHARES};
use libbpf_rs::{ErrorKind, Link, MapCore, MapType, Object, ObjectBuilder, OpenObject};
use std::os::fd::AsFd;

/// Bytes at an alignment fit for ELF headers.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

static HYBLA: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/hybla.bpf.o")));
static RATE: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/rate.bpf.o")));
static REPLAY: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/replay.bpf.o")));

/// A control loaded into the kernel, registered under its name or waiting to be.
#[derive(Debug)]
pub(crate) struct Control {
    /// As registered.
    pub(crate) name: String,
    object: Object,
    /// Keeps the registration; `None` while another process holds the name.
    link: Option<Link>,
}

impl Control {
    /// Loads the control `name` and registers it as `alias`, of at most 15 bytes, unless that is taken.
    pub(crate) fn load(
        name: &'static str,
        alias: &str,
        signature: Signature,
    ) -> Result<Self, LoadError> {
        let mut open = open(code(name))?;
        for mut map in open.maps_mut() {
            let four = map.name() == name;
            if map.map_type() == MapType::StructOps {
                let wanted = four == (signature == Signature::Four);
                map.set_autocreate(wanted)
                    .map_err(kernel("choosing the programs"))?;
                if let Some(value) = map.initial_value_mut() {
                    rename(value, name, alias);
                }
                continue;
            }
            let kind = [LINKS, SHARES]
                .into_iter()
                .find(|kind| map.name() == kind.name);
            if let Some(shared) = kind.and_then(|kind: Kind| kind.all().into_iter().next()) {
                map.reuse_fd(shared.as_fd())
                    .map_err(kernel("sharing the maps of another process"))?;
            }
        }
        let object = open.load().map_err(|source| match source.kind() {
            ErrorKind::PermissionDenied => LoadError::NotPermitted,
            _ => LoadError::Kernel {
                doing: "loading the programs",
                source,
            },
        })?;
        let mut control = Self {
            name: alias.to_owned(),
            object,
            link: None,
        };
        control.register()?;
        Ok(control)
    }

    /// Registers the control unless it is, or unless another process holds the name. Says whether
    /// the registration is ours.
    pub(crate) fn register(&mut self) -> Result<bool, LoadError> {
        if self.link.is_some() {
            return Ok(true);
        }
        let mut maps = self.object.maps_mut();
        let ops = maps.find(|map| map.map_type() == MapType::StructOps && map.autocreate());
        let Some(mut ops) = ops else {
            return Err(LoadError::NoStructOps);
        };
        match ops.attach_struct_ops() {
            Ok(link) => {
                self.link = Some(link);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(LoadError::NotPermitted)
            }
            Err(source) => Err(LoadError::Kernel {
                doing: "registering a congestion control",
                source,
            }),
        }
    }

    /// Whether the registration is ours.
    pub(crate) fn is_registered(&self) -> bool {
        self.link.is_some()
    }
}

/// The compiled programs of a control.
pub(crate) fn code(name: &str) -> &'static [u8] {
    if name == crate::HYBLA {
        &HYBLA.0
    } else {
        &RATE.0
    }
}

/// The programs that replay traces, loaded.
pub(crate) fn replay() -> Result<Object, LoadError> {
    open(&REPLAY.0)?
        .load()
        .map_err(kernel("loading the replay programs"))
}

fn open(code: &[u8]) -> Result<OpenObject, LoadError> {
    ObjectBuilder::default()
        .open_memory(code)
        .map_err(kernel("reading the compiled programs"))
}

fn kernel(doing: &'static str) -> impl FnOnce(libbpf_rs::Error) -> LoadError {
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
