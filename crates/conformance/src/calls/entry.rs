//! The 33 entries.
//!
//! All are called as the interface says: with the `userdata` of the table, and arguments as those of the POSIX calls.
//! That is the safety condition of each, and what every block of unsafe code here rests on.

use super::{address, load, message, stack, store, transfer};
use crate::errno::{Answer, Errno, Progress, result};
use crate::readiness::UNASKED;
use crate::stack::Stack;
use crate::table::Table;
use core::ffi::{c_int, c_long, c_longlong, c_short, c_uint, c_ulong, c_void};
use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t,
    timeval,
};
use std::time::Duration;

/// The table with all its entries.
pub(super) fn table(userdata: *mut c_void) -> Table {
    Table {
        userdata,
        free: Some(free),
        socket: Some(socket),
        bind: Some(bind),
        listen: Some(listen),
        accept: Some(accept),
        connect: Some(connect),
        read: Some(read),
        readv: Some(readv),
        recv: Some(recv),
        recvfrom: Some(recvfrom),
        recvmsg: Some(recvmsg),
        write: Some(write),
        writev: Some(writev),
        send: Some(send),
        sendto: Some(sendto),
        sendmsg: Some(sendmsg),
        fcntl: Some(fcntl),
        ioctl: Some(ioctl),
        close: Some(close),
        shutdown: Some(shutdown),
        getsockopt: Some(getsockopt),
        setsockopt: Some(setsockopt),
        poll: Some(poll),
        netdev_send: Some(netdev_send),
        netdev_receive: Some(netdev_receive),
        usleep: Some(usleep),
        gettimeofday: Some(gettimeofday),
        epoll_create: Some(epoll_create),
        epoll_ctl: Some(epoll_ctl),
        epoll_wait: Some(epoll_wait),
        pipe: Some(pipe),
        splice: Some(splice),
    }
}

/// Declares entries: `|stack, arguments| body`, where the body comes to an [`Answer`].
macro_rules! entries {
    ($($name:ident($stack:ident $(, $argument:ident: $type:ty)* $(,)?) -> $result:ty $body:block)*) => {
        $(unsafe extern "C" fn $name(userdata: *mut c_void $(, $argument: $type)*) -> $result {
            // SAFETY: the head of the file.
            let $stack: &Stack = unsafe { stack(userdata) };
            let answer = || -> Answer<$result> { $body };
            result(answer())
        })*
    };
}

/// One buffer as a vector of one.
fn single(buffer: *mut c_void, length: size_t) -> [iovec; 1] {
    [iovec {
        iov_base: buffer,
        iov_len: length,
    }]
}

fn milliseconds(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

unsafe extern "C" fn free(userdata: *mut c_void) {
    // SAFETY: the last call: nobody uses the stack any more, which `packetdrill_interface_init` made.
    drop(unsafe { Box::from_raw(userdata.cast::<Stack>()) });
}

entries! {
    socket(stack, domain: c_int, kind: c_int, _protocol: c_int) -> c_int {
        stack.at_once(|state| state.make_socket(domain, kind))
    }

    bind(stack, fd: c_int, at: *const sockaddr, length: socklen_t) -> c_int {
        // SAFETY: the head of the file.
        let at = unsafe { address::read(at, length)? };
        stack.at_once(|state| state.bind(fd, at)).map(|()| 0)
    }

    listen(stack, fd: c_int, backlog: c_int) -> c_int {
        stack.at_once(|state| state.listen(fd, backlog)).map(|()| 0)
    }

    accept(stack, fd: c_int, peer: *mut sockaddr, length: *mut socklen_t) -> c_int {
        let blocks = stack.at_once(|state| state.socket(fd).map(|socket| socket.blocks))?;
        match stack.call(blocks, None, |state| state.accept(fd)) {
            Progress::Done(answer) => {
                let (fd, from) = answer?;
                // SAFETY: the head of the file.
                unsafe { address::write(from, peer, length)? };
                Ok(fd)
            }
            Progress::Pending => Err(Errno(libc::EAGAIN)),
        }
    }

    connect(stack, fd: c_int, to: *const sockaddr, length: socklen_t) -> c_int {
        // SAFETY: the head of the file.
        let to = unsafe { address::read(to, length)? };
        let blocks = stack.at_once(|state| state.socket(fd).map(|socket| socket.blocks))?;
        let mut again = false;
        let progress = stack.call(blocks, None, |state| {
            let progress = state.connect(fd, to, again);
            again = true;
            progress
        });
        match progress {
            Progress::Done(answer) => answer.map(|()| 0),
            Progress::Pending => Err(Errno(libc::EINPROGRESS)),
        }
    }

    read(stack, fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
        // SAFETY: the head of the file.
        unsafe { transfer::receive(stack, fd, &single(buffer, length), 0) }
    }

    readv(stack, fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the head of the file.
        unsafe { transfer::receive(stack, fd, &message::counted(vectors, count)?, 0) }
    }

    recv(stack, fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
        // SAFETY: the head of the file.
        unsafe { transfer::receive(stack, fd, &single(buffer, length), flags) }
    }

    recvfrom(
        stack,
        fd: c_int,
        buffer: *mut c_void,
        length: size_t,
        flags: c_int,
        _peer: *mut sockaddr,
        peer_length: *mut socklen_t,
    ) -> ssize_t {
        // SAFETY: the head of the file.
        let received = unsafe { transfer::receive(stack, fd, &single(buffer, length), flags)? };
        if !peer_length.is_null() {
            // A connected socket tells no address (recvfrom(2)).
            // SAFETY: the head of the file.
            unsafe { store(peer_length, 0)? };
        }
        Ok(received)
    }

    recvmsg(stack, fd: c_int, header: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the head of the file.
        let received = unsafe {
            transfer::receive(stack, fd, &message::of_message(header)?, flags)?
        };
        // SAFETY: the header was read, so it is there.
        let header = unsafe { &mut *header };
        (header.msg_namelen, header.msg_controllen, header.msg_flags) = (0, 0, 0);
        Ok(received)
    }

    write(stack, fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
        // SAFETY: the head of the file; what is behind the pointer is only read.
        unsafe { transfer::send(stack, fd, &single(buffer.cast_mut(), length), 0) }
    }

    writev(stack, fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the head of the file.
        unsafe { transfer::send(stack, fd, &message::counted(vectors, count)?, 0) }
    }

    send(stack, fd: c_int, buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t {
        // SAFETY: the head of the file.
        unsafe { transfer::send(stack, fd, &single(buffer.cast_mut(), length), flags) }
    }

    sendto(
        stack,
        fd: c_int,
        buffer: *const c_void,
        length: size_t,
        flags: c_int,
        to: *const sockaddr,
        to_length: socklen_t,
    ) -> ssize_t {
        if flags & libc::MSG_FASTOPEN != 0 {
            // SAFETY: the head of the file.
            let to = unsafe { address::read(to, to_length)? };
            let flags = flags & !libc::MSG_FASTOPEN;
            // SAFETY: the head of the file.
            return unsafe {
                transfer::send_first(stack, fd, &single(buffer.cast_mut(), length), flags, to)
            };
        }
        if !to.is_null() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        // SAFETY: the head of the file.
        unsafe { transfer::send(stack, fd, &single(buffer.cast_mut(), length), flags) }
    }

    sendmsg(stack, fd: c_int, header: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the head of the file.
        unsafe { transfer::send(stack, fd, &message::of_message(header)?, flags) }
    }

    fcntl(stack, fd: c_int, command: c_int, argument: c_long) -> c_int {
        stack.at_once(|state| {
            let socket = state.socket_mut(fd)?;
            match command {
                libc::F_GETFL if socket.blocks => Ok(libc::O_RDWR),
                libc::F_GETFL => Ok(libc::O_RDWR | libc::O_NONBLOCK),
                libc::F_SETFL => {
                    // An `int`: the upper half of the register may hold anything.
                    socket.blocks = argument as c_int & libc::O_NONBLOCK == 0;
                    Ok(0)
                }
                libc::F_GETFD | libc::F_SETFD => Ok(0),
                _ => Err(Errno(libc::EINVAL)),
            }
        })
    }

    ioctl(stack, fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        let length = stack.at_once(|state| state.queue_length(fd, request))?;
        // SAFETY: the head of the file; these requests all write an `int`.
        unsafe { store(argument.cast::<c_int>(), length).map(|()| 0) }
    }

    close(stack, fd: c_int) -> c_int {
        stack.at_once(|state| state.close(fd)).map(|()| 0)
    }

    shutdown(stack, fd: c_int, how: c_int) -> c_int {
        stack.at_once(|state| state.shutdown(fd, how)).map(|()| 0)
    }

    getsockopt(
        stack,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: *mut socklen_t,
    ) -> c_int {
        // SAFETY: the head of the file.
        let room = unsafe { load(length)? } as usize / size_of::<c_int>();
        let values = stack.at_once(|state| state.option(fd, level, name))?;
        let copied = values.len().min(room);
        for (at, one) in values[..copied].iter().enumerate() {
            // SAFETY: within the room that the caller told.
            unsafe { store(value.cast::<c_int>().wrapping_add(at), *one)? };
        }
        // SAFETY: the length was read, so it is there.
        unsafe { store(length, (copied * size_of::<c_int>()) as socklen_t).map(|()| 0) }
    }

    setsockopt(
        stack,
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        length: socklen_t,
    ) -> c_int {
        let count = length as usize / size_of::<c_int>();
        // No option here has more than two numbers.
        let values: Answer<Vec<c_int>> = (0..count.min(2))
            // SAFETY: within the length that the caller told.
            .map(|at| unsafe { load(value.cast::<c_int>().wrapping_add(at)) })
            .collect();
        let values = values?;
        stack.at_once(|state| state.set_option(fd, level, name, &values)).map(|()| 0)
    }

    poll(stack, list: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        let count = usize::try_from(count).map_err(|_| Errno(libc::EINVAL))?;
        // SAFETY: the head of the file.
        let entries: Answer<Vec<pollfd>> =
            (0..count).map(|at| unsafe { load(list.wrapping_add(at)) }).collect();
        let mut entries = entries?;
        let progress = stack.call(timeout != 0, milliseconds(timeout), |state| {
            let mut ready = 0;
            for entry in &mut entries {
                entry.revents = match entry.fd {
                    ..0 => 0,
                    fd => state.ready(fd).0 & (entry.events | UNASKED) as c_short,
                };
                ready += c_int::from(entry.revents != 0);
            }
            match ready {
                0 => Progress::Pending,
                ready => Progress::value(ready),
            }
        });
        for (at, entry) in entries.into_iter().enumerate() {
            // SAFETY: it was read from there.
            unsafe { store(list.wrapping_add(at), entry)? };
        }
        match progress {
            Progress::Done(answer) => answer,
            Progress::Pending => Ok(0),
        }
    }

    netdev_send(stack, packet: *const c_void, octets: size_t) -> c_int {
        if packet.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the head of the file: so many octets are there until we return.
        stack.packet_in(unsafe { core::slice::from_raw_parts(packet.cast::<u8>(), octets) });
        Ok(0)
    }

    netdev_receive(
        stack,
        buffer: *mut c_void,
        octets: *mut size_t,
        microseconds: *mut c_longlong,
    ) -> c_int {
        // SAFETY: the head of the file.
        let room = unsafe { load(octets)? };
        let Some((at, packet)) = stack.packet_out() else {
            // SAFETY: the size was read, so it is there.
            return unsafe { store(octets, 0).map(|()| 0) };
        };
        if buffer.is_null() || packet.len() > room {
            return Err(Errno(libc::EMSGSIZE));
        }
        // SAFETY: the packet fits the room.
        unsafe { buffer.cast::<u8>().copy_from(packet.as_ptr(), packet.len()) };
        // SAFETY: the head of the file.
        unsafe {
            store(octets, packet.len())?;
            store(microseconds, (at.as_nanos() / 1_000) as c_longlong)?;
        }
        Ok(0)
    }

    usleep(stack, microseconds: c_uint) -> c_int {
        stack.pass(Duration::from_micros(microseconds.into()));
        Ok(0)
    }

    gettimeofday(stack, time: *mut timeval, _zone: *mut c_void) -> c_int {
        let now = stack.time();
        let time_of_day = timeval {
            tv_sec: (now / 1_000_000) as libc::time_t,
            tv_usec: (now % 1_000_000) as libc::suseconds_t,
        };
        // SAFETY: the head of the file.
        unsafe { store(time, time_of_day).map(|()| 0) }
    }

    epoll_create(stack, size: c_int) -> c_int {
        stack.at_once(|state| state.make_epoll(size))
    }

    epoll_ctl(stack, set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        let wanted = match operation {
            libc::EPOLL_CTL_DEL => None,
            _ => {
                // SAFETY: the head of the file.
                let event = unsafe { load(event)? };
                Some((event.events, event.u64))
            }
        };
        stack.at_once(|state| state.change_epoll(set, operation, fd, wanted)).map(|()| 0)
    }

    epoll_wait(stack, set: c_int, events: *mut epoll_event, most: c_int, timeout: c_int) -> c_int {
        let most = usize::try_from(most).map_err(|_| Errno(libc::EINVAL))?;
        let progress = stack.call(timeout != 0, milliseconds(timeout), |state| {
            state.wait_epoll(set, most)
        });
        let found = match progress {
            Progress::Done(answer) => answer?,
            Progress::Pending => Vec::new(),
        };
        for (at, &(bits, data)) in found.iter().enumerate() {
            let event = epoll_event { events: bits, u64: data };
            // SAFETY: no more than the caller has room for.
            unsafe { store(events.wrapping_add(at), event)? };
        }
        Ok(found.len() as c_int)
    }

    pipe(stack, _fds: *mut c_int) -> c_int {
        let _stack = stack;
        Err(Errno(libc::ENOSYS))
    }

    splice(
        stack,
        _from: c_int,
        _from_offset: *mut loff_t,
        _to: c_int,
        _to_offset: *mut loff_t,
        _length: size_t,
        _flags: c_uint,
    ) -> c_int {
        let _stack = stack;
        Err(Errno(libc::ENOSYS))
    }
}
