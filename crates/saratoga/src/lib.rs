//! Saratoga version 1 (draft-wood-tsvwg-saratoga-22) without I/O: files at line rate over UDP,
//! repaired by lists of holes, whatever the delay and the errors.
//!
//! One machine a session: a [`Sender`] or a [`Receiver`], each begun by itself with a REQUEST or by
//! its driver after one; an [`Inquiry`] for what is answered by one STATUS. The content never passes
//! through them: a DATA frame that a sender transmits names a stretch of the file, which the driver
//! reads and appends; [`receiver::Event::Store`] names a stretch of the payload that came with the
//! frame just put in.
//!
//! - `pace`: when the next packet may go; open loop at a fixed rate, or under `tfrc` (RFC 5348).
//! - `repair`: what was reported missing, and what has been sent again since.
//! - `window`: what may be under way unreported.
//! - `reach`, `plpmtu`: how long packets may be to reach the peer (RFC 8899).
//! - `report`: STATUS frames from what has arrived.
//! - `stamp`: the timestamps of DATA, which only somebody whom DATA reaches can echo.
//!
//! Everything that a peer can make grow has a bound: see [`MAX_STRETCHES`].
#![forbid(unsafe_code)]

mod inquiry;
mod pace;
mod plpmtu;
mod reach;
pub mod receiver;
mod repair;
mod report;
pub mod sender;
mod stamp;
mod stretches;
mod tfrc;
mod timing;
mod window;

pub use inquiry::{Answer, Inquiry};
pub use receiver::Receiver;
pub use report::{HoleEnd, echo, refusal};
pub use sender::Sender;

/// Stretches of octets that either machine keeps at most. A receiver drops DATA that would open one
/// more, a sender forgets holes beyond it: both are reported missing again later.
pub const MAX_STRETCHES: usize = 1 << 16;
