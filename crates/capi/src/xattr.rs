//! Extended attributes of what a path leads to.

use std::ffi::{c_char, c_int, c_void};

use extant::{Node, XattrMode};

use crate::arguments;
use crate::filesystem::MountedFs;
use crate::outcome::{Failure, Result, on};

/// The node that the path of a call leads to, and the attribute's name.
///
/// # Safety
/// `path` and `name` are null or strings.
unsafe fn target<'a>(
    fs: &MountedFs,
    path: *const c_char,
    name: *const c_char,
) -> Result<(Node, &'a [u8])> {
    // SAFETY: the caller's promise.
    let (path, name) = unsafe { (arguments::path(path)?, arguments::text(name, "the name")?) };
    Ok((fs.fs.node(path, true)?, name))
}

/// Copies the value of an attribute and returns its length; with `size` 0 only the length.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_getxattr(
    fs: Option<&MountedFs>,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> isize {
    on(fs, |fs| {
        // SAFETY: null or strings, by the contract of this crate.
        let (node, name) = unsafe { target(fs, path, name) }?;
        let found = fs.fs.volume().getxattr(&node, name)?;
        // SAFETY: null or `size` bytes, by the contract of this crate.
        unsafe { arguments::put_value(&found, value, size) }
    })
}

/// Copies the names of all attributes, each with its NUL, and returns their length; with `size` 0
/// only the length.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_listxattr(
    fs: Option<&MountedFs>,
    path: *const c_char,
    names: *mut c_char,
    size: usize,
) -> isize {
    on(fs, |fs| {
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        let node = fs.fs.node(path, true)?;
        let mut all = Vec::new();
        for name in fs.fs.volume().listxattr(&node)? {
            all.extend_from_slice(&name);
            all.push(0);
        }
        // SAFETY: null or `size` bytes, by the contract of this crate.
        unsafe { arguments::put_value(&all, names.cast(), size) }
    })
}

/// Sets an attribute, by the flags of setxattr(2).
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_setxattr(
    fs: Option<&MountedFs>,
    path: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null, strings or `size` bytes, by the contract of this crate.
        let ((node, name), value) = unsafe {
            let value = arguments::bytes(value, size, "the value")?;
            (target(fs, path, name)?, value)
        };
        let mode = match flags {
            0 => XattrMode::Either,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Failure::invalid(format!("flags {flags:#x}: not known"))),
        };
        let (volume, cred) = (fs.fs.volume(), fs.fs.cred());
        volume.setxattr(&node, name, value, mode, cred)?;
        Ok(0)
    })
}

/// Removes an attribute.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_removexattr(
    fs: Option<&MountedFs>,
    path: *const c_char,
    name: *const c_char,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null or strings, by the contract of this crate.
        let (node, name) = unsafe { target(fs, path, name) }?;
        let (volume, cred) = (fs.fs.volume(), fs.fs.cred());
        volume.removexattr(&node, name, cred)?;
        Ok(0)
    })
}
