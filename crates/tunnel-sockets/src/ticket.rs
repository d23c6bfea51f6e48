//! A tunnel that another thread has asked for, until it has a socket.

use crate::near_end::{Hand, Keep, Near};
use std::net::TcpStream;

/// A tunnel that was asked for. Dropping it resets the tunnel.
#[derive(Debug)]
pub struct Ticket {
    pub(crate) number: Option<u64>,
    pub(crate) near: Near,
}

impl Ticket {
    /// Carries a client's connection on the tunnel.
    pub fn join(mut self, socket: TcpStream, keep: Keep) {
        if let Some(number) = self.number.take() {
            self.near.hand(Hand::Join(number, socket, keep));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.near.hand(Hand::Forget(number));
        }
    }
}
