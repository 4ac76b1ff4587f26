//! Open directories of the host.
//!
//! # Invariants
//! A directory keeps its identity (device and inode number). Its descriptor may be closed and
//! fetched again as the `..` of a directory in it; what is found there must have that identity.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path};
use std::rc::Rc;

use extant::FileKind;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, linkat, makedev, mkdirat, mknodat, openat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::handle::{Handle, attributes};
use super::item::{HostItem, Open, Origin};
use super::{directory, pin, replaced};
use crate::copy::sides::{Attributes, Change, Dir, First, Found, Id, Names, Target, Xattr};
use crate::failure::Failure;
use crate::images::Images;

/// An open directory.
pub(super) struct HostDir<'a> {
    images: &'a Images,
    id: Id,
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
    fn hold(&self, name: &OsStr) -> Result<Option<File>, Failure> {
        check(name)?;
        pin(&self.handle()?.file, Path::new(name), false)
    }

    /// The directory that holds the first copy of a file, and its name there: step by step, no link
    /// is followed.
    fn holder(&self, first: &First) -> Result<(File, OsString), Failure> {
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

    /// What was just made here: that of `kind`.
    fn made(self: &Rc<Self>, name: &OsStr, kind: FileKind) -> Result<Found<'a>, Failure> {
        let file = self.hold(name)?.ok_or_else(replaced)?;
        if attributes(&file)?.kind != kind {
            return Err(replaced());
        }
        self.found(name, file)
    }

    fn found(self: &Rc<Self>, name: &OsStr, file: File) -> Result<Found<'a>, Failure> {
        let origin = Origin::Below {
            dir: Rc::clone(self),
            name: name.into(),
        };
        Ok(Box::new(HostItem::new(self.images, file, origin)?))
    }
}

/// Fails unless `name` is one component of a path that leads down.
fn check(name: &OsStr) -> Result<(), Failure> {
    let bytes = name.as_bytes();
    let leads_down = !matches!(bytes, b"" | b"." | b"..");
    if leads_down && !bytes.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Ok(());
    }
    Err(Failure::new("a name that no file can have"))
}

/// The handle of a directory, shared by what was found in it.
pub(super) struct Shared<'a>(pub(super) Rc<HostDir<'a>>);

impl Change for Shared<'_> {
    fn id(&self) -> Id {
        self.0.id
    }

    fn set_owner(&self, like: &Attributes) -> Result<bool, Failure> {
        self.0.handle()?.set_owner(like)
    }

    fn set_perm(&self, perm: u16) -> Result<(), Failure> {
        self.0.handle()?.set_perm(perm)
    }

    fn set_times(&self, like: &Attributes) -> Result<(), Failure> {
        self.0.handle()?.set_times(like)
    }

    fn set_xattr(&self, xattr: &Xattr) -> Result<Option<String>, Failure> {
        self.0.handle()?.set_xattr(xattr)
    }

    fn drop_xattr(&self, name: &str) {
        if let Ok(handle) = self.0.handle() {
            handle.drop_xattr(name);
        }
    }
}

impl<'a> Dir<'a> for Shared<'a> {
    fn names(&self) -> Result<Names, Failure> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0.handle()?.file)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok(Box::new(names.into_iter().map(Ok)))
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Failure> {
        self.0.handle()?.xattrs()
    }

    fn find(&self, name: &OsStr) -> Result<Option<Found<'a>>, Failure> {
        let file = self.0.hold(name)?;
        file.map(|file| self.0.found(name, file)).transpose()
    }

    fn create(&self, name: &OsStr, perm: u16) -> Result<Box<dyn Target + 'a>, Failure> {
        check(name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(u32::from(perm));
        let file = openat(&self.0.handle()?.file, name, flags, mode)?;
        Ok(Box::new(Open::created(file.into())?))
    }

    fn mkdir(&self, name: &OsStr, perm: u16) -> Result<Rc<dyn Dir<'a> + 'a>, Failure> {
        check(name)?;
        let handle = self.0.handle()?;
        mkdirat(&handle.file, name, Mode::from_raw_mode(u32::from(perm)))?;
        let Ok(file) = directory(&handle.file, Path::new(name), OFlags::NOFOLLOW) else {
            return Err(replaced());
        };
        Ok(Rc::new(Shared(HostDir::below(&self.0, file)?)))
    }

    fn symlink(&self, name: &OsStr, says: &Path) -> Result<Found<'a>, Failure> {
        check(name)?;
        symlinkat(says, &self.0.handle()?.file, name)?;
        self.0.made(name, FileKind::Symlink)
    }

    fn make_node(&self, name: &OsStr, like: &Attributes, perm: u16) -> Result<Found<'a>, Failure> {
        check(name)?;
        let kind = FileType::from_raw_mode(u32::from(like.kind.mode_bits()));
        let (high, low) = crate::output::device_numbers(like.rdev);
        let mode = Mode::from_raw_mode(u32::from(perm));
        mknodat(&self.0.handle()?.file, name, kind, mode, makedev(high, low))?;
        self.0.made(name, like.kind)
    }

    fn hard_link(&self, name: &OsStr, first: &First) -> Result<(), Failure> {
        check(name)?;
        let (dir, original) = self.0.holder(first)?;
        let is_first = |file: Option<File>| match file {
            Some(file) if attributes(&file)?.id == first.id => Ok(()),
            _ => Err(replaced()),
        };
        is_first(pin(&dir, Path::new(&original), false)?)?;
        let handle = self.0.handle()?;
        linkat(&dir, &original, &handle.file, name, AtFlags::empty())?;
        let linked = is_first(self.0.hold(name)?);
        if linked.is_err() {
            unlinkat(&handle.file, name, AtFlags::empty())?;
        }
        linked
    }

    fn remove(&self, name: &OsStr) -> Result<(), Failure> {
        let file = self.0.hold(name)?.ok_or(Errno::NOENT)?;
        self.0.images.spare(Path::new(""), &file.metadata()?)?;
        Ok(unlinkat(&self.0.handle()?.file, name, AtFlags::empty())?)
    }

    fn park(&self) {
        // The one that was named has nothing above it that would lead back.
        if self.0.parent.is_some() {
            self.0.handle.take();
        }
    }

    fn restore_parent(&self) -> Result<(), Failure> {
        let Some(parent) = &self.0.parent else {
            return Ok(());
        };
        if parent.handle.borrow().is_some() {
            return Ok(());
        }
        let file = directory(&self.0.handle()?.file, Path::new(".."), OFlags::empty())?;
        let handle = Handle::new(file)?;
        if handle.id != parent.id {
            return Err(Failure::new("moved while it was being copied"));
        }
        parent.handle.replace(Some(Rc::new(handle)));
        Ok(())
    }
}
