//! Direct I/O: between the caller's bytes and the device, past the page cache.
//!
//! `write` and `read` are one call each; `queue` keeps many of them in flight. All take what they
//! need of the cache with them: dirty blocks of the range are written first, and a write leaves
//! none of the range cached, so that buffered and direct I/O see one file. A write takes the steps
//! of writeback in their order: a place, unwritten; the data; the conversion, and with it the sizes
//! (J18, J20). A crash in between shows zeros or the old size, never what the blocks held before.
//!
//! Bytes need no alignment. Where a range cuts a block, the block is locked, read and written as a
//! whole; parts of it that were never written are zeros. What cannot be done directly goes through
//! the cache and is written from there before the call returns: data that goes through the journal,
//! files without extents that have to grow, and ranges that the cache does not let go of.
//!
//! # Invariants
//! * From before a direct write hands its first byte to the device until its range is unlocked, no
//!   block of the range is cached or being filled: a reader finds the old bytes before, or
//!   the new ones afterwards.
//! * Nothing is converted and no size moves unless the data has arrived. (J19)
//!
//! # Locks
//! The range (`LOCKED`), as every write has it, for reads as well: no thread truncates or writes it
//! meanwhile. A write locks its blocks against fills, too (`DIO_LOCKED`), which take that bit alone
//! for what they read: so fills meet direct writes and nothing else, and a writer may fill within
//! its own range. Short requests of a queue take a lock slot instead (`straight`), which is both.
//! The invalidate lock is taken once in the life of a file, by [`Direct::announce`].

mod clear_cache;
pub(crate) mod direct_queue;
mod direct_read;
mod direct_write;
mod fast_path;
mod known_runs;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_iomap::FillGuard;
use extant_lock_order::{Rank, taking};
use extant_pagecache::AddressSpace;
use extant_range_lock::ByteRange;
use extant_units::Pos;

pub(crate) use self::direct_read::read;
pub(super) use self::direct_write::{write, write_back_cached};
use crate::file::mapping::iomap_ops::FileOps;

/// Keeps direct writes away from what the cache is about to read from the device: all of `wanted`
/// if no thread writes there directly, otherwise what is `needed` of it, which is waited for.
pub(super) fn lock_fill<'a>(
    ops: &'a FileOps<'_>,
    wanted: Range<Pos>,
    needed: Option<Range<Pos>>,
) -> Option<FillGuard<'a>> {
    let ranges = &ops.data.ranges;
    let bytes = |range: &Range<Pos>| {
        let last = range.end.get().saturating_sub(1);
        ByteRange::new(range.start.get(), last).unwrap_or(ByteRange::ALL)
    };
    let held = taking(Rank::Fill);
    if let Some(guard) = ranges.try_lock_fill(bytes(&wanted)) {
        return Some(FillGuard::new(wanted, (guard, held)));
    }
    let needed = needed?;
    ops.fs.stats.direct_fill_waits.bump();
    let guard = ranges.lock_fill(bytes(&needed));
    Some(FillGuard::new(needed, (guard, held)))
}

/// What a file remembers of direct I/O.
#[derive(Default)]
pub(super) struct Direct {
    /// Fills hold what they read.
    used: AtomicBool,
    /// All of them do: those that began before have ended.
    fills_know: AtomicBool,
}

impl Direct {
    /// Whether fills need a hold of what they read.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.used.load(Ordering::SeqCst)
    }

    /// Before the first direct I/O: from here on fills stay out of ranges that are locked. Takes
    /// the invalidate lock for a moment, if that is new.
    fn announce(&self, mapping: &AddressSpace) {
        if self.fills_know.load(Ordering::Acquire) {
            return;
        }
        self.used.store(true, Ordering::SeqCst);
        drop(mapping.invalidate_lock().write());
        self.fills_know.store(true, Ordering::Release);
    }
}
