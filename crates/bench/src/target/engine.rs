//! The library, in this process, over a device in memory.

use std::io::{IoSlice, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use extant::{Cred, Error as FsError, File, Filesystem, Node, Tuning, Volume};
use extant_blockdev::{BlockDevice, FileDevice, FileIo, MemoryDevice, OpenMode};
use extant_host::{Image, Result, ensure};
use extant_units::DevOff;
use rustix::fs::{self, seek};
use rustix::io::Errno;

use super::data::{Appender, Data, VECTORS};
use super::interface::{Counters, Target};
use super::names::Names;

/// Bytes copied at once from an image into memory.
const PIECE: usize = 64 << 10;

/// A file system in this process.
pub(crate) struct Engine {
    fs: Filesystem,
    /// Path of the device, if it is a file.
    _image: Option<Image>,
}

impl Engine {
    fn open_with(&self, name: &str, direct: bool) -> Result<Open> {
        let mut options = self.fs.open_options();
        options.read(true).write(true).create(true).direct(direct);
        Ok(Open(options.open(path(name))?))
    }

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
        Ok(Engine { fs, _image: None })
    }

    /// Mounts an image in a file of the host.
    pub(crate) fn over_file(image: Image, tuning: Tuning, io: FileIo) -> Result<Engine> {
        let device = FileDevice::open_with(image.path(), OpenMode::ReadWrite, io)?;
        let mut engine = Engine::over(Arc::new(device), tuning, false)?;
        engine._image = Some(image);
        Ok(engine)
    }

    /// Adds the master key of encrypted files.
    pub(crate) fn with_key(self, key: &[u8]) -> Result<Engine> {
        self.fs.add_key(key)?;
        Ok(self)
    }

    /// An image of `mib` MiB in memory. Memory that holds nothing is not touched.
    pub(crate) fn device(image: &Image, mib: u64) -> Result<MemoryDevice> {
        let file = std::fs::File::open(image.path())?;
        let device = MemoryDevice::new(mib << 20);
        let mut piece = vec![0; PIECE];
        for range in data_of(&file)? {
            for at in range.clone().step_by(PIECE) {
                let len = PIECE.min(usize::try_from(range.end - at)?);
                let Some(piece) = piece.get_mut(..len) else {
                    continue;
                };
                file.read_exact_at(piece, at)?;
                if piece.iter().any(|b| *b != 0) {
                    device.write_at(DevOff::new(at), piece)?;
                }
            }
        }
        Ok(device)
    }
}

/// The ranges of a file that hold data: an image of some GiB is holes but for some MiB.
fn data_of(file: &std::fs::File) -> Result<Vec<Range<u64>>> {
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        match seek(file, fs::SeekFrom::Data(at)) {
            Ok(start) => {
                at = seek(file, fs::SeekFrom::Hole(start))?;
                all.push(start..at);
            }
            Err(Errno::NXIO) => return Ok(all),
            Err(error) => return Err(error.into()),
        }
    }
}

impl Target for Engine {
    fn open(&mut self, name: &str) -> Result<Box<dyn Data>> {
        Ok(self.opener(name)?)
    }

    fn opener(&mut self, name: &str) -> Result<Box<dyn Data + Send>> {
        Ok(Box::new(self.open_with(name, false)?))
    }

    fn reader(&mut self, name: &str, _len: u64) -> Result<Box<dyn Data>> {
        Ok(Box::new(Open(self.fs.open_file(path(name))?)))
    }

    fn past_cache(&mut self, name: &str) -> Result<Option<Box<dyn Data + Send>>> {
        Ok(Some(Box::new(self.open_with(name, true)?)))
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

    fn node(&mut self, name: &str) -> Result<Option<(Volume, Node)>> {
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

impl Names for Filesystem {
    fn make_dir(&self, dir: &str) -> Result<()> {
        Ok(self.create_dir(dir)?)
    }

    fn has_dir(&self, dir: &str) -> bool {
        self.symlink_metadata(dir).is_ok()
    }

    fn remove_dir(&self, dir: &str) -> Result<()> {
        Ok(Filesystem::remove_dir(self, dir)?)
    }

    fn create(&self, file: &str) -> Result<()> {
        let mut options = self.open_options();
        drop(options.write(true).create_new(true).open(file)?);
        Ok(())
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Result<()> {
        let opened = self.open_options().write(true).open(file)?;
        opened.write_at(bytes, 0)?;
        Ok(())
    }

    fn stat(&self, file: &str) -> Result<u64> {
        Ok(self.symlink_metadata(file)?.len())
    }

    fn open(&self, file: &str) -> Result<()> {
        drop(self.open_file(file)?);
        Ok(())
    }

    fn chmod(&self, file: &str, bits: u16) -> Result<()> {
        Ok(self.set_permissions(file, extant::Permissions::from_mode(bits.into()))?)
    }

    fn list(&self, dir: &str) -> Result<u64> {
        let mut entries = 0;
        for entry in self.read_dir(dir)? {
            std::hint::black_box(entry?);
            entries += 1;
        }
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(Filesystem::rename(self, from, to)?)
    }

    fn unlink(&self, file: &str) -> Result<()> {
        Ok(self.remove_file(file)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(Filesystem::sync(self)?)
    }
}
