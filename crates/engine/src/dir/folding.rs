//! Directories that fold the case of their names (`casefold`).
//!
//! [`extant_casefold::key`] is the same for all spellings of a name. The blocks are searched by it
//! ([`DirFormat::folded`]), an index hashes it, and the cache of names has entries under it.
//!
//! Entries of encrypted names have the hash of that key, by the directory's own secret, behind the
//! stored name ([`DirFormat::hashes`]): a name is looked for by that, and those that have it are
//! decrypted and compared ([`super::sought_name`]). Without the secret no name is folded.
//!
//! [`DirFormat::folded`]: extant_disk::dirent::DirFormat::folded
//! [`DirFormat::hashes`]: extant_disk::dirent::DirFormat::hashes

use std::borrow::Cow;

use extant_casefold as casefold;
use extant_disk::dirent::MAX_NAME_LEN;

use crate::crypt;
use crate::inode::{ExclusiveInode, InodeFlags};
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Directories with both flags have the hashes of names in their entries.
pub(super) const STORED_HASHES: InodeFlags = InodeFlags::CASEFOLD.union(InodeFlags::ENCRYPT);

/// Returns whether `dir` finds names in any spelling of their case as they stand in its blocks. It
/// does not where they are encrypted.
#[inline]
pub(crate) fn folds(dir: &Inode) -> bool {
    dir.flags().intersection(STORED_HASHES) == InodeFlags::CASEFOLD
}

/// The form of `name` that the cache of names knows it by; `None` if it does not keep it. All
/// spellings of a name in a folded directory have one, which is no name, so that it is not taken
/// for one of a directory that does not fold: the flag may have changed, and a key may look like a
/// name with another key.
#[inline]
pub(crate) fn cache_key<'n>(dir: &Inode, name: &'n [u8]) -> Option<Cow<'n, [u8]>> {
    let flags = dir.flags();
    if flags.contains(InodeFlags::ENCRYPT) {
        // A name there is one as long as the key is there or is not there.
        return None;
    }
    if !flags.contains(InodeFlags::CASEFOLD) {
        return Some(name.into());
    }
    let key = [&[0], &*casefold::key(name)].concat();
    (key.len() <= MAX_NAME_LEN).then_some(key.into())
}

/// Takes `name` out of the cache of names. A change of its entry follows.
pub(crate) fn forget(fs: &Fs, dir: ExclusiveInode<'_>, name: &[u8]) {
    if let Some(key) = cache_key(&dir, name) {
        fs.names.forget(dir.ino, &key);
    }
}

/// Fails for a name that a folded directory cannot have: one that is not UTF-8, on a volume with
/// strict encoding.
pub(super) fn check_encoding(fs: &Fs, dir: &Inode, name: &[u8]) -> Result<()> {
    let strict = fs.layout.strict_names && dir.flags().contains(InodeFlags::CASEFOLD);
    // Without the key a name is one that stands for stored bytes.
    if strict && !casefold::is_text(name) && !crypt::is_locked(fs, dir)? {
        return Err(Error::Invalid);
    }
    Ok(())
}
