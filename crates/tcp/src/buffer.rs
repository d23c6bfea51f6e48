//! The two streams of a connection: bytes written until they are acknowledged, and bytes received until they are read.
//! A stream is of real bytes, which are shared with segments and applications rather than copied, or it is counted: then
//! nothing is stored. It never is both.

mod receive;
mod send;

pub(crate) use receive::ReceiveBuffer;
pub(crate) use send::SendBuffer;
