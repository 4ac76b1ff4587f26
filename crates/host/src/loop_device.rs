//! Loop devices: block devices whose sectors have the size that a test wants.

use crate::{Cmd, Result, patience};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A loop device over a file; detached when dropped. Needs [`crate::Need::Loop`].
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches `file`, with sectors of `sector` bytes.
    ///
    /// # Errors
    /// The message of `losetup`.
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
    /// The message of `losetup`.
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
    /// The message of `losetup`.
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

/// Waits until no loop device that a mount made for itself has its blocks from `file`. Such a
/// device goes with its last user. After an unmount that may be another program, which had it open
/// for a moment when it looked for a free one. Waits for a bounded time: the next use of the file
/// then says that it is in use.
pub(crate) fn wait_until_cleared(file: &Path) {
    let Ok(file) = file.canonicalize() else {
        return;
    };
    let end = Instant::now() + patience(Duration::from_secs(20));
    while is_attached(&file) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns whether a loop device that goes with its last user has its blocks from `file`.
fn is_attached(file: &Path) -> bool {
    attached().any(|(device, of)| of == file && said(&device, "autoclear") == "1\n")
}

/// The loop devices that have their blocks from files that `wanted` chooses.
pub(crate) fn over_files(wanted: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let found = attached().filter(|(_, file)| wanted(file));
    let names = found.filter_map(|(device, _)| Some(Path::new("/dev").join(device.file_name()?)));
    names.collect()
}

/// The loop devices that are attached, by their directories in sysfs, each with its file.
fn attached() -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten();
    devices.flatten().filter_map(|device| {
        let file = said(&device.path(), "backing_file");
        let file = file.strip_suffix('\n')?;
        // So it is shown once the file has no name any more.
        let file = file.strip_suffix(" (deleted)").unwrap_or(file);
        Some((device.path(), file.into()))
    })
}

/// Attribute of a loop device in sysfs; empty for one that is free.
fn said(device: &Path, name: &str) -> String {
    std::fs::read_to_string(device.join("loop").join(name)).unwrap_or_default()
}
