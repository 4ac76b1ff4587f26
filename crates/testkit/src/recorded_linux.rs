//! Linux's ext4 on a device that records writes and flushes.
//!
//! The device is a loop device over a [`FuseFile`] in memory, whose requests pass the kernel's
//! cache: a write of ext4 is a request, and a flush an fsync.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_units::DevOff;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::fuse_file::{FuseFile, Served};
use crate::{Context, Event, LoopDevice, Recorder, Result, TempDir, wait_until};

/// The recorded bytes.
struct Recorded(Recorder<MemoryDevice>);

impl Served for Recorded {
    fn size(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(DevOff::new(at), bytes)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(DevOff::new(at), bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.flush()
    }
}

/// See the module's header. Needs root, FUSE and loop devices.
pub struct RecordedLinux {
    recorded: Arc<Recorded>,
    // Dropped in this order.
    dir: TempDir,
    mounted: bool,
    device: Option<LoopDevice>,
    file: FuseFile,
}

impl RecordedLinux {
    /// Mounts these bytes with mount options. A write is recorded in pieces of `piece` bytes.
    ///
    /// # Errors
    /// FUSE, the loop driver or mount(2) refuse.
    pub fn new(bytes: &[u8], piece: u64, options: &str) -> Result<Self> {
        let memory = MemoryDevice::from_bytes(bytes);
        let recorded = Arc::new(Recorded(Recorder::in_pieces(memory, piece)));
        let file = FuseFile::new(Arc::clone(&recorded), false)?;
        let device = LoopDevice::over(file.path(), 512)?;
        let path = device.path().to_owned();
        let mut linux = Self {
            recorded,
            dir: TempDir::new("recorded-linux")?,
            mounted: false,
            device: Some(device),
            file,
        };
        let options = std::ffi::CString::new(options).unwrap_or_default();
        let flags = MountFlags::empty();
        rustix::mount::mount(&path, linux.dir(), "ext4", flags, options.as_c_str())
            .map_err(io::Error::from)
            .context(|| "mounting ext4")?;
        linux.mounted = true;
        Ok(linux)
    }

    /// The directory where it is mounted.
    pub fn dir(&self) -> PathBuf {
        self.dir.path().to_owned()
    }

    /// Number of events so far.
    pub fn position(&self) -> usize {
        self.recorded.0.position()
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Event> {
        self.recorded.0.events()
    }

    /// Unmounts.
    ///
    /// # Errors
    /// It is in use for long, or umount(2) fails.
    pub fn unmount(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.mounted, false) {
            unmount(self.dir.path())?;
        }
        self.device = None;
        self.file.detach().context(|| "unmounting the device")
    }
}

/// A process that another test has just forked holds descriptors until it executes its program.
fn unmount(path: &Path) -> Result<()> {
    let mut result = Ok(());
    wait_until("the mount is not busy", || {
        result = rustix::mount::unmount(path, UnmountFlags::NOFOLLOW);
        result != Err(Errno::BUSY)
    });
    result.map_err(io::Error::from).context(|| path.display())
}

impl Drop for RecordedLinux {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error}");
            let _ = rustix::mount::unmount(self.dir.path(), UnmountFlags::DETACH);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Image, Need, need};

    /// Data that an fsync has made durable is among the writes that a flush covers.
    #[test]
    fn an_fsync_is_writes_and_a_flush() {
        if !need(&[Need::Root, Need::Fuse, Need::Loop]) {
            return;
        }
        let image = Image::of_mib(8).args("-b 1024").make().unwrap();
        let bytes = std::fs::read(image.path()).unwrap();
        let mut linux = RecordedLinux::new(&bytes, 1024, "").unwrap();
        let begun = linux.position();
        let file = std::fs::File::create(linux.dir().join("a")).unwrap();
        io::Write::write_all(&mut &file, &[7; 1024]).unwrap();
        file.sync_all().unwrap();
        let events = linux.events();
        let is_data =
            |event: &Event| matches!(event, Event::Write { data, .. } if **data == [7; 1024]);
        let written = events.iter().position(is_data).unwrap();
        let is_covered =
            |event: &Event| matches!(event, Event::Flush { covers } if *covers > written);
        assert!(written >= begun && events.iter().any(is_covered));
        drop(file);
        linux.unmount().unwrap();
        assert!(linux.position() > events.len());
    }
}
