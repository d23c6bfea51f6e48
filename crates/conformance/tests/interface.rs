//! The object, loaded as packetdrill loads it, and spoken to by C pointers: by a careless caller, and by an enemy on the
//! network.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "the interface is C's")]

use bentpipe_conformance::table::{Init, SYMBOL, Table};
use core::ffi::{c_int, c_void};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr::{null, null_mut};

fn object() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_conformance"));
    let name = "libbentpipe_conformance.so";
    let folder = program.parent().unwrap();
    let places = [folder.join(name), folder.join("deps").join(name)];
    places.into_iter().find(|place| place.exists()).unwrap()
}

struct Loaded(Table);

impl Loaded {
    fn new(flags: Option<&str>) -> Self {
        let file = CString::new(object().as_os_str().as_bytes()).unwrap();
        let mut table = Table::zeroed();
        let flags = flags.map(|flags| CString::new(flags).unwrap());
        // SAFETY: the object is ours, its symbol is of that type, and both pointers are valid.
        unsafe {
            let handle = libc::dlopen(
                file.as_ptr(),
                libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE,
            );
            assert!(!handle.is_null());
            let symbol = libc::dlsym(handle, SYMBOL.as_ptr());
            assert!(!symbol.is_null());
            let init = core::mem::transmute::<*mut c_void, Init>(symbol);
            init(
                flags.as_ref().map_or(null(), |flags| flags.as_ptr()),
                &raw mut table,
            );
        }
        assert_eq!(table.missing(), Vec::<&str>::new());
        Self(table)
    }

    fn packet(&self, bytes: &[u8]) -> c_int {
        // SAFETY: as many bytes as are told.
        unsafe { self.0.netdev_send.unwrap()(self.0.userdata, bytes.as_ptr().cast(), bytes.len()) }
    }

    /// The next packet; empty where none comes.
    fn answer(&self) -> Vec<u8> {
        let mut buffer = vec![0u8; 65_536];
        let (mut length, mut at) = (buffer.len(), 0);
        let data = buffer.as_mut_ptr().cast();
        // SAFETY: room as long as told, and room for the two figures.
        let got = unsafe {
            self.0.netdev_receive.unwrap()(self.0.userdata, data, &raw mut length, &raw mut at)
        };
        assert_eq!(got, 0);
        buffer.truncate(length);
        buffer
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the last call.
        unsafe { self.0.free.unwrap()(self.0.userdata) };
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn calls_with_pointers_to_nothing_and_descriptors_of_nobody_fail_as_the_kernel_s() {
    let loaded = Loaded::new(None);
    let (table, userdata) = (&loaded.0, loaded.0.userdata);
    let mut byte = 0u8;
    let data = (&raw mut byte).cast::<c_void>();
    // SAFETY: pointers are null, which the object must refuse, or to what lives here.
    unsafe {
        let socket = table.socket.unwrap()(userdata, libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(socket >= 0);
        // A real descriptor of this process.
        assert!(libc::fcntl(socket, libc::F_GETFD) >= 0);
        assert_eq!(table.read.unwrap()(userdata, 9_999, data, 1), -1);
        assert_eq!(errno(), libc::EBADF);
        assert_eq!(table.close.unwrap()(userdata, 9_999), -1);
        assert_eq!(errno(), libc::EBADF);
        assert_eq!(table.bind.unwrap()(userdata, socket, null(), 16), -1);
        assert_eq!(errno(), libc::EFAULT);
        assert_eq!(table.write.unwrap()(userdata, socket, null(), 1), -1);
        assert_eq!(errno(), libc::EFAULT);
        assert_eq!(
            table.setsockopt.unwrap()(userdata, socket, 6, 1, null(), 4),
            -1
        );
        assert_eq!(errno(), libc::EFAULT);
        assert_eq!(table.poll.unwrap()(userdata, null_mut(), 1, 0), -1);
        assert_eq!(errno(), libc::EFAULT);
        assert_eq!(table.read.unwrap()(userdata, socket, data, 1), -1);
        assert_eq!(errno(), libc::ENOTCONN);
        assert_eq!(table.close.unwrap()(userdata, socket), 0);
        assert_eq!(libc::fcntl(socket, libc::F_GETFD), -1);
    }
}

#[test]
fn the_clock_moves_with_each_look_and_a_stack_with_nothing_to_send_says_so() {
    let loaded = Loaded::new(Some("address=192.168.0.1"));
    let look = || {
        let mut time = libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        };
        // SAFETY: room for the time.
        let told =
            unsafe { loaded.0.gettimeofday.unwrap()(loaded.0.userdata, &raw mut time, null_mut()) };
        assert_eq!(told, 0);
        time.tv_sec * 1_000_000 + time.tv_usec
    };
    let first = look();
    let second = look();
    assert!(second > first);
    // SAFETY: one number.
    let slept = unsafe { loaded.0.usleep.unwrap()(loaded.0.userdata, 5_000_000) };
    assert_eq!(slept, 0);
    assert!(look() >= second + 5_000_000);
    assert_eq!(loaded.answer(), Vec::<u8>::new());
}

#[test]
fn packets_that_are_none_are_dropped() {
    let loaded = Loaded::new(Some("address=192.168.0.1"));
    let mut state = 1u32;
    for length in 0..600 {
        let bytes: Vec<u8> = (0..length)
            .map(|at| {
                // xorshift (Marsaglia, 2003).
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                match at {
                    0 => 0x45,
                    _ => state as u8,
                }
            })
            .collect();
        assert_eq!(loaded.packet(&bytes), 0);
    }
    assert_eq!(loaded.answer(), Vec::<u8>::new());
}
