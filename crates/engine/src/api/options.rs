//! Opening a file system.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, FileIo, OpenMode};

use super::Volume;
use crate::Backend;
use crate::Error;
use crate::MountOptions;
use crate::Result;
use crate::Tuning;
use crate::config::JournalDevice;
use crate::mount;

/// Options for opening a file system, in the manner of [`std::fs::OpenOptions`], with mount options
/// by Linux's names.
///
/// Opens for reading only unless [`VolumeOptions::write`] says otherwise.
#[derive(Clone, Debug, Default)]
pub struct VolumeOptions {
    write: bool,
    mount: String,
    tuning: Tuning,
    backend: Option<Backend>,
    journal: Option<JournalDevice>,
}

impl VolumeOptions {
    /// Read-only, with the defaults of the image.
    #[must_use]
    pub fn new() -> VolumeOptions {
        VolumeOptions::default()
    }

    /// Allows writes to the image, and, unless the mount option `ro` says otherwise, changes of the
    /// file system be changed.
    pub fn write(&mut self, yes: bool) -> &mut VolumeOptions {
        self.write = yes;
        self
    }

    /// Adds mount options, separated by commas, by the names that Linux's ext4 gives them
    /// (`noload`, `errors=continue`, `commit=1`). They are checked when the file system is opened.
    pub fn mount_options(&mut self, options: &str) -> &mut VolumeOptions {
        if !self.mount.is_empty() && !options.is_empty() {
            self.mount.push(',');
        }
        self.mount.push_str(options);
        self
    }

    /// Sets the switches of the engine.
    pub fn tuning(&mut self, tuning: Tuning) -> &mut VolumeOptions {
        self.tuning = tuning;
        self
    }

    /// How the image is read and written; takes precedence over a mount option `backend=`.
    pub fn backend(&mut self, backend: Backend) -> &mut VolumeOptions {
        self.backend = Some(backend);
        self
    }

    /// Gives the device with the journal, for a volume that has it on another device. The mount
    /// option `journal_path=` gives its path instead.
    pub fn journal_device(&mut self, device: Arc<dyn BlockDevice>) -> &mut VolumeOptions {
        self.journal = Some(JournalDevice(device));
        self
    }

    /// Opens the image file or block device at `path`. It is locked against other openers until it
    /// is unmounted.
    ///
    /// Opened for reading ([`VolumeOptions::write`] not set), the image is never written to. A
    /// journal that is not empty is replayed in memory, within [`Tuning::replay_bytes`], with a
    /// warning. A loop device over the image is logged as well. The mount option `noload` ignores
    /// the journal.
    ///
    /// Opened for writing with the mount option `ro`, it is what `mount -o ro` is on Linux: changes
    /// are refused, but the journal is replayed onto the image and orphans are finished, if the
    /// image can be written.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process or Linux uses it; [`Error::NotExt4`],
    /// [`Error::Truncated`], [`Error::UnsupportedFeature`] and [`Error::Corrupt`] for the image;
    /// [`Error::BadOption`] for a mount option; [`Error::NeedsReplay`] for a journal to replay on a
    /// device that cannot be written.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let options = self.with_journal()?;
        let io = self.io(&options);
        if !self.write {
            let device = open_to_look(path, io)?;
            return looked(device, options, self.tuning, Some(path));
        }
        if options.read_only() {
            return self.mount_read_only(path, io, options);
        }
        let device = open_device(path, OpenMode::ReadWrite, io)?;
        mounted(device, options, self.tuning)
    }

    /// Mounts as Linux does with `ro`: recovers the volume where that is needed and the image can
    /// be written, then only reads.
    fn mount_read_only(&self, path: &Path, io: FileIo, options: MountOptions) -> Result<Volume> {
        let device = open_unchanging(path, io)?;
        if !mount::has_orphans(&device, &options) {
            match mounted(device, options.clone(), self.tuning) {
                Err(Error::NeedsReplay) => {}
                other => return other,
            }
        } else {
            drop(device);
        }
        match open_device(path, OpenMode::ReadWrite, io) {
            Ok(device) => mount::put_in_order(device, options.clone(), self.tuning)?,
            Err(Error::AccessDenied | Error::ReadOnly | Error::NotPermitted) => {}
            Err(error) => return Err(error),
        }
        mounted(open_unchanging(path, io)?, options, self.tuning)
    }

    /// Opens and claims the image at `path` as [`VolumeOptions::open`] does, and reads nothing of
    /// it. [`VolumeOptions::open_on`] mounts what is returned, without opening any path: a process
    /// can confine itself between the two. With the mount option `ro` the device is read-only, so
    /// an image that [`VolumeOptions::needs_recovery_on`] names has to be recovered before.
    ///
    /// # Errors
    /// Those of opening; [`Error::BadOption`] for a mount option.
    pub fn claim(&self, path: impl AsRef<Path>) -> Result<Arc<dyn BlockDevice>> {
        let path = path.as_ref();
        let options = self.parsed()?;
        let io = self.io(&options);
        if !self.write {
            return open_to_look(path, io);
        }
        if options.read_only() {
            return open_unchanging(path, io);
        }
        open_device(path, OpenMode::ReadWrite, io)
    }

    /// Opens the device that the mount option `journal_path=` names, if there is one, and reads
    /// nothing of it: for [`VolumeOptions::journal_device`], after a process has confined itself.
    ///
    /// # Errors
    /// As [`VolumeOptions::claim`].
    pub fn claim_journal(&self) -> Result<Option<Arc<dyn BlockDevice>>> {
        self.open_journal(&self.parsed()?)
    }

    /// Returns whether [`VolumeOptions::open`] would write to the image on `device` although the
    /// mount option `ro` is given: a journal to replay, or orphans. Reads the superblock alone.
    ///
    /// # Errors
    /// [`Error::BadOption`] for a mount option.
    pub fn needs_recovery_on(&self, device: &Arc<dyn BlockDevice>) -> Result<bool> {
        let options = self.parsed()?;
        Ok(self.write && options.read_only() && mount::needs_writing(device, &options))
    }

    /// Recovers the volume on `device`, as the mount option `ro` does, and lets go of it.
    ///
    /// # Errors
    /// As [`VolumeOptions::open`].
    pub fn recover_on(&self, device: Arc<dyn BlockDevice>) -> Result<()> {
        mount::put_in_order(device, self.with_journal()?, self.tuning)
    }

    /// As [`VolumeOptions::open`], for any block device.
    ///
    /// # Errors
    /// As [`VolumeOptions::open`], without those of opening a file.
    pub fn open_on(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        let options = self.with_journal()?;
        if self.write {
            mounted(device, options, self.tuning)
        } else {
            looked(device, options, self.tuning, None)
        }
    }

    fn io(&self, options: &MountOptions) -> FileIo {
        match self.backend.unwrap_or(options.backend()) {
            Backend::Auto => FileIo::default(),
            Backend::Syscalls => FileIo::SYSCALLS,
            Backend::IoUring => FileIo::IO_URING,
        }
    }

    /// The mount options, with the device of the journal where one is named.
    fn with_journal(&self) -> Result<MountOptions> {
        let mut options = self.parsed()?;
        let device = match &self.journal {
            Some(JournalDevice(device)) => Some(Arc::clone(device)),
            None => self.open_journal(&options)?,
        };
        if let Some(device) = device {
            options.set_journal_device(device);
        }
        Ok(options)
    }

    fn open_journal(&self, options: &MountOptions) -> Result<Option<Arc<dyn BlockDevice>>> {
        let path = match (options.journal_path(), options.journal_number()) {
            (Some(path), _) => path.to_owned(),
            (None, Some(number)) => device_numbered(number)?,
            (None, None) => return Ok(None),
        };
        let path = path.as_path();
        let io = self.io(options);
        let opened = match self.write {
            true => open_device(path, OpenMode::ReadWrite, io),
            false => Err(Error::ReadOnly),
        };
        let opened = match opened {
            Err(Error::ReadOnly | Error::AccessDenied) => open_device(path, OpenMode::ReadOnly, io),
            opened => opened,
        };
        opened.map(Some)
    }

    fn parsed(&self) -> Result<MountOptions> {
        let mut options = MountOptions::parse(&self.mount)?;
        if !self.write {
            options.set_read_only();
        }
        Ok(options)
    }
}

/// The path of the block device with these numbers, major and minor.
fn device_numbered((major, minor): (u32, u32)) -> Result<PathBuf> {
    let path = PathBuf::from(format!("/dev/block/{major}:{minor}"));
    if path.exists() {
        return Ok(path);
    }
    // Without udev there are names alone, which the kernel knows.
    let event = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent"));
    let event = event.unwrap_or_default();
    let name = event.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let found = name.map(|name| PathBuf::from("/dev").join(name));
    found.filter(|path| path.exists()).ok_or_else(|| {
        let what = format!("'journal_dev': there is no block device {major}:{minor}");
        Error::BadOption(what)
    })
}

fn mounted(device: Arc<dyn BlockDevice>, options: MountOptions, tuning: Tuning) -> Result<Volume> {
    Ok(Volume::new(mount::mount(device, options, tuning)?))
}

fn looked(
    device: Arc<dyn BlockDevice>,
    options: MountOptions,
    tuning: Tuning,
    path: Option<&Path>,
) -> Result<Volume> {
    let looked = mount::look(device, options, tuning)?;
    if looked.replayed {
        let image = path.map_or_else(|| "the image".into(), |path| path.to_string_lossy());
        tracing::warn!("{image}: not unmounted in order: its journal is replayed in memory only");
    }
    Ok(Volume::new(looked.fs))
}

fn open_device(path: &Path, mode: OpenMode, io: FileIo) -> Result<Arc<dyn BlockDevice>> {
    Ok(Arc::new(FileDevice::open_with(path, mode, io)?))
}

/// Opens `path` for reading only, even while Linux has it as a loop device, which is logged.
pub(super) fn open_to_look(path: &Path, io: FileIo) -> Result<Arc<dyn BlockDevice>> {
    let device = FileDevice::open_with(path, OpenMode::ReadOnly, io)?;
    if let Some(one) = device.loops().iter().find(|one| !one.read_only) {
        let (image, device) = (path.display(), one.device.display());
        tracing::warn!(
            "{image}: in use by Linux, through the loop device {device}: what is seen may be out \
             of date"
        );
    }
    Ok(Arc::new(device))
}

/// Opens `path` for a mount that only reads: no other process may change it.
fn open_unchanging(path: &Path, io: FileIo) -> Result<Arc<dyn BlockDevice>> {
    let device = FileDevice::open_with(path, OpenMode::ReadOnly, io)?;
    match device.loops().iter().find(|one| !one.read_only) {
        None => Ok(Arc::new(device)),
        Some(one) => Err(Error::InUse {
            by: format!("Linux, through the loop device {}", one.device.display()).into(),
        }),
    }
}
