//! Who may change which part of a file: range locks, and the queue of those who make it longer.
//!
//! Writers of disjoint ranges run side by side, each with the inode's `lock` shared and its range, in whole blocks, locked in the
//! file's I/O tree. Whatever changes the size holds a range that reaches to infinity; so for whoever holds a range below
//! the end of the file, the file cannot become shorter than that.
//!
//! # Invariants
//! * Two operations that change the same block never overlap in time, however many folios they touch.
//! * `i_size` is raised only under a range that begins at or before the block of the old size, and lowered only under one that begins at or
//!   before the block of the new one; both reach to infinity.
//! * A range is locked with `lock` held shared, and never with a folio, a handle or the invalidate lock held.
//!
//! # Locks
//! `lock` → range. Writers on the per-block path take `lock` exclusively instead, as do changes of attributes and of the way, and operations
//! that move ranges. Writeback and completion take neither.
//!
//! # Concurrency
//! A write to one cached folio takes no range: see `data_path::overwrite`. Appenders queue in front of everything (`Turns`), as they could
//! not run side by side anyway: the queue is cheaper to wait in, and is no protection. Whoever has the turn, and finds nobody else, claims the end of the file without
//! the tree (`tail`).

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use extant_extent_io_tree::{Bits, ByteRange, OwnedRangeGuard, RangeGuard};
use extant_lock_order::{Locked, Rank};
use extant_units::{BlockSize, Pos};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use super::tail::Claim;
use super::turns::Turn;
use super::write::WriteAt;
use super::{FileData, data};
use crate::config::BufferedPath;
use crate::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Guesses of a range that the size made wrong, before the whole file is locked.
const GUESSES: u32 = 8;

/// A part of a file that nobody else changes, until this is dropped.
#[must_use]
pub(crate) struct Held<'a> {
    // Dropped in this order.
    _range: Option<Part<'a>>,
    _lock: Lock<'a>,
    _turn: Option<Turn<'a>>,
}

/// A locked range.
enum Part<'a> {
    /// In the tree.
    Range(#[allow(dead_code, reason = "held")] Locked<RangeGuard<'a>>),
    /// To infinity, without the tree.
    Claim(#[allow(dead_code, reason = "held")] Locked<Claim<'a>>),
}

/// How the inode's `lock` is held.
enum Lock<'a> {
    Shared(#[allow(dead_code, reason = "held")] RwLockReadGuard<'a, ()>),
    Alone(#[allow(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>),
}

/// The bytes of all blocks that `[start, end)` touches; at least one block.
pub(crate) fn whole_blocks(bs: BlockSize, start: u64, end: u64) -> ByteRange {
    let (first, last) = (floor(bs, start), end.saturating_sub(1).max(start));
    let range = ByteRange::new(first, last | (bs.bytes_u64() - 1));
    range.unwrap_or(ByteRange::to_infinity(first))
}

/// From the block of byte `start` to infinity.
pub(crate) fn to_the_end(bs: BlockSize, start: u64) -> ByteRange {
    ByteRange::to_infinity(floor(bs, start))
}

fn floor(bs: BlockSize, pos: u64) -> u64 {
    bs.round_down(Pos::new(pos)).get()
}

/// The inode's `lock` against everybody, with all that is still under way in parts of the file at its end.
pub(crate) fn lock<'a>(fs: &Fs, inode: &'a Inode) -> RwLockWriteGuard<'a, ()> {
    let guard = inode.lock.try_write().unwrap_or_else(|| {
        fs.stats.lock_waits.bump();
        inode.lock.write()
    });
    drain(inode);
    guard
}

/// Waits until nobody holds a part of the file. A new one needs the inode's `lock`, which the caller holds exclusively.
pub(super) fn drain(inode: &Inode) {
    // Before the first look: who looks at `lock` has made the file's data before.
    fence(Ordering::SeqCst);
    if let Some(data) = inode.data.get() {
        data.ranges.wait_unlocked(ByteRange::ALL);
        if data.tail.reaches(u64::MAX) {
            data.tail.wait(u64::MAX);
        }
    }
}

/// The inode's `lock` as those take it who change parts of the file: shared, unless the file's data takes the per-block
/// path. The way does not change while it is held.
fn enter<'a>(fs: &Fs, inode: &'a Inode, data: &FileData) -> Result<Lock<'a>> {
    loop {
        let path = data.data_path.get().machinery;
        let lock = match path {
            BufferedPath::Iomap => Lock::Shared(inode.lock.try_read().unwrap_or_else(|| {
                fs.stats.lock_waits.bump();
                inode.lock.read()
            })),
            BufferedPath::BufferHead => Lock::Alone(lock(fs, inode)),
        };
        if inode.is_gone() {
            return Err(Error::Stale);
        }
        if data.data_path.get().machinery == path {
            return Ok(lock);
        }
    }
}

/// A range of `file`, unless the file is held alone.
fn lock_in<'a>(fs: &Fs, data: &'a FileData, lock: &Lock<'_>, range: ByteRange) -> Option<Part<'a>> {
    let Lock::Shared(_) = lock else { return None };
    let guard = extant_lock_order::lock(Rank::Range, || {
        let guard = data.ranges.try_lock(range).unwrap_or_else(|| {
            fs.stats.range_lock_waits.bump();
            data.ranges.lock(range)
        });
        if data.tail.reaches(range.last()) {
            fs.stats.range_lock_waits.bump();
            data.tail.wait(range.last());
        }
        guard
    });
    Some(Part::Range(guard))
}

/// Claims `range`, which reaches to infinity, if nobody has locked any of it; for whoever has the turn.
#[inline]
fn claim<'a>(data: &'a FileData, range: ByteRange) -> Option<Part<'a>> {
    let held = extant_lock_order::taking(Rank::Range);
    let claim = data.tail.claim_in_turn(range.start())?;
    (!data.ranges.is_locked(range)).then_some(Part::Claim(Locked::new(claim, held)))
}

/// Claims what a write of `len` bytes `at` a place changes if it makes the file longer and meets nobody, for somebody who has no turn and does not hold the
/// inode's `lock`; returns where it goes, which is not behind the end of the file. Whoever takes `lock` exclusively waits for the claim ([`drain`]).
#[inline]
pub(super) fn claim_alone<'a>(
    fs: &Fs,
    inode: &Inode,
    data: &'a FileData,
    at: WriteAt,
    len: u64,
) -> Option<(impl Sized + use<'a>, u64)> {
    let place = |size: u64| at.place().unwrap_or(size);
    let size = inode.size();
    let pos = place(size);
    if pos > size || pos.saturating_add(len) <= size || data.turns.are_wanted() {
        return None;
    }
    let range = to_the_end(fs.layout.block_size, pos);
    if data.ranges.is_locked(range) {
        return None;
    }
    let held = extant_lock_order::taking(Rank::Range);
    let claim = Locked::new(data.tail.claim(range.start())?, held);
    if inode.lock.is_locked_exclusive() || data.ranges.is_locked(range) {
        return None;
    }
    // What they did who were not met is seen from here on.
    fence(Ordering::Acquire);
    let size = inode.size();
    let pos = place(size);
    (range.start() <= pos && pos <= size).then_some((claim, pos))
}

/// Locks `range` and `bits` in the tree if nobody has to be waited for, to be handed on. The inode's `lock` is held shared until that is done.
pub(super) fn try_lock_owned(
    data: &FileData,
    range: ByteRange,
    bits: Bits,
) -> Option<OwnedRangeGuard> {
    let guard = data.ranges.try_lock_owned(range, bits)?;
    (!data.tail.reaches(range.last())).then_some(guard)
}

/// Whether somebody has the file, or its end as far down as `range`, to himself. For who has posted `range`: whoever is not seen here will
/// wait for that.
#[inline]
pub(super) fn is_shut(inode: &Inode, data: &FileData, range: ByteRange) -> bool {
    // With a fence, which the second look needs as well.
    let end_is_claimed = data.tail.reaches(range.last());
    let shut = end_is_claimed || inode.lock.is_locked_exclusive();
    // What they did who are not met is seen from here on: the map's sequence above all.
    fence(Ordering::Acquire);
    shut
}

/// Keeps everybody else from changing `range`, which is of whole blocks; on the per-block path, from changing the file. Whoever
/// is going to change the size asks for a range to infinity, and looks at the size again afterwards.
///
/// # Errors
/// [`Error::Stale`] if the inode is gone.
pub(crate) fn lock_range<'a>(fs: &Fs, inode: &'a Arc<Inode>, range: ByteRange) -> Result<Held<'a>> {
    let data = data(fs, inode);
    let lock = enter(fs, inode, data)?;
    Ok(Held {
        _range: lock_in(fs, data, &lock, range),
        _lock: lock,
        _turn: None,
    })
}

/// Locks what a write of `len` bytes `at` a place changes; returns where it goes, and the size of the file, which does not change
/// but by this write if this write changes it.
///
/// # Errors
/// [`Error::Stale`] if the inode is gone.
pub(super) fn lock_for_write<'a>(
    fs: &Fs,
    inode: &'a Arc<Inode>,
    at: WriteAt,
    len: u64,
) -> Result<(Held<'a>, u64, u64)> {
    let data = data(fs, inode);
    // Only a guess, as good as one is needed: see above.
    let grows = at
        .place()
        .is_none_or(|pos| pos.saturating_add(len) > inode.size());
    let turn = grows.then(|| data.turns.take(len));
    let lock = enter(fs, inode, data)?;
    let place = |size: u64| at.place().unwrap_or(size);
    let wanted = |size: u64| {
        let (pos, end) = (place(size), place(size).saturating_add(len));
        let bs = fs.layout.block_size;
        if end > size {
            to_the_end(bs, pos.min(size))
        } else {
            whole_blocks(bs, pos, end)
        }
    };
    if turn.is_some() && matches!(lock, Lock::Shared(_)) {
        let range = wanted(inode.size());
        if range.last() == u64::MAX
            && let Some(part) = claim(data, range)
        {
            let size = inode.size();
            if range.covers(wanted(size)) {
                let held = Held {
                    _range: Some(part),
                    _lock: lock,
                    _turn: turn,
                };
                return Ok((held, place(size), size));
            }
        }
    }
    let (range, size) = lock_by_size(fs, inode, data, &lock, wanted);
    let held = Held {
        _range: range,
        _lock: lock,
        _turn: turn,
    };
    Ok((held, place(size), size))
}

/// Locks what a change of the file's size to `size` changes; returns the size that the file has.
///
/// # Errors
/// [`Error::Stale`] if the inode is gone.
pub(super) fn lock_for_size<'a>(
    fs: &Fs,
    inode: &'a Arc<Inode>,
    size: u64,
) -> Result<(Held<'a>, u64)> {
    let data = data(fs, inode);
    let lock = enter(fs, inode, data)?;
    let (range, old) = lock_by_size(fs, inode, data, &lock, |old| {
        to_the_end(fs.layout.block_size, old.min(size))
    });
    Ok((
        Held {
            _range: range,
            _lock: lock,
            _turn: None,
        },
        old,
    ))
}

/// Locks the range that `wanted` makes of the file's size, which may be another one by the time it is locked: then once more, unless
/// what was locked is enough. Returns the size.
fn lock_by_size<'a>(
    fs: &Fs,
    inode: &Inode,
    data: &'a FileData,
    lock: &Lock<'_>,
    wanted: impl Fn(u64) -> ByteRange,
) -> (Option<Part<'a>>, u64) {
    let mut guesses = 0;
    loop {
        guesses += 1;
        let range = if guesses < GUESSES {
            wanted(inode.size())
        } else {
            ByteRange::ALL
        };
        let guard = lock_in(fs, data, lock, range);
        let size = inode.size();
        let needed = wanted(size);
        if guard.is_none() || range.covers(needed) {
            return (guard, size);
        }
    }
}

/// Whether somebody holds one of the `len` bytes at `pos`. To be asked with their folio locked.
#[inline]
pub(super) fn is_held(data: &FileData, pos: Pos, len: usize) -> bool {
    let range = ByteRange::from_len(pos.get(), len as u64);
    range.is_none_or(|range| data.tail.is_claimed(range.last()) || data.ranges.is_locked(range))
}
