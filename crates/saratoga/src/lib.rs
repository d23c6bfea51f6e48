//! Saratoga version 1 (draft-wood-tsvwg-saratoga-22) without I/O: files at line rate over UDP,
//! repaired by lists of holes, whatever the delay and the errors.
//!
//! Each session is one machine: a [`Sender`] or a [`Receiver`], which either sends the REQUEST itself or is made by its
//! driver after one, or an [`Inquiry`] for a REQUEST that one STATUS answers. The content never passes through them: a
//! DATA frame that a sender transmits names a stretch of the file, which the driver reads and appends;
//! [`receiver::Event::Store`] names a stretch of the payload that came with the frame just put in.
//!
//! - `pace`: when the next packet may go; open loop at a fixed rate, or under `tfrc` (RFC 5348).
//! - `suspects`: what is missing for long enough to count as lost under `tfrc`.
//! - `repair`: the octets that were reported missing, and those that have been sent again since.
//! - `window`: how much may be in flight without a report.
//! - `reach`, `plpmtu`: how long packets may be to reach the peer (RFC 8899).
//! - `report`: STATUS frames from what has arrived.
//! - `stamp`: the timestamps of DATA, which only somebody whom DATA reaches can echo.
//!
//! Everything that a peer can make grow has a bound: see [`MAX_STRETCHES`]. Files, sockets, keys and beacons are in
//! `bentpipe-saratoga-files` and `bentpipe-saratoga-udp`, frames in `bentpipe-wire`. Begin with `sender.rs` and
//! `receiver.rs`.
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
mod suspects;
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
