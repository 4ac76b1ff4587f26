//! The key of an encrypted inode.

use std::sync::Arc;

use extant_crypt::{ContentsCipher, Context, Ivs, KeyId, NameCipher, Policy};
use extant_disk::dir_hash::DirHash;
use extant_disk::features::Compat;
use extant_disk::xattr::XattrName;
use extant_units::exact_u32;

use crate::inode::InodeFlags;
use crate::state::crypt::{Cipher, InodeKey};
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::xattr;

/// Policy and nonce of an encrypted inode.
///
/// # Errors
/// [`Error::Invalid`] if it has none that is known; damage of the attributes; a failed read.
pub(crate) fn context(fs: &Fs, inode: &Inode) -> Result<Context> {
    if let Some(key) = inode.key.get() {
        return Ok(key.context);
    }
    let stored = xattr::get_stored(fs, inode, &XattrName::ENCRYPTION_CONTEXT)?;
    let context = stored.and_then(|bytes| Context::parse(&bytes).ok());
    let folds = inode.flags().contains(InodeFlags::CASEFOLD);
    let fits =
        |context: &Context| fits(fs, &context.policy) && (may_fold(&context.policy) || !folds);
    context.filter(fits).ok_or(Error::Invalid)
}

/// Returns whether a volume can have `policy`: inode numbers are part of what encrypts only where
/// they stay.
pub(crate) fn fits(fs: &Fs, policy: &Policy) -> bool {
    let by_number = matches!(policy.ivs, Ivs::InoLblk64 | Ivs::InoLblk32);
    let numbers_stay = fs.layout.features.has_compat(Compat::STABLE_INODES);
    (numbers_stay || !by_number) && policy.fits(exact_u32(fs.layout.block_size.bytes_u64()))
}

/// Returns whether a directory with `policy` may fold the case of its names: the hashes of those of
/// the first version could not be computed.
pub(crate) fn may_fold(policy: &Policy) -> bool {
    matches!(policy.key, KeyId::Identifier(_))
}

/// The key of `inode`; `None` if it is not encrypted, or its policy is not known, or the master key
/// is not there or does not fit the policy.
///
/// # Errors
/// Damage of the attributes; a failed read.
pub(crate) fn key(fs: &Fs, inode: &Inode) -> Result<Option<Arc<InodeKey>>> {
    if !inode.flags().contains(InodeFlags::ENCRYPT) {
        return Ok(None);
    }
    if let Some(key) = inode.key.get() {
        return Ok(Some(key));
    }
    if fs.keys.is_empty() {
        return Ok(None);
    }
    let context = match context(fs, inode) {
        Err(Error::Invalid) => return Ok(None),
        context => context?,
    };
    let (ino, uuid) = (inode.ino.get(), &fs.layout.uuid);
    let id = context.policy.key;
    let derived = fs.keys.with(&id, |master| {
        let cipher = match inode.kind {
            FileKind::Regular => Cipher::Contents(master.contents(&context, ino, uuid).ok()?),
            _ => Cipher::Names(master.names(&context, ino, uuid).ok()?),
        };
        // Under the lock of the keys: a removal of this one finds the inode's.
        Some(inode.key.fill(InodeKey { context, cipher }))
    });
    Ok(derived.flatten())
}

/// The key of an encrypted inode.
///
/// # Errors
/// [`Error::NoKey`]; as [`key`].
pub(crate) fn require_key(fs: &Fs, inode: &Inode) -> Result<Arc<InodeKey>> {
    key(fs, inode)?.ok_or(Error::NoKey)
}

/// Returns whether `inode` is encrypted and there is no key.
///
/// # Errors
/// As [`key`].
pub(crate) fn is_locked(fs: &Fs, inode: &Inode) -> Result<bool> {
    Ok(inode.flags().contains(InodeFlags::ENCRYPT) && key(fs, inode)?.is_none())
}

/// Fails if the names in `dir` are encrypted and there is no key. The key stays as long as the
/// caller holds the directory's `lock`.
///
/// # Errors
/// As [`require_key`].
pub(crate) fn require_names(fs: &Fs, dir: &Inode) -> Result<()> {
    match dir.flags().contains(InodeFlags::ENCRYPT) {
        true => require_key(fs, dir).map(drop),
        false => Ok(()),
    }
}

impl InodeKey {
    /// The key of a regular file's data; `None` if it is no such key.
    pub(crate) fn contents(&self) -> Option<&ContentsCipher> {
        match &self.cipher {
            Cipher::Contents(cipher) => Some(cipher),
            Cipher::Names(_) => None,
        }
    }

    /// The key of names and targets; `None` if it is no such key.
    pub(crate) fn names(&self) -> Option<&NameCipher> {
        match &self.cipher {
            Cipher::Names(cipher) => Some(cipher),
            Cipher::Contents(_) => None,
        }
    }

    /// The stored form of `name`, of `most` bytes at most.
    ///
    /// # Errors
    /// [`Error::NameTooLong`].
    pub(crate) fn encrypt_name(&self, name: &[u8], most: usize) -> Result<Vec<u8>> {
        let cipher = self.names().ok_or(Error::NoKey)?;
        let len = cipher.encrypted_len(name.len(), most);
        Ok(cipher.encrypt(name, len.ok_or(Error::NameTooLong)?))
    }

    /// The name with this stored form; `None` if it is of no name.
    pub(crate) fn decrypt_name(&self, stored: &[u8]) -> Option<Vec<u8>> {
        self.names()?.decrypt(stored)
    }

    /// The hash of a folded name in a directory that folds case; `None` if it cannot be one.
    pub(crate) fn dir_hash(&self, folded: &[u8]) -> Option<DirHash> {
        let (major, minor) = self.names()?.dir_hash(folded)?;
        Some(DirHash { major, minor })
    }
}
