//! The two streams of a connection: bytes written until they are acknowledged, and bytes received until they are read.
//! A stream is of real bytes, which are shared with segments and applications rather than copied, or it is counted: then
//! nothing is stored. It never is both. Windows and sequence numbers are the connection's affair, in crate `tcp`. Begin
//! with [`SendBuffer`].
#![forbid(unsafe_code)]

mod receive;
mod send;

pub use receive::ReceiveBuffer;
pub use send::SendBuffer;
