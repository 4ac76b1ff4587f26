//! The locks that a thread takes before it reads a file's blocks from the device into the cache.
//!
//! A direct write to a block that is being read could tear the read, or let it cache what the block
//! held before: an old block after its newer one was read. So once a file may be written directly
//! at all ([`IomapOps::fills_need_lock`]), every fill locks its range against direct writes.
//!
//! # Locks
//! A [`FillGuard`] comes before the invalidate lock and all folio locks. What a writer reads for
//! itself, at the edges of its range, its own range lock protects; that does not come here.
//!
//! # Concurrency
//! No fill overlaps the first direct write without a guard:
//!
//! 1. The direct writer sets the flag, then takes the invalidate lock exclusively for a moment.
//! 2. A fill takes the invalidate lock shared, then looks at the flag again.
//! 3. If the fill has its lock before the writer, the writer waits for it. Otherwise the fill sees
//!    the flag, and starts over with a guard.
//!
//! The model `fills_beside_direct_writes` tries it. Its two broken twins show that the direct
//! writer needs both the wait of step 1 and its own lock against fills.

use std::ops::Range;

use extant_pagecache::{AddressSpace, InvalidateShared};
use extant_units::{PAGE_SHIFT, Pos};

use crate::fill_guard::FillGuard;
use crate::ops::IomapOps;

/// The right to read a range of the file from the device: its blocks do not move, and no
/// thread writes them directly.
pub(crate) struct FillLock<'a> {
    /// The range that may be read, whole blocks.
    pub(crate) range: Range<Pos>,
    // Dropped in this order.
    pub(crate) invalidate: InvalidateShared<'a>,
    _fill_guard: Option<FillGuard<'a>>,
}

/// Takes the invalidate lock shared, and before it a guard where one is needed. `None` only without
/// `needed`, if a direct write to the range is under way.
pub(crate) fn lock_for_fill<'a, O: IomapOps + ?Sized>(
    ops: &'a O,
    wanted: Range<Pos>,
    needed: Option<Pos>,
) -> Option<FillLock<'a>> {
    let pages: &'a AddressSpace = ops.address_space();
    let bs = pages.block_size();
    loop {
        let fill_guard = if ops.fills_need_lock() {
            // Whole pages at least: a read copies what is uptodate in one step.
            let unit = bs.bytes_u64().max(1 << PAGE_SHIFT) - 1;
            let down = |pos: Pos| Pos::new(pos.get() & !unit);
            // A range to the last byte there can be stays one.
            let up = |pos: Pos| Pos::new(pos.get().saturating_add(unit) & !unit);
            let wanted = down(wanted.start)..up(wanted.end);
            let needed = needed.map(|pos| down(pos)..up(pos.plus(1)));
            Some(ops.lock_fill(wanted, needed)?)
        } else {
            None
        };
        let invalidate = pages.invalidate_lock().read();
        if fill_guard.is_some() || !ops.fills_need_lock() {
            let all = Pos::ZERO..Pos::MAX;
            let range = fill_guard
                .as_ref()
                .map_or(all, |guard| guard.range().clone());
            if let Some(needed) = needed {
                debug_assert!(
                    range.contains(&needed),
                    "{needed:?} was asked for: {range:?}"
                );
            }
            return Some(FillLock {
                range,
                invalidate,
                _fill_guard: fill_guard,
            });
        }
    }
}
