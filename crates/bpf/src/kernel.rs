//! What this kernel offers: BTF, struct_ops through a link, which signature `cong_control` has, and whether programs are run
//! whenever they are asked.

use crate::LoadError;
use libbpf_rs::btf::types::{FuncProto, Ptr, Struct};
use libbpf_rs::btf::{Btf, ReferencesType};
use std::path::Path;

const BTF: &str = "/sys/kernel/btf/vmlinux";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// The signature of `tcp_congestion_ops::cong_control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signature {
    /// Linux 6.10 and later: socket, acknowledged number, flags, rate sample.
    Four,
    /// Before: socket, rate sample.
    Two,
}

/// What the programs of a control are chosen by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) signature: Signature,
    /// A control's answer may be 0 though its program says otherwise. The kernels of some virtual machines run no program, but
    /// their first process's own, in a softirq that interrupts that process. Bursts of 0 segments (`min_tso_segs`) have
    /// the kernel put an empty segment before the data, and that connection hangs.
    pub(crate) skips: bool,
}

/// Reads the kernel's own type information.
pub(crate) fn probe() -> Result<Kernel, LoadError> {
    if !Path::new(BTF).exists() {
        return Err(LoadError::NoBtf);
    }
    let btf = Btf::from_vmlinux().map_err(|source| LoadError::Kernel {
        doing: "reading the kernel's BTF",
        source,
    })?;
    if btf
        .type_by_name::<Struct<'_>>("bpf_struct_ops_tcp_congestion_ops")
        .is_none()
    {
        return Err(LoadError::NoStructOps);
    }
    if btf
        .type_by_name::<Struct<'_>>("bpf_struct_ops_link")
        .is_none()
    {
        return Err(LoadError::TooOld { release: release() });
    }
    let signature = signature(&btf).ok_or_else(|| LoadError::Unknown { release: release() })?;
    let aux = btf.type_by_name::<Struct<'_>>("bpf_prog_aux");
    let skips = aux.is_some_and(|aux| {
        let mut members = aux.iter();
        members.any(|member| member.name.is_some_and(|name| name == "init_owned"))
    });
    Ok(Kernel { signature, skips })
}

fn signature(btf: &Btf<'_>) -> Option<Signature> {
    let ops = btf.type_by_name::<Struct<'_>>("tcp_congestion_ops")?;
    let member = ops
        .iter()
        .find(|member| member.name.is_some_and(|name| name == "cong_control"))?;
    let pointer = btf.type_by_id::<Ptr<'_>>(member.ty)?;
    let target = pointer.referenced_type().skip_mods_and_typedefs();
    let function = FuncProto::try_from(target).ok()?;
    match function.iter().count() {
        4 => Some(Signature::Four),
        2 => Some(Signature::Two),
        _ => None,
    }
}

fn release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(
        |_| "of unknown release".to_owned(),
        |text| text.trim().to_owned(),
    )
}

/// The congestion controls that the kernel offers by name now, its loaded modules included.
pub(crate) fn offered() -> Vec<String> {
    std::fs::read_to_string(AVAILABLE)
        .map(|text| text.split_whitespace().map(str::to_owned).collect())
        .unwrap_or_default()
}
