//! Streaming forward error correction below QUIC: a sliding-window random linear code over GF(256), in the manner of
//! RFC 8681, without I/O.
//!
//! Between two bentpipe gateways each packet of QUIC gets a number ([`Frame`]), and after every so many packets goes a
//! repair: a combination of the latest ones, with factors that both ends draw from the same generator (RFC 8682). A
//! receiver that misses as many packets as it has repairs gets them back by elimination, long before QUIC could have sent
//! them again; `docs/fec.md` has the figures.
//!
//! - [`Layer`]: one end, the machine that drivers drive.
//! - `encoder`, `decoder`: its two halves; `equations`: the elimination.
//! - [`Strength`]: how much is sent besides, fixed or by the losses measured ([`Report`]).
//! - `gf256`, `tinymt`, `coefficients`: the arithmetic of the two RFCs.
//!
//! Deviations from RFC 8681: a packet is one symbol, of its own length; its number stands before it, not behind; the lengths
//! of packets are combined beside them, not in front; and the frames tell the losses of the other direction.
//!
//! Frames are not authenticated: what they carry is, by QUIC. Who forges them can make repairs useless, but
//! neither hide nor change a packet, and what is kept has a bound: [`MAX_WINDOW`], [`MAX_PACKET`].
#![forbid(unsafe_code)]

mod code_rate;
mod coefficients;
mod decoder;
mod encoder;
mod equations;
mod fec_layer;
mod frame;
mod gf256;
mod loss_report;
mod tinymt;

pub use code_rate::{Strength, StrengthError, silence};
pub use decoder::Received;
pub use encoder::{Config, FRESH, Overhead, Sent};
pub use fec_layer::{Counters, Layer, Side};
pub use frame::{Frame, ParseError, REPAIR_HEADER, SOURCE_HEADER, Window, is_frame, is_repair};
pub use loss_report::Report;

/// Packets that a repair may be made of. A decoder remembers twice as many.
pub const MAX_WINDOW: usize = 512;

/// The longest packet that is protected, in octets: what a path of Ethernet with jumbo frames carries. Longer ones are
/// handed on, and not repaired.
pub const MAX_PACKET: usize = 9_216;
