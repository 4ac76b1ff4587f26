//! The host's side of a copy.
//!
//! # Responsibility
//! [`Host`] opens what an operand names. [`item`] has what is found there and below, [`dir`] the
//! directories by which it is reached, [`handle`] the attributes of open files.
//!
//! # Invariants
//! Another user may rename anything in a tree that is copied, at any moment. So below an operand
//! each file is opened by one name in an open directory, without following a link, and what is
//! opened for content is the file that was found (device and inode number), or the copy of it
//! fails. Files are created with `O_EXCL`. Nothing outside of the operand's directory is reached.

mod dir;
mod handle;
mod item;
mod open_file;
mod reach;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::DataBudget;
use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::sides::{Dir, FileTree, Found};
use crate::failure::Failure;
use crate::images::Images;
use dir::HostDir;
use item::{HostItem, Origin, Shared};
use reach::{directory, pin, stdin};

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

impl<'a> FileTree<'a> for Host<'a> {
    fn show(&self, path: &Path) -> String {
        path.display().to_string()
    }

    fn budget(&self) -> Result<DataBudget, Failure> {
        Ok(DataBudget::unbounded())
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
