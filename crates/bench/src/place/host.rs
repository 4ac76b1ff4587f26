//! Files below a mount, through system calls.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use extant_testkit::{Image, Mount, Result, TempDir, ensure};
use rustix::fs::{Advice, fadvise};

use super::{Appender, Counters, Data, Names, Place, VECTORS};

/// A mount, and what lies below it.
#[derive(Debug)]
pub(crate) struct Host {
    /// What is mounted.
    pub(crate) mount: Mount,
    /// The image, if there is one: checked at the end.
    pub(crate) image: Option<Image>,
    /// What a pass-through passes through to.
    pub(crate) below: Option<TempDir>,
    /// Whether the mount is Extant's, and has counters.
    pub(crate) extant: bool,
    /// Whether e2fsck can judge the image.
    pub(crate) ext4: bool,
}

impl Host {
    fn path(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }
}

impl Place for Host {
    fn open(&mut self, name: &str) -> Result<Box<dyn Data>> {
        Ok(self.opener(name)?)
    }

    fn opener(&mut self, name: &str) -> Result<Box<dyn Data + Send>> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(name))?;
        Ok(Box::new(file))
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        match std::fs::remove_file(self.path(name)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            other => Ok(other?),
        }
    }

    fn names(&self) -> Option<&dyn Names> {
        Some(self)
    }

    fn appender(&mut self, name: &str) -> Result<Option<Box<dyn Appender>>> {
        let file = File::options().append(true).open(self.path(name))?;
        Ok(Some(Box::new(file)))
    }

    fn counters(&self) -> Result<Counters> {
        if !self.extant {
            return Ok(Counters::new());
        }
        Ok(extant_fuse::stats(self.mount.dir())?.into_iter().collect())
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Host {
            mount,
            image,
            below,
            ext4,
            ..
        } = *self;
        mount.unmount()?;
        drop(below);
        image.filter(|_| ext4).map_or(Ok(()), |i| i.fsck_clean())
    }
}

impl Data for File {
    #[inline]
    fn pwrite(&mut self, bytes: &[u8], pos: u64) -> Result<()> {
        Ok(self.write_all_at(bytes, pos)?)
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(Write::write_all(self, bytes)?)
    }

    #[inline]
    fn writev(&mut self, bytes: &[u8]) -> Result<()> {
        let vectors = [IoSlice::new(bytes); VECTORS];
        let done = Write::write_vectored(self, &vectors)?;
        ensure!(done == bytes.len() * VECTORS, "{done} bytes written");
        Ok(())
    }

    #[inline]
    fn rewind(&mut self, pos: u64) -> Result<()> {
        self.seek(SeekFrom::Start(pos))?;
        Ok(())
    }

    #[inline]
    fn pread(&mut self, buf: &mut [u8], pos: u64) -> Result<()> {
        Ok(self.read_exact_at(buf, pos)?)
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        Ok(File::set_len(self, len)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.sync_data()?)
    }

    fn cool(&mut self) -> Result<()> {
        Ok(fadvise(&*self, 0, None, Advice::DontNeed)?)
    }
}

impl Appender for File {
    #[inline]
    fn append(&self, bytes: &[u8]) -> Result<()> {
        let mut file = self;
        let done = Write::write(&mut file, bytes)?;
        ensure!(done == bytes.len(), "{done} bytes of {}", bytes.len());
        Ok(())
    }
}
