//! What was found on the host: held by a descriptor, and opened again for its content.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::FileKind;
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use super::dir::{HostDir, Shared};
use super::handle::{Handle, attributes};
use super::{directory, replaced, stdin};
use crate::copy::sides::{Attributes, Change, Dir, Item, Source, Target, Xattr};
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
            // Without /proc, only what can be opened tells its attributes.
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
        let len = file.metadata()?.len();
        Ok(Box::new(Open {
            handle: Handle::new(file)?,
            len,
        }))
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
        let file = self.reopen(OFlags::WRONLY | OFlags::NONBLOCK)?;
        let metadata = file.metadata()?;
        self.images.spare(Path::new(""), &metadata)?;
        if metadata.len() > 0 {
            file.set_len(0)?;
        }
        Ok(Box::new(Open::created(file)?))
    }

    fn open_device(&self) -> Result<Box<dyn Target + 'a>, Failure> {
        let file = self.reopen(OFlags::WRONLY)?;
        self.images.spare(Path::new(""), &file.metadata()?)?;
        Ok(Box::new(Stream::new(file)))
    }

    fn change(&self) -> &dyn Change {
        &self.handle
    }
}

/// An open regular file.
pub(super) struct Open {
    handle: Handle,
    len: u64,
}

impl Open {
    /// A file that is empty.
    pub(super) fn created(file: File) -> Result<Open, Failure> {
        Ok(Open {
            handle: Handle::new(file)?,
            len: 0,
        })
    }
}

impl Source for Open {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure> {
        Ok(self.handle.file.read_at(buf, pos)?)
    }

    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure> {
        use rustix::fs::SeekFrom::{Data, Hole};
        let file = &self.handle.file;
        let found = rustix::fs::seek(file, Data(pos))
            .and_then(|start| Ok((start, rustix::fs::seek(file, Hole(start))?)));
        match found {
            Ok(range) => Ok(Some(range)),
            Err(Errno::NXIO) => Ok(None),
            // Not a file that knows its holes.
            Err(Errno::INVAL | Errno::SPIPE | Errno::OPNOTSUPP) => {
                Ok((pos < self.len).then_some((pos, self.len)))
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Target for Open {
    fn write_at(&self, data: &[u8], pos: u64) -> Result<(), Failure> {
        Ok(self.handle.file.write_all_at(data, pos)?)
    }

    fn set_len(&self, len: u64) -> Result<(), Failure> {
        Ok(self.handle.file.set_len(len)?)
    }

    fn change(&self) -> Option<&dyn Change> {
        Some(&self.handle)
    }
}
