//! An image's side of a copy.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extant::{
    Error, File, FileKind, FileTimes, Filesystem, Metadata, Permissions, SeekTarget, SetAttr,
};

use super::tree::{Attributes, Id, Source, Target, Tree, Xattr};
use crate::failure::{At, Failure};
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

    fn at(&self, path: &Path) -> ImagePath {
        ImagePath {
            image: self.image.clone(),
            path: path.to_owned(),
        }
    }
}

/// An open file.
struct Open {
    file: File,
    at: ImagePath,
}

impl Source for Open {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure> {
        self.file.read_at(buf, pos).at(&self.at)
    }

    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure> {
        let start = match self.file.find(SeekTarget::Data(pos)) {
            Err(Error::NoSuchAddress) => return Ok(None),
            other => other.at(&self.at)?,
        };
        let end = self.file.find(SeekTarget::Hole(start)).at(&self.at)?;
        Ok(Some((start, end)))
    }
}

impl Target for Open {
    fn write_at(&self, data: &[u8], pos: u64) -> Result<(), Failure> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let len = self.file.write_at(rest, pos + done as u64).at(&self.at)?;
            if len == 0 {
                return Err(Failure::at(&self.at, Error::NoSpace));
            }
            done += len;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Failure> {
        self.file.set_len(len).at(&self.at)
    }
}

impl Tree for Inside<'_> {
    fn show(&self, path: &Path) -> String {
        self.at(path).to_string()
    }

    fn attributes(&self, path: &Path, follow: bool) -> Result<Option<Attributes>, Failure> {
        let metadata = if follow {
            self.fs.metadata(path)
        } else {
            self.fs.symlink_metadata(path)
        };
        match metadata {
            Err(Error::NotFound) => Ok(None),
            other => other
                .at(self.at(path))
                .map(|metadata| Some(attributes(&metadata))),
        }
    }

    fn names(&self, dir: &Path) -> Result<Vec<OsString>, Failure> {
        crate::names::names(self.fs, dir).at(self.at(dir))
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf, Failure> {
        self.fs.read_link(path).at(self.at(path))
    }

    fn xattrs(&self, path: &Path) -> Result<Vec<Xattr>, Failure> {
        let mut xattrs = Vec::new();
        for name in self.fs.xattrs(path).at(self.at(path))? {
            let value = self.fs.xattr(path, &name).at(self.at(path))?;
            xattrs.push((name, value));
        }
        Ok(xattrs)
    }

    fn open(&self, path: &Path) -> Result<Box<dyn Source + '_>, Failure> {
        let file = self.fs.open_file(path).at(self.at(path))?;
        Ok(Box::new(Open {
            file,
            at: self.at(path),
        }))
    }

    fn create(&self, path: &Path, perm: u16) -> Result<Box<dyn Target + '_>, Failure> {
        let mut options = self.fs.open_options();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(u32::from(perm));
        let file = options.open(path).at(self.at(path))?;
        Ok(Box::new(Open {
            file,
            at: self.at(path),
        }))
    }

    fn open_device(&self, path: &Path) -> Result<Box<dyn Target + '_>, Failure> {
        Err(Failure::at(self.at(path), Error::NoDevice))
    }

    fn live(&self) -> bool {
        false
    }

    fn mkdir(&self, path: &Path, perm: u16) -> Result<(), Failure> {
        self.fs
            .create_dir_with_mode(path, u32::from(perm))
            .at(self.at(path))
    }

    fn symlink(&self, path: &Path, says: &Path) -> Result<(), Failure> {
        self.fs.symlink(says, path).at(self.at(path))
    }

    fn make_node(&self, path: &Path, like: &Attributes, perm: u16) -> Result<(), Failure> {
        self.fs
            .make_node(path, like.kind, u32::from(perm), like.rdev)
            .at(self.at(path))
    }

    fn hard_link(&self, original: &Path, path: &Path) -> Result<(), Failure> {
        self.fs.hard_link(original, path).at(self.at(path))
    }

    fn remove(&self, path: &Path) -> Result<(), Failure> {
        self.fs.remove_file(path).at(self.at(path))
    }

    fn set_owner(&self, path: &Path, like: &Attributes) -> Result<bool, Failure> {
        let changes = SetAttr {
            uid: Some(like.uid),
            gid: Some(like.gid),
            ..SetAttr::default()
        };
        self.fs
            .set_attributes(path, false, &changes)
            .at(self.at(path))
            .map(|()| true)
    }

    fn set_perm(&self, path: &Path, perm: u16) -> Result<(), Failure> {
        let permissions = Permissions::from_mode(u32::from(perm));
        self.fs.set_permissions(path, permissions).at(self.at(path))
    }

    fn set_times(&self, path: &Path, like: &Attributes) -> Result<(), Failure> {
        let times = FileTimes::new()
            .set_accessed(like.atime)
            .set_modified(like.mtime);
        self.fs
            .set_attributes(path, false, &times.into())
            .at(self.at(path))
    }

    fn set_xattr(&self, path: &Path, (name, value): &Xattr) -> Result<(), Failure> {
        let set = self.fs.set_xattr(path, name, value);
        let name = String::from_utf8_lossy(name);
        match set {
            Err(error @ Error::NotSupported(_)) => {
                tracing::warn!("{}: {name} is left out: {error}", self.at(path));
                Ok(())
            }
            other => other.at(format!("{}: {name}", self.at(path))),
        }
    }

    fn drop_xattr(&self, path: &Path, name: &str) {
        // Not there: nothing to do.
        let _ = self.fs.remove_xattr(path, name);
    }
}

fn attributes(metadata: &Metadata) -> Attributes {
    let attr = metadata.attr();
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
