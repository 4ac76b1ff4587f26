//! The library, in this process, over a device in memory.

use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use extant::{Cred, Error as FsError, File, Filesystem, Node, Tuning, Volume};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::{Image, Result, ensure};
use extant_units::DevOff;

use super::{Appender, Counters, Data, Names, Place, VECTORS};

/// Bytes copied at once from an image into memory.
const PIECE: usize = 64 << 10;

/// A file system in this process.
pub(crate) struct Engine {
    fs: Filesystem,
}

impl Engine {
    /// Mounts what is on `device`; if `untimed`, with a timer of the journal that never runs out.
    pub(crate) fn over(
        device: Arc<dyn BlockDevice>,
        tuning: Tuning,
        untimed: bool,
    ) -> Result<Engine> {
        let options = if untimed { "commit=3000" } else { "" };
        let fs = Filesystem::options()
            .write(true)
            .tuning(tuning)
            .mount_options(options)
            .open_device(device)?;
        Ok(Engine { fs })
    }

    /// An image of `mib` MiB in memory. Memory that holds nothing is not touched.
    pub(crate) fn device(image: &Image, mib: u64) -> Result<MemoryDevice> {
        let mut file = std::fs::File::open(image.path())?;
        let device = MemoryDevice::new(mib << 20);
        let mut piece = vec![0; PIECE];
        for at in (0..device.len()).step_by(PIECE) {
            file.read_exact(&mut piece)?;
            if piece.iter().any(|b| *b != 0) {
                device.write_at(DevOff::new(at), &piece)?;
            }
        }
        Ok(device)
    }
}

impl Place for Engine {
    fn open(&mut self, name: &str) -> Result<Box<dyn Data>> {
        Ok(self.opener(name)?)
    }

    fn opener(&mut self, name: &str) -> Result<Box<dyn Data + Send>> {
        let mut options = self.fs.open_options();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .open(path(name))?;
        Ok(Box::new(Open(file)))
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        match self.fs.remove_file(path(name)) {
            Err(FsError::NotFound) => Ok(()),
            other => Ok(other?),
        }
    }

    fn names(&self) -> Option<&dyn Names> {
        Some(&self.fs)
    }

    fn appender(&mut self, name: &str) -> Result<Option<Box<dyn Appender>>> {
        let volume = self.fs.volume().clone();
        let node = volume.lookup(&volume.root()?, name.as_bytes())?;
        Ok(Some(Box::new(Appended { volume, node })))
    }

    fn direct(&mut self, name: &str) -> Result<Option<(Volume, Node)>> {
        let volume = self.fs.volume().clone();
        let node = volume.lookup(&volume.root()?, name.as_bytes())?;
        Ok(Some((volume, node)))
    }

    fn counters(&self) -> Result<Counters> {
        let all = self.fs.volume().stats().into_iter();
        Ok(all.map(|(name, value)| (name.to_owned(), value)).collect())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.fs.unmount()?)
    }
}

fn path(name: &str) -> String {
    format!("/{name}")
}

struct Appended {
    volume: Volume,
    node: Node,
}

impl Appender for Appended {
    #[inline]
    fn append(&self, bytes: &[u8]) -> Result<()> {
        let (_, done) = self.volume.append(&self.node, bytes, &Cred::root())?;
        ensure!(done == bytes.len(), "{done} bytes of {}", bytes.len());
        Ok(())
    }
}

struct Open(File);

impl Data for Open {
    #[inline]
    fn pwrite(&mut self, bytes: &[u8], pos: u64) -> Result<()> {
        let done = self.0.write_at(bytes, pos)?;
        ensure!(
            done == bytes.len(),
            "{done} bytes written of {}",
            bytes.len()
        );
        Ok(())
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.write_all(bytes)?)
    }

    #[inline]
    fn writev(&mut self, bytes: &[u8]) -> Result<()> {
        let vectors = [IoSlice::new(bytes); VECTORS];
        let done = self.0.write_vectored(&vectors)?;
        ensure!(done == bytes.len() * VECTORS, "{done} bytes written");
        Ok(())
    }

    #[inline]
    fn rewind(&mut self, pos: u64) -> Result<()> {
        self.0.seek(SeekFrom::Start(pos))?;
        Ok(())
    }

    #[inline]
    fn pread(&mut self, buf: &mut [u8], pos: u64) -> Result<()> {
        let done = self.0.read_at(buf, pos)?;
        ensure!(done == buf.len(), "{done} bytes read of {}", buf.len());
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        Ok(self.0.set_len(len)?)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.0.sync_data()?)
    }

    fn cool(&mut self) -> Result<()> {
        self.0.drop_cached();
        Ok(())
    }
}
