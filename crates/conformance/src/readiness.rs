//! What a descriptor is ready for, as poll(2) and epoll(7) tell it.

use crate::socket::{Edges, Kind, peer_has_closed};
use crate::stack::State;
use bentpipe_tcp::{Connection, State as Tcp};
use core::ffi::{c_int, c_short};

/// What poll tells that nobody asked for.
pub(crate) const UNASKED: c_short = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

impl State {
    /// The events of `fd` now (Linux `tcp_poll`), and how often it became ready.
    pub(crate) fn ready(&self, fd: c_int) -> (c_short, Edges) {
        let Ok(socket) = self.socket(fd) else {
            return (libc::POLLNVAL, Edges::default());
        };
        let mut events = match socket.kind {
            Kind::Idle => libc::POLLOUT | libc::POLLHUP,
            Kind::Listener(listener) if self.host.waiting(listener) > 0 => libc::POLLIN,
            Kind::Listener(_) => 0,
            Kind::Connection(id) => match self.host.connection(id) {
                None => libc::POLLHUP,
                Some(connection) => {
                    let closed = socket.peer_closed || peer_has_closed(connection.state());
                    let read_over = closed || socket.read_shut;
                    let write_over = socket.write_shut || connection.state() == Tcp::Closed;
                    let options = &socket.options;
                    let (size, low) = (options.send_buffer as u64, options.not_sent_low_at);
                    stream(connection, read_over, write_over, size, low)
                }
            },
        };
        if socket.error.is_some() {
            events |= libc::POLLERR;
        }
        (events, socket.edges)
    }
}

fn stream(
    connection: &Connection,
    read_over: bool,
    write_over: bool,
    send_buffer: u64,
    not_sent_low_at: u32,
) -> c_short {
    let mut events = 0;
    let connecting = matches!(connection.state(), Tcp::SynSent | Tcp::SynReceived);
    if connecting {
        return events;
    }
    if connection.readable() > 0 || read_over {
        events |= libc::POLLIN | libc::POLLRDNORM;
    }
    if read_over {
        events |= libc::POLLRDHUP;
    }
    if read_over && write_over {
        events |= libc::POLLHUP;
    }
    // Linux `sk_stream_is_writeable`: a third of what is stored is free.
    let stored = connection.unacknowledged();
    let room = send_buffer.saturating_sub(stored) >= stored / 2;
    let low = not_sent_low_at == 0 || connection.gauges().unsent < u64::from(not_sent_low_at);
    if write_over || room && low {
        events |= libc::POLLOUT | libc::POLLWRNORM;
    }
    events
}
