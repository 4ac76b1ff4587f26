//! An archive as a side of a comparison.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::DataBudget;

use super::archive::{Archive, Entry};
use crate::copy::{
    Attributes, Change, Dir, FileTree, First, Found, Id, Item, Names, Source, Target, Xattr,
};
use crate::failure::Failure;

impl<'a> FileTree<'a> for &'a Archive {
    fn show(&self, path: &Path) -> String {
        format!("{}:{}", Archive::path(self).display(), path.display())
    }

    fn budget(&self) -> Result<DataBudget, Failure> {
        Ok(DataBudget::unbounded())
    }

    fn live(&self) -> bool {
        false
    }

    fn item(&self, _: &Path, _: bool) -> Result<Option<Found<'a>>, Failure> {
        let archive: &'a Archive = self;
        Ok(Some(Box::new(ArchivedFile::of(archive, 0)?)))
    }

    fn parent(&self, _: &Path) -> Result<(Rc<dyn Dir<'a> + 'a>, OsString), Failure> {
        Err(read_only())
    }
}

/// A file of the archive.
#[derive(Clone, Copy)]
struct ArchivedFile<'a> {
    archive: &'a Archive,
    entry: &'a Entry,
}

impl<'a> ArchivedFile<'a> {
    fn of(archive: &'a Archive, at: usize) -> Result<ArchivedFile<'a>, Failure> {
        let entry = archive.entry(at)?;
        Ok(ArchivedFile { archive, entry })
    }
}

fn read_only() -> Failure {
    Failure::new("an archive is only read")
}

impl Source for ArchivedFile<'_> {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure> {
        let pieces = &self.entry.pieces;
        let at = pieces.partition_point(|(piece, _)| piece.start + piece.len <= pos);
        let Some((piece, stored)) = pieces.get(at).filter(|(piece, _)| piece.start <= pos) else {
            return Ok(0);
        };
        let past = pos - piece.start;
        let len = usize::try_from(piece.len - past).unwrap_or(usize::MAX);
        let len = len.min(buf.len());
        Ok(self
            .archive
            .file()
            .read_at(&mut buf[..len], stored + past)?)
    }

    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure> {
        let pieces = &self.entry.pieces;
        let at = pieces.partition_point(|(piece, _)| piece.start + piece.len <= pos);
        let found = pieces.get(at);
        Ok(found.map(|(piece, _)| (piece.start.max(pos), piece.start + piece.len)))
    }

    fn len(&self) -> Result<u64, Failure> {
        Ok(self.entry.attributes.size)
    }
}

impl<'a> Item<'a> for ArchivedFile<'a> {
    fn attributes(&self) -> &Attributes {
        &self.entry.attributes
    }

    fn is_implied(&self) -> bool {
        self.entry.implied
    }

    fn read_link(&self) -> Result<PathBuf, Failure> {
        Ok(OsString::from_vec(self.entry.link.clone()).into())
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Failure> {
        Ok(self.entry.xattrs.clone())
    }

    fn open(&self) -> Result<Box<dyn Source + 'a>, Failure> {
        Ok(Box::new(*self))
    }

    fn enter(&self) -> Result<Rc<dyn Dir<'a> + 'a>, Failure> {
        Ok(Rc::new(*self))
    }

    fn rewrite(&self) -> Result<Box<dyn Target + 'a>, Failure> {
        Err(read_only())
    }

    fn open_device(&self) -> Result<Box<dyn Target + 'a>, Failure> {
        Err(read_only())
    }

    fn change(&self) -> &dyn Change {
        self
    }
}

impl<'a> Dir<'a> for ArchivedFile<'a> {
    fn names(&self) -> Result<Names, Failure> {
        let names: Vec<OsString> = self.entry.names.keys().cloned().collect();
        Ok(Box::new(names.into_iter().map(Ok)))
    }

    fn xattrs(&self) -> Result<Vec<Xattr>, Failure> {
        Item::xattrs(self)
    }

    fn find(&self, name: &OsStr) -> Result<Option<Found<'a>>, Failure> {
        match self.entry.names.get(name) {
            Some(&at) => Ok(Some(Box::new(ArchivedFile::of(self.archive, at)?))),
            None => Ok(None),
        }
    }

    fn create(&self, _: &OsStr, _: u16) -> Result<Box<dyn Target + 'a>, Failure> {
        Err(read_only())
    }

    fn mkdir(&self, _: &OsStr, _: u16) -> Result<Rc<dyn Dir<'a> + 'a>, Failure> {
        Err(read_only())
    }

    fn symlink(&self, _: &OsStr, _: &Path) -> Result<Found<'a>, Failure> {
        Err(read_only())
    }

    fn make_node(&self, _: &OsStr, _: &Attributes, _: u16) -> Result<Found<'a>, Failure> {
        Err(read_only())
    }

    fn hard_link(&self, _: &OsStr, _: &First) -> Result<(), Failure> {
        Err(read_only())
    }

    fn remove(&self, _: &OsStr) -> Result<(), Failure> {
        Err(read_only())
    }

    fn park(&self) {}

    fn restore_parent(&self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Change for ArchivedFile<'_> {
    fn id(&self) -> Id {
        self.entry.attributes.id
    }

    fn set_owner(&self, _: &Attributes) -> Result<bool, Failure> {
        Err(read_only())
    }

    fn set_perm(&self, _: u16) -> Result<(), Failure> {
        Err(read_only())
    }

    fn set_times(&self, _: &Attributes) -> Result<(), Failure> {
        Err(read_only())
    }

    fn set_xattr(&self, _: &Xattr) -> Result<Option<String>, Failure> {
        Err(read_only())
    }

    fn drop_xattr(&self, _: &str) {}
}
