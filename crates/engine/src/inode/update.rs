//! Changing an inode's stored fields.

use extant_sync::atomic::Ordering;

use extant_disk::csum::Crc32c;
use extant_jbd2::Handle;

use super::{HeldRecord, InodeCore, counted_usage};
use crate::state::inode::Inode;
use crate::state::quota::OwnerIds;
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::{Fs, stop};

impl Inode {
    /// Changes the stored fields and encodes them into the inode table under `h`: one credit
    /// ([`crate::volume::credits::INODE_UPDATE`]). `f` runs with `core` locked and must take no
    /// lock.
    ///
    /// # Errors
    /// The table's block cannot be read: nothing has changed then. The journal has stopped, or a
    /// value does not fit the record; `core` keeps the change.
    pub(crate) fn update<R>(
        &self,
        fs: &Fs,
        h: &mut Handle,
        f: impl FnOnce(&mut InodeCore) -> R,
    ) -> Result<R> {
        let record = self.hold_record(fs)?;
        self.update_held(fs, h, &record, f)
    }

    /// As [`Inode::update`], where `record` is the inode's: reads nothing.
    ///
    /// # Errors
    /// As [`Inode::update`], but for the table.
    pub(crate) fn update_held<R>(
        &self,
        fs: &Fs,
        h: &mut Handle,
        record: &HeldRecord,
        f: impl FnOnce(&mut InodeCore) -> R,
    ) -> Result<R> {
        debug_assert!(record.is_of(self.ino), "the record of another inode");
        let mut core = self.core.write();
        let before = (core.disk_size, core.sectors);
        let owners = OwnerIds::of(&core);
        let result = f(&mut core);
        debug_assert_eq!(
            core.generation, self.generation,
            "checksums of the inode's blocks depend on it"
        );
        debug_assert_eq!(
            FileKind::from_mode(core.mode),
            Some(self.kind),
            "an inode keeps its kind"
        );
        debug_assert!(
            self.kind != FileKind::Regular || core.disk_size <= self.size(),
            "J1: {} bytes on disk, {} in memory",
            core.disk_size,
            self.size()
        );
        self.flags.store(core.flags.bits(), Ordering::Release);
        self.disk_size.store(core.disk_size, Ordering::Release);
        self.noted.forget();
        self.life.doomed.store(core.links == 0, Ordering::Release);
        record.store(fs, h, &core, false)?;
        self.deferred.stored();
        if before.1 != core.sectors || owners != OwnerIds::of(&core) {
            counted_usage::count(fs, h, self, &core).inspect_err(|error| stop(h, error))?;
        }
        if before != (core.disk_size, core.sectors) {
            if self.kind == FileKind::Regular {
                let noted = fs.super_block.note_file_size(fs, h, core.disk_size);
                noted.inspect_err(|error| stop(h, error))?;
            }
            self.datasync_tid.note(h.tid());
        }
        self.sync_tid.note(h.tid());
        Ok(result)
    }

    /// As [`Inode::update`] of a directory, for what changes in it with one of its entries: a fast
    /// commit tells the entry, and a replay changes times and size by itself.
    ///
    /// # Errors
    /// As [`Inode::update`].
    pub(crate) fn update_with_entry<R>(
        &self,
        fs: &Fs,
        h: &mut Handle,
        record: &HeldRecord,
        f: impl FnOnce(&mut InodeCore) -> R,
    ) -> Result<R> {
        debug_assert_eq!(self.kind, FileKind::Directory, "it has entries");
        h.telling(|h| self.update_held(fs, h, record, f))
    }

    /// The inode's record in the table: while it is held, [`Inode::update`] reads nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn hold_record(&self, fs: &Fs) -> Result<HeldRecord> {
        HeldRecord::of(fs, self.ino)
    }

    /// Stores the record of an inode that was just allocated and entered into the cache, under `h`:
    /// what the record held before is cleared.
    ///
    /// # Errors
    /// As [`Inode::update`].
    pub(crate) fn store_new(&self, fs: &Fs, h: &mut Handle) -> Result<()> {
        let record = self.hold_record(fs)?;
        let core = self.core.read();
        record.store(fs, h, &core, true)?;
        counted_usage::begin(h, self, &core).inspect_err(|error| stop(h, error))?;
        self.note_change(h);
        Ok(())
    }

    /// The seed of the checksums of everything the inode owns (directory, extent and orphan
    /// blocks); `None` without metadata checksums.
    pub(crate) fn csum_seed(&self, fs: &Fs) -> Option<Crc32c> {
        super::format(&fs.layout).inode_seed(self.ino, self.generation)
    }
}
