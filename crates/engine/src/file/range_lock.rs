//! Locks that a write, a truncation or an operation on the whole file takes, and their order.
//!
//! Writers of disjoint ranges run side by side, each with the inode's `lock` shared and its range,
//! in whole blocks, locked in the file's [`RangeLock`]. An operation that changes the size locks a
//! range that reaches to infinity: the EOF lock. So the file cannot become shorter than a range
//! below its end that is locked. How the forms of range locks exclude each other is the crate
//! `range-lock`'s.
//!
//! # Invariants
//! * Two operations that change the same block never overlap in time, however many folios they
//!   touch.
//! * `i_size` is raised only under an EOF lock that begins at or before the block of the old size,
//!   and lowered only under one that begins at or before the block of the new one.
//! * A range is locked with `lock` held shared or, by a slot or a short append, after a look at
//!   `lock`; and never with a folio, a handle or the invalidate lock held.
//!
//! * Locking has two phases: an operation that has released a part locks nothing more, and does not
//!   touch that part again. So two operations that run through the file in the same direction are
//!   serialised: each block shows both in the same order. A write that runs out of space has ended:
//!   its rest is a write of its own, after what is written.
//!
//! # Locks
//! `extend_turn` → `lock` → range. Writers on the buffer-head path take `lock` exclusively instead,
//! as do changes of attributes and of the data path, and operations that move ranges. Writeback and
//! completion take neither.
//!
//! # Concurrency
//! A write to cached folios that changes nothing else locks no range: see
//! `data_path::try_write_cached`. Threads that extend a file run one after the other. The EOF lock
//! sees to that; writes wait for their turn before it, as a mutex costs less to wait for than a
//! range.

use std::sync::Arc;

use extant_failpoint::Failpoint;
use extant_lock_order::{Locked, Rank};
use extant_range_lock::{ByteRange, EofGuard, HeldExclusively, RangeGuard, RangeLock};
use extant_sync::MutexGuard;
use extant_units::{BlockSize, Pos};

use crate::config::BufferedPath;
use crate::file::file_state_init::file_state;
use crate::inode::{ExclusiveGuard, SharedGuard};
use crate::state::file::FileState;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Guesses of a range that the size made wrong, before the whole file is locked.
const GUESSES: u32 = 8;

/// Fewer bytes than this are not worth a release of their own: copying as many takes some hundred
/// times as long as a release. A model checker's writes are short.
const MIN_RELEASE_BYTES: u64 = if cfg!(extant_shuttle) {
    8 << 10
} else {
    256 << 10
};

/// Position of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WriteAt {
    /// To this byte.
    Pos(u64),
    /// To the end of the file, wherever that is when it is locked (`O_APPEND`).
    End,
    /// To this byte, as writeback of a cache above ours (the kernel's, of a mount), which took the
    /// write earlier: what a write asks for was checked then, and the time noted, which that cache
    /// reports by itself.
    UpperWriteback(u64),
}

impl WriteAt {
    /// The byte, unless it is the end.
    #[inline]
    pub(in crate::file) fn position(self) -> Option<u64> {
        match self {
            Self::Pos(pos) | Self::UpperWriteback(pos) => Some(pos),
            Self::End => None,
        }
    }

    /// Position `bytes` after this one. An append has none before the end is locked.
    pub(in crate::file) fn advanced_by(self, bytes: usize) -> Self {
        let advanced = |pos: u64| pos.saturating_add(bytes as u64);
        match self {
            Self::Pos(pos) => Self::Pos(advanced(pos)),
            Self::UpperWriteback(pos) => Self::UpperWriteback(advanced(pos)),
            Self::End => Self::End,
        }
    }
}

/// A part of a file that no other thread changes, until this is dropped. A long operation lets go
/// of its front as it proceeds ([`FileRangeGuard::release_before`]).
#[must_use]
pub(crate) struct FileRangeGuard<'a> {
    /// Its front may be released ([`Tuning::release_fronts`](crate::config::Tuning)).
    front_release_enabled: bool,
    // Dropped in this order.
    part: Option<Part<'a>>,
    lock: Lock<'a>,
    _turn: Option<ExtendTurn<'a>>,
}

/// The turn of a write that makes the file longer.
type ExtendTurn<'a> = Locked<MutexGuard<'a, ()>>;

/// A locked part.
enum Part<'a> {
    Range(Locked<RangeGuard<'a>>),
    Eof(#[allow(dead_code, reason = "held")] Locked<EofGuard<'a>>),
}

/// How the inode's `lock` is held.
enum Lock<'a> {
    Shared(SharedGuard<'a>),
    Exclusive(WholeFile<'a>),
}

/// A file that no other thread writes: its `lock` is held exclusively, and no part of it is locked.
#[must_use]
pub(crate) struct WholeFile<'a>(ExclusiveGuard<'a>);

/// The part of a file that a change of its size touches, locked to infinity.
#[must_use]
pub(in crate::file) struct SizeGuard<'a>(FileRangeGuard<'a>);

/// Proof that no other thread changes the file's size.
pub(in crate::file) trait HoldsSize {
    /// Returns whether it is the size of `inode`.
    fn is_of(&self, inode: &Inode) -> bool;
}

impl<'a> SizeGuard<'a> {
    /// The whole file, if that is what is locked.
    pub(in crate::file) fn whole(&self) -> Option<&WholeFile<'a>> {
        self.0.whole()
    }
}

impl HoldsSize for WholeFile<'_> {
    fn is_of(&self, inode: &Inode) -> bool {
        self.0.is_of(inode)
    }
}

impl HoldsSize for SizeGuard<'_> {
    fn is_of(&self, inode: &Inode) -> bool {
        self.0.is_of(inode)
    }
}

impl<'a> FileRangeGuard<'a> {
    /// Returns whether a part of `inode` is held.
    #[inline]
    pub(in crate::file) fn is_of(&self, inode: &Inode) -> bool {
        match &self.lock {
            Lock::Shared(shared) => shared.is_of(inode),
            Lock::Exclusive(whole) => whole.is_of(inode),
        }
    }

    /// The whole file, if that is what is locked.
    pub(in crate::file) fn whole(&self) -> Option<&WholeFile<'a>> {
        match &self.lock {
            Lock::Shared(_) => None,
            Lock::Exclusive(whole) => Some(whole),
        }
    }

    /// The end of what is locked.
    #[inline]
    pub(in crate::file) fn end(&self) -> Pos {
        match &self.part {
            Some(Part::Range(locked)) => Pos::new(locked.guard().range().last().saturating_add(1)),
            // All from its start on, or all of the file.
            Some(Part::Eof(_)) | None => Pos::MAX,
        }
    }

    /// The operation has done with all bytes before `pos`: lets other threads have the whole blocks
    /// there, if those are [`MIN_RELEASE_BYTES`] or more. Where the file is locked to its end or as
    /// a whole, nothing is released.
    #[inline]
    pub(in crate::file) fn release_before(&mut self, pos: Pos, bs: BlockSize) {
        let at = floor(bs, pos.get());
        if let Some(guard) = self.guard_to_release(at) {
            guard.release_before(at);
        }
    }

    /// [`FileRangeGuard::release_before`] of the range and of the operation's fill lock, in one
    /// step. Where no range is locked that could be released, the fill lock alone is.
    pub(in crate::file) fn release_with_fills(
        &mut self,
        fills: &mut RangeGuard<'_>,
        pos: Pos,
        bs: BlockSize,
    ) {
        let at = floor(bs, pos.get());
        if !self.front_release_enabled {
            return;
        }
        if !matches!(self.part, Some(Part::Range(_))) {
            fills.release_before(at);
        } else if let Some(guard) = self.guard_to_release(at) {
            guard.release_both_before(fills, at);
        }
    }

    /// The guard whose bytes before `at` are worth a release.
    #[inline]
    fn guard_to_release(&mut self, at: u64) -> Option<&mut RangeGuard<'a>> {
        let Some(Part::Range(locked)) = self.part.as_mut().filter(|_| self.front_release_enabled)
        else {
            return None;
        };
        let guard = locked.guard_mut();
        let is_worth_it = at >= guard.range().start().saturating_add(MIN_RELEASE_BYTES);
        is_worth_it.then_some(guard)
    }
}

/// The bytes of all blocks that `[start, end)` touches; at least one block.
pub(crate) fn round_out_to_blocks(bs: BlockSize, start: u64, end: u64) -> ByteRange {
    debug_assert!(start <= end, "{start}..{end}");
    // No bytes touch the block that they stand in.
    let (first, last) = (floor(bs, start), end.saturating_sub(1).max(start));
    let range = ByteRange::new(first, last | (bs.bytes_u64() - 1));
    range.unwrap_or(ByteRange::to_infinity(first))
}

/// From the block of byte `start` to infinity.
fn from_block_to_infinity(bs: BlockSize, start: u64) -> ByteRange {
    ByteRange::to_infinity(floor(bs, start))
}

fn floor(bs: BlockSize, pos: u64) -> u64 {
    bs.round_down(Pos::new(pos)).get()
}

/// The inode's `lock` exclusively, after all that was still under way in parts of the file.
pub(crate) fn lock_whole_file<'a>(fs: &Fs, inode: &'a Inode) -> WholeFile<'a> {
    let guard = inode.try_lock_exclusively().unwrap_or_else(|| {
        fs.stats.lock_waits.bump();
        inode.lock_exclusively()
    });
    if !fs.tuning.failpoint.is(Failpoint::RangeChangeWithoutDrain) {
        wait_until_unlocked(inode, &guard);
    }
    WholeFile(guard)
}

/// Waits until no part of the file is locked. A new one needs the inode's `lock` shared, or
/// looks at it; `exclusive` holds it.
pub(in crate::file) fn wait_until_unlocked(inode: &Inode, exclusive: &impl HeldExclusively) {
    RangeLock::drain(
        || inode.file_state.get().map(|state| &state.ranges),
        exclusive,
    );
}

/// The inode's `lock` as writers of parts of a file take it: shared, unless the file's data takes
/// the buffer-head path. The path does not change while it is held.
fn lock_inode_for_path<'a>(fs: &Fs, inode: &'a Inode, state: &FileState) -> Result<Lock<'a>> {
    loop {
        let path = state.data_path.get().kind;
        let lock = match path {
            BufferedPath::Iomap => Lock::Shared(inode.try_lock_shared().unwrap_or_else(|| {
                fs.stats.lock_waits.bump();
                inode.lock_shared()
            })),
            BufferedPath::BufferHead => Lock::Exclusive(lock_whole_file(fs, inode)),
        };
        if inode.is_gone() {
            return Err(Error::Stale);
        }
        if state.data_path.get().kind == path {
            return Ok(lock);
        }
    }
}

/// A range of `file`, unless the file is held exclusively.
fn lock_range_or_eof<'a>(
    fs: &Fs,
    state: &'a FileState,
    lock: &Lock<'_>,
    range: ByteRange,
) -> Option<Part<'a>> {
    let Lock::Shared(shared) = lock else {
        return None;
    };
    let (ranges, waits) = (&state.ranges, || fs.stats.range_lock_waits.bump());
    debug_assert_eq!(
        range.start() % fs.layout.block_size.bytes_u64(),
        0,
        "whole blocks are locked (J36)"
    );
    let rank = extant_lock_order::taking(Rank::Range);
    if range.last() == u64::MAX {
        let from = range.start();
        let guard = ranges.try_lock_eof(from, shared).unwrap_or_else(|| {
            waits();
            ranges.lock_eof(from, shared)
        });
        return Some(Part::Eof(Locked::new(guard, rank)));
    }
    let guard = ranges.try_lock(range, shared).unwrap_or_else(|| {
        waits();
        ranges.lock(range, shared)
    });
    Some(Part::Range(Locked::new(guard, rank)))
}

/// The EOF lock for a write of `len` bytes `at` a position that extends the file, without the
/// inode's `lock`: for a short append, whose caller then changes one cached folio. `None` if any
/// other thread is met. Returns where the write goes, which is not behind the end of the file.
#[inline]
pub(in crate::file) fn try_lock_append<'a>(
    fs: &Fs,
    inode: &Inode,
    state: &'a FileState,
    at: WriteAt,
    len: u64,
) -> Option<(Locked<EofGuard<'a>>, u64)> {
    let position = |size: u64| at.position().unwrap_or(size);
    let size = inode.size();
    let pos = position(size);
    if pos > size || pos.saturating_add(len) <= size || state.extend_turn.is_locked() {
        return None;
    }
    let from = floor(fs.layout.block_size, pos);
    let rank = extant_lock_order::taking(Rank::Range);
    let guard = Locked::new(state.ranges.try_lock_eof(from, &inode.lock)?, rank);
    // The size does not change from here on.
    let size = inode.size();
    let pos = position(size);
    (from <= pos && pos <= size).then_some((guard, pos))
}

/// Keeps all other threads from changing `range`, which is of whole blocks; on the buffer-head
/// path, from changing the file.
///
/// # Errors
/// [`Error::Stale`] if the inode is gone.
pub(crate) fn lock_range<'a>(
    fs: &Fs,
    inode: &'a Arc<Inode>,
    range: ByteRange,
) -> Result<FileRangeGuard<'a>> {
    let state = file_state(fs, inode);
    let lock = lock_inode_for_path(fs, inode, state)?;
    Ok(FileRangeGuard {
        front_release_enabled: fs.tuning.release_fronts,
        part: lock_range_or_eof(fs, state, &lock, range),
        lock,
        _turn: None,
    })
}

/// Locks what a write of `len` bytes `at` a position changes; returns where it goes, and the size
/// of the file, which does not change but by this write if this write changes it. A write below the
/// end of the file locks whole blocks of the file up to the next multiple of `align`, too, if it
/// can.
///
/// # Errors
/// [`Error::Stale`] if the inode is gone.
pub(in crate::file) fn lock_for_write<'a>(
    fs: &Fs,
    inode: &'a Arc<Inode>,
    at: WriteAt,
    len: u64,
    align: u64,
) -> Result<(FileRangeGuard<'a>, u64, u64)> {
    let state = file_state(fs, inode);
    let position = |size: u64| at.position().unwrap_or(size);
    // A look without a lock: a size that changes meanwhile costs a wait, and no more.
    let size = inode.size();
    let extends = position(size).saturating_add(len) > size;
    let turn =
        extends.then(|| extant_lock_order::lock(Rank::ExtendTurn, || state.extend_turn.lock()));
    let lock = lock_inode_for_path(fs, inode, state)?;
    let bs = fs.layout.block_size;
    let (part, size) = lock_range_of_size(fs, inode, state, &lock, |size| {
        let (pos, end) = (position(size), position(size).saturating_add(len));
        if end > size {
            return Reach::exactly(from_block_to_infinity(bs, pos.min(size)));
        }
        let needed = round_out_to_blocks(bs, pos, end);
        // Not the block of the end, where appends are.
        let aligned = end.checked_next_multiple_of(align).unwrap_or(end);
        let to = aligned.min(floor(bs, size)).max(end);
        let wished = round_out_to_blocks(bs, pos, to);
        Reach { needed, wished }
    });
    let held = FileRangeGuard {
        front_release_enabled: fs.tuning.release_fronts,
        part,
        lock,
        _turn: turn,
    };
    Ok((held, position(size), size))
}

/// Locks what a change of the file's size to `size` changes; returns the size that the file has.
///
/// # Errors
/// [`Error::Stale`] if the inode is gone.
pub(in crate::file) fn lock_for_size<'a>(
    fs: &Fs,
    inode: &'a Arc<Inode>,
    size: u64,
) -> Result<(SizeGuard<'a>, u64)> {
    let state = file_state(fs, inode);
    let lock = lock_inode_for_path(fs, inode, state)?;
    let (part, old) = lock_range_of_size(fs, inode, state, &lock, |old| {
        Reach::exactly(from_block_to_infinity(fs.layout.block_size, old.min(size)))
    });
    let held = FileRangeGuard {
        front_release_enabled: fs.tuning.release_fronts,
        part,
        lock,
        _turn: None,
    };
    Ok((SizeGuard(held), old))
}

/// A range to lock.
#[derive(Clone, Copy)]
struct Reach {
    /// The least to lock.
    needed: ByteRange,
    /// The range to ask for, `needed` or more.
    wished: ByteRange,
}

impl Reach {
    fn exactly(range: ByteRange) -> Self {
        Self {
            needed: range,
            wished: range,
        }
    }
}

/// Locks the range that `wanted` makes of the file's size. If the size has changed by the time the
/// range is locked, so that it is not enough, tries again. Returns the size.
fn lock_range_of_size<'a>(
    fs: &Fs,
    inode: &Inode,
    state: &'a FileState,
    lock: &Lock<'_>,
    wanted: impl Fn(u64) -> Reach,
) -> (Option<Part<'a>>, u64) {
    let mut guesses = 0;
    loop {
        guesses += 1;
        let range = if guesses < GUESSES {
            wanted(inode.size()).wished
        } else {
            ByteRange::ALL
        };
        let part = lock_range_or_eof(fs, state, lock, range);
        let size = inode.size();
        if part.is_none() || range.covers(wanted(size).needed) {
            return (part, size);
        }
    }
}

/// Returns whether another thread has locked one of the `len` bytes at `pos`, or the whole file. To
/// be asked with the locks of their folios held; see [`RangeLock::is_locked`].
#[inline]
pub(in crate::file) fn is_locked(inode: &Inode, state: &FileState, pos: Pos, len: usize) -> bool {
    let range = ByteRange::from_len(pos.get(), len as u64);
    range.is_none_or(|range| state.ranges.is_locked(range, &inode.lock))
}
