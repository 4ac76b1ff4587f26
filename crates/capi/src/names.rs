//! Names: making, moving and removing them.

use std::ffi::{OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::{FileKind, Filesystem, RenameFlags};

use crate::arguments;
use crate::filesystem::MountedFs;
use crate::outcome::{Failure, on};

/// Runs a call on a path.
///
/// # Safety
/// `path` is null or a string.
unsafe fn at(
    fs: Option<&MountedFs>,
    path: *const c_char,
    call: impl FnOnce(&Filesystem, &Path) -> extant::Result<()>,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: the caller's promise.
        let path = unsafe { arguments::path(path) }?;
        call(&fs.fs, path)?;
        Ok(0)
    })
}

/// Creates a directory, with these permissions less the umask 022.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkdir(
    fs: Option<&MountedFs>,
    path: *const c_char,
    mode: u32,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { at(fs, path, |fs, path| fs.create_dir_with_mode(path, mode)) }
}

/// Removes an empty directory.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rmdir(fs: Option<&MountedFs>, path: *const c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { at(fs, path, |fs, path| fs.remove_dir(path)) }
}

/// Removes a name of anything but a directory.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_unlink(fs: Option<&MountedFs>, path: *const c_char) -> c_int {
    // SAFETY: the same contract.
    unsafe { at(fs, path, |fs, path| fs.remove_file(path)) }
}

/// Creates a device node, pipe, socket or empty file: the kind is in `mode`, as in mknod(2).
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mknod(
    fs: Option<&MountedFs>,
    path: *const c_char,
    mode: u32,
    rdev: u32,
) -> c_int {
    let [low, high, ..] = mode.to_le_bytes();
    let bits = u16::from_le_bytes([low, high]);
    let kind = match bits & 0o170_000 {
        0 => Some(FileKind::Regular),
        _ => FileKind::from_mode(bits),
    };
    let make = |fs: &Filesystem, path: &Path| {
        let kind = kind.ok_or(extant::Error::Invalid)?;
        fs.make_node(path, kind, mode, rdev)
    };
    // SAFETY: the same contract.
    unsafe { at(fs, path, make) }
}

/// Moves `from` to `to`, by the flags of renameat2(2).
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_rename(
    fs: Option<&MountedFs>,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null or strings, by the contract of this crate.
        let (from, to) = unsafe { (arguments::path(from)?, arguments::path(to)?) };
        let flags = RenameFlags::from_bits(flags)
            .ok_or_else(|| Failure::invalid(format!("rename: flags {flags:#x}: not known")))?;
        fs.fs.rename_with(from, to, flags)?;
        Ok(0)
    })
}

/// Gives `original` another name; a symbolic link is not followed.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_link(
    fs: Option<&MountedFs>,
    original: *const c_char,
    link: *const c_char,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null or strings, by the contract of this crate.
        let (original, link) = unsafe { (arguments::path(original)?, arguments::path(link)?) };
        fs.fs.hard_link(original, link)?;
        Ok(0)
    })
}

/// Creates a symbolic link at `link` with the target `target`.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_symlink(
    fs: Option<&MountedFs>,
    target: *const c_char,
    link: *const c_char,
) -> c_int {
    on(fs, |fs| {
        // SAFETY: null or strings, by the contract of this crate.
        let (target, link) = unsafe {
            (
                arguments::text(target, "the target")?,
                arguments::path(link)?,
            )
        };
        fs.fs.symlink(OsStr::from_bytes(target), link)?;
        Ok(0)
    })
}

/// Copies the target of a symbolic link, without a NUL, and returns its length; with `size` 0 only
/// the length.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readlink(
    fs: Option<&MountedFs>,
    path: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> isize {
    on(fs, |fs| {
        // SAFETY: null or a string, by the contract of this crate.
        let path = unsafe { arguments::path(path) }?;
        let target = fs.fs.read_link(path)?;
        // SAFETY: null or `size` bytes, by the contract of this crate.
        unsafe { arguments::put_value(target.as_os_str().as_bytes(), buf.cast(), size) }
    })
}
