//! A name as it is looked for in the blocks of a directory.

use std::borrow::Cow;
use std::sync::Arc;

use extant_casefold as casefold;
use extant_disk::dir_edit::NewEntry;
use extant_disk::dir_gap::NameOrGap;
use extant_disk::dir_hash::{DirHash, DirHasher};
use extant_disk::dirent::{DirFormat, DirentError, EntrySlot, FileType, Record};
use extant_disk::hashed_name::HashedName;
use extant_units::Ino;

use crate::state::crypt::InodeKey;

/// A name that is neither "." nor "..".
pub(super) struct SoughtName<'n> {
    /// The bytes of an entry for it.
    stored: Cow<'n, [u8]>,
    /// Set where names are folded and encrypted.
    folded: Option<FoldedName>,
}

/// All spellings of a name, in a directory that encrypts names and folds their case.
struct FoldedName {
    /// The hash of their entries.
    hash: DirHash,
    /// The form that they have in common.
    folded: Vec<u8>,
    key: Arc<InodeKey>,
    /// Some kernels store another hash with it.
    has_other_hashes: bool,
}

impl<'n> SoughtName<'n> {
    /// The name that entries have as the bytes `stored`.
    pub(super) fn of_bytes(stored: impl Into<Cow<'n, [u8]>>) -> Self {
        Self {
            stored: stored.into(),
            folded: None,
        }
    }

    /// The name `plain` of a directory with stored hashes, and in its entry the bytes `stored`.
    /// `None` if `key` makes no hashes.
    pub(super) fn of_folded(
        plain: &[u8],
        stored: Vec<u8>,
        key: &Arc<InodeKey>,
    ) -> Option<SoughtName<'static>> {
        let folded = casefold::key(plain).into_owned();
        Some(SoughtName {
            stored: stored.into(),
            folded: Some(FoldedName {
                hash: key.dir_hash(&folded)?,
                folded,
                key: Arc::clone(key),
                has_other_hashes: casefold::leaves_out(plain),
            }),
        })
    }

    /// A new entry for it.
    pub(super) fn entry(&self, ino: Ino, file_type: FileType) -> NewEntry<'_> {
        NewEntry {
            name: &self.stored,
            ino,
            file_type,
            hash: self.folded.as_ref().map(|it| it.hash),
        }
    }

    /// Its major hash in an index; `hasher` is the index's, where entries have no hashes.
    pub(super) fn major(&self, hasher: &DirHasher) -> u32 {
        match &self.folded {
            Some(it) => it.hash.major,
            None => hasher.hash(&self.stored).major,
        }
    }

    /// Returns whether an index may have it under another hash than ours, as some kernels made it:
    /// those of Linux that leave such names where they are search the whole directory as well.
    pub(super) fn may_be_elsewhere(&self, format: &DirFormat) -> bool {
        match &self.folded {
            Some(it) => it.has_other_hashes,
            None => format.folded && casefold::leaves_out(&self.stored),
        }
    }

    /// Its entry in a block.
    pub(super) fn find_slot<'b>(
        &self,
        format: &DirFormat,
        block: &'b [u8],
    ) -> Result<Option<(Record<'b>, EntrySlot)>, DirentError> {
        match &self.folded {
            Some(it) => it.as_hashed(self.stored.len(), |name| format.find_hashed(block, name)),
            None => format.find_slot(block, &self.stored),
        }
    }

    /// Searches a block for it and, on the way, for free space that holds its entry.
    pub(super) fn find_or_gap(
        &self,
        format: &DirFormat,
        block: &[u8],
    ) -> Result<NameOrGap, DirentError> {
        match &self.folded {
            Some(it) => it.as_hashed(self.stored.len(), |name| {
                format.find_hashed_or_gap(block, name)
            }),
            None => format.find_or_gap(block, &self.stored),
        }
    }
}

impl FoldedName {
    /// Calls `look` with what a block is searched for.
    fn as_hashed<R>(&self, len: usize, look: impl FnOnce(&HashedName<'_>) -> R) -> R {
        let is_name = |stored: &[u8]| {
            let plain = self.key.decrypt_name(stored);
            plain.is_some_and(|plain| casefold::has_key(&plain, &self.folded))
        };
        look(&HashedName {
            hash: (!self.has_other_hashes).then_some(self.hash),
            is_name: &is_name,
            len,
        })
    }
}
