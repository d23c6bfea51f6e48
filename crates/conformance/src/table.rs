//! The table of functions by which packetdrill and the object under test know each other, and its one symbol.
//!
//! Each function takes `userdata` first and otherwise the arguments of the POSIX call of its name, and returns what that
//! returns: -1 and `errno` on failure. The order of the entries is the interface; there is no version number.

use core::ffi::{c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use libc::{
    epoll_event, iovec, loff_t, msghdr, nfds_t, pollfd, size_t, sockaddr, socklen_t, ssize_t,
    timeval,
};

/// The symbol that an object exports: see [`Init`].
pub const SYMBOL: &core::ffi::CStr = c"packetdrill_interface_init";

/// Fills a zeroed table. `flags` is a C string that is meant for the object, or null.
pub type Init = unsafe extern "C" fn(flags: *const c_char, table: *mut Table);

/// Declares the table's entries behind `userdata`, and the list of their names.
macro_rules! table {
    ($($(#[$doc:meta])* $name:ident: ($($argument:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The table, as it lies in memory.
        #[derive(Debug)]
        #[repr(C)]
        pub struct Table {
            /// The object's own, handed back with each call.
            pub userdata: *mut c_void,
            $($(#[$doc])* pub $name: Option<unsafe extern "C" fn(*mut c_void $(, $argument)*) $(-> $result)?>,)*
        }

        /// The entries in their order.
        pub const NAMES: &[&str] = &["userdata", $(stringify!($name)),*];

        impl Table {
            /// A table as it is handed to an object: nothing but zeros.
            pub const fn zeroed() -> Self {
                Self { userdata: core::ptr::null_mut(), $($name: None),* }
            }

            /// The entries that are still null.
            pub fn missing(&self) -> Vec<&'static str> {
                let filled = [$((stringify!($name), self.$name.is_some())),*];
                filled.into_iter().filter(|(_, there)| !there).map(|(name, _)| name).collect()
            }
        }
    };
}

table! {
    /// Ends the object; the last call.
    free: ();
    /// socket(2).
    socket: (c_int, c_int, c_int) -> c_int;
    /// bind(2).
    bind: (c_int, *const sockaddr, socklen_t) -> c_int;
    /// listen(2).
    listen: (c_int, c_int) -> c_int;
    /// accept(2).
    accept: (c_int, *mut sockaddr, *mut socklen_t) -> c_int;
    /// connect(2).
    connect: (c_int, *const sockaddr, socklen_t) -> c_int;
    /// read(2).
    read: (c_int, *mut c_void, size_t) -> ssize_t;
    /// readv(2).
    readv: (c_int, *const iovec, c_int) -> ssize_t;
    /// recv(2).
    recv: (c_int, *mut c_void, size_t, c_int) -> ssize_t;
    /// recvfrom(2).
    recvfrom: (c_int, *mut c_void, size_t, c_int, *mut sockaddr, *mut socklen_t) -> ssize_t;
    /// recvmsg(2).
    recvmsg: (c_int, *mut msghdr, c_int) -> ssize_t;
    /// write(2).
    write: (c_int, *const c_void, size_t) -> ssize_t;
    /// writev(2).
    writev: (c_int, *const iovec, c_int) -> ssize_t;
    /// send(2).
    send: (c_int, *const c_void, size_t, c_int) -> ssize_t;
    /// sendto(2).
    sendto: (c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t;
    /// sendmsg(2).
    sendmsg: (c_int, *const msghdr, c_int) -> ssize_t;
    /// fcntl(2). Variadic in C: the third argument, an `int`, is there for some commands. On x86-64 and AArch64 Linux a
    /// call with or without it reaches a function that has it.
    fcntl: (c_int, c_int, c_long) -> c_int;
    /// ioctl(2). Variadic in C, as `fcntl`; the third argument is a pointer.
    ioctl: (c_int, c_ulong, *mut c_void) -> c_int;
    /// close(2).
    close: (c_int) -> c_int;
    /// shutdown(2).
    shutdown: (c_int, c_int) -> c_int;
    /// getsockopt(2).
    getsockopt: (c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    /// setsockopt(2).
    setsockopt: (c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    /// poll(2).
    poll: (*mut pollfd, nfds_t, c_int) -> c_int;
    /// A packet, from its IP header on, to the object's TCP: 0, or -1.
    netdev_send: (*const c_void, size_t) -> c_int;
    /// The next packet of the object's TCP: the buffer, its size and then the packet's, and when it left, in
    /// microseconds. Size 0 where none comes.
    netdev_receive: (*mut c_void, *mut size_t, *mut c_longlong) -> c_int;
    /// usleep(3).
    usleep: (c_uint) -> c_int;
    /// gettimeofday(2).
    gettimeofday: (*mut timeval, *mut c_void) -> c_int;
    /// epoll_create(2).
    epoll_create: (c_int) -> c_int;
    /// epoll_ctl(2).
    epoll_ctl: (c_int, c_int, c_int, *mut epoll_event) -> c_int;
    /// epoll_wait(2).
    epoll_wait: (c_int, *mut epoll_event, c_int, c_int) -> c_int;
    /// pipe(2).
    pipe: (*mut c_int) -> c_int;
    /// splice(2).
    splice: (c_int, *mut loff_t, c_int, *mut loff_t, size_t, c_uint) -> c_int;
}

const _: () = assert!(size_of::<Table>() == 33 * size_of::<usize>());

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn the_entries_have_the_places_of_the_interface() {
        assert_eq!(NAMES.len(), 33);
        let word = size_of::<usize>();
        for (offset, place) in [
            (offset_of!(Table, userdata), 0),
            (offset_of!(Table, free), 1),
            (offset_of!(Table, socket), 2),
            (offset_of!(Table, connect), 6),
            (offset_of!(Table, recvmsg), 11),
            (offset_of!(Table, sendmsg), 16),
            (offset_of!(Table, fcntl), 17),
            (offset_of!(Table, ioctl), 18),
            (offset_of!(Table, setsockopt), 22),
            (offset_of!(Table, netdev_send), 24),
            (offset_of!(Table, netdev_receive), 25),
            (offset_of!(Table, gettimeofday), 27),
            (offset_of!(Table, epoll_wait), 30),
            (offset_of!(Table, splice), 32),
        ] {
            assert_eq!(offset, place * word, "{}", NAMES[place]);
        }
    }

    #[test]
    fn an_entry_that_nobody_filled_is_named() {
        let mut table = Table::zeroed();
        assert_eq!(table.missing().len(), 32);
        unsafe extern "C" fn nothing(_: *mut c_void) {}
        table.free = Some(nothing);
        assert!(!table.missing().contains(&"free"));
    }
}
