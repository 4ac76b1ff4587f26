//! Changing an inode's stored fields.

use std::sync::atomic::Ordering;

use extant_disk::csum::Crc32c;
use extant_jbd2::Handle;

use super::{Inode, InodeCore, record};
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::Fs;

impl Inode {
    /// Changes the stored fields and encodes them into the inode table under `h`: one credit
    /// ([`crate::volume::credits::INODE_UPDATE`]). `f` runs with `core` locked and must take no
    /// lock.
    ///
    /// # Errors
    /// The table's block cannot be read, the journal has stopped, or a value does not fit the
    /// record. Except in the last case the file system cannot be used any more; `core` keeps the
    /// change.
    pub(crate) fn update<R>(
        &self,
        fs: &Fs,
        h: &mut Handle,
        f: impl FnOnce(&mut InodeCore) -> R,
    ) -> Result<R> {
        let mut core = self.core.write();
        let before = (core.disk_size, core.sectors);
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
        record::store(fs, h, self.ino, &core)?;
        self.deferred.stored();
        if before != (core.disk_size, core.sectors) {
            if self.kind == FileKind::Regular {
                fs.super_block.note_file_size(fs, h, core.disk_size)?;
            }
            self.datasync_tid.note(h.tid());
        }
        self.sync_tid.note(h.tid());
        Ok(result)
    }

    /// Stores the record of an inode that was just allocated and entered into the cache, under `h`:
    /// what the record held before is cleared.
    ///
    /// # Errors
    /// As [`Inode::update`].
    pub(crate) fn store_new(&self, fs: &Fs, h: &mut Handle) -> Result<()> {
        let core = self.core.read();
        record::store_new(fs, h, self.ino, &core)?;
        self.note_change(h);
        Ok(())
    }

    /// The seed of the checksums of everything the inode owns (directory, extent and orphan
    /// blocks); `None` without metadata checksums.
    pub(crate) fn csum_seed(&self, fs: &Fs) -> Option<Crc32c> {
        super::format(&fs.layout).inode_seed(self.ino, self.generation)
    }
}
