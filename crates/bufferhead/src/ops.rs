//! Interface that a file system implements, beside [`extant_iomap::IomapOps`].

use extant_iomap::{Iomap, IomapOps, WritebackOps};
use extant_pagecache::FolioLocked;
use extant_units::{DevOff, Pos};

use crate::counters::BufferCounters;

/// Location of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockLocation {
    /// Nowhere yet: space is reserved, and not allocated.
    Delayed,
    /// In allocated space without data: reads as zero.
    Unwritten(DevOff),
    /// In space with data.
    Written(DevOff),
}

/// The file system's answer about one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockMap {
    /// Location of the block.
    pub location: BlockLocation,
    /// The block has no data of its own yet: the space was made for this write, or reads as zero.
    pub new: bool,
}

/// Result of a write to one folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolioWrite {
    /// The first byte.
    pub pos: Pos,
    /// The byte after the last.
    pub end: Pos,
    /// The file's size before.
    pub old_size: u64,
    /// The block of the last byte has written space, and the write made the file longer or made it
    /// that: writeback will allocate nothing for it, and so will not move the size on disk.
    pub last_block_written: bool,
}

impl FolioWrite {
    /// Returns whether the file grew.
    pub fn grew(&self) -> bool {
        self.end.get() > self.old_size
    }
}

/// One file, as the buffer-head path sees it.
pub trait BufferOps: IomapOps {
    /// A journal handle, for writes that allocate their space at once.
    type Handle;

    /// The counters to use.
    fn buffer_counters(&self) -> &BufferCounters;

    /// Returns whether walks over the records stop after the range where no record after it can
    /// matter. (The other setting is for comparison.)
    fn stop_at_range_end(&self) -> bool;

    /// Decides how the next folio write, of `blocks` blocks at `pos`, gets its space. `None`: it is
    /// reserved. Otherwise it is allocated at once, under the handle that this starts; the number
    /// is of blocks that the handle has credits for, at least one. The caller holds no folio lock.
    ///
    /// # Errors
    /// The file system's.
    fn start_write(
        &self,
        pos: Pos,
        blocks: u32,
    ) -> Result<Option<(Self::Handle, u32)>, Self::Error>;

    /// The block at `pos`, with space: reserved, or allocated under `handle`.
    ///
    /// # Errors
    /// No space; damage; a stopped journal.
    fn map_block(
        &self,
        _locked: FolioLocked<'_>,
        handle: Option<&mut Self::Handle>,
        pos: Pos,
    ) -> Result<BlockMap, Self::Error>;

    /// Called when the bytes `[start, end)` are in the cache, whose space was allocated under
    /// `handle`: converts it to written now, or leaves that to writeback. Returns whether it is
    /// converted.
    ///
    /// # Errors
    /// The journal's; the write counts as failed.
    fn convert_after_copy(
        &self,
        _locked: FolioLocked<'_>,
        handle: &mut Self::Handle,
        start: Pos,
        end: Pos,
    ) -> Result<bool, Self::Error> {
        let _ = (handle, start, end);
        Ok(false)
    }

    /// If [`BufferOps::is_data_journalled`]: adds the new content of whole blocks, by location, to
    /// the journal.
    ///
    /// # Errors
    /// The journal's.
    fn journal_data(
        &self,
        _locked: FolioLocked<'_>,
        handle: Option<&mut Self::Handle>,
        blocks: &[(DevOff, &[u8])],
    ) -> Result<(), Self::Error> {
        let _ = (handle, blocks);
        Ok(())
    }

    /// Returns whether data goes through the journal.
    fn is_data_journalled(&self) -> bool {
        false
    }

    /// Ends the write to a folio, after [`BufferOps::undo_failed_write`] of the space that it does
    /// not need. The folio is not locked any more, and the size in memory was raised already.
    ///
    /// # Errors
    /// The journal's.
    fn end_write(&self, handle: Option<Self::Handle>, wrote: FolioWrite)
    -> Result<(), Self::Error>;

    /// Undoes a write that failed: gives back the space in `[start, end)`, past the end of the
    /// file, that was made for it: under `handle` if it was allocated at once. The folio is not
    /// locked.
    fn undo_failed_write(&self, handle: Option<&mut Self::Handle>, start: Pos, end: Pos);
}

/// A file whose records can be written.
pub trait BufferWriteback: BufferOps + WritebackOps {
    /// Retries since the last allocation.
    type Retries: Default;

    /// Starts a handle with credits to allocate one extent, and to convert what is allocated
    /// unwritten. The caller holds no folio lock.
    ///
    /// # Errors
    /// The journal's.
    fn start_mapping(&self) -> Result<Self::Handle, Self::Error>;

    /// Gets credits for one more extent into `handle`. Returns false if its transaction has no room
    /// for them: the caller starts another handle.
    ///
    /// # Errors
    /// The journal's.
    fn ensure_credits(&self, handle: &mut Self::Handle) -> Result<bool, Self::Error>;

    /// Allocates space for `len` delayed bytes at `pos`, whole blocks, or finds the space that they
    /// have by now. The answer covers the first block at least.
    ///
    /// # Errors
    /// No space; damage; a stopped journal.
    fn allocate(
        &self,
        _locked: FolioLocked<'_>,
        handle: &mut Self::Handle,
        pos: Pos,
        len: u64,
    ) -> Result<Iomap, Self::Error>;

    /// Data is about to be handed to the device: its space was known, or was allocated under a
    /// handle that is still open. [`BufferWriteback::data_io_ends`] follows; between the two the
    /// thread starts no handle and waits for no folio.
    fn data_io_begins(&self) {}

    /// The device has answered for the data of the last [`BufferWriteback::data_io_begins`], with
    /// or without an error.
    fn data_io_ends(&self) {}

    /// Returns whether to try an allocation again after `error`: waits for a commit first, if that
    /// may bring space; false after finitely many attempts, which `retries` counts. The caller
    /// holds no folio lock and has no handle open.
    fn should_retry_alloc(&self, retries: &mut Self::Retries, error: &Self::Error) -> bool;

    /// Everything up to `end` has its space and is about to be written: the size on disk may move
    /// there.
    ///
    /// # Errors
    /// The journal's.
    fn raise_disk_size(&self, handle: &mut Self::Handle, end: Pos) -> Result<(), Self::Error>;
}
