//! Changing a file's size.
//!
//! Down: the part of the last block that is cut off is zeroed and written before the size changes,
//! so that a crash followed by an extension cannot show it. Then, in one transaction, the sizes
//! change and the inode becomes an orphan. Then the cache of the cut range goes, and its blocks, in
//! as many transactions as it takes. Last, the inode ceases to be an orphan. The mount after a
//! crash in between finishes the work.
//!
//! Up: what the old last block holds behind the old end is zeroed the same way; then both sizes
//! change.
//!
//! # Locks
//! The inode's `lock` shared and everything behind the smaller size locked throughout; the
//! invalidate lock exclusively from the change of the size to the removal of blocks. No handle is
//! open while folios are zeroed, written or dropped.

use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_failpoint::Failpoint;
use extant_iomap::WritebackControl;
use extant_units::{Lblk, Pos};

use crate::file::file_state_init::require_regular;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{HoldsSize, SizeGuard, WholeFile, lock_for_size};
use crate::file::writeback::{writeback_gap_below, writeback_range, writeback_stale_gap_below};
use crate::file::{data_path, inline_file, max_size, write_ordered};
use crate::inode::path_choice;
use crate::state::inode::Inode;
use crate::state::map::MapState;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, credits};
use crate::xattr::privileges;
use crate::{alloc, crypt, map, orphan};

/// Revoke records of a handle that frees extent nodes, between two restarts.
const REVOKES: u32 = 64;

/// Changes a regular file's size. Takes the inode's `lock`. The caller treats times and privileges.
/// With the size that the file has already, frees what lies behind it.
///
/// # Errors
/// [`Error::FileTooBig`]; device, map and journal failures. If blocks could not be freed, the file
/// has its new size and stays an orphan.
pub(crate) fn truncate(fs: &Arc<Fs>, inode: &Arc<Inode>, size: u64, cred: &Cred) -> Result<()> {
    change_size(fs, inode, size, cred, |flags| {
        data_path::require_changeable(fs, inode, flags)
    })
}

/// Finishes the truncation of a file to the size that it has, or to less, as the mount does after a
/// crash. There are no keys then: of an encrypted file the rest of the last block stays as it
/// is, which an extension zeroes.
///
/// # Errors
/// As [`truncate`].
pub(crate) fn finish_truncation(fs: &Arc<Fs>, inode: &Arc<Inode>, size: u64) -> Result<()> {
    change_size(fs, inode, size, &Cred::root(), data_path::require_unsealed)
}

/// Changes a file's size, if it `may_change` with its flags.
fn change_size(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    size: u64,
    cred: &Cred,
    may_change: impl FnOnce(InodeFlags) -> Result<()>,
) -> Result<()> {
    fs.check_writable()?;
    require_regular(inode)?;
    if size > max_size(fs, inode) {
        return Err(Error::FileTooBig);
    }
    let (guard, old) = lock_for_size(fs, inode, size)?;
    let cx = FileContext::new(fs, inode).with_cred(cred);
    may_change(cx.flags)?;
    let result = match inside_or_blocks(cx, &guard, size) {
        Ok(None) => Ok(()),
        Ok(Some(cx)) if size > old => extend_locked(&cx, &guard, inode, old, size),
        Ok(Some(cx)) => cut(&cx, &guard, inode, old, size),
        Err(error) => Err(error),
    };
    result.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))
}

/// Makes a file whose data is inside of its inode `size` bytes long, if it stays there. Otherwise
/// returns the context of a change of blocks, to which the data may have moved.
fn inside_or_blocks<'a>(
    cx: FileContext<'a>,
    guard: &SizeGuard<'_>,
    size: u64,
) -> Result<Option<FileContext<'a>>> {
    match guard.whole() {
        Some(whole) if cx.flags.contains(InodeFlags::INLINE_DATA) => {
            let is_done = inline_file::set_size(&cx, whole, size)?;
            Ok((!is_done).then(|| cx.refreshed()))
        }
        _ => Ok(Some(cx)),
    }
}

/// Makes a regular file at least `size` bytes long. Treats times and privileges if it was shorter.
/// Data that only the cache has goes to the device first: the size on disk passes it.
///
/// # Errors
/// As [`truncate`], and a failure to write that data.
pub(in crate::file) fn extend_to_at_least(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    size: u64,
    cred: &Cred,
) -> Result<()> {
    let (guard, old) = lock_for_size(fs, inode, size)?;
    if size <= old {
        return Ok(());
    }
    let cx = FileContext::new(fs, inode).with_cred(cred);
    data_path::require_changeable(fs, inode, cx.flags)?;
    privileges::file_modified(fs, inode, cred)?;
    let result = match inside_or_blocks(cx, &guard, size) {
        Ok(None) => Ok(()),
        Ok(Some(cx)) => writeback_gap_below(&cx, Pos::new(old))
            .and_then(|()| extend_locked(&cx, &guard, inode, old, size)),
        Err(error) => Err(error),
    };
    result.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))
}

/// Makes a file of `old` bytes `size` bytes long.
fn extend_locked(
    cx: &FileContext<'_>,
    guard: &SizeGuard<'_>,
    inode: &Arc<Inode>,
    old: u64,
    size: u64,
) -> Result<()> {
    prepare_growth(cx, inode, old, size)?;
    let mut h = cx.fs.start(credits::INODE_UPDATE)?;
    crate::file::set_sizes(cx.fs, &mut h, inode, size, guard)
}

/// Prepares a file of `old` bytes to grow to `size` without a write: what it has of `[old, size)`
/// and between the size on disk and `old` reads as zeros afterwards, on the device as well.
pub(in crate::file) fn prepare_growth(
    cx: &FileContext<'_>,
    inode: &Arc<Inode>,
    old: u64,
    size: u64,
) -> Result<()> {
    debug_assert!(old <= size, "a file of {old} bytes grows to {size}");
    let fs = cx.fs;
    let bs = fs.layout.block_size;
    let block_end = bs.round_up(Pos::new(old)).unwrap_or(Pos::MAX).get();
    zero_and_write(cx, inode, old, size.min(block_end))?;
    drop_stale_blocks_past_eof(cx, block_end, size)?;
    writeback_stale_gap_below(cx, Pos::new(old))
}

/// Drops the data of blocks from byte `start` (the first of a block) to `end` that a crash left
/// written: they become unwritten or, in a block map, which knows no unwritten blocks, a hole. They
/// lie past the end of the file and are about to become part of it. Zeroing them would take folios
/// that cannot be written before the file has grown.
pub(in crate::file) fn drop_stale_blocks_past_eof(
    cx: &FileContext<'_>,
    start: u64,
    end: u64,
) -> Result<()> {
    let fs = cx.fs;
    let mut at = start;
    while at < end {
        let found = crate::file::block_span(fs, Pos::new(at), end - at);
        let (lblk, count) = found.ok_or(Error::FileTooBig)?;
        let found = map::lookup(fs, cx.inode, lblk, count)?;
        if let MapState::Written(_) = found.state {
            if cx.flags.contains(InodeFlags::EXTENTS) {
                let mut h = fs.start(credits::convert(fs))?;
                map::convert_to_unwritten(fs, &mut h, cx.inode, lblk, found.len)?;
            } else {
                let mut h = fs.start_with_revokes(credits::remove(fs), credits::REVOKES)?;
                let last = u64::from(lblk.get()) + u64::from(found.len);
                map::remove(fs, &mut h, cx.inode, lblk, last)?;
            }
        }
        debug_assert!(found.len > 0, "a lookup shows a block at least");
        at += u64::from(found.len) * fs.layout.block_size.bytes_u64();
    }
    Ok(())
}

fn cut(
    cx: &FileContext<'_>,
    guard: &SizeGuard<'_>,
    inode: &Arc<Inode>,
    old: u64,
    size: u64,
) -> Result<()> {
    debug_assert!(size <= old, "a file of {old} bytes is cut to {size}");
    let fs = cx.fs;
    let bs = fs.layout.block_size;
    let has_blocks = || inode.core.read().sectors != 0;
    if size == old && !map::takes_space(inode) {
        return Ok(());
    }
    let block_end = bs.round_up(Pos::new(size)).unwrap_or(Pos::MAX).get();
    if size < old {
        zero_and_write(cx, inode, size, block_end.min(old))?;
    } else if orphan::is_orphan(inode) {
        // The crash that left the orphan may have come before this was done.
        zero_and_write(cx, inode, size, block_end)?;
    }
    write_ordered(cx, Pos::new(size));
    // The size on disk may be less than the size that the file is cut to.
    writeback_stale_gap_below(cx, Pos::new(size))?;
    let no_fills = cx.state.address_space.invalidate_lock().write();
    let mut recorded = false;
    if size < old {
        let mut h = fs.start(credits::ORPHAN + credits::INODE_UPDATE)?;
        // Delayed blocks count: a writeback under way may allocate them before they are dropped,
        // and a commit come in between.
        let forgets = fs.tuning.failpoint.is(Failpoint::CutNotRecorded);
        recorded = if forgets {
            has_blocks()
        } else {
            map::takes_space(inode)
        };
        if recorded {
            orphan::add(fs, &mut h, inode)?;
        }
        crate::file::set_sizes(fs, &mut h, inode, size, guard)?;
    }
    debug_assert_eq!(inode.size(), size, "the end is locked");
    // Waits for writeback: nothing behind the end is allocated after this.
    cx.state
        .address_space
        .drop_range(&no_fills, Pos::new(size), Pos::MAX);
    if let Ok(first) = u32::try_from(bs.blocks_for(size).get()) {
        remove_blocks(fs, inode, Lblk::new(first), recorded || has_blocks())?;
    }
    alloc::release_window(fs, inode.ino);
    Ok(())
}

/// Frees what lies behind the end of a file, which `whole` keeps from any change. Afterwards the
/// inode is no orphan, unless it has no name.
///
/// # Errors
/// Device, map and journal failures: the inode may be an orphan then.
pub(in crate::file) fn free_past_end(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    whole: &WholeFile<'_>,
) -> Result<()> {
    assert!(whole.is_of(inode), "inode {} is not held", inode.ino);
    let cx = FileContext::new(fs, inode);
    let size = inode.size();
    write_ordered(&cx, Pos::new(size));
    let cache = &cx.state.address_space;
    let no_fills = cache.invalidate_lock().write();
    cache.drop_range(&no_fills, Pos::new(size), Pos::MAX);
    if let Ok(first) = u32::try_from(fs.layout.block_size.blocks_for(size).get()) {
        remove_blocks(fs, inode, Lblk::new(first), map::takes_space(inode))?;
    }
    alloc::release_window(fs, inode.ino);
    if orphan::is_orphan(inode) && !inode.is_unlinked() {
        // There were no blocks, with which the record goes.
        let mut h = fs.start(orphan::CREDITS)?;
        orphan::remove(fs, &mut h, inode)?;
    }
    Ok(())
}

/// Frees everything from `first` on: without a handle, if it is known that there are only delayed
/// blocks. Afterwards the inode is no orphan, unless it has no name.
fn remove_blocks(fs: &Fs, inode: &Arc<Inode>, first: Lblk, may_have_blocks: bool) -> Result<()> {
    if !may_have_blocks {
        map::drop_delayed(fs, inode, first, 1 << 32);
        return Ok(());
    }
    let last = credits::ORPHAN + credits::INODE_UPDATE;
    let first_part = credits::sum([credits::remove(fs), last]);
    let revokes = if path_choice::is_data_journalled(fs, inode) {
        credits::REVOKES
    } else {
        REVOKES
    };
    let mut h = fs.start_with_revokes(first_part, revokes)?;
    orphan::add(fs, &mut h, inode)?;
    map::remove(fs, &mut h, inode, first, 1 << 32)?;
    if !h.ensure(last)? {
        h.restart(last)?;
    }
    if !inode.is_unlinked() {
        orphan::remove(fs, &mut h, inode)?;
    }
    Ok(())
}

/// Zeroes `[from, to)`, a part of one block. If the block is allocated, the zeros are on the device
/// on return.
fn zero_and_write(cx: &FileContext<'_>, inode: &Arc<Inode>, from: u64, to: u64) -> Result<()> {
    debug_assert!(
        to.saturating_sub(from) <= cx.fs.layout.block_size.bytes_u64(),
        "{from}..{to} is more than a block"
    );
    if from >= to || crypt::is_locked(cx.fs, inode)? {
        return Ok(());
    }
    if !data_path::zero_range(cx, Pos::new(from), to - from)? {
        return Ok(());
    }
    let Some((lblk, _)) = crate::file::block_span(cx.fs, Pos::new(from), 1) else {
        return Ok(());
    };
    // A block that is not allocated shows nothing after a crash.
    if let MapState::Written(_) = map::lookup(cx.fs, inode, lblk, 1)?.state {
        writeback_range(
            cx.fs,
            inode,
            WritebackControl::integrity(Pos::new(from), Pos::new(to)),
        )?;
    }
    Ok(())
}
