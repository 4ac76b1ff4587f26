//! Items of the host: each is held by a descriptor, and opened again for its content. A directory
//! is entered as one, and finds the items in it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::FileKind;
use extant::device::{open_exclusively, refuse_file_in_use};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, linkat, makedev, mkdirat, mknodat, openat, readlinkat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::dir::{HostDir, check};
use super::handle::{Handle, attributes};
use super::open_file::OpenFile;
use super::reach::{directory, pin, replaced, stdin};
use crate::copy::sides::{
    Attributes, Change, Dir, First, Found, Id, Item, Names, Source, Target, Xattr,
};
use crate::copy::stream::Stream;
use crate::failure::Failure;
use crate::images::Images;

/// Where a file was found, to open it again.
pub(super) enum Origin<'a> {
    /// At a path that was named.
    Operand { path: PathBuf, follow: bool },
    /// By a name in a directory.
    Below { dir: Rc<HostDir<'a>>, name: PathBuf },
    /// It is standard input.
    Stdin,
}

/// A file that was found.
pub(super) struct HostItem<'a> {
    images: &'a Images,
    handle: Handle,
    attributes: Attributes,
    origin: Origin<'a>,
}

impl<'a> HostItem<'a> {
    /// `file` holds what is at `origin`.
    pub(super) fn new(images: &'a Images, file: File, origin: Origin<'a>) -> Result<Self, Failure> {
        let attributes = attributes(&file)?;
        let id = attributes.id;
        Ok(HostItem {
            images,
            handle: Handle { file, id },
            attributes,
            origin,
        })
    }

    /// Opens the file for its content.
    fn reopen(&self, flags: OFlags) -> Result<File, Failure> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = match &self.origin {
            Origin::Stdin => return Ok(stdin()?),
            Origin::Operand { path, follow } => {
                let link = if *follow {
                    OFlags::empty()
                } else {
                    OFlags::NOFOLLOW
                };
                openat(CWD, path, flags | link, Mode::empty())
            }
            Origin::Below { dir, name } => {
                let dir = dir.handle()?;
                openat(&dir.file, name, flags | OFlags::NOFOLLOW, Mode::empty())
            }
        };
        let file = match file {
            // A link is there now.
            Err(Errno::LOOP) => return Err(replaced()),
            other => File::from(other?),
        };
        let found = attributes(&file)?;
        // Every other field may have changed since; the kind belongs to the inode.
        if found.id != self.attributes.id || found.kind != self.attributes.kind {
            return Err(replaced());
        }
        Ok(file)
    }

    fn is_regular(&self) -> bool {
        self.attributes.kind == FileKind::Regular && !matches!(self.origin, Origin::Stdin)
    }
}

impl<'a> Item<'a> for HostItem<'a> {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn read_link(&self) -> Result<PathBuf, Failure> {
        let says = readlinkat(&self.handle.file, "", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(says.into_bytes())))
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Failure> {
        match self.handle.xattrs() {
            // Without /proc, attributes can be read of open files alone.
            Err(_) if self.is_regular() => {
                let file = self.reopen(OFlags::RDONLY | OFlags::NONBLOCK)?;
                Handle::new(file)?.xattrs()
            }
            other => other,
        }
    }

    fn open(&self) -> Result<Box<dyn Source + 'a>, Failure> {
        if !self.is_regular() {
            // A pipe waits for its writer here.
            return Ok(Box::new(Stream::new(self.reopen(OFlags::RDONLY)?)));
        }
        let file = self.reopen(OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Box::new(OpenFile::new(file)?))
    }

    fn enter(&self) -> Result<Rc<dyn Dir<'a> + 'a>, Failure> {
        let file = directory(&self.handle.file, Path::new("."), OFlags::empty())?;
        let dir = match &self.origin {
            Origin::Below { dir, .. } => HostDir::below(dir, file)?,
            Origin::Operand { .. } | Origin::Stdin => HostDir::top(self.images, file)?,
        };
        Ok(Rc::new(Shared(dir)))
    }

    fn rewrite(&self) -> Result<Box<dyn Target + 'a>, Failure> {
        let own = self.handle.file.metadata()?;
        self.images.spare(Path::new(""), &own)?;
        // One that cannot be read holds no image that this process could use.
        if let Ok(probe) = self.reopen(OFlags::RDONLY | OFlags::NONBLOCK) {
            check_unused(&probe)?;
        }
        let file = self.reopen(OFlags::WRONLY | OFlags::NONBLOCK)?;
        let metadata = file.metadata()?;
        if metadata.len() > 0 {
            file.set_len(0)?;
        }
        Ok(Box::new(OpenFile::new(file)?))
    }

    fn open_device(&self) -> Result<Box<dyn Target + 'a>, Failure> {
        let file = match self.attributes.kind {
            FileKind::BlockDevice => {
                let device = self.handle.file.metadata()?.rdev();
                let open = || self.reopen(OFlags::WRONLY | OFlags::EXCL);
                // The kernel refuses what is mounted.
                let opened = open_exclusively(device, Failure::is_busy, open);
                opened.map_err(|(failure, by)| match by {
                    Some(by) => extant::Error::InUse { by: by.into() }.into(),
                    None => failure,
                })?
            }
            _ => self.reopen(OFlags::WRONLY)?,
        };
        self.images.spare(Path::new(""), &file.metadata()?)?;
        check_unused(&file)?;
        Ok(Box::new(Stream::new(file)))
    }

    fn change(&self) -> &dyn Change {
        &self.handle
    }
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
        file.map(|file| found(&self.0, name, file)).transpose()
    }

    fn create(&self, name: &OsStr, perm: u16) -> Result<Box<dyn Target + 'a>, Failure> {
        check(name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(u32::from(perm));
        let file = openat(&self.0.handle()?.file, name, flags, mode)?;
        Ok(Box::new(OpenFile::new(file.into())?))
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
        made(&self.0, name, FileKind::Symlink)
    }

    fn make_node(&self, name: &OsStr, like: &Attributes, perm: u16) -> Result<Found<'a>, Failure> {
        check(name)?;
        let kind = FileType::from_raw_mode(u32::from(like.kind.mode_bits()));
        let (high, low) = crate::output::device_numbers(like.rdev);
        let mode = Mode::from_raw_mode(u32::from(perm));
        mknodat(&self.0.handle()?.file, name, kind, mode, makedev(high, low))?;
        made(&self.0, name, like.kind)
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
        let found = file.metadata()?;
        self.0.images.spare(Path::new(""), &found)?;
        let dir = self.0.handle()?;
        if found.is_file() {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(probe) = openat(&dir.file, name, flags, Mode::empty()) {
                check_unused(&File::from(probe))?;
            }
        }
        Ok(unlinkat(&dir.file, name, AtFlags::empty())?)
    }

    fn park(&self) {
        self.0.park();
    }

    fn restore_parent(&self) -> Result<(), Failure> {
        self.0.restore_parent()
    }
}

/// Refuses to write or remove what another process or Linux uses.
fn check_unused(file: &File) -> Result<(), Failure> {
    let used = refuse_file_in_use(file, Path::new(""));
    Ok(used.map_err(extant::Error::from)?)
}

/// The item at `name` in `dir`, which a copy has just made as one of `kind`.
fn made<'a>(dir: &Rc<HostDir<'a>>, name: &OsStr, kind: FileKind) -> Result<Found<'a>, Failure> {
    let file = dir.hold(name)?.ok_or_else(replaced)?;
    if attributes(&file)?.kind != kind {
        return Err(replaced());
    }
    found(dir, name, file)
}

fn found<'a>(dir: &Rc<HostDir<'a>>, name: &OsStr, file: File) -> Result<Found<'a>, Failure> {
    let origin = Origin::Below {
        dir: Rc::clone(dir),
        name: name.into(),
    };
    Ok(Box::new(HostItem::new(dir.images, file, origin)?))
}
