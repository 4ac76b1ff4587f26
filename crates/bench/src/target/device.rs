//! A file of the host as a block device, with no file system on it.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_host::{Error, Result, TempDir};

use super::data::Data;
use super::interface::{Counters, Target};

/// A device over a file of its own.
pub(crate) struct DeviceFile {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Path of the file.
    pub(crate) _dir: TempDir,
}

fn no_files<T>() -> Result<T> {
    Err(Error::new("a device has no files"))
}

impl Target for DeviceFile {
    fn open(&mut self, _name: &str) -> Result<Box<dyn Data>> {
        no_files()
    }

    fn remove(&mut self, _name: &str) -> Result<()> {
        no_files()
    }

    fn opener(&mut self, _name: &str) -> Result<Box<dyn Data + Send>> {
        no_files()
    }

    fn device(&self) -> Option<Arc<dyn BlockDevice>> {
        Some(Arc::clone(&self.device))
    }

    fn counters(&self) -> Result<Counters> {
        Ok(Counters::new())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
