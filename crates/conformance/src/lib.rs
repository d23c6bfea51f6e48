//! Our TCP behind packetdrill's shared-library interface: the object that packetdrill loads in place of the kernel, so that
//! its scripts judge our TCP as they judge Linux's (docs/conformance.md).
//!
//! [`table`] is the interface: 33 C functions with the arguments of POSIX calls. `calls` are ours: they read pointers,
//! write `errno` and know nothing of TCP. `stack` has the virtual clock, the packets and the calls that sleep, around one
//! [`bentpipe_host::Host`]; `socket`, `options`, `readiness` and `epoll` are what the socket interface adds to that.
//!
//! Time is virtual: it stands still but for what `usleep`, `gettimeofday` and `netdev_receive` move it by, and each
//! timer of the stack runs at its very instant on the way.
//!
//! The program `conformance` (`src/bin`) is the other side: a judge that loads such an object, or the kernel in its place,
//! and runs scripts against it. It shares nothing with the object but the table's layout.
//!
//! It leaves out TCP itself, which is in `bentpipe-tcp`, and packetdrill's own program. Begin with `stack.rs`.

mod bursts;
mod calls;
mod epoll;
mod errno;
mod fast_open;
mod options;
mod readiness;
mod socket;
mod stack;
pub mod table;

pub use calls::packetdrill_interface_init;
