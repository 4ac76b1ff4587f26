//! Range operations: allocating, punching, zeroing, collapsing and inserting.
//!
//! Each operation has a file of its own; what they share is here. [`fallocate`] is the entry: it
//! checks what can be checked without the file's map, takes the locks, notes the modification once,
//! and calls the operation.
//!
//! # Invariants
//! Nothing changes before all checks have passed. Then, in this order:
//!
//! 1. Data that must survive is written back.
//! 2. Steps that may need space are done (allocation, splits of extents), so that lack of space
//!    loses nothing.
//! 3. The edges of the range are zeroed.
//! 4. The cache of the range goes. A dirty folio over a freed block would be written into whatever
//!    the block belongs to next.
//! 5. The map changes under a handle, and with it the sizes.
//!
//! A change of the map asks for the credits of all of it ([`map::plan`]), so that a crash shows it
//! whole or not at all. Where no transaction can hold it, it goes on in the next; between the two
//! the file is in order, with a part of the operation done.
//!
//! # Locks
//! The inode's `lock` exclusively and, but for plain allocation, the invalidate lock exclusively,
//! from before the first change to the end. No handle is open while folios are zeroed, written or
//! dropped.

mod allocate;
mod collapse;
mod insert;
mod punch;
#[cfg(test)]
mod tests;
mod zero;

use std::ops::Range;
use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_iomap::WritebackControl;
use extant_jbd2::Handle;
use extant_pagecache::{InvalidateExclusive, WritebackPass};
use extant_units::{Lblk, Pos};

use crate::alloc;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::WholeFile;
use crate::file::writeback::{writeback_range, writeback_stale_gap_below};
use crate::file::{data_path, max_size, max_size_of_any_map, switch_path};
use crate::inline_data;
use crate::map::{self, ShiftPlan};
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::types::{FallocateMode, FileKind};
use crate::volume::Fs;
use crate::volume::credits;
use crate::xattr::privileges;

/// The largest position that system calls can express.
const MAX_POS: u64 = u64::MAX >> 1;

/// Changes the space of `len` bytes from byte `offset` on as `mode` says, as fallocate(2). Takes
/// the inode's `lock`. Treats times and privileges as a write does.
///
/// # Errors
/// As fallocate(2). Nothing has changed then, unless noted: [`Error::NoSpace`] may leave a part of
/// the range allocated; failures of the device, the map or the journal may leave a part of the
/// operation done, with nothing lost but what it removes.
pub(crate) fn fallocate(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    mode: FallocateMode,
    (offset, len): (u64, u64),
    cred: &Cred,
) -> Result<()> {
    fs.check_writable()?;
    let range = check(fs, inode, mode, offset, len)?;
    let done = alloc::retry_unlocked(fs, || lock_and_run(fs, inode, mode, &range, cred));
    done.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))?;
    if fs.options.sync() || inode.flags().contains(InodeFlags::SYNC) {
        crate::file::fsync(fs, inode, None, false)?;
    }
    Ok(())
}

/// The checks that do not need the inode's `lock`.
fn check(fs: &Fs, inode: &Inode, mode: FallocateMode, offset: u64, len: u64) -> Result<Range<u64>> {
    if offset > MAX_POS || len == 0 || len > MAX_POS {
        return Err(Error::Invalid);
    }
    let adds = matches!(mode, FallocateMode::Allocate { .. });
    inode.check_changeable(adds)?;
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Error::IsDir),
        FileKind::Fifo => return Err(Error::IllegalSeek),
        _ => return Err(Error::NoDevice),
    }
    // Both are at most half of what 64 bits hold.
    let end = offset + len;
    if end > max_size_of_any_map(fs).min(MAX_POS) {
        return Err(Error::FileTooBig);
    }
    data_path::require_changeable(fs, inode, inode.flags())?;
    Ok(offset..end)
}

fn lock_and_run(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    mode: FallocateMode,
    range: &Range<u64>,
    cred: &Cred,
) -> Result<()> {
    let whole = crate::file::lock_whole_file(fs, inode);
    if inode.is_gone() {
        return Err(Error::Stale);
    }
    data_path::require_changeable(fs, inode, inode.flags())?;
    if inline_data::is_inline(inode) {
        may_leave_inode(fs, inode, mode)?;
        switch_path::leave_inode(fs, &whole, inode, alloc::may_use_reserve(fs, cred))?;
    }
    let cx = FileContext::new(fs, inode).with_cred(cred);
    let op = RangeOperation {
        cx: &cx,
        fs,
        inode,
        whole: &whole,
        range: range.clone(),
    };
    let moves = matches!(
        mode,
        FallocateMode::CollapseRange | FallocateMode::InsertRange
    );
    if moves && inode.flags().contains(InodeFlags::ENCRYPT) {
        // A block is encrypted by its place in the file.
        return Err(Error::NotSupported("moving ranges of an encrypted file"));
    }
    match mode {
        FallocateMode::PunchHole => {}
        FallocateMode::Allocate { .. } | FallocateMode::ZeroRange { .. } => op.require_extents()?,
        FallocateMode::CollapseRange => op.check_collapse()?,
        FallocateMode::InsertRange => op.check_insert()?,
    }
    privileges::file_modified(fs, inode, cred)?;
    if let FallocateMode::Allocate { keep_size } = mode {
        return op.allocate(keep_size);
    }
    let no_fills = cx.state.address_space.invalidate_lock().write();
    match mode {
        FallocateMode::Allocate { .. } => Ok(()),
        FallocateMode::PunchHole => op.punch(&no_fills),
        FallocateMode::ZeroRange { keep_size } => op.zero(&no_fills, keep_size),
        FallocateMode::CollapseRange => op.collapse(&no_fills),
        FallocateMode::InsertRange => op.insert(&no_fills),
    }
}

/// Fails for an operation that a file with its data inside of the inode cannot have in blocks.
fn may_leave_inode(fs: &Fs, inode: &Inode, mode: FallocateMode) -> Result<()> {
    let extents = inline_data::flags_outside(fs, inode).contains(InodeFlags::EXTENTS);
    match mode {
        FallocateMode::PunchHole => Ok(()),
        _ if !extents => Err(Error::NotSupported("such an operation without extents")),
        FallocateMode::Allocate { .. } | FallocateMode::ZeroRange { .. } => Ok(()),
        // It is shorter than a block, so nothing of it can be cut out or pushed back.
        FallocateMode::CollapseRange | FallocateMode::InsertRange => Err(Error::Invalid),
    }
}

/// Treatment of dirty data of a range whose cache is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DirtyData {
    /// It goes with the range.
    Discard,
    /// It is written before.
    Write,
}

/// An operation on bytes of a file that no other thread writes.
struct RangeOperation<'a> {
    cx: &'a FileContext<'a>,
    fs: &'a Arc<Fs>,
    inode: &'a Arc<Inode>,
    whole: &'a WholeFile<'a>,
    range: Range<u64>,
}

impl RangeOperation<'_> {
    fn block_bytes(&self) -> u64 {
        self.fs.layout.block_size.bytes_u64()
    }

    /// The blocks that lie wholly in `range`; an empty range if none does.
    fn blocks_inside(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start.div_ceil(self.block_bytes());
        start..(range.end / self.block_bytes()).max(start)
    }

    /// The blocks that `range` touches.
    fn blocks_touched(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block_bytes()..range.end.div_ceil(self.block_bytes())
    }

    /// The bytes of `blocks`.
    fn bytes_of(&self, blocks: &Range<u64>) -> Range<Pos> {
        let pos = |block: u64| Pos::new(block * self.block_bytes());
        pos(blocks.start)..pos(blocks.end)
    }

    /// A block number that came from a position which a file can have.
    fn lblk(block: u64) -> Result<Lblk> {
        let lblk = u32::try_from(block).map_err(|_| Error::FileTooBig)?;
        Ok(Lblk::new(lblk))
    }

    fn has_extents(&self) -> bool {
        self.cx.flags.contains(InodeFlags::EXTENTS)
    }

    /// Fails for files with a block map.
    fn require_extents(&self) -> Result<()> {
        if self.has_extents() {
            Ok(())
        } else {
            Err(Error::NotSupported("a file without extents"))
        }
    }

    /// Fails unless the range begins and ends at a block's border.
    fn check_aligned(&self) -> Result<()> {
        let mask = self.fs.layout.cluster_bytes() - 1;
        if (self.range.start | self.range.end) & mask == 0 {
            Ok(())
        } else {
            Err(Error::Invalid)
        }
    }

    /// Runs `step` under a handle with credits for one extent. If it finds no space, runs it again
    /// after commits that may free some.
    fn retry_with_handle<R>(&self, step: impl Fn(&mut Handle) -> Result<R>) -> Result<R> {
        alloc::retry(self.fs, || {
            let credits = credits::sum([credits::allocate(self.fs), credits::INODE_UPDATE]);
            step(&mut self.fs.start(credits)?)
        })
    }

    /// Splits the extents that reach over the ends of `blocks`; later steps then need no space.
    fn split_extents_at_ends(&self, blocks: &Range<u64>) -> Result<()> {
        for at in [blocks.start, blocks.end] {
            if map::is_within_extent(self.fs, self.inode, at)? {
                self.retry_with_handle(|h| map::split(self.fs, h, self.inode, at))?;
            }
        }
        Ok(())
    }

    /// Moves the size on disk up to the end of the range, as far as the file has that. The
    /// writeback that would have moved it may be about to lose its data.
    fn raise_disk_size(&self) -> Result<()> {
        let size = self.inode.size();
        let end = size.min(self.range.end);
        debug_assert!(end <= size, "J1");
        if self.range.start > size || self.inode.core.read().disk_size >= end {
            return Ok(());
        }
        writeback_stale_gap_below(self.cx, Pos::new(end))?;
        let mut h = self.fs.start(credits::INODE_UPDATE)?;
        self.inode.update(self.fs, &mut h, |core| {
            core.disk_size = core.disk_size.max(end);
        })
    }

    /// Zeroes what the range covers of the blocks at its ends, where they have data. Changes the
    /// cache only.
    fn zero_edges(&self) -> Result<()> {
        let whole = self.bytes_of(&self.blocks_inside(&self.range));
        let end = self.range.end.min(self.inode.size());
        let first = self.range.start..whole.start.get().min(end);
        let last = whole.end.get().max(self.range.start)..end;
        // Within one block both ends are the same block.
        let last = last.start.max(first.end)..last.end;
        for edge in [first, last] {
            debug_assert!(
                edge.end.saturating_sub(edge.start) < self.block_bytes(),
                "{edge:?} is a part of a block"
            );
            if !edge.is_empty() {
                data_path::zero_range(self.cx, Pos::new(edge.start), edge.end - edge.start)?;
            }
        }
        Ok(())
    }

    /// Prepares a change of the map at `blocks`: writes what commits wait for, takes the writeback
    /// pass, splits the extents at the ends and drops the cache of `blocks`. Writeback would join
    /// the extents again, so the caller holds the returned pass until the map has changed.
    fn prepare_map_change(
        &self,
        no_fills: &InvalidateExclusive<'_>,
        blocks: &Range<u64>,
    ) -> Result<WritebackPass<'_>> {
        debug_assert!(blocks.start <= blocks.end, "{blocks:?}");
        let bytes = self.bytes_of(blocks);
        crate::file::write_ordered(self.cx, bytes.start);
        let mapping = &self.cx.state.address_space;
        let no_writeback = mapping.writeback_pass();
        self.split_extents_at_ends(blocks)?;
        mapping.drop_range(no_fills, bytes.start, bytes.end);
        Ok(no_writeback)
    }

    /// Prepares a change of all of the map from the first of `blocks` on: writes what is dirty from
    /// there on, with `of_blocks` for the data of `blocks` themselves, and empties the cache from
    /// the folio on that holds the first of them. The rest as [`Self::prepare_map_change`].
    fn writeback_and_prepare(
        &self,
        no_fills: &InvalidateExclusive<'_>,
        blocks: &Range<u64>,
        of_blocks: DirtyData,
    ) -> Result<WritebackPass<'_>> {
        let bytes = self.bytes_of(blocks);
        let mapping = &self.cx.state.address_space;
        let from = match mapping.next(bytes.start) {
            Some(folio) => folio.start().min(bytes.start),
            None => bytes.start,
        };
        let resume = match of_blocks {
            DirtyData::Discard => bytes.end,
            DirtyData::Write => bytes.start,
        };
        for (start, end) in [(from, bytes.start), (resume, Pos::MAX)] {
            if start < end {
                writeback_range(self.fs, self.inode, WritebackControl::integrity(start, end))?;
            }
        }
        let no_writeback = self.prepare_map_change(no_fills, blocks)?;
        mapping.drop_range(no_fills, from, Pos::MAX);
        alloc::release_window(self.fs, self.inode.ino);
        Ok(no_writeback)
    }

    /// Starts a handle for an operation that was planned.
    fn start_planned(&self, plan: ShiftPlan) -> Result<Handle> {
        if !plan.at_once {
            self.fs.stats.stepwise_ranges.bump();
        }
        self.fs.start_with_revokes(plan.credits, plan.revokes)
    }

    /// Sets both sizes, in the same transaction if it has room.
    fn set_size(&self, h: &mut Handle, size: u64) -> Result<()> {
        if !h.ensure(credits::INODE_UPDATE)? {
            h.restart(credits::INODE_UPDATE)?;
        }
        crate::file::set_sizes(self.fs, h, self.inode, size, self.whole)
    }
}
