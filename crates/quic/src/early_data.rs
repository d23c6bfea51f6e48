//! What is written before the handshake is through. A peer that has forgotten its ticket takes none of it, and then it is written again,
//! so that the layers above need not know.

use crate::connection::Connection;
use crate::stack_interface::{End, StreamId};
use bytes::Bytes as Chunk;
use quinn_proto::Dir;

/// What was done to streams, in order. It holds no more than flow control lets out.
#[derive(Debug, Default)]
pub(crate) struct EarlyData(Vec<Act>);

#[derive(Debug)]
enum Act {
    Open(Dir),
    Write(StreamId, Chunk),
    End(StreamId, End),
}

impl EarlyData {
    pub(crate) fn opened(&mut self, direction: Dir) {
        self.0.push(Act::Open(direction));
    }

    pub(crate) fn written(&mut self, stream: StreamId, data: Chunk) {
        self.0.push(Act::Write(stream, data));
    }

    pub(crate) fn ended(&mut self, stream: StreamId, end: End) {
        self.0.push(Act::End(stream, end));
    }
}

impl Connection {
    /// The handshake is through: what the peer did not take is written again; whether it has room for all of that. The stack has dropped
    /// the streams, and numbers new ones from the beginning, so that they are called as before.
    pub(crate) fn settle_early_data(&mut self) -> bool {
        let Some(early) = self.early.take() else {
            return true;
        };
        if self.stack.accepted_0rtt() {
            return true;
        }
        self.forget_written();
        early.0.into_iter().all(|act| self.repeat(act))
    }

    fn repeat(&mut self, act: Act) -> bool {
        match act {
            Act::Open(direction) => self.stack.streams().open(direction).is_some(),
            Act::Write(stream, mut data) => {
                while !data.is_empty() {
                    if !matches!(self.write(stream, &mut data), Ok(1..)) {
                        return false;
                    }
                }
                true
            }
            Act::End(stream, end) => self.end(stream, end).is_ok(),
        }
    }
}
