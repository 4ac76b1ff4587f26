//! Encrypted files: their keys and their policies.

use extant_crypt::{Context, KeyId, MasterKey, Policy};

use super::node::Node;
use super::volume::Volume;
use crate::crypt::{self, keys};
use crate::types::KeyStatus;
use crate::{Cred, Error, Result, attr};

impl Volume {
    /// Adds a master key of 16 to 64 bytes, for policies of the second version: files that it
    /// encrypts can be used from now on. Returns the identifier that policies name it by. A key
    /// that is there already stays.
    ///
    /// The key is kept in memory until [`Volume::remove_key`] or the unmount, which wipe it.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a volume without the feature `encrypt`; [`Error::Invalid`] for a
    /// key of another length.
    pub fn add_key(&self, key: &[u8]) -> Result<KeyId> {
        self.fs().fault.check_alive()?;
        let key = MasterKey::new(key).map_err(|_| Error::Invalid)?;
        let id = key.identifier();
        keys::add(self.fs(), id, key).map(|()| id)
    }

    /// Adds a master key for policies of the first version, which name it by the descriptor that
    /// the caller gives. Nothing tells whether it is the right one: with a wrong key names and data
    /// are damage or senseless.
    ///
    /// # Errors
    /// As [`Volume::add_key`].
    pub fn add_key_with_descriptor(&self, descriptor: [u8; 8], key: &[u8]) -> Result<KeyId> {
        self.fs().fault.check_alive()?;
        let key = MasterKey::new(key).map_err(|_| Error::Invalid)?;
        let id = KeyId::Descriptor(descriptor);
        keys::add(self.fs(), id, key).map(|()| id)
    }

    /// Writes what is dirty and removes a master key: names and files that it encrypts are locked
    /// again. A regular file that is in use, as a [`Node`] of it is held, can be used until the
    /// last one goes; call this again then.
    ///
    /// # Errors
    /// [`Error::NoKey`] if the key is not there; those of [`Volume::sync`], with the key removed
    /// all the same.
    pub fn remove_key(&self, id: &KeyId) -> Result<KeyStatus> {
        if keys::status(self.fs(), id) == KeyStatus::Absent {
            return Err(Error::NoKey);
        }
        let synced = self.sync();
        let state = keys::remove(self.fs(), id)?;
        synced.map(|()| state)
    }

    /// The state of a master key.
    pub fn key_status(&self, id: &KeyId) -> KeyStatus {
        keys::status(self.fs(), id)
    }

    /// The encryption context of an inode: its policy, and a nonce of its own.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] if it is not encrypted; [`Error::Invalid`] if its policy is not one
    /// of Linux; damage; a failed read.
    pub fn encryption(&self, node: &Node) -> Result<Context> {
        self.fs().fault.check_alive()?;
        attr::get_policy(self.fs(), node.inode())
    }

    /// Encrypts an empty directory, and all that will be made in it, by `policy`. Whatever has it
    /// already stays as it is.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a volume without the feature `encrypt`; [`Error::NotDir`];
    /// [`Error::NotEmpty`]; [`Error::Exists`] if it has another policy; [`Error::AccessDenied`] for
    /// a caller that is not its owner; [`Error::NoKey`] if a policy of the second version names a
    /// key that is not there; [`Error::Invalid`] for a policy that Linux refuses on such a volume;
    /// [`Error::NoSpace`]; [`Error::ReadOnly`].
    pub fn set_encryption_policy(&self, node: &Node, policy: &Policy, cred: &Cred) -> Result<()> {
        self.fs().fault.check_alive()?;
        attr::set_policy(self.fs(), node.inode(), policy, cred)
    }

    /// Fails if `node` is encrypted and cannot be used for lack of its key, or was found in an
    /// encrypted directory and does not have its policy: such a file was put there without the key.
    /// A front end asks this where files are opened; reads and writes ask for the key themselves.
    ///
    /// # Errors
    /// [`Error::NoKey`]; [`Error::NotPermitted`]; damage; a failed read.
    pub fn check_key(&self, node: &Node) -> Result<()> {
        match crypt::is_locked(self.fs(), node.inode())? {
            false if node.inode().key.is_misplaced() => Err(Error::NotPermitted),
            true => Err(Error::NoKey),
            false => Ok(()),
        }
    }
}
