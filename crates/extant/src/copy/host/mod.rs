//! The host's side of a copy.
//!
//! # Responsibility
//! [`HostTree`] opens what an operand names. [`host_file`] has what is found there and below,
//! [`reach`] the single steps to it, [`attributes`] the attributes of open files.
//!
//! # Invariants
//! Another user may rename anything in a tree that is copied, at any moment. So below an operand
//! each file is opened by one name in an open directory, without following a link, and what is
//! opened for content is the file that was found (device and inode number), or the copy of it
//! fails. Files are created with `O_EXCL`. Nothing outside of the operand's directory is reached.

mod attributes;
mod host_file;
mod reach;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{CWD, OFlags};
use rustix::io::Errno;

use super::sides::{FileTree, Found};
use host_file::{HostFile, Origin};
use reach::{directory, pin};

/// The files of the host.
#[derive(Debug)]
pub struct HostTree;

impl<'a> FileTree<'a> for HostTree {
    fn is_live(&self) -> bool {
        true
    }

    fn item(&self, path: &Path, follow: bool) -> io::Result<Option<Found<'a>>> {
        let Some(file) = pin(CWD, path, follow)? else {
            return Ok(None);
        };
        let origin = Origin::Operand {
            path: path.to_owned(),
            follow,
        };
        Ok(Some(Rc::new(HostFile::new(file, origin)?)))
    }

    fn parent(&self, path: &Path) -> io::Result<(Found<'a>, OsString)> {
        let name = path.file_name().ok_or(Errno::NOENT)?;
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let file = directory(CWD, &parent, OFlags::empty())?;
        let origin = Origin::Operand {
            path: parent,
            follow: true,
        };
        Ok((Rc::new(HostFile::new(file, origin)?), name.to_owned()))
    }
}

/// An open file of the host, which is read to its end, whatever path is asked for.
pub(super) struct OpenInput<'f>(pub(super) &'f std::fs::File);

impl<'a> FileTree<'a> for OpenInput<'_> {
    fn is_live(&self) -> bool {
        true
    }

    fn item(&self, _: &Path, _: bool) -> io::Result<Option<Found<'a>>> {
        let file = HostFile::new(self.0.try_clone()?, Origin::Stream)?;
        Ok(Some(Rc::new(file)))
    }
}
