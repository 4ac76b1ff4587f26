//! The form of names in the blocks of a directory: as they are, or encrypted.
//!
//! Encrypted names are bytes like others to the blocks and to the index. A name is encrypted before
//! it is looked for or added, and decrypted where entries are listed. Without the key, entries are
//! shown in another form ([`super::nokey_name`]), which they are found by as well.

use std::borrow::Cow;
use std::sync::Arc;

use extant_casefold as casefold;
use extant_disk::dirent::{DirentError, MAX_NAME_LEN, Record};

use super::folding::STORED_HASHES;
use super::nokey_name;
use super::sought_name::SoughtName;
use crate::crypt;
use crate::inode::InodeFlags;
use crate::state::crypt::InodeKey;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// The form of a directory's names.
#[derive(Clone, Debug)]
pub(super) enum NameForm {
    /// As they are.
    Plain,
    /// Encrypted, by this key.
    Encrypted(Arc<InodeKey>),
    /// Encrypted, by this key, and found in any spelling.
    Folded(Arc<InodeKey>),
    /// Encrypted, and there is no key.
    Hidden,
}

impl NameForm {
    /// That of `dir`. A key that cannot be had for damage of its attribute is none: names can still
    /// be listed and removed.
    pub(super) fn of(fs: &Fs, dir: &Inode) -> Self {
        if !dir.flags().contains(InodeFlags::ENCRYPT) {
            return Self::Plain;
        }
        match crypt::key(fs, dir) {
            Ok(Some(key)) if dir.flags().contains(STORED_HASHES) => Self::Folded(key),
            Ok(Some(key)) => Self::Encrypted(key),
            Ok(None) | Err(_) => Self::Hidden,
        }
    }

    /// The form in which `name`, which is neither "." nor "..", is looked for or added.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] for a name that does not fit an entry; [`Error::NoKey`].
    pub(super) fn stored<'n>(&self, name: &'n [u8]) -> Result<SoughtName<'n>> {
        match self {
            Self::Plain => Ok(SoughtName::of_bytes(name)),
            Self::Encrypted(key) => key
                .encrypt_name(name, MAX_NAME_LEN)
                .map(SoughtName::of_bytes),
            Self::Folded(key) => {
                let stored = key.encrypt_name(name, MAX_NAME_LEN)?;
                SoughtName::of_folded(name, stored, key).ok_or(Error::NoKey)
            }
            Self::Hidden => Err(Error::NoKey),
        }
    }

    /// Returns whether the key makes a name of an entry.
    pub(super) fn deciphers(&self, record: &Record<'_>) -> bool {
        match self {
            Self::Encrypted(key) => decrypted(key, record).is_some(),
            Self::Folded(key) => {
                decrypted(key, record).is_some_and(|name| has_its_hash(key, &name, record))
            }
            Self::Plain | Self::Hidden => false,
        }
    }

    /// The name of an entry, as callers see it; `hash` has the words of its hash in the directory's
    /// order. One that the key makes no name of is shown as without the key: the key may be the
    /// wrong one.
    ///
    /// # Errors
    /// It is no name, with any key.
    pub(super) fn shown<'a>(
        &self,
        record: &Record<'a>,
        hash: impl FnOnce(&[u8]) -> (u32, u32),
    ) -> std::result::Result<Cow<'a, [u8]>, DirentError> {
        let decrypted = match self {
            Self::Plain => return record.check_name().map(|()| Cow::Borrowed(record.name)),
            Self::Encrypted(key) => decrypted(key, record),
            Self::Folded(key) => {
                decrypted(key, record).filter(|name| has_its_hash(key, name, record))
            }
            Self::Hidden => None,
        };
        Ok(Cow::Owned(decrypted.unwrap_or_else(|| {
            let (major, minor) = hash(record.name);
            nokey_name::shown(major, minor, record.name)
        })))
    }
}

/// Returns whether `name` is found by the hash that its entry has.
fn has_its_hash(key: &InodeKey, name: &[u8], record: &Record<'_>) -> bool {
    casefold::leaves_out(name) || key.dir_hash(&casefold::key(name)) == record.hash
}

/// The name of `record`, decrypted; `None` if no path could hold it.
fn decrypted(key: &InodeKey, record: &Record<'_>) -> Option<Vec<u8>> {
    let name = key.decrypt_name(record.name)?;
    let plain = Record {
        name: &name,
        ..*record
    };
    let is_name = plain.check_name().is_ok() && !matches!(&name[..], b"." | b"..");
    // What is listed is found: a lookup encrypts the name.
    let leads_back = || {
        key.encrypt_name(&name, MAX_NAME_LEN)
            .is_ok_and(|it| it == record.name)
    };
    (is_name && leads_back()).then_some(name)
}
