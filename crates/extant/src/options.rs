//! How a file system is opened, by paths or by inodes.

use std::path::Path;
use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_engine::{Backend, Cred, Result, Tuning, Volume, VolumeOptions};

/// How to open a file system: the habits of [`std::fs::OpenOptions`], plus mount options by Linux's
/// names.
///
/// Opens for reading only unless [`Options::write`] says otherwise.
#[derive(Clone, Debug)]
pub struct Options {
    volume: VolumeOptions,
    pub(crate) cred: Cred,
}

impl Default for Options {
    fn default() -> Options {
        let cred = Cred {
            umask: 0o022,
            ..Cred::root()
        };
        Options {
            volume: VolumeOptions::new(),
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

    /// See [`VolumeOptions::write`].
    pub fn write(&mut self, yes: bool) -> &mut Options {
        self.volume.write(yes);
        self
    }

    /// See [`VolumeOptions::mount_options`].
    pub fn mount_options(&mut self, options: &str) -> &mut Options {
        self.volume.mount_options(options);
        self
    }

    /// See [`VolumeOptions::tuning`].
    pub fn tuning(&mut self, tuning: Tuning) -> &mut Options {
        self.volume.tuning(tuning);
        self
    }

    /// See [`VolumeOptions::backend`].
    pub fn backend(&mut self, backend: Backend) -> &mut Options {
        self.volume.backend(backend);
        self
    }

    /// See [`VolumeOptions::journal_device`].
    pub fn journal_device(&mut self, device: Arc<dyn BlockDevice>) -> &mut Options {
        self.volume.journal_device(device);
        self
    }

    /// Credentials of the operations of a [`crate::Filesystem`]: root, with umask 022, unless set.
    pub fn cred(&mut self, cred: Cred) -> &mut Options {
        self.cred = cred;
        self
    }

    /// Like [`Options::open`], at the level of inodes.
    ///
    /// # Errors
    /// See [`VolumeOptions::open`].
    pub fn open_volume(&self, path: impl AsRef<Path>) -> Result<Volume> {
        self.volume.open(path)
    }

    /// See [`VolumeOptions::claim`].
    ///
    /// # Errors
    /// See [`VolumeOptions::claim`].
    pub fn claim(&self, path: impl AsRef<Path>) -> Result<Arc<dyn BlockDevice>> {
        self.volume.claim(path)
    }

    /// See [`VolumeOptions::claim_journal`].
    ///
    /// # Errors
    /// See [`VolumeOptions::claim_journal`].
    pub fn claim_journal(&self) -> Result<Option<Arc<dyn BlockDevice>>> {
        self.volume.claim_journal()
    }

    /// See [`VolumeOptions::needs_recovery_on`].
    ///
    /// # Errors
    /// See [`VolumeOptions::needs_recovery_on`].
    pub fn needs_recovery_on(&self, device: &Arc<dyn BlockDevice>) -> Result<bool> {
        self.volume.needs_recovery_on(device)
    }

    /// See [`VolumeOptions::recover_on`].
    ///
    /// # Errors
    /// See [`VolumeOptions::recover_on`].
    pub fn recover_on(&self, device: Arc<dyn BlockDevice>) -> Result<()> {
        self.volume.recover_on(device)
    }

    /// Like [`Options::open_device`], at the level of inodes.
    ///
    /// # Errors
    /// See [`VolumeOptions::open_on`].
    pub fn open_volume_on(&self, device: Arc<dyn BlockDevice>) -> Result<Volume> {
        self.volume.open_on(device)
    }
}
