//! How a file system is opened.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, FileIo, OpenError, OpenMode};

use super::Volume;
use crate::{Backend, Cred, Error, MountOptions, Result, Tuning, mount};

/// How to open a file system: the habits of [`std::fs::OpenOptions`], plus mount options by Linux's names.
///
/// Opens for reading only unless [`Options::write`] says otherwise.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) write: bool,
    pub(super) mount: String,
    pub(super) tuning: Tuning,
    pub(super) backend: Option<Backend>,
    pub(super) cred: Cred,
}

impl Default for Options {
    fn default() -> Options {
        let cred = Cred {
            umask: 0o022,
            ..Cred::root()
        };
        Options {
            write: false,
            mount: String::new(),
            tuning: Tuning::default(),
            backend: None,
            cred,
        }
    }
}

impl Options {
    /// Read-only, with the defaults of the image.
    #[must_use]
    pub fn new() -> Options {
        Options::default()
    }

    /// Whether the file system may be changed.
    pub fn write(&mut self, yes: bool) -> &mut Options {
        self.write = yes;
        self
    }

    /// Adds mount options, separated by commas, by the names that Linux's ext4 gives them (`noload`,
    /// `errors=continue`, `commit=1`). They are checked when the file system is opened.
    pub fn mount_options(&mut self, options: &str) -> &mut Options {
        if !self.mount.is_empty() && !options.is_empty() {
            self.mount.push(',');
        }
        self.mount.push_str(options);
        self
    }

    /// Sets the switches of the engine.
    pub fn tuning(&mut self, tuning: Tuning) -> &mut Options {
        self.tuning = tuning;
        self
    }

    /// How the image is read and written; goes before a mount option `backend=`.
    pub fn backend(&mut self, backend: Backend) -> &mut Options {
        self.backend = Some(backend);
        self
    }

    /// Who the operations of a [`super::Filesystem`] run as: root, with umask 022, unless set.
    pub fn cred(&mut self, cred: Cred) -> &mut Options {
        self.cred = cred;
        self
    }

    /// Opens the image file or block device at `path` at the level of inodes. It stays locked against other openers until
    /// it is unmounted.
    ///
    /// A journal that must be replayed is, also when the file system is opened for reading: that, and nothing else, writes
    /// to an image that was opened so. The mount option `noload` leaves it alone.
    ///
    /// # Errors
    /// [`Error::InUse`] if another process has it open, [`Error::NotExt4`] and its neighbours for what is wrong with
    /// the image, [`Error::BadOption`] for a mount option, [`Error::NeedsReplay`] for a journal to replay on a device that
    /// cannot be written.
    pub fn open_volume(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        let options = self.parsed()?;
        let io = match self.backend.unwrap_or(options.backend()) {
            Backend::Auto => FileIo::default(),
            Backend::Syscalls => FileIo::SYSCALLS,
            Backend::IoUring => FileIo::IO_URING,
        };
        if !options.read_only() {
            return mounted(
                open_device(path, OpenMode::ReadWrite, io)?,
                options,
                self.tuning,
            );
        }
        let device = open_device(path, OpenMode::ReadOnly, io)?;
        match mounted(device, options.clone(), self.tuning) {
            Err(Error::NeedsReplay) => match open_device(path, OpenMode::ReadWrite, io) {
                Ok(device) => mounted(device, options, self.tuning),
                Err(Error::AccessDenied | Error::ReadOnly | Error::NotPermitted) => {
                    Err(Error::NeedsReplay)
                }
                Err(error) => Err(error),
            },
            other => other,
        }
    }

    /// Like [`Options::open_volume`], for any block device.
    ///
    /// # Errors
    /// As [`Options::open_volume`], less what opening a file can do.
    pub fn open_volume_on(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        mounted(device, self.parsed()?, self.tuning)
    }

    fn parsed(&self) -> Result<MountOptions> {
        let mut options = MountOptions::parse(&self.mount)?;
        if !self.write {
            options.set_read_only();
        }
        Ok(options)
    }
}

fn mounted(device: Arc<dyn BlockDevice>, options: MountOptions, tuning: Tuning) -> Result<Volume> {
    Ok(Volume::new(mount::mount(device, options, tuning)?))
}

/// What is wrong with a path that is neither.
pub(super) const NO_DEVICE: &str = "neither a regular file nor a block device";

pub(crate) fn open_device(path: &Path, mode: OpenMode, io: FileIo) -> Result<Arc<dyn BlockDevice>> {
    match FileDevice::open_with(path, mode, io) {
        Ok(device) => Ok(Arc::new(device)),
        Err(OpenError::InUse(_)) => Err(Error::InUse),
        Err(OpenError::NotADevice(path)) if path.is_dir() => Err(Error::IsDir),
        Err(OpenError::NotADevice(_)) => Err(Error::NotExt4(NO_DEVICE.into())),
        Err(OpenError::Io(_, error)) => Err(Error::of_host(error)),
    }
}
