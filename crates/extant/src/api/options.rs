//! How a file system is opened.

use std::io;
use std::path::Path;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, OpenError, OpenMode};

use super::Volume;
use crate::options::MountOptions;
use crate::{Cred, Error, Result, Tuning, mount};

/// How to open a file system: the habits of [`std::fs::OpenOptions`], plus mount options by Linux's names.
///
/// Opens for reading only unless [`Options::write`] says otherwise.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) write: bool,
    pub(super) mount: String,
    pub(super) tuning: Tuning,
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

    /// Who the operations of a [`super::Filesystem`] run as: root, with umask 022, unless set.
    pub fn cred(&mut self, cred: Cred) -> &mut Options {
        self.cred = cred;
        self
    }

    /// Opens the image file or block device at `path` at the level of inodes. It stays locked against other
    /// openers until it is unmounted.
    ///
    /// # Errors
    /// [`crate::Error::InUse`] if another process has it open, [`crate::Error::NotExt4`] and its neighbours for what is wrong with
    /// the image, [`crate::Error::BadOption`] for a mount option, [`crate::Error::NeedsReplay`] for a dirty journal on a device that
    /// cannot be written.
    pub fn open_volume(&self, path: impl AsRef<Path>) -> Result<Volume> {
        let mode = if self.write {
            OpenMode::ReadWrite
        } else {
            OpenMode::ReadOnly
        };
        let device = FileDevice::open(path, mode).map_err(|error| match error {
            OpenError::InUse(_) => Error::InUse,
            OpenError::NotADevice(_) => {
                Error::NotExt4("neither a regular file nor a block device".into())
            }
            OpenError::Io(_, error) => match error.kind() {
                io::ErrorKind::NotFound => Error::NotFound,
                io::ErrorKind::PermissionDenied => Error::AccessDenied,
                io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly,
                _ => error.into(),
            },
        })?;
        self.open_volume_on(Arc::new(device))
    }

    /// Like [`Options::open_volume`], for any block device.
    ///
    /// # Errors
    /// As [`Options::open_volume`], less what opening a file can do.
    pub fn open_volume_on(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        let mut options = MountOptions::parse(&self.mount)?;
        if !self.write {
            options.set_read_only();
        }
        mount::mount(device, options, self.tuning).map(Volume::new)
    }
}
