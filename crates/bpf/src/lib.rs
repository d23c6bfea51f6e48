//! Two congestion controls for the Linux kernel, and their loader.
//!
//! `bentpipe_hybla` is TCP Hybla as published; `bentpipe_rate` paces at the link's rate, configured or
//! followed, divided by the flows that share it, and takes loss for corruption. Both are BPF programs (struct_ops) that
//! work on a stock kernel with BTF and without a module, from Linux 6.4. The rules themselves are
//! plain C functions in `src/bpf/{hybla,share,rate}.h`, whose twins in Rust are
//! `bentpipe_cc::{hybla, rate}`; a property test replays traces through both.
//!
//! A control is in the kernel while its loader lives: [`Controls`] holds a BPF link, and the
//! registration goes when the link does, also when the process is killed. Sockets that use it keep
//! it to their end. What is known of a link ([`LinkParams`]) lies in a BPF map, keyed by the mark
//! (`SO_MARK`) of the sockets that send over it; sockets whose mark is not configured get Hybla with
//! its defaults, or Reno from the rate control.
//!
//! Besides, [`scone`] has the program that lowers the rate in SCONE packets at an interface.
//!
//! It leaves out when a control is chosen, which is the gateway's and the lab's. Begin with [`Controls`].
#![forbid(unsafe_code)]

mod choose;
mod controls;
mod kernel;
mod layout;
mod lazy_controls;
mod names;
mod object;
mod params;
#[doc(hidden)]
pub mod replay;
pub mod scone;

pub use bentpipe_cc::hybla::KERNEL as HYBLA;
pub use bentpipe_cc::rate_control::KERNEL as RATE;
pub use bentpipe_cc::{LinkParams, twin};
pub use choose::{Choice, ChooseError, FALLBACKS, available, choose};
pub use controls::{ConfigureError, Controls, LoadError};
pub use lazy_controls::LazyControls;
pub use names::{kernel_name, user_name};
pub use params::LinkShare;

/// Whether users mean one of our programs by `name`.
pub fn is_ours(name: &str) -> bool {
    twin(name).is_some()
}
