//! What Linux gives a process: descriptors and memory ([`limits`], [`cgroup`], [`Heap`]), processors and priorities ([`sched`]); children and what
//! they used ([`child`]); other processes, held by a descriptor ([`Process`]); signals ([`signals`]); and the service manager ([`notify`]).
//!
//! It knows nothing of networks: interfaces, routes and namespaces are in `bentpipe-os`.
//!
//! Begin with [`Process`].

pub mod cgroup;
pub mod child;
mod heap;
mod held;
pub mod limits;
pub mod notify;
pub mod sched;
pub mod signals;

pub use heap::{Heap, map_long_blocks};
pub use held::Process;
