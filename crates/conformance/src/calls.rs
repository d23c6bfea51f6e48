//! The table's functions: from C and back.
//!
//! What packetdrill hands over are pointers of its own calls, checked here only as far as the kernel would check them:
//! null where something must be is `EFAULT`.

mod address;
mod entry;
mod message;
mod transfer;

use crate::errno::{Answer, Errno};
use crate::stack::Stack;
use crate::table::Table;
use core::ffi::{CStr, c_char, c_void};

/// packetdrill's symbol: fills its table with ours.
///
/// # Safety
/// `flags` is null or a C string, and `table` points to a table that nobody else uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, table: *mut Table) {
    let flags = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: the caller hands over a C string.
        let flags = unsafe { CStr::from_ptr(flags) };
        flags.to_string_lossy().into_owned()
    };
    let stack = Box::into_raw(Box::new(Stack::new(&flags)));
    // SAFETY: the caller hands over a table.
    unsafe { table.write(entry::table(stack.cast())) };
}

/// The stack behind `userdata`.
///
/// # Safety
/// `userdata` is what `packetdrill_interface_init` put there, and `free` has not been called.
unsafe fn stack<'a>(userdata: *mut c_void) -> &'a Stack {
    // SAFETY: as the caller says; the stack is shared, and locks itself.
    unsafe { &*userdata.cast::<Stack>() }
}

/// The value at `pointer`.
///
/// # Safety
/// `pointer` is null, or points to a `T` to read.
unsafe fn load<T: Copy>(pointer: *const T) -> Answer<T> {
    if pointer.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller says; what C hands over may lie unaligned.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Writes `value` to `pointer`.
///
/// # Safety
/// `pointer` is null, or points to room for a `T`.
unsafe fn store<T>(pointer: *mut T, value: T) -> Answer<()> {
    if pointer.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: as the caller says.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}
