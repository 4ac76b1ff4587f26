//! A FUSE file system of one file in memory, with the kernel's writeback cache, that fails chosen
//! writes.
//!
//! # Concurrency
//! The file's bytes have one mutex.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::FailingHost;
use crate::fuse_file::{FuseFile, Served};
use crate::{Context, Result, Rng};

/// The file, and the faults of its writes.
struct Failing {
    bytes: Vec<u8>,
    /// Writes that pass before the first fails; then how many fail.
    pass: u64,
    fail: u64,
    failed: u64,
}

impl Served for Mutex<Failing> {
    fn size(&self) -> u64 {
        lock(self).bytes.len() as u64
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let served = lock(self);
        let from = served.bytes.get(index(at)..index(at) + bytes.len());
        bytes.copy_from_slice(from.ok_or(io::ErrorKind::InvalidInput)?);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut served = lock(self);
        if served.pass > 0 {
            served.pass -= 1;
        } else if served.fail > 0 {
            served.fail -= 1;
            served.failed += 1;
            return Err(io::ErrorKind::Other.into());
        }
        let to = served.bytes.get_mut(index(at)..index(at) + bytes.len());
        to.ok_or(io::ErrorKind::InvalidInput)?
            .copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX / 4)
}

/// See the module's header. Needs root and FUSE.
pub struct FuseHost {
    file: FuseFile,
    served: Arc<Mutex<Failing>>,
}

impl FuseHost {
    /// Mounts a file with these bytes.
    ///
    /// # Errors
    /// FUSE or mount(2) refuse.
    pub fn new(bytes: Vec<u8>) -> Result<Self> {
        let served = Arc::new(Mutex::new(Failing {
            bytes,
            pass: u64::MAX,
            fail: 0,
            failed: 0,
        }));
        let file = FuseFile::new(Arc::clone(&served), true)?;
        Ok(Self { file, served })
    }

    /// Writes that failed.
    pub fn failed(&self) -> u64 {
        lock(&self.served).failed
    }
}

impl FailingHost for FuseHost {
    fn file(&self) -> &Path {
        self.file.path()
    }

    fn fail(&mut self, seed: u64) -> Result<()> {
        let mut rng = Rng::new(seed);
        let mut served = lock(&self.served);
        served.pass = rng.below(60);
        served.fail = rng.between(1, 8);
        Ok(())
    }

    fn spares(&self, _byte: u8) -> bool {
        true
    }

    fn end(mut self: Box<Self>) -> Result<Vec<u8>> {
        self.file.unmount().context(|| "unmounting a FUSE host")?;
        Ok(std::mem::take(&mut lock(&self.served).bytes))
    }
}

fn lock(served: &Mutex<Failing>) -> MutexGuard<'_, Failing> {
    served.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{Need, need};

    /// Linux does what the engine must live with: one error for each descriptor, and then success.
    #[test]
    fn linux_tells_each_descriptor_once() {
        if !need(&[Need::Root, Need::Fuse]) {
            return;
        }
        let host = FuseHost::new(vec![1; 1 << 20]).unwrap();
        let open = || File::options().read(true).write(true).open(host.file());
        let (a, b) = (open().unwrap(), open().unwrap());
        a.write_all_at(&[2; 8192], 0).unwrap();
        a.sync_data().unwrap();
        a.write_all_at(&[3; 8192], 4096).unwrap();
        {
            let mut served = lock(&host.served);
            (served.pass, served.fail) = (0, 1);
        }
        let answers = [&a, &a, &b, &b].map(|file| file.sync_data().is_ok());
        assert_eq!(answers, [false, true, false, true]);
        assert_eq!(host.failed(), 1);
        let mut seen = [0; 8192];
        a.read_exact_at(&mut seen, 4096).unwrap();
        assert_eq!(seen, [3; 8192], "the cache shows what is lost");
        drop((a, b));
        let left = Box::new(host).end().unwrap();
        assert_eq!((left[4096], left[8192], left[12287]), (2, 1, 1));
    }
}
