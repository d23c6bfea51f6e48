//! When a client's SYN is answered.
//!
//! End to end: the SYN is held in a queue of the kernel while the far side is dialled. Has that
//! accepted, the SYN goes on to a listener of ours, and the connection accepted there is paired with
//! the dialled one. Has it refused, or is it unreachable, the SYN goes on unsplit, so that the
//! client hears the true answer from the true host. Is it silent, so are we. Held SYNs are the only
//! state that a client can make with a SYN, and they are bounded.
//!
//! Early: the SYN is answered at once, which saves a round trip over the far leg, and a far side
//! that refuses becomes a reset.

mod answered;
mod porter;

pub(crate) use answered::Answered;
pub(crate) use porter::{Plan, Porter};
