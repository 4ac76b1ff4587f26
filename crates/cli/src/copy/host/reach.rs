//! How files of the host are reached: by one step from an open directory.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::failure::Failure;

/// Takes hold of what is at a path, whatever it is, without opening it. `None` if there is nothing.
pub(super) fn pin(at: impl AsFd, path: &Path, follow: bool) -> Result<Option<File>, Failure> {
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
pub(super) fn directory(at: impl AsFd, path: &Path, extra: OFlags) -> Result<File, Failure> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | extra;
    match openat(&at, path, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => Ok(openat(&at, path, flags | OFlags::PATH, Mode::empty())?.into()),
        other => Ok(other?.into()),
    }
}

/// Standard input, as a file of its own.
pub(super) fn stdin() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// The error of a file that is not the one that was found before.
pub(super) fn replaced() -> Failure {
    Failure::new("replaced while it was being copied")
}
