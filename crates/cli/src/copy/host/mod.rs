//! The host's side of a copy.
//!
//! # Responsibility
//! [`Host`] opens what an operand names. [`dir`] has the directories below that, [`item`] what is
//! found in them, [`handle`] the attributes of open files.
//!
//! # Invariants
//! Another user may rename anything in a tree that is copied, at any moment. So below an operand
//! each file is opened by one name in an open directory, without following a link, and what is
//! opened for content is the file that was found (device and inode number), or the copy of it
//! fails. Files are created with `O_EXCL`. Nothing outside of the operand's directory is reached.

mod dir;
mod handle;
mod item;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::sides::{Dir, Found, Tree};
use crate::failure::Failure;
use crate::images::Images;
use dir::{HostDir, Shared};
use item::{HostItem, Origin};

/// The name of standard input.
pub(crate) const STDIN: &str = "-";

/// Files of the host, but for the images that are open.
pub(crate) struct Host<'a> {
    images: &'a Images,
}

impl<'a> Host<'a> {
    /// The host; none of `images` is written to or removed.
    pub(crate) fn beside(images: &'a Images) -> Host<'a> {
        Host { images }
    }
}

impl<'a> Tree<'a> for Host<'a> {
    fn show(&self, path: &Path) -> String {
        path.display().to_string()
    }

    fn live(&self) -> bool {
        true
    }

    fn item(&self, path: &Path, follow: bool) -> Result<Option<Found<'a>>, Failure> {
        let (file, origin) = if path == Path::new(STDIN) {
            (stdin()?, Origin::Stdin)
        } else {
            let Some(file) = pin(CWD, path, follow)? else {
                return Ok(None);
            };
            let origin = Origin::Operand {
                path: path.to_owned(),
                follow,
            };
            (file, origin)
        };
        Ok(Some(Box::new(HostItem::new(self.images, file, origin)?)))
    }

    fn parent(&self, path: &Path) -> Result<(Rc<dyn Dir<'a> + 'a>, OsString), Failure> {
        let name = path.file_name().ok_or(Errno::NOENT)?;
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let file = directory(CWD, &parent, OFlags::empty())?;
        let dir = Shared(HostDir::top(self.images, file)?);
        Ok((Rc::new(dir), name.to_owned()))
    }
}

/// Takes hold of what is at a path, whatever it is, without opening it. `None` if there is nothing.
fn pin(at: impl AsFd, path: &Path, follow: bool) -> Result<Option<File>, Failure> {
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
fn directory(at: impl AsFd, path: &Path, extra: OFlags) -> Result<File, Failure> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | extra;
    match openat(&at, path, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => Ok(openat(&at, path, flags | OFlags::PATH, Mode::empty())?.into()),
        other => Ok(other?.into()),
    }
}

/// Standard input, as a file of its own.
fn stdin() -> io::Result<File> {
    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

/// What a file that was opened is not.
fn replaced() -> Failure {
    Failure::new("replaced while it was being copied")
}
