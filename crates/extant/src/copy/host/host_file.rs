//! Files of the host: each has a descriptor, and is opened again for its content.
//!
//! # Invariants
//! A directory keeps its identity (device and inode number). Its descriptor may be closed and
//! fetched again as the `..` of a directory in it; what is found there must have that identity.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use extant_blockdev::{open_exclusively, refuse_file_in_use};
use extant_engine::{Error, FileKind};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, linkat, makedev, mkdirat, mknodat, openat, readlinkat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::attributes::{self, attributes};
use super::reach::{check, directory, pin, replaced};
use crate::copy::copy_error::CopyRefusal;
use crate::copy::copy_options::device_numbers;
use crate::copy::sides::{
    AnyFile, Attributes, FirstName, Found, Names, Sink, Source, TreeFile, UNKNOWN, Xattr,
};
use crate::copy::stream::Stream;

/// The way on which a file was found, to open it again.
#[derive(Clone)]
pub(super) enum Origin {
    /// A path that was named.
    Operand { path: PathBuf, follow: bool },
    /// A name in a directory.
    Below { dir: HostFile, name: OsString },
    /// An open file, which is read to its end.
    Stream,
}

/// A file that was found.
#[derive(Clone)]
pub(super) struct HostFile(Rc<FoundFile>);

struct FoundFile {
    attributes: Attributes,
    /// A descriptor, mostly of `O_PATH`. A directory has none while it is parked.
    file: RefCell<Option<Rc<File>>>,
    origin: Origin,
}

impl HostFile {
    /// `file` is the one at `origin`.
    pub(super) fn new(file: File, origin: Origin) -> io::Result<HostFile> {
        let mut attributes = attributes(&file)?;
        if matches!(origin, Origin::Stream) {
            // Only reads tell where it ends.
            attributes.size = 0;
        }
        Ok(HostFile(Rc::new(FoundFile {
            attributes,
            file: RefCell::new(Some(Rc::new(file))),
            origin,
        })))
    }

    /// The file of a name in this directory.
    fn below(&self, name: &OsStr, file: File) -> io::Result<HostFile> {
        let origin = Origin::Below {
            dir: self.clone(),
            name: name.to_owned(),
        };
        HostFile::new(file, origin)
    }

    /// The descriptor.
    fn descriptor(&self) -> io::Result<Rc<File>> {
        let file = self.0.file.borrow().clone();
        file.ok_or_else(|| io::Error::other("internal error: the directory is parked"))
    }

    /// Pins what has this name.
    fn pin(&self, name: &OsStr) -> io::Result<Option<File>> {
        check(name)?;
        pin(&*self.descriptor()?, Path::new(name), false)
    }

    /// Opens the file for its content.
    fn reopen(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let file = match &self.0.origin {
            Origin::Stream => return self.descriptor()?.try_clone(),
            Origin::Operand { path, follow } => {
                let link = if *follow {
                    OFlags::empty()
                } else {
                    OFlags::NOFOLLOW
                };
                openat(CWD, path, flags | link, Mode::empty())
            }
            Origin::Below { dir, name } => {
                let flags = flags | OFlags::NOFOLLOW;
                openat(&*dir.descriptor()?, name, flags, Mode::empty())
            }
        };
        let file = match file {
            // A link is there now.
            Err(Errno::LOOP) => return Err(replaced()),
            other => File::from(other?),
        };
        let (found, own) = (attributes(&file)?, &self.0.attributes);
        // Every other field may have changed since; the kind belongs to the inode.
        if found.id != own.id || found.kind != own.kind {
            return Err(replaced());
        }
        Ok(file)
    }

    fn is_regular(&self) -> bool {
        self.0.attributes.kind == FileKind::Regular && !matches!(self.0.origin, Origin::Stream)
    }

    /// The new name in this directory, which a copy has just made as one of `kind`.
    fn made<'a>(&self, name: &OsStr, kind: FileKind) -> io::Result<Found<'a>> {
        let made = self.below(name, self.pin(name)?.ok_or_else(replaced)?)?;
        match made.0.attributes.kind == kind {
            true => Ok(Rc::new(made)),
            false => Err(replaced()),
        }
    }

    /// The directory that holds the first copy of a file, and its name there: step by step from the
    /// directory that an operand named, no link is followed.
    fn dir_of(&self, first: &FirstName) -> io::Result<(File, OsString)> {
        let mut top = self;
        while let Origin::Below { dir, .. } = &top.0.origin {
            top = dir;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = top.descriptor()?.try_clone()?;
        let mut names = first.path.components().peekable();
        while let Some(Component::Normal(name)) = names.next() {
            if names.peek().is_none() {
                return Ok((dir, name.to_owned()));
            }
            dir = openat(&dir, name, flags, Mode::empty())?.into();
        }
        Err(Errno::NOENT.into())
    }
}

/// Refuses to write or remove what another process or Linux uses.
fn check_unused(file: &File) -> io::Result<()> {
    let used = refuse_file_in_use(file, Path::new(""));
    Ok(used.map_err(Error::from)?)
}

impl Source for HostFile {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        self.descriptor()?.read_at(buf, pos)
    }

    fn next_data(&self, pos: u64) -> io::Result<Option<(u64, u64)>> {
        use rustix::fs::SeekFrom::{Data, Hole};
        let (file, len) = (self.descriptor()?, self.0.attributes.size);
        if len == 0 {
            // Of a file of `/proc` only reads tell where it ends.
            return Ok(Some((pos, UNKNOWN)));
        }
        let found = rustix::fs::seek(&*file, Data(pos))
            .and_then(|start| Ok((start, rustix::fs::seek(&*file, Hole(start))?)));
        match found {
            Ok(range) => Ok(Some(range)),
            Err(Errno::NXIO) => Ok(None),
            // Not a file that knows its holes.
            Err(Errno::INVAL | Errno::SPIPE | Errno::OPNOTSUPP) => {
                Ok((pos < len).then_some((pos, len)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn len_now(&self) -> io::Result<u64> {
        Ok(match self.0.attributes.size {
            0 => UNKNOWN,
            _ => self.descriptor()?.metadata()?.len(),
        })
    }
}

impl<'a> Sink<'a> for HostFile {
    fn write_at(&self, data: &[u8], pos: u64) -> io::Result<()> {
        self.descriptor()?.write_all_at(data, pos)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.descriptor()?.set_len(len)
    }

    fn file(&self) -> Option<&AnyFile<'a>> {
        Some(self)
    }
}

impl<'a> TreeFile<'a> for HostFile {
    fn attributes(&self) -> &Attributes {
        &self.0.attributes
    }

    fn read_link(&self) -> io::Result<PathBuf> {
        let target = readlinkat(&*self.descriptor()?, "", Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(target.into_bytes())))
    }

    fn xattrs(&self) -> io::Result<Vec<Xattr>> {
        match attributes::xattrs(&*self.descriptor()?) {
            // Without /proc, attributes can be read of open files alone.
            Err(_) if self.is_regular() => {
                attributes::xattrs(&self.reopen(OFlags::RDONLY | OFlags::NONBLOCK)?)
            }
            other => other,
        }
    }

    fn open(&self) -> io::Result<Box<dyn Source + 'a>> {
        if !self.is_regular() {
            // A pipe waits for its writer here.
            return Ok(Box::new(Stream::new(self.reopen(OFlags::RDONLY)?)));
        }
        let file = self.reopen(OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Box::new(HostFile::new(file, self.0.origin.clone())?))
    }

    fn enter(&self) -> io::Result<Found<'a>> {
        let file = directory(&*self.descriptor()?, Path::new("."), OFlags::empty())?;
        Ok(Rc::new(HostFile::new(file, self.0.origin.clone())?))
    }

    fn names(&self) -> io::Result<Names> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&*self.descriptor()?)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(OsString::from_vec(name));
            }
        }
        names.sort_unstable();
        Ok(Box::new(names.into_iter().map(Ok)))
    }

    fn find(&self, name: &OsStr) -> io::Result<Option<Found<'a>>> {
        Ok(match self.pin(name)? {
            Some(file) => Some(Rc::new(self.below(name, file)?)),
            None => None,
        })
    }

    fn park(&self) {
        // Something above has to lead back to the directory.
        if matches!(self.0.origin, Origin::Below { .. }) {
            self.0.file.take();
        }
    }

    fn restore_parent(&self) -> io::Result<()> {
        let Origin::Below { dir, .. } = &self.0.origin else {
            return Ok(());
        };
        if dir.descriptor().is_ok() {
            return Ok(());
        }
        let file = directory(&*self.descriptor()?, Path::new(".."), OFlags::empty())?;
        if attributes(&file)?.id != dir.0.attributes.id {
            return Err(CopyRefusal::Moved.into());
        }
        dir.0.file.replace(Some(Rc::new(file)));
        Ok(())
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<bool> {
        attributes::set_owner(&*self.descriptor()?, uid, gid)
    }

    fn set_perm(&self, perm: u16) -> io::Result<()> {
        attributes::set_perm(&*self.descriptor()?, perm)
    }

    fn set_times(&self, like: &Attributes) -> io::Result<()> {
        attributes::set_times(&*self.descriptor()?, like)
    }

    fn set_xattr(&self, xattr: &Xattr) -> io::Result<Option<String>> {
        match attributes::set_xattr(&*self.descriptor()?, xattr) {
            Ok(()) => Ok(None),
            Err(error) => match Errno::from_io_error(&error) {
                Some(why @ (Errno::PERM | Errno::OPNOTSUPP)) => Ok(Some(why.to_string())),
                _ => Err(error),
            },
        }
    }

    fn drop_xattr(&self, name: &str) {
        // Not there, or not for this process to remove: either way there is nothing to preserve.
        let _ = self
            .descriptor()
            .and_then(|file| attributes::drop_xattr(&file, name));
    }

    fn rewrite(&self) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        // One that cannot be read holds no image that this process could use.
        if let Ok(probe) = self.reopen(OFlags::RDONLY | OFlags::NONBLOCK) {
            check_unused(&probe)?;
        }
        let file = self.reopen(OFlags::WRONLY | OFlags::NONBLOCK)?;
        if file.metadata()?.len() > 0 {
            file.set_len(0)?;
        }
        Ok(Box::new(HostFile::new(file, self.0.origin.clone())?))
    }

    fn open_device(&self) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        let file = match self.0.attributes.kind {
            FileKind::BlockDevice => {
                let device = self.descriptor()?.metadata()?.rdev();
                let open = || self.reopen(OFlags::WRONLY | OFlags::EXCL);
                // The kernel refuses what is mounted.
                let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::ResourceBusy;
                let opened = open_exclusively(device, is_busy, open);
                opened.map_err(|(error, by)| match by {
                    Some(by) => Error::InUse { by: by.into() }.into(),
                    None => error,
                })?
            }
            _ => self.reopen(OFlags::WRONLY)?,
        };
        check_unused(&file)?;
        Ok(Box::new(Stream::new(file)))
    }

    fn create(&self, name: &OsStr, perm: u16) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        check(name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(u32::from(perm));
        let file = openat(&*self.descriptor()?, name, flags, mode)?;
        Ok(Box::new(self.below(name, file.into())?))
    }

    fn mkdir(&self, name: &OsStr, perm: u16) -> io::Result<Found<'a>> {
        check(name)?;
        let dir = self.descriptor()?;
        mkdirat(&*dir, name, Mode::from_raw_mode(u32::from(perm)))?;
        let Ok(file) = directory(&*dir, Path::new(name), OFlags::NOFOLLOW) else {
            return Err(replaced());
        };
        Ok(Rc::new(self.below(name, file)?))
    }

    fn symlink(&self, name: &OsStr, target: &Path) -> io::Result<Found<'a>> {
        check(name)?;
        symlinkat(target, &*self.descriptor()?, name)?;
        self.made(name, FileKind::Symlink)
    }

    fn make_node(&self, name: &OsStr, like: &Attributes, perm: u16) -> io::Result<Found<'a>> {
        check(name)?;
        let kind = FileType::from_raw_mode(u32::from(like.kind.mode_bits()));
        let mode = Mode::from_raw_mode(u32::from(perm));
        let (major, minor) = device_numbers(like.rdev);
        mknodat(
            &*self.descriptor()?,
            name,
            kind,
            mode,
            makedev(major, minor),
        )?;
        self.made(name, like.kind)
    }

    fn hard_link(&self, name: &OsStr, first: &FirstName) -> io::Result<()> {
        check(name)?;
        let (from, original) = self.dir_of(first)?;
        let is_first = |file: Option<File>| match file {
            Some(file) if attributes(&file)?.id == first.id => Ok(()),
            _ => Err(replaced()),
        };
        is_first(pin(&from, Path::new(&original), false)?)?;
        let dir = self.descriptor()?;
        linkat(&from, &original, &*dir, name, AtFlags::empty())?;
        let linked = is_first(self.pin(name)?);
        if linked.is_err() {
            unlinkat(&*dir, name, AtFlags::empty())?;
        }
        linked
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        let found = self.pin(name)?.ok_or(Errno::NOENT)?;
        let dir = self.descriptor()?;
        if found.metadata()?.is_file() {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if let Ok(probe) = openat(&*dir, name, flags, Mode::empty()) {
                check_unused(&File::from(probe))?;
            }
        }
        Ok(unlinkat(&*dir, name, AtFlags::empty())?)
    }
}
