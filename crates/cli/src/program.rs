//! The program itself, to be started again.

use std::ffi::OsStr;

/// The path of this program, to be started again under its own name.
pub(crate) fn own_path() -> &'static OsStr {
    OsStr::new("/proc/self/exe")
}
