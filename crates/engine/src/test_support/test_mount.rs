//! For unit tests: a mounted file system from the inside.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extant_blockdev::{BlockDevice, FileDevice, OpenError, OpenMode};
use extant_units::Ino;

use crate::config::{MountOptions, Tuning};
use crate::state::inode::InodeRef;
use crate::types::Cred;
use crate::types::error::Result;
use crate::volume::Fs;
use crate::{mount, namei};

/// A mount that is unmounted when the value is dropped.
pub(crate) struct TestFs {
    pub(crate) fs: Arc<Fs>,
}

impl TestFs {
    /// Mounts the image file at `path` with a comma list of options.
    pub(crate) fn mount(path: &Path, options: &str) -> Self {
        // A process that another test starts has our descriptors, and with them the lock, until it
        // runs its program.
        let mut tries = 0;
        let dev = loop {
            match FileDevice::open(path, OpenMode::ReadWrite) {
                Err(OpenError::InUse(..)) if tries < 200 => {
                    tries += 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => break other.unwrap(),
            }
        };
        Self::on(Arc::new(dev), options).unwrap()
    }

    /// Mounts any device. Only the test causes writes and commits.
    pub(crate) fn on(dev: Arc<dyn BlockDevice>, options: &str) -> Result<Self> {
        let options = MountOptions::parse(&format!("commit=3000,{options}"))?;
        let tuning = Tuning {
            page_cache_bytes: Some(16 << 20),
            flushers: 0,
            ..Tuning::default()
        };
        Ok(Self {
            fs: mount::mount(dev, options, tuning)?,
        })
    }

    pub(crate) fn root(&self) -> InodeRef {
        self.fs.iget(Ino::ROOT).unwrap()
    }

    /// Creates a file in the root.
    pub(crate) fn create(&self, name: &str) -> InodeRef {
        namei::create(
            &self.fs,
            &self.root(),
            name.as_bytes(),
            0o644,
            &Cred::root(),
        )
        .unwrap()
    }

    /// Creates a directory in the root.
    pub(crate) fn mkdir(&self, name: &str) -> InodeRef {
        namei::mkdir(
            &self.fs,
            &self.root(),
            name.as_bytes(),
            0o755,
            &Cred::root(),
        )
        .unwrap()
    }

    /// Finds a name in the root.
    pub(crate) fn find(&self, name: &str) -> InodeRef {
        namei::lookup(&self.fs, &self.root(), name.as_bytes()).unwrap()
    }

    /// Removes a name from the root.
    pub(crate) fn unlink(&self, name: &str) {
        namei::unlink(&self.fs, &self.root(), name.as_bytes()).unwrap();
    }

    /// Unmounts, and fails if that does.
    pub(crate) fn unmount(self) {
        mount::unmount(&self.fs).unwrap();
    }
}

impl Deref for TestFs {
    type Target = Arc<Fs>;

    fn deref(&self) -> &Arc<Fs> {
        &self.fs
    }
}

impl Drop for TestFs {
    fn drop(&mut self) {
        // The second time nothing happens.
        if let Err(error) = mount::unmount(&self.fs) {
            eprintln!("unmount: {error}");
        }
    }
}
