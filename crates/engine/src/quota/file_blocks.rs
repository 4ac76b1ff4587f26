//! The blocks of a file of quotas, in the block cache.
//!
//! They are metadata: they change under handles, and go through the journal.

use extant_disk::damage::QuotaDamage;
use extant_disk::quota::{
    self, BLOCK, EntryPlace, QuotaBlock, QuotaBlocks, QuotaBlocksMut, QuotaEntry, QuotaError,
    QuotaHeader, QuotaKind,
};
use extant_jbd2::{Block, Handle};
use extant_sync::atomic::Ordering;
use extant_units::{BlockSize, Lblk};

use crate::map;
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, MapState};
use crate::state::quota::StoredEntry;
use crate::state::volume::CheckKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The blocks of one file.
pub(super) struct FileBlocks<'a> {
    fs: &'a Fs,
    kind: QuotaKind,
    inode: &'a Inode,
    /// `None` to read only.
    h: Option<&'a mut Handle>,
}

/// A failure of the file system, or damage of the file.
pub(super) enum BlocksError {
    Failed(Error),
    Damaged(QuotaError),
}

impl From<QuotaError> for BlocksError {
    fn from(error: QuotaError) -> Self {
        Self::Damaged(error)
    }
}

impl From<Error> for BlocksError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl<'a> FileBlocks<'a> {
    /// Those of `inode`, the file of `kind`, to read.
    pub(super) fn to_read(fs: &'a Fs, kind: QuotaKind, inode: &'a Inode) -> Self {
        Self {
            fs,
            kind,
            inode,
            h: None,
        }
    }

    /// The same, to change under `h`.
    pub(super) fn to_change(
        fs: &'a Fs,
        kind: QuotaKind,
        inode: &'a Inode,
        h: &'a mut Handle,
    ) -> Self {
        Self {
            h: Some(h),
            ..Self::to_read(fs, kind, inode)
        }
    }

    /// The header.
    ///
    /// # Errors
    /// Damage; a failed read.
    pub(super) fn header(&mut self) -> Result<QuotaHeader> {
        let first = self.read(0).map_err(|error| self.error(error))?;
        QuotaHeader::decode(self.kind, self.inode.size(), &first)
            .map_err(|error| self.error(error.into()))
    }

    /// Writes the header.
    ///
    /// # Errors
    /// A stopped journal; a failed read.
    pub(super) fn set_header(&mut self, header: &QuotaHeader) -> Result<()> {
        let changed = self.read(0).and_then(|old| {
            let mut new = old;
            header.encode(&mut new);
            self.change(0, &old, &new)
        });
        changed.map_err(|error| self.error(error))
    }

    /// The entry of `id`.
    ///
    /// # Errors
    /// Damage; a failed read.
    pub(super) fn find(
        &mut self,
        header: &QuotaHeader,
        id: u32,
    ) -> Result<Option<(StoredEntry, QuotaEntry)>> {
        let found = quota::find(self, header, id).map_err(|error| self.error(error))?;
        found
            .map(|(place, entry)| Ok((self.stored(place)?, entry)))
            .transpose()
    }

    /// Adds `entry`, whose id has none.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; damage; a failed read; a stopped journal.
    pub(super) fn insert(
        &mut self,
        header: &mut QuotaHeader,
        entry: &QuotaEntry,
    ) -> Result<StoredEntry> {
        let place = quota::insert(self, header, entry).map_err(|error| self.error(error))?;
        self.stored(place)
    }

    /// The entry of `id`, or of the first id behind it that has one.
    ///
    /// # Errors
    /// Damage; a failed read.
    pub(super) fn first_from(
        &mut self,
        header: &QuotaHeader,
        id: u32,
    ) -> Result<Option<QuotaEntry>> {
        let found = quota::first_from(self, header, id);
        found.map_err(|error| self.error(error))
    }

    /// Every entry, in the order of the ids.
    ///
    /// # Errors
    /// Damage; a failed read.
    pub(super) fn entries(&mut self, header: &QuotaHeader) -> Result<Vec<QuotaEntry>> {
        let mut all = Vec::new();
        let walked = quota::walk(self, header, &mut |_, entry| {
            all.push(entry);
            Ok(())
        });
        walked.map_err(|error| self.error(error))?;
        Ok(all)
    }

    fn error(&self, error: BlocksError) -> Error {
        match error {
            BlocksError::Failed(error) => error,
            BlocksError::Damaged(error) => {
                let kind = self.kind;
                let damage = QuotaDamage::File { kind, error };
                Error::corrupt(Location::Inode(self.inode.ino), damage)
            }
        }
    }

    fn stored(&self, place: EntryPlace) -> Result<StoredEntry> {
        let (lblk, offset) = self.place(place.byte());
        let block = self.block(lblk)?;
        let short = QuotaError::Short { block: place.block };
        let block = block.ok_or_else(|| self.error(short.into()))?;
        Ok(StoredEntry { block, offset })
    }

    /// The block of the volume's size that has byte `at`, and where.
    fn place(&self, at: u64) -> (Lblk, usize) {
        let bs: BlockSize = self.fs.layout.block_size;
        let offset = at & (bs.bytes_u64() - 1);
        (
            Lblk::new(extant_units::at_most_u32(at >> bs.log2())),
            extant_units::index(offset),
        )
    }

    /// The block at `lblk`; `None` for a hole.
    fn block(&self, lblk: Lblk) -> Result<Option<Block>> {
        let MapState::Written(pblk) = map::lookup(self.fs, self.inode, lblk, 1)?.state else {
            return Ok(None);
        };
        let key = CheckKind::Quota.of_inode(self.inode.ino);
        Ok(Some(self.fs.cache.read(pblk, key, |_| Ok::<_, Error>(()))?))
    }

    /// A new block of zeros at `lblk`.
    fn new_block(&mut self, lblk: Lblk) -> Result<Block> {
        let h = self.h.as_deref_mut().ok_or(Error::Invalid)?;
        let how = AllocateMode {
            metadata: true,
            privileged: true,
            ..AllocateMode::default()
        };
        let mapping = map::allocate(self.fs, h, self.inode, lblk, 1, how)?;
        let MapState::Written(pblk) = mapping.state else {
            return Err(Error::NoSpace);
        };
        Ok(h.create(pblk, CheckKind::Quota.of_inode(self.inode.ino))?)
    }
}

impl QuotaBlocks for FileBlocks<'_> {
    type Error = BlocksError;

    fn read(&mut self, block: u32) -> Result<QuotaBlock, BlocksError> {
        let (lblk, offset) = self.place(u64::from(block) * BLOCK as u64);
        let found = self.block(lblk)?.ok_or(QuotaError::Short { block })?;
        let data = found.data();
        let bytes = data.get(offset..).and_then(|bytes| bytes.first_chunk());
        Ok(*bytes.ok_or(QuotaError::Short { block })?)
    }
}

impl QuotaBlocksMut for FileBlocks<'_> {
    fn append(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), BlocksError> {
        let start = u64::from(block) * BLOCK as u64;
        let (lblk, offset) = self.place(start);
        // An insertion that failed later may have left one.
        let place = match self.block(lblk)? {
            Some(place) => place,
            None => self.new_block(lblk)?,
        };
        let (fs, inode) = (self.fs, self.inode);
        let h = self.h.as_deref_mut().ok_or(Error::Invalid)?;
        h.modify(&place, |to| {
            to[offset..offset + BLOCK].copy_from_slice(bytes);
        })
        .map_err(Error::from)?;
        let end = start + BLOCK as u64;
        if end > inode.size() {
            inode.size.store(end, Ordering::Release);
            inode.update(fs, h, |core| core.disk_size = end)?;
        }
        Ok(())
    }

    fn change(
        &mut self,
        block: u32,
        old: &QuotaBlock,
        new: &QuotaBlock,
    ) -> Result<(), BlocksError> {
        let (lblk, offset) = self.place(u64::from(block) * BLOCK as u64);
        let place = self.block(lblk)?.ok_or(QuotaError::Short { block })?;
        let h = self.h.as_deref_mut().ok_or(Error::Invalid)?;
        h.modify(&place, |to| {
            let bytes = to[offset..].iter_mut().zip(old.iter().zip(new));
            for (to, (_, new)) in bytes.filter(|(_, (old, new))| old != new) {
                *to = *new;
            }
        })
        .map_err(Error::from)?;
        Ok(())
    }
}
