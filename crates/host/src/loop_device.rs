//! Loop devices: block devices whose sectors have the size that a test wants.

use crate::{Cmd, Result};
use std::path::{Path, PathBuf};

/// A loop device over a file; detached when dropped. Needs [`crate::Need::Loop`].
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `file`, with sectors of `sector` bytes.
    ///
    /// # Errors
    /// What `losetup` says.
    pub fn over(file: &Path, sector: u32) -> Result<LoopDevice> {
        let made = Cmd::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(file)
            .ok()?;
        let path = PathBuf::from(made.out.trim());
        Ok(LoopDevice { path })
    }

    /// Attaches `file` so that it cannot be written through the device.
    ///
    /// # Errors
    /// What `losetup` says.
    pub fn read_only(file: &Path) -> Result<LoopDevice> {
        let made = Cmd::new("losetup")
            .args(["--find", "--show", "--read-only"])
            .arg(file)
            .ok()?;
        let path = PathBuf::from(made.out.trim());
        Ok(LoopDevice { path })
    }

    /// Attaches `file`, which the device reads and writes past the page cache (`O_DIRECT`).
    ///
    /// # Errors
    /// What `losetup` says.
    pub fn past_cache(file: &Path) -> Result<LoopDevice> {
        let made = Cmd::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(file)
            .ok()?;
        let path = PathBuf::from(made.out.trim());
        Ok(LoopDevice { path })
    }

    /// The block device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Cmd::new("losetup").arg("-d").arg(&self.path).run();
    }
}
