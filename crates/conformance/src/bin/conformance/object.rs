//! Loads an object by packetdrill's interface.

use anyhow::{Result, bail, ensure};
use bentpipe_conformance::table::{Init, SYMBOL, Table};
use core::ffi::CStr;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A stack under test: its table, which calls may be made from two threads at once.
#[derive(Debug)]
pub(crate) struct Object {
    table: Box<Table>,
}

// SAFETY: the interface says that two threads call the functions of a table.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Loads `file` and has it fill a zeroed table.
    ///
    /// # Errors
    /// No such object, no such symbol, or an entry that it leaves out.
    pub(crate) fn load(file: &Path, flags: &str) -> Result<Self> {
        let name = CString::new(file.as_os_str().as_bytes())?;
        let mode = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE | libc::RTLD_DEEPBIND;
        // SAFETY: the object's initialisers run, which is what loading it is for.
        let handle = unsafe { libc::dlopen(name.as_ptr(), mode) };
        if handle.is_null() {
            // SAFETY: after a failure it is a C string until the next call.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            bail!("cannot load {}: {}", file.display(), why.to_string_lossy());
        }
        // SAFETY: the handle is an object's, and the name a C string.
        let symbol = unsafe { libc::dlsym(handle, SYMBOL.as_ptr()) };
        ensure!(
            !symbol.is_null(),
            "{} does not export {}: it is no object for packetdrill",
            file.display(),
            SYMBOL.to_string_lossy()
        );
        // SAFETY: the symbol is a function of this type, by the interface.
        let init = unsafe { core::mem::transmute::<*mut libc::c_void, Init>(symbol) };
        let flags = CString::new(flags)?;
        let mut table = Box::new(Table::zeroed());
        // SAFETY: a C string and a zeroed table.
        unsafe { init(flags.as_ptr(), &raw mut *table) };
        Self::of_table(table)
    }

    /// A stack by its filled table.
    pub(crate) fn of_table(table: Box<Table>) -> Result<Self> {
        let missing = table.missing();
        ensure!(
            missing.is_empty(),
            "the object leaves out {}: its table must be filled whole",
            missing.join(", ")
        );
        Ok(Self { table })
    }

    pub(crate) const fn table(&self) -> &Table {
        &self.table
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(free) = self.table.free {
            // SAFETY: the last call.
            unsafe { free(self.table.userdata) };
        }
    }
}

/// Calls entry `$name` of a table that [`Object`] has checked.
macro_rules! invoke {
    ($table:expr, $name:ident $(, $argument:expr)* $(,)?) => {{
        let table = $table;
        let entry = table.$name.expect("the table was checked to be filled whole");
        // SAFETY: the arguments are those of the POSIX call, with pointers to what lives until it returns.
        unsafe { entry(table.userdata $(, $argument)*) }
    }};
}
pub(crate) use invoke;
