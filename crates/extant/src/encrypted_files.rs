//! Encrypted directories and files: their keys and policies, by paths.

use std::path::Path;

use extant_engine::{EncryptionContext, EncryptionPolicy, KeyId, KeyStatus, Result};

use crate::filesystem::Filesystem;

impl Filesystem {
    /// Adds a master key: see [`Volume::add_key`]. Files that it encrypts can be used from now on.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let image = extant_testkit::Image::of_mib(16).args("-O encrypt").make().expect("mke2fs");
    /// use extant::{EncryptionPolicy, Error, Filesystem};
    ///
    /// let key = [7; 64]; // of a random source, in earnest
    /// let fs = Filesystem::options().write(true).open(image.path())?;
    /// let id = fs.add_key(&key)?;
    /// fs.create_dir("/secret")?;
    /// fs.set_encryption_policy("/secret", &EncryptionPolicy::usual(id))?;
    /// fs.write("/secret/plan", b"attack at dawn")?;
    /// fs.remove_key(&id)?;
    /// assert!(matches!(fs.read("/secret/plan"), Err(Error::NotFound)));
    /// fs.add_key(&key)?;
    /// assert_eq!(fs.read("/secret/plan")?, b"attack at dawn");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As there.
    ///
    /// [`Volume::add_key`]: extant_engine::Volume::add_key
    pub fn add_key(&self, key: &[u8]) -> Result<KeyId> {
        self.volume().add_key(key)
    }

    /// Adds a master key for policies of the first version: see
    /// [`Volume::add_key_with_descriptor`](extant_engine::Volume::add_key_with_descriptor).
    ///
    /// # Errors
    /// As there.
    pub fn add_key_with_descriptor(&self, descriptor: [u8; 8], key: &[u8]) -> Result<KeyId> {
        self.volume().add_key_with_descriptor(descriptor, key)
    }

    /// Removes a master key: see [`Volume::remove_key`](extant_engine::Volume::remove_key).
    ///
    /// # Errors
    /// As there.
    pub fn remove_key(&self, id: &KeyId) -> Result<KeyStatus> {
        self.volume().remove_key(id)
    }

    /// The state of a master key.
    pub fn key_status(&self, id: &KeyId) -> KeyStatus {
        self.volume().key_status(id)
    }

    /// Encrypts an empty directory and all that will be made in it: see
    /// [`Volume::set_encryption_policy`](extant_engine::Volume::set_encryption_policy).
    ///
    /// # Errors
    /// As there; those of finding the directory.
    pub fn set_encryption_policy(
        &self,
        path: impl AsRef<Path>,
        policy: &EncryptionPolicy,
    ) -> Result<()> {
        let node = self.node(path, true)?;
        self.volume()
            .set_encryption_policy(&node, policy, self.cred())
    }

    /// Policy and nonce of a file or directory; a symbolic link is not followed.
    ///
    /// # Errors
    /// [`Error::NoAttribute`](extant_engine::Error::NoAttribute) if it is not; those of finding it.
    pub fn encryption(&self, path: impl AsRef<Path>) -> Result<EncryptionContext> {
        let node = self.node(path, false)?;
        self.volume().encryption(&node)
    }
}
