//! An image's side of a copy.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::{
    DataBudget, Error, FileKind, Filesystem, Ino, Node, SeekTarget, SetAttr, SetTime, XattrMode,
};

use super::sides::{
    Attributes, Change, Dir, FileTree, First, Found, Id, Item, Names, Source, Target, Xattr,
};
use crate::failure::Failure;
use crate::names;
use crate::operand::ImagePath;

/// Files inside of an image.
pub(crate) struct Inside<'a> {
    fs: &'a Filesystem,
    image: PathBuf,
}

impl<'a> Inside<'a> {
    /// The file system in `image`.
    pub(crate) fn new(fs: &'a Filesystem, image: &Path) -> Inside<'a> {
        Inside {
            fs,
            image: image.to_owned(),
        }
    }
}

impl<'a> FileTree<'a> for Inside<'a> {
    fn show(&self, path: &Path) -> String {
        let at = ImagePath {
            image: self.image.clone(),
            path: path.to_owned(),
        };
        at.to_string()
    }

    fn budget(&self) -> Result<DataBudget, Failure> {
        Ok(DataBudget::of(self.fs.volume())?)
    }

    fn live(&self) -> bool {
        false
    }

    fn item(&self, path: &Path, follow: bool) -> Result<Option<Found<'a>>, Failure> {
        match self.fs.node(path, follow) {
            Err(Error::NotFound) => Ok(None),
            other => Ok(Some(File::found(self.fs, other?)?)),
        }
    }

    fn parent(&self, path: &Path) -> Result<(Rc<dyn Dir<'a> + 'a>, OsString), Failure> {
        let name = path.file_name().ok_or(Error::NotFound)?;
        let above = path.parent().unwrap_or(Path::new("/"));
        let dir = match self.fs.node(above, true) {
            Err(Error::NotFound) => {
                let above = self.show(above);
                let what = format!("its directory is missing: extant mkdir -p {above} makes it");
                return Err(what.into());
            }
            found => found?,
        };
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDir.into());
        }
        let dir = File::new(self.fs, dir)?;
        Ok((Rc::new(dir), name.to_owned()))
    }
}

/// A file of the image, of any kind: what it is does not change.
struct File<'a> {
    fs: &'a Filesystem,
    node: Node,
    attributes: Attributes,
}

impl<'a> File<'a> {
    fn new(fs: &'a Filesystem, node: Node) -> Result<File<'a>, Failure> {
        let attributes = attributes(&fs.volume().getattr(&node)?);
        Ok(File {
            fs,
            node,
            attributes,
        })
    }

    fn found(fs: &'a Filesystem, node: Node) -> Result<Found<'a>, Failure> {
        Ok(Box::new(File::new(fs, node)?))
    }

    /// The same file, for another purpose.
    fn again(&self) -> File<'a> {
        File {
            fs: self.fs,
            node: self.node.clone(),
            attributes: self.attributes.clone(),
        }
    }

    fn set(&self, changes: &SetAttr) -> Result<(), Failure> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        volume.setattr(&self.node, changes, cred)?;
        Ok(())
    }

    fn check_regular(&self) -> Result<(), Failure> {
        match self.attributes.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::IsDir.into()),
            _ => Err(Error::NotSupported("opening anything but a regular file").into()),
        }
    }

    fn all_xattrs(&self) -> Result<Vec<Xattr>, Failure> {
        let volume = self.fs.volume();
        let mut xattrs = Vec::new();
        for name in volume.listxattr(&self.node)? {
            let value = volume.getxattr(&self.node, &name)?;
            xattrs.push((name, value));
        }
        Ok(xattrs)
    }
}

impl Source for File<'_> {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure> {
        Ok(self.fs.volume().read(&self.node, pos, buf)?)
    }

    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure> {
        let volume = self.fs.volume();
        let start = match volume.seek(&self.node, SeekTarget::Data(pos)) {
            Err(Error::NoSuchAddress) => return Ok(None),
            other => other?,
        };
        let end = volume.seek(&self.node, SeekTarget::Hole(start))?;
        Ok(Some((start, end)))
    }

    fn len(&self) -> Result<u64, Failure> {
        Ok(self.fs.volume().getattr(&self.node)?.size)
    }
}

impl Target for File<'_> {
    fn write_at(&self, data: &[u8], pos: u64) -> Result<(), Failure> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let len = volume.write(&self.node, pos + done as u64, rest, cred)?;
            if len == 0 {
                return Err(Error::NoSpace.into());
            }
            done += len;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Failure> {
        self.set(&SetAttr {
            size: Some(len),
            ..SetAttr::default()
        })
    }

    fn change(&self) -> Option<&dyn Change> {
        Some(self)
    }
}

impl Change for File<'_> {
    fn id(&self) -> Id {
        self.attributes.id
    }

    fn set_owner(&self, like: &Attributes) -> Result<bool, Failure> {
        self.set(&SetAttr {
            uid: Some(like.uid),
            gid: Some(like.gid),
            ..SetAttr::default()
        })?;
        Ok(true)
    }

    fn set_perm(&self, perm: u16) -> Result<(), Failure> {
        self.set(&SetAttr {
            perm: Some(perm),
            ..SetAttr::default()
        })
    }

    fn set_times(&self, like: &Attributes) -> Result<(), Failure> {
        self.set(&SetAttr {
            atime: Some(SetTime::At(like.atime)),
            mtime: Some(SetTime::At(like.mtime)),
            ..SetAttr::default()
        })
    }

    fn set_xattr(&self, (name, value): &Xattr) -> Result<Option<String>, Failure> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        match volume.setxattr(&self.node, name, value, XattrMode::Either, cred) {
            Ok(()) => Ok(None),
            Err(error @ Error::NotSupported(_)) => Ok(Some(error.to_string())),
            Err(error) => Err(Failure::at(String::from_utf8_lossy(name), error)),
        }
    }

    fn drop_xattr(&self, name: &str) {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        // Not there: nothing to do.
        let _ = volume.removexattr(&self.node, name.as_bytes(), cred);
    }
}

impl<'a> Item<'a> for File<'a> {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn read_link(&self) -> Result<PathBuf, Failure> {
        let says = self.fs.volume().readlink(&self.node)?;
        Ok(OsString::from_vec(says).into())
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Failure> {
        self.all_xattrs()
    }

    fn open(&self) -> Result<Box<dyn Source + 'a>, Failure> {
        self.check_regular()?;
        Ok(Box::new(self.again()))
    }

    fn enter(&self) -> Result<Rc<dyn Dir<'a> + 'a>, Failure> {
        Ok(Rc::new(self.again()))
    }

    fn rewrite(&self) -> Result<Box<dyn Target + 'a>, Failure> {
        self.check_regular()?;
        self.set_len(0)?;
        Ok(Box::new(self.again()))
    }

    fn open_device(&self) -> Result<Box<dyn Target + 'a>, Failure> {
        Err(Error::NoDevice.into())
    }

    fn change(&self) -> &dyn Change {
        self
    }
}

impl<'a> Dir<'a> for File<'a> {
    fn names(&self) -> Result<Names, Failure> {
        let names = names::DirNames::of(self.fs, self.node.clone())?;
        Ok(Box::new(names.map(|name| Ok(name?))))
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Failure> {
        self.all_xattrs()
    }

    fn find(&self, name: &OsStr) -> Result<Option<Found<'a>>, Failure> {
        match self.fs.volume().lookup(&self.node, name.as_bytes()) {
            Err(Error::NotFound) => Ok(None),
            other => Ok(Some(File::found(self.fs, other?)?)),
        }
    }

    fn create(&self, name: &OsStr, perm: u16) -> Result<Box<dyn Target + 'a>, Failure> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let node = volume.create(&self.node, name.as_bytes(), perm, cred)?;
        Ok(Box::new(File::new(self.fs, node)?))
    }

    fn mkdir(&self, name: &OsStr, perm: u16) -> Result<Rc<dyn Dir<'a> + 'a>, Failure> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let node = volume.mkdir(&self.node, name.as_bytes(), perm, cred)?;
        Ok(Rc::new(File::new(self.fs, node)?))
    }

    fn symlink(&self, name: &OsStr, says: &Path) -> Result<Found<'a>, Failure> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let says = says.as_os_str().as_bytes();
        let node = volume.symlink(&self.node, name.as_bytes(), says, cred)?;
        File::found(self.fs, node)
    }

    fn make_node(&self, name: &OsStr, like: &Attributes, perm: u16) -> Result<Found<'a>, Failure> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let (name, dir) = (name.as_bytes(), &self.node);
        let node = volume.mknod(dir, name, like.kind, perm, like.rdev, cred)?;
        File::found(self.fs, node)
    }

    fn hard_link(&self, name: &OsStr, first: &First) -> Result<(), Failure> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let ino = u32::try_from(first.id.inode).ok().and_then(Ino::new);
        let original = volume.node(ino.ok_or(Error::Stale)?)?;
        Ok(volume.link(&original, &self.node, name.as_bytes(), cred)?)
    }

    fn remove(&self, name: &OsStr) -> Result<(), Failure> {
        let volume = self.fs.volume();
        Ok(volume.unlink(&self.node, name.as_bytes())?)
    }

    fn park(&self) {}

    fn restore_parent(&self) -> Result<(), Failure> {
        Ok(())
    }
}

fn attributes(attr: &extant::Attr) -> Attributes {
    Attributes {
        kind: attr.kind,
        perm: attr.perm,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        links: match attr.kind {
            FileKind::Directory => 1,
            _ => u64::from(attr.nlink),
        },
        rdev: attr.rdev,
        atime: attr.atime,
        mtime: attr.mtime,
        id: Id {
            device: 0,
            inode: u64::from(attr.ino.get()),
        },
    }
}
