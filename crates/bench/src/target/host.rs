//! Files below a mount, through system calls.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use extant_host::{Mount, Result, ensure};
use rustix::fs::{Advice, OFlags, fadvise, syncfs};

use super::data::{Appender, Data, VECTORS};
use super::fresh::{Fresh, Mounted};
use super::interface::{Counters, Target};
use super::names::Names;

/// A mounted file system.
#[derive(Debug)]
pub(crate) struct Host {
    mounted: Mounted,
    fresh: Fresh,
}

impl Host {
    /// Mounts `fresh`.
    pub(crate) fn over(fresh: Fresh) -> Result<Host> {
        let mounted = fresh.mount()?;
        Ok(Host { mounted, fresh })
    }

    /// The mount.
    pub(crate) fn mount(&self) -> &Mount {
        &self.mounted.mount
    }

    /// Unmounts, and mounts again: what was cached is gone.
    pub(crate) fn remount(self) -> Result<Host> {
        Host::over(self.unmount()?)
    }

    /// Unmounts; what was mounted is left.
    pub(crate) fn unmount(self) -> Result<Fresh> {
        let Mounted { mount, device } = self.mounted;
        mount.unmount()?;
        drop(device);
        Ok(self.fresh)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount().join(name)
    }

    fn open_with(&self, name: &str, flags: OFlags) -> Result<File> {
        let flags = i32::try_from(flags.bits())?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        Ok(options.custom_flags(flags).open(self.path(name))?)
    }
}

impl Target for Host {
    fn open(&mut self, name: &str) -> Result<Box<dyn Data>> {
        Ok(self.opener(name)?)
    }

    fn opener(&mut self, name: &str) -> Result<Box<dyn Data + Send>> {
        Ok(Box::new(self.open_with(name, OFlags::empty())?))
    }

    fn reader(&mut self, name: &str, _len: u64) -> Result<Box<dyn Data>> {
        Ok(Box::new(File::open(self.path(name))?))
    }

    fn past_cache(&mut self, name: &str) -> Result<Option<Box<dyn Data + Send>>> {
        Ok(Some(Box::new(self.open_with(name, OFlags::DIRECT)?)))
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
        if !self.fresh.is_extant() {
            return Ok(Counters::new());
        }
        Ok(extant_fuse::stats(self.mount().dir())?
            .into_iter()
            .collect())
    }

    fn unmount(self: Box<Self>) -> Result<Option<Fresh>> {
        Host::unmount(*self).map(Some)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Host::unmount(*self)?.check()
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

impl Host {
    /// The path on the host: the leading slash is the mount.
    fn at(&self, path: &str) -> PathBuf {
        self.path(path.trim_start_matches('/'))
    }
}

impl Names for Host {
    fn make_dir(&self, dir: &str) -> Result<()> {
        Ok(fs::create_dir(self.at(dir))?)
    }

    fn has_dir(&self, dir: &str) -> bool {
        self.at(dir).is_dir()
    }

    fn remove_dir(&self, dir: &str) -> Result<()> {
        Ok(fs::remove_dir(self.at(dir))?)
    }

    fn create(&self, file: &str) -> Result<()> {
        drop(File::create_new(self.at(file))?);
        Ok(())
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Result<()> {
        Ok(File::options()
            .write(true)
            .open(self.at(file))?
            .write_all(bytes)?)
    }

    fn stat(&self, file: &str) -> Result<u64> {
        Ok(fs::symlink_metadata(self.at(file))?.len())
    }

    fn open(&self, file: &str) -> Result<()> {
        drop(File::open(self.at(file))?);
        Ok(())
    }

    fn chmod(&self, file: &str, bits: u16) -> Result<()> {
        let permissions = Permissions::from_mode(bits.into());
        Ok(fs::set_permissions(self.at(file), permissions)?)
    }

    fn list(&self, dir: &str) -> Result<u64> {
        let mut entries = 0;
        for entry in fs::read_dir(self.at(dir))? {
            std::hint::black_box(entry?);
            entries += 1;
        }
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(fs::rename(self.at(from), self.at(to))?)
    }

    fn unlink(&self, file: &str) -> Result<()> {
        Ok(fs::remove_file(self.at(file))?)
    }

    fn sync(&self) -> Result<()> {
        Ok(syncfs(File::open(self.mount().dir())?)?)
    }
}

#[cfg(test)]
mod tests {
    use extant_host::TempDir;

    use super::*;

    /// Calls by which this thread has written.
    fn writes() -> Option<u64> {
        let text = fs::read_to_string("/proc/thread-self/io").ok()?;
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("syscw: ")?.parse().ok())
    }

    #[test]
    fn a_vectored_write_is_one_call() {
        let dir = TempDir::new("vectors").unwrap();
        let mut file = File::create(dir.join("file")).unwrap();
        let before = writes();
        Data::writev(&mut file, &[7; 100]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100 * VECTORS as u64);
        // A kernel that does not count calls says nothing.
        assert_eq!(writes(), before.map(|before| before + 1));
    }
}
