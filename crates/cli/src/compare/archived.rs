//! An archive as a side of a comparison.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use extant::sides::{Attributes, FileTree, Found, Names, Source, TreeFile, Xattr};

use super::archive::{Archive, Entry};

impl<'a> FileTree<'a> for &'a Archive {
    fn item(&self, _: &Path, _: bool) -> io::Result<Option<Found<'a>>> {
        let archive: &'a Archive = self;
        Ok(Some(Rc::new(ArchivedFile::of(archive, 0)?)))
    }
}

/// A file of the archive.
#[derive(Clone, Copy)]
struct ArchivedFile<'a> {
    archive: &'a Archive,
    entry: &'a Entry,
}

impl<'a> ArchivedFile<'a> {
    fn of(archive: &'a Archive, at: usize) -> io::Result<ArchivedFile<'a>> {
        let entry = archive.entry(at);
        let entry = entry.map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(ArchivedFile { archive, entry })
    }
}

impl Source for ArchivedFile<'_> {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        let pieces = &self.entry.pieces;
        let at = pieces.partition_point(|(piece, _)| piece.start + piece.len <= pos);
        let Some((piece, stored)) = pieces.get(at).filter(|(piece, _)| piece.start <= pos) else {
            return Ok(0);
        };
        let past = pos - piece.start;
        let len = usize::try_from(piece.len - past).unwrap_or(usize::MAX);
        let len = len.min(buf.len());
        self.archive.file().read_at(&mut buf[..len], stored + past)
    }

    fn next_data(&self, pos: u64) -> io::Result<Option<(u64, u64)>> {
        let pieces = &self.entry.pieces;
        let at = pieces.partition_point(|(piece, _)| piece.start + piece.len <= pos);
        let found = pieces.get(at);
        Ok(found.map(|(piece, _)| (piece.start.max(pos), piece.start + piece.len)))
    }

    fn len_now(&self) -> io::Result<u64> {
        Ok(self.entry.attributes.size)
    }
}

impl<'a> TreeFile<'a> for ArchivedFile<'a> {
    fn attributes(&self) -> &Attributes {
        &self.entry.attributes
    }

    fn is_implied(&self) -> bool {
        self.entry.implied
    }

    fn read_link(&self) -> io::Result<PathBuf> {
        Ok(OsString::from_vec(self.entry.link.clone()).into())
    }

    fn xattrs(&self) -> io::Result<Vec<Xattr>> {
        Ok(self.entry.xattrs.clone())
    }

    fn open(&self) -> io::Result<Box<dyn Source + 'a>> {
        Ok(Box::new(*self))
    }

    fn enter(&self) -> io::Result<Found<'a>> {
        Ok(Rc::new(*self))
    }

    fn names(&self) -> io::Result<Names> {
        let names: Vec<OsString> = self.entry.names.keys().cloned().collect();
        Ok(Box::new(names.into_iter().map(Ok)))
    }

    fn find(&self, name: &OsStr) -> io::Result<Option<Found<'a>>> {
        match self.entry.names.get(name) {
            Some(&at) => Ok(Some(Rc::new(ArchivedFile::of(self.archive, at)?))),
            None => Ok(None),
        }
    }
}
