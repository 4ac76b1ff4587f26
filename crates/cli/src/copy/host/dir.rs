//! Open directories of the host.
//!
//! # Invariants
//! A directory keeps its identity (device and inode number). Its descriptor may be closed and
//! fetched again as the `..` of a directory in it; what is found there must have that identity.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::rc::Rc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use super::handle::Handle;
use super::reach::{directory, pin};
use crate::copy::sides::{First, Id};
use crate::failure::Failure;
use crate::images::Images;

/// An open directory.
pub(super) struct HostDir<'a> {
    pub(super) images: &'a Images,
    pub(super) id: Id,
    /// Missing while it is parked.
    handle: RefCell<Option<Rc<Handle>>>,
    /// The directory above; none for the one that an operand named.
    parent: Option<Rc<HostDir<'a>>>,
    /// The one that an operand named, for all others.
    top: Option<Rc<HostDir<'a>>>,
}

impl<'a> HostDir<'a> {
    /// A directory that was named.
    pub(super) fn top(images: &'a Images, file: File) -> Result<Rc<HostDir<'a>>, Failure> {
        let handle = Handle::new(file)?;
        Ok(Rc::new(HostDir {
            images,
            id: handle.id,
            handle: RefCell::new(Some(Rc::new(handle))),
            parent: None,
            top: None,
        }))
    }

    /// A directory in `parent`.
    pub(super) fn below(parent: &Rc<HostDir<'a>>, file: File) -> Result<Rc<HostDir<'a>>, Failure> {
        let handle = Handle::new(file)?;
        Ok(Rc::new(HostDir {
            images: parent.images,
            id: handle.id,
            handle: RefCell::new(Some(Rc::new(handle))),
            parent: Some(Rc::clone(parent)),
            top: Some(Rc::clone(parent.top.as_ref().unwrap_or(parent))),
        }))
    }

    /// The open directory.
    pub(super) fn handle(&self) -> Result<Rc<Handle>, Failure> {
        let handle = self.handle.borrow().clone();
        handle.ok_or_else(|| Failure::new("internal error: the directory is parked"))
    }

    /// Takes hold of what has this name.
    pub(super) fn hold(&self, name: &OsStr) -> Result<Option<File>, Failure> {
        check(name)?;
        pin(&self.handle()?.file, Path::new(name), false)
    }

    /// The directory that holds the first copy of a file, and its name there: step by step, no link
    /// is followed.
    pub(super) fn holder(&self, first: &First) -> Result<(File, OsString), Failure> {
        let top = self.top.as_deref().unwrap_or(self);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = top.handle()?.file.try_clone()?;
        let mut names = first.path.components().peekable();
        while let Some(Component::Normal(name)) = names.next() {
            if names.peek().is_none() {
                return Ok((dir, name.to_owned()));
            }
            dir = openat(&dir, name, flags, Mode::empty())?.into();
        }
        Err(Errno::NOENT.into())
    }

    /// Closes the descriptor, unless nothing above would lead back to the directory.
    pub(super) fn park(&self) {
        if self.parent.is_some() {
            self.handle.take();
        }
    }

    /// Opens the directory above again, if it is parked.
    pub(super) fn restore_parent(&self) -> Result<(), Failure> {
        let Some(parent) = &self.parent else {
            return Ok(());
        };
        if parent.handle.borrow().is_some() {
            return Ok(());
        }
        let file = directory(&self.handle()?.file, Path::new(".."), OFlags::empty())?;
        let handle = Handle::new(file)?;
        if handle.id != parent.id {
            return Err(Failure::new("moved while it was being copied"));
        }
        parent.handle.replace(Some(Rc::new(handle)));
        Ok(())
    }
}

/// Fails unless `name` is one component of a path that leads down.
pub(super) fn check(name: &OsStr) -> Result<(), Failure> {
    let bytes = name.as_bytes();
    let leads_down = !matches!(bytes, b"" | b"." | b"..");
    if leads_down && !bytes.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Ok(());
    }
    Err(Failure::new("a name that no file can have"))
}
