//! A volume's side of a copy.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant_engine::{
    Attr, DataBudget, Error, FileKind, Node, SeekTarget, SetAttr, SetTime, XattrMode,
};
use extant_units::Ino;

use super::copy_error::CopyRefusal;
use super::sides::{
    AnyFile, Attributes, FileTree, FirstName, Found, Id, Names, Sink, Source, TreeFile, Xattr,
};
use crate::dir_names::DirNames;
use crate::filesystem::Filesystem;
use crate::walk_dir::Entered;

/// The files of a volume.
#[derive(Debug)]
pub struct VolumeTree<'a>(pub &'a Filesystem);

impl<'a> FileTree<'a> for VolumeTree<'a> {
    fn budget(&self) -> io::Result<DataBudget> {
        Ok(DataBudget::of(self.0.volume())?)
    }

    fn item(&self, path: &Path, follow: bool) -> io::Result<Option<Found<'a>>> {
        match self.0.node(path, follow) {
            Err(Error::NotFound) => Ok(None),
            other => Ok(Some(Rc::new(VolumeFile::new(self.0, other?)?))),
        }
    }

    fn parent(&self, path: &Path) -> io::Result<(Found<'a>, OsString)> {
        let name = path.file_name().ok_or(Error::NotFound)?;
        let above = path.parent().filter(|above| *above != Path::new(""));
        let above = above.unwrap_or(Path::new("/"));
        let dir = match self.0.node(above, true) {
            Err(Error::NotFound) => return Err(CopyRefusal::MissingParent.into()),
            found => found?,
        };
        if dir.kind() != FileKind::Directory {
            return Err(Error::NotDir.into());
        }
        let dir = VolumeFile::new(self.0, dir)?;
        Ok((Rc::new(dir), name.to_owned()))
    }
}

/// A file of the volume, of any kind: the kind does not change.
#[derive(Clone)]
struct VolumeFile<'a> {
    fs: &'a Filesystem,
    node: Node,
    attributes: Attributes,
    /// The directory that it was found in, and its name there.
    found_in: Option<(Node, OsString)>,
}

impl<'a> VolumeFile<'a> {
    fn new(fs: &'a Filesystem, node: Node) -> io::Result<VolumeFile<'a>> {
        let attributes = attributes(&fs.volume().getattr(&node)?);
        Ok(VolumeFile {
            fs,
            node,
            attributes,
            found_in: None,
        })
    }

    fn set(&self, changes: &SetAttr) -> io::Result<()> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        volume.setattr(&self.node, changes, cred)?;
        Ok(())
    }

    fn check_regular(&self) -> io::Result<()> {
        match self.attributes.kind {
            FileKind::Regular => Ok(()),
            FileKind::Directory => Err(Error::IsDir.into()),
            _ => Err(Error::NotSupported("opening anything but a regular file").into()),
        }
    }
}

impl Source for VolumeFile<'_> {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        Ok(self.fs.volume().read(&self.node, pos, buf)?)
    }

    fn next_data(&self, pos: u64) -> io::Result<Option<(u64, u64)>> {
        let volume = self.fs.volume();
        let start = match volume.seek(&self.node, SeekTarget::Data(pos)) {
            Err(Error::NoSuchAddress) => return Ok(None),
            other => other?,
        };
        let end = volume.seek(&self.node, SeekTarget::Hole(start))?;
        Ok(Some((start, end)))
    }

    fn len_now(&self) -> io::Result<u64> {
        Ok(self.fs.volume().getattr(&self.node)?.size)
    }
}

impl<'a> Sink<'a> for VolumeFile<'a> {
    fn write_at(&self, data: &[u8], pos: u64) -> io::Result<()> {
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

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.set(&SetAttr {
            size: Some(len),
            ..SetAttr::default()
        })
    }

    fn file(&self) -> Option<&AnyFile<'a>> {
        Some(self)
    }
}

impl<'a> TreeFile<'a> for VolumeFile<'a> {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn read_link(&self) -> io::Result<PathBuf> {
        let says = self.fs.volume().readlink(&self.node)?;
        Ok(OsString::from_vec(says).into())
    }

    fn xattrs(&self) -> io::Result<Vec<Xattr>> {
        let volume = self.fs.volume();
        let mut xattrs = Vec::new();
        for name in volume.listxattr(&self.node)? {
            let value = volume.getxattr(&self.node, &name)?;
            xattrs.push((name, value));
        }
        Ok(xattrs)
    }

    fn open(&self) -> io::Result<Box<dyn Source + 'a>> {
        self.check_regular()?;
        Ok(Box::new(self.clone()))
    }

    fn enter(&self) -> io::Result<Found<'a>> {
        Ok(Rc::new(self.clone()))
    }

    fn note(&self, entered: &mut Entered) -> io::Result<bool> {
        let found_in = self.found_in.as_ref();
        let found_in = found_in.map(|(dir, name)| (dir, name.as_bytes()));
        match entered.note(self.fs.volume(), self.node.ino(), found_in) {
            Err(Error::Corrupt { .. }) => Err(CopyRefusal::SecondName.into()),
            noted => Ok(noted?),
        }
    }

    fn set_owner(&self, uid: u32, gid: u32) -> io::Result<bool> {
        self.set(&SetAttr {
            uid: Some(uid),
            gid: Some(gid),
            ..SetAttr::default()
        })?;
        Ok(true)
    }

    fn set_perm(&self, perm: u16) -> io::Result<()> {
        self.set(&SetAttr {
            perm: Some(perm),
            ..SetAttr::default()
        })
    }

    fn set_times(&self, like: &Attributes) -> io::Result<()> {
        self.set(&SetAttr {
            atime: Some(SetTime::At(like.atime)),
            mtime: Some(SetTime::At(like.mtime)),
            ..SetAttr::default()
        })
    }

    fn set_xattr(&self, (name, value): &Xattr) -> io::Result<Option<String>> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        match volume.setxattr(&self.node, name, value, XattrMode::Either, cred) {
            Ok(()) => Ok(None),
            Err(error @ Error::NotSupported(_)) => Ok(Some(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn drop_xattr(&self, name: &str) {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        // Not there: nothing to do.
        let _ = volume.removexattr(&self.node, name.as_bytes(), cred);
    }

    fn rewrite(&self) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        self.check_regular()?;
        self.set_len(0)?;
        Ok(Box::new(self.clone()))
    }

    fn open_device(&self) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        Err(Error::NoDevice.into())
    }

    fn names(&self) -> io::Result<Names> {
        let names = DirNames::of(self.fs.volume(), self.node.clone())?;
        Ok(Box::new(names.map(|name| Ok(name?))))
    }

    fn find(&self, name: &OsStr) -> io::Result<Option<Found<'a>>> {
        match self.fs.volume().lookup(&self.node, name.as_bytes()) {
            Err(Error::NotFound) => Ok(None),
            other => {
                let mut file = VolumeFile::new(self.fs, other?)?;
                file.found_in = Some((self.node.clone(), name.to_owned()));
                Ok(Some(Rc::new(file)))
            }
        }
    }

    fn create(&self, name: &OsStr, perm: u16) -> io::Result<Box<dyn Sink<'a> + 'a>> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let node = volume.create(&self.node, name.as_bytes(), perm, cred)?;
        Ok(Box::new(VolumeFile::new(self.fs, node)?))
    }

    fn mkdir(&self, name: &OsStr, perm: u16) -> io::Result<Found<'a>> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let node = volume.mkdir(&self.node, name.as_bytes(), perm, cred)?;
        Ok(Rc::new(VolumeFile::new(self.fs, node)?))
    }

    fn symlink(&self, name: &OsStr, says: &Path) -> io::Result<Found<'a>> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let says = says.as_os_str().as_bytes();
        let node = volume.symlink(&self.node, name.as_bytes(), says, cred)?;
        Ok(Rc::new(VolumeFile::new(self.fs, node)?))
    }

    fn make_node(&self, name: &OsStr, like: &Attributes, perm: u16) -> io::Result<Found<'a>> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let (name, dir) = (name.as_bytes(), &self.node);
        let node = volume.mknod(dir, name, like.kind, perm, like.rdev, cred)?;
        Ok(Rc::new(VolumeFile::new(self.fs, node)?))
    }

    fn hard_link(&self, name: &OsStr, first: &FirstName) -> io::Result<()> {
        let (volume, cred) = (self.fs.volume(), self.fs.cred());
        let ino = u32::try_from(first.id.inode).ok().and_then(Ino::new);
        let original = volume.node(ino.ok_or(Error::Stale)?)?;
        Ok(volume.link(&original, &self.node, name.as_bytes(), cred)?)
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        let volume = self.fs.volume();
        Ok(volume.unlink(&self.node, name.as_bytes())?)
    }
}

fn attributes(attr: &Attr) -> Attributes {
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
