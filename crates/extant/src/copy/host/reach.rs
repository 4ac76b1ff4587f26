//! The ways to files of the host: by one step from an open directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::copy::copy_error::CopyRefusal;

/// Opens a path by `O_PATH`, whatever is there. `None` if there is nothing.
pub(super) fn pin(at: impl AsFd, path: &Path, follow: bool) -> io::Result<Option<File>> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if !follow {
        flags |= OFlags::NOFOLLOW;
    }
    match openat(at, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(None),
        other => Ok(Some(other?.into())),
    }
}

/// Opens a directory; one that may not be read only to reach what is in it.
pub(super) fn directory(at: impl AsFd, path: &Path, extra: OFlags) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | extra;
    match openat(&at, path, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => Ok(openat(&at, path, flags | OFlags::PATH, Mode::empty())?.into()),
        other => Ok(other?.into()),
    }
}

/// The error of a file that is not the one that was found before.
pub(super) fn replaced() -> io::Error {
    CopyRefusal::Replaced.into()
}

/// Fails unless `name` is one component of a path that leads down.
pub(super) fn check(name: &OsStr) -> io::Result<()> {
    let bytes = name.as_bytes();
    let leads_down = !matches!(bytes, b"" | b"." | b"..");
    if leads_down && !bytes.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Ok(());
    }
    Err(CopyRefusal::BadName.into())
}
