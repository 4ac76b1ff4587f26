//! What a file system implements, beside [`extant_iomap::IomapOps`].

use extant_iomap::{Iomap, IomapOps, WritebackOps};
use extant_units::{DevOff, Pos};

use crate::stats::BufferCounters;

/// Where a block is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockLocation {
    /// Space is promised, but not chosen.
    Delayed,
    /// There, without data: reads as zero.
    Unwritten(DevOff),
    /// There, with data.
    Written(DevOff),
}

/// The answer to a question about one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockMap {
    /// Where it is.
    pub location: BlockLocation,
    /// It has no data of its own yet: the space was made for this write, or reads as zero.
    pub new: bool,
}

/// What a write to one folio did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolioWrite {
    /// The first byte.
    pub pos: Pos,
    /// The byte after the last.
    pub end: Pos,
    /// The file's size before.
    pub old_size: u64,
    /// The block of the last byte has written space: writeback will choose no place for it, and so will not move the
    /// size on disk.
    pub last_block_written: bool,
}

impl FolioWrite {
    /// Whether the file grew.
    pub fn grew(&self) -> bool {
        self.end.get() > self.old_size
    }
}

/// One file, as seen by the per-block path.
pub trait BufferOps: IomapOps {
    /// A journal handle, for writes that choose their space at once.
    type Handle;

    /// Where to count.
    fn buffer_counters(&self) -> &BufferCounters;

    /// Whether walks over the records stop after the range where nothing behind it can matter. (The other setting is
    /// for comparison.)
    fn stop_at_range_end(&self) -> bool;

    /// How the next folio write, of `blocks` blocks at `pos`, gets its space: `None` by promises, otherwise at once, under the handle
    /// that this starts. The number is of blocks that it has credits for, at least one. No folio is locked.
    ///
    /// # Errors
    /// The file system's.
    fn start_write(
        &self,
        pos: Pos,
        blocks: u32,
    ) -> Result<Option<(Self::Handle, u32)>, Self::Error>;

    /// The block at `pos`, with space: promised, or allocated under `handle`. The folio is locked.
    ///
    /// # Errors
    /// No space; damage; a stopped journal.
    fn map_block(
        &self,
        handle: Option<&mut Self::Handle>,
        pos: Pos,
    ) -> Result<BlockMap, Self::Error>;

    /// The bytes `[start, end)`, whose space was chosen under `handle`, are in the cache. Returns whether their space counts as
    /// written from now on. The folio is locked.
    ///
    /// # Errors
    /// The journal's; the write counts as failed.
    fn publish(
        &self,
        handle: &mut Self::Handle,
        start: Pos,
        end: Pos,
    ) -> Result<bool, Self::Error> {
        let _ = (handle, start, end);
        Ok(false)
    }

    /// Where [`BufferOps::logs_data`]: takes the new content of whole blocks, by place, into the journal. The folio is locked.
    ///
    /// # Errors
    /// The journal's.
    fn log_data(
        &self,
        handle: Option<&mut Self::Handle>,
        blocks: &[(DevOff, &[u8])],
    ) -> Result<(), Self::Error> {
        let _ = (handle, blocks);
        Ok(())
    }

    /// Whether data goes through the journal.
    fn logs_data(&self) -> bool {
        false
    }

    /// Ends the write to a folio, after [`BufferOps::release`] of what it does not need; the folio is not locked any more. The size
    /// in memory was raised already.
    ///
    /// # Errors
    /// The journal's.
    fn end_write(&self, handle: Option<Self::Handle>, wrote: FolioWrite)
    -> Result<(), Self::Error>;

    /// Space in `[start, end)` past the end of the file was made for a write that did not come about, under `handle` if it was
    /// chosen at once: gives it back. The folio is not locked.
    fn release(&self, handle: Option<&mut Self::Handle>, start: Pos, end: Pos);
}

/// A file whose records can be written.
pub trait BufferWriteback: BufferOps + WritebackOps {
    /// A handle with credits to give one extent its place, and for the conversion of what is allocated unwritten. No folio
    /// is locked.
    ///
    /// # Errors
    /// The journal's.
    fn start_mapping(&self) -> Result<Self::Handle, Self::Error>;

    /// Whether `handle` has credits for one more extent.
    ///
    /// # Errors
    /// The journal's.
    fn has_credits(&self, handle: &mut Self::Handle) -> Result<bool, Self::Error>;

    /// Gives `len` delayed bytes at `pos`, whole blocks, a place, or says where they are by now. The answer covers the first
    /// block at least. The folios are locked.
    ///
    /// # Errors
    /// No space; damage; a stopped journal.
    fn allocate(&self, handle: &mut Self::Handle, pos: Pos, len: u64)
    -> Result<Iomap, Self::Error>;

    /// Data is about to be handed to the device: a place was found under a handle that is still open, or was known. Followed by
    /// [`BufferWriteback::data_io_ends`], with no handle started and no folio waited for in between.
    fn data_io_begins(&self) {}

    /// The device has answered for what left last, well or not.
    fn data_io_ends(&self) {}

    /// Whether it may help to end the handle, make room (`attempt` counts from 0), and try again after `error`; false
    /// after finitely many attempts. No folio is locked and no handle open.
    fn make_room(&self, error: &Self::Error, attempt: u32) -> bool {
        let _ = (error, attempt);
        false
    }

    /// Everything up to `end` has its place and is about to be written: the size on disk may move there.
    ///
    /// # Errors
    /// The journal's.
    fn raise_disk_size(&self, handle: &mut Self::Handle, end: Pos) -> Result<(), Self::Error>;
}
